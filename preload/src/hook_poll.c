/* Hooks of poll, select and epoll. */
#include "hook.h"

HOOK int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	pre_start();
	if (!fds || !pre_has_rds(fds, n))
		return real_ppoll(fds, n, timeout, mask);
	return (int)result(pre_ppoll_some(fds, n, timeout, mask));
}

HOOK int poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};
	pre_start();
	if (!fds || !pre_has_rds(fds, n))
		return real_poll(fds, n, ms);
	return (int)result(pre_ppoll_some(fds, n, ms < 0 ? NULL : &ts, NULL));
}

HOOK int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size)
{
	if (size / sizeof *fds < n)
		abort();
	return poll(fds, n, ms);
}

HOOK int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size)
{
	if (size / sizeof *fds < n)
		abort();
	return ppoll(fds, n, timeout, mask);
}

/* Sets of select may be longer than fd_set, if the program has made them so. */
static bool in(const fd_set *set, int fd)
{
	const unsigned long *w = (const unsigned long *)set;
	return w && w[fd / (8 * (int)sizeof *w)] >> (fd % (8 * (int)sizeof *w)) & 1;
}

static void clear(fd_set *set, int fd)
{
	unsigned long *w = (unsigned long *)set;
	if (w)
		w[fd / (8 * (int)sizeof *w)] &= ~(1UL << (fd % (8 * (int)sizeof *w)));
}

/* The events that select reports as readable, writable and exceptional. */
#define SELECT_IN (POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR)
#define SELECT_OUT (POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR)

/* collect makes fds of the sets. */
static nfds_t collect(struct pollfd *fds, int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
	nfds_t k = 0;
	for (int fd = 0; fd < n; fd++) {
		int events = (in(r, fd) ? POLLIN : 0) | (in(w, fd) ? POLLOUT : 0) | (in(x, fd) ? POLLPRI : 0);
		if (events)
			fds[k++] = (struct pollfd){.fd = fd, .events = (short)events};
	}
	return k;
}

/* spread sets the sets from what poll found, and returns how many bits are set. */
static int spread(const struct pollfd *fds, nfds_t k, fd_set *r, fd_set *w, fd_set *x)
{
	int bits = 0;
	for (nfds_t i = 0; i < k; i++) {
		int fd = fds[i].fd, got = fds[i].revents;
		struct { fd_set *set; int events; } sets[] = {{r, SELECT_IN}, {w, SELECT_OUT}, {x, POLLPRI}};
		for (int j = 0; j < 3; j++) {
			if (!in(sets[j].set, fd))
				continue;
			if (got & sets[j].events)
				bits++;
			else
				clear(sets[j].set, fd);
		}
	}
	return bits;
}

static int some(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout, const sigset_t *mask)
{
	struct pollfd *fds = malloc((size_t)n * sizeof *fds + 1);
	if (!fds)
		return -ENOMEM;
	nfds_t k = collect(fds, n, r, w, x);
	int got = pre_ppoll_some(fds, k, timeout, mask);
	for (nfds_t i = 0; got > 0 && i < k; i++)
		if (fds[i].revents & POLLNVAL)
			got = -EBADF;
	if (got >= 0)
		got = spread(fds, k, r, w, x);
	free(fds);
	return got;
}

/* concerned reports whether a set has an RDS socket. */
static bool concerned(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
	for (int fd = 0; fd < n; fd++)
		if ((in(r, fd) || in(w, fd) || in(x, fd)) && pre_is(fd))
			return true;
	return false;
}

HOOK int pselect(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout, const sigset_t *mask)
{
	pre_start();
	if (!concerned(n, r, w, x))
		return real_pselect(n, r, w, x, timeout, mask);
	return (int)result(some(n, r, w, x, timeout, mask));
}

/* Linux stores the time that is left. */
HOOK int select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *timeout)
{
	struct timespec ts, before, after;
	pre_start();
	if (!concerned(n, r, w, x))
		return real_select(n, r, w, x, timeout);
	if (!timeout)
		return (int)result(some(n, r, w, x, NULL, NULL));
	if (timeout->tv_sec < 0 || timeout->tv_usec < 0)
		return (int)result(-EINVAL);
	ts = (struct timespec){timeout->tv_sec + timeout->tv_usec / 1000000, timeout->tv_usec % 1000000 * 1000};
	clock_gettime(CLOCK_MONOTONIC, &before);
	int got = some(n, r, w, x, &ts, NULL);
	clock_gettime(CLOCK_MONOTONIC, &after);
	int64_t left = ((int64_t)ts.tv_sec - after.tv_sec + before.tv_sec) * 1000000000 + ts.tv_nsec - after.tv_nsec + before.tv_nsec;
	left = left > 0 ? left : 0;
	*timeout = (struct timeval){left / 1000000000, left % 1000000000 / 1000};
	return (int)result(got);
}

HOOK int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct pre_sock *s = hooked(fd);
	if (!s)
		return real_epoll_ctl(epfd, op, fd, event);
	int err = op == EPOLL_CTL_DEL ? 0 : pre_watch(s);
	pre_put(s);
	return err ? (int)result(err) : real_epoll_ctl(epfd, op, fd, event);
}
