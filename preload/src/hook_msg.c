/* Hooks of messages and of reads and writes. */
#include <limits.h>
#include <unistd.h>

#include "hook.h"

HOOK ssize_t sendmsg(int fd, const struct msghdr *h, int flags)
{
	struct pre_sock *s = hooked(fd);
	return s ? done(s, pre_sendmsg(s, h, flags)) : real_sendmsg(fd, h, flags);
}

/* send_one sends one piece of memory. */
static ssize_t send_one(struct pre_sock *s, const void *b, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	struct iovec v = {(void *)(uintptr_t)b, n};
	struct msghdr h = {.msg_name = (void *)(uintptr_t)to, .msg_namelen = to ? len : 0, .msg_iov = &v, .msg_iovlen = 1};
	return done(s, pre_sendmsg(s, &h, flags));
}

HOOK ssize_t sendto(int fd, const void *b, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	struct pre_sock *s = hooked(fd);
	return s ? send_one(s, b, n, flags, to, len) : real_sendto(fd, b, n, flags, to, len);
}

HOOK ssize_t send(int fd, const void *b, size_t n, int flags)
{
	struct pre_sock *s = hooked(fd);
	return s ? send_one(s, b, n, flags, NULL, 0) : real_send(fd, b, n, flags);
}

HOOK ssize_t write(int fd, const void *b, size_t n)
{
	struct pre_sock *s = hooked(fd);
	return s ? send_one(s, b, n, 0, NULL, 0) : real_write(fd, b, n);
}

/* vector is readv or writev. */
static ssize_t vector(struct pre_sock *s, const struct iovec *v, int n, bool send)
{
	struct msghdr h = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n};
	if (n < 0 || n > IOV_MAX)
		return done(s, -EINVAL);
	return done(s, send ? pre_sendmsg(s, &h, 0) : pre_recvmsg(s, &h, 0));
}

HOOK ssize_t writev(int fd, const struct iovec *v, int n)
{
	struct pre_sock *s = hooked(fd);
	return s ? vector(s, v, n, true) : real_writev(fd, v, n);
}

HOOK ssize_t readv(int fd, const struct iovec *v, int n)
{
	struct pre_sock *s = hooked(fd);
	return s ? vector(s, v, n, false) : real_readv(fd, v, n);
}

HOOK int sendmmsg(int fd, struct mmsghdr *h, unsigned n, int flags)
{
	struct pre_sock *s = hooked(fd);
	unsigned i = 0;
	ssize_t got = 0;
	if (!s)
		return real_sendmmsg(fd, h, n, flags);
	for (n = n < IOV_MAX ? n : IOV_MAX; i < n && (got = pre_sendmsg(s, &h[i].msg_hdr, flags)) >= 0; i++)
		h[i].msg_len = (unsigned)got;
	return (int)done(s, i || got >= 0 ? (ssize_t)i : got);
}

HOOK ssize_t recvmsg(int fd, struct msghdr *h, int flags)
{
	struct pre_sock *s = hooked(fd);
	if (s)
		return done(s, pre_recvmsg(s, h, flags));
	ssize_t got = real_recvmsg(fd, h, flags);
	if (got >= 0 && h->msg_controllen)
		pre_adopt_received(h);
	return got;
}

/* receive_one receives into one piece of memory. */
static ssize_t receive_one(struct pre_sock *s, void *b, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
	struct iovec v = {b, n};
	struct msghdr h = {.msg_name = from, .msg_namelen = from && len ? *len : 0, .msg_iov = &v, .msg_iovlen = 1};
	if (from && len && (int)*len < 0)
		return done(s, -EINVAL);
	ssize_t got = pre_recvmsg(s, &h, flags);
	if (got >= 0 && from && len)
		*len = h.msg_namelen;
	return done(s, got);
}

HOOK ssize_t recvfrom(int fd, void *b, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
	struct pre_sock *s = hooked(fd);
	return s ? receive_one(s, b, n, flags, from, len) : real_recvfrom(fd, b, n, flags, from, len);
}

HOOK ssize_t recv(int fd, void *b, size_t n, int flags)
{
	struct pre_sock *s = hooked(fd);
	return s ? receive_one(s, b, n, flags, NULL, NULL) : real_recv(fd, b, n, flags);
}

HOOK ssize_t read(int fd, void *b, size_t n)
{
	struct pre_sock *s = hooked(fd);
	return s ? receive_one(s, b, n, 0, NULL, NULL) : real_read(fd, b, n);
}

/* What programs call that were built with _FORTIFY_SOURCE. */
HOOK ssize_t __read_chk(int fd, void *b, size_t n, size_t size)
{
	if (n > size)
		abort();
	return read(fd, b, n);
}

HOOK ssize_t __recv_chk(int fd, void *b, size_t n, size_t size, int flags)
{
	if (n > size)
		abort();
	return recv(fd, b, n, flags);
}

HOOK ssize_t __recvfrom_chk(int fd, void *b, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len)
{
	if (n > size)
		abort();
	return recvfrom(fd, b, n, flags, from, len);
}

/* The limit of time is looked at after each message, as in the kernel. */
HOOK int recvmmsg(int fd, struct mmsghdr *h, unsigned n, int flags, struct timespec *timeout)
{
	struct pre_sock *s = hooked(fd);
	struct timespec now, end = {0, 0};
	unsigned i = 0;
	ssize_t got = 0;
	if (!s) {
		int messages = real_recvmmsg(fd, h, n, flags, timeout);
		for (int j = 0; j < messages; j++)
			if (h[j].msg_hdr.msg_controllen)
				pre_adopt_received(&h[j].msg_hdr);
		return messages;
	}
	if (timeout) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		end = (struct timespec){now.tv_sec + timeout->tv_sec, now.tv_nsec + timeout->tv_nsec};
	}
	while (i < n && (got = pre_recvmsg(s, &h[i].msg_hdr, flags & ~MSG_WAITFORONE)) >= 0) {
		h[i++].msg_len = (unsigned)got;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (!timeout)
			continue;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((end.tv_sec - now.tv_sec) * 1000000000 + end.tv_nsec - now.tv_nsec <= 0)
			break;
	}
	return (int)done(s, i || got >= 0 ? (ssize_t)i : got);
}

/* A file does not go out in messages. */
HOOK ssize_t sendfile(int out, int in, off_t *off, size_t n)
{
	pre_start();
	return pre_is(out) || pre_is(in) ? result(-EINVAL) : real_sendfile(out, in, off, n);
}

HOOK ssize_t sendfile64(int out, int in, off_t *off, size_t n) { return sendfile(out, in, off, n); }

HOOK ssize_t splice(int in, off_t *in_off, int out, off_t *out_off, size_t n, unsigned flags)
{
	pre_start();
	return pre_is(in) || pre_is(out) ? result(-EINVAL) : real_splice(in, in_off, out, out_off, n, flags);
}
