/* Hooks of messages and of reads and writes. */
#include <limits.h>
#include <unistd.h>

#include "hook.h"

static ssize_t send_message(struct pre_sock *s, const struct msghdr *from, int flags)
{
	struct pre_msg m;
	ssize_t n = pre_msg_load(&m, from, true);
	if (!n)
		n = pre_sendmsg(s, &m.h, flags);
	pre_msg_end(&m);
	return n;
}

HOOK ssize_t sendmsg(int fd, const struct msghdr *h, int flags)
{
	struct pre_sock *s = hooked(fd);
	return s ? done(s, send_message(s, h, flags)) : real_sendmsg(fd, h, flags);
}

/* send_one sends one piece of memory. */
static ssize_t send_one(struct pre_sock *s, const void *b, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	struct sockaddr_storage name;
	struct iovec v = {(void *)(uintptr_t)b, n};
	struct msghdr h = {.msg_name = to ? &name : NULL, .msg_namelen = to ? len : 0, .msg_iov = &v, .msg_iovlen = 1};
	int err = to ? pre_name_load(&name, to, len) : 0;
	return done(s, err ? err : pre_sendmsg(s, &h, flags));
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
	struct pre_msg m;
	ssize_t got = pre_msg_vector(&m, v, n);
	if (!got)
		got = send ? pre_sendmsg(s, &m.h, 0) : pre_recvmsg(s, &m.h, 0);
	pre_msg_end(&m);
	return done(s, got);
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

/* counted stores the length of message i of several: 0, or the error of the call if it is the first. */
static int counted(struct mmsghdr *h, unsigned i, ssize_t got)
{
	unsigned n = (unsigned)got;
	return got < 0 ? (int)got : pre_store((uintptr_t)&h[i].msg_len, &n, sizeof n);
}

HOOK int sendmmsg(int fd, struct mmsghdr *h, unsigned n, int flags)
{
	struct pre_sock *s = hooked(fd);
	unsigned i = 0;
	int err = 0;
	if (!s)
		return real_sendmmsg(fd, h, n, flags);
	for (n = n < IOV_MAX ? n : IOV_MAX; i < n && !(err = counted(h, i, send_message(s, &h[i].msg_hdr, flags))); i++)
		;
	return (int)done(s, i ? (int)i : err);
}

/* receive_message receives as h says. As in net/rds a message stays where it is if its payload finds
 * no memory, and is gone if what describes it does not. */
static ssize_t receive_message(struct pre_sock *s, struct msghdr *h, int flags)
{
	struct pre_msg m;
	ssize_t n = pre_msg_load(&m, h, false);
	if (!n)
		n = pre_recvmsg(s, &m.h, flags);
	int err = n >= 0 ? pre_msg_store(&m, h) : 0;
	pre_msg_end(&m);
	return err ? err : n;
}

HOOK ssize_t recvmsg(int fd, struct msghdr *h, int flags)
{
	struct pre_sock *s = hooked(fd);
	if (s)
		return done(s, receive_message(s, h, flags));
	ssize_t got = real_recvmsg(fd, h, flags);
	if (got >= 0 && h->msg_controllen)
		pre_adopt_received(h);
	return got;
}

/* receive_one receives into one piece of memory. */
static ssize_t receive_one(struct pre_sock *s, void *b, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
	struct sockaddr_storage name;
	struct iovec v = {b, n};
	struct msghdr h = {.msg_name = from ? &name : NULL, .msg_namelen = from ? sizeof name : 0, .msg_iov = &v, .msg_iovlen = 1};
	ssize_t got = pre_recvmsg(s, &h, flags);
	int err = got >= 0 && from ? pre_name_store(&name, h.msg_namelen, from, len) : 0;
	return done(s, err ? err : got);
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
	int err = 0;
	if (!s) {
		int messages = real_recvmmsg(fd, h, n, flags, timeout);
		for (int j = 0; j < messages; j++)
			if (h[j].msg_hdr.msg_controllen)
				pre_adopt_received(&h[j].msg_hdr);
		return messages;
	}
	if (timeout) {
		if ((err = pre_load(&end, (uintptr_t)timeout, sizeof end)))
			return (int)done(s, err);
		clock_gettime(CLOCK_MONOTONIC, &now);
		end = (struct timespec){now.tv_sec + end.tv_sec, now.tv_nsec + end.tv_nsec};
	}
	while (i < n && !(err = counted(h, i, receive_message(s, &h[i].msg_hdr, flags & ~MSG_WAITFORONE)))) {
		i++;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (!timeout)
			continue;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((end.tv_sec - now.tv_sec) * 1000000000 + end.tv_nsec - now.tv_nsec <= 0)
			break;
	}
	return (int)done(s, i ? (int)i : err);
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
