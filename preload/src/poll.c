/* poll for descriptors of which some are RDS sockets. */
#include <stdlib.h>

#include "../../librds/src/pollfd.h"
#include "pre.h"

#define READS (POLLIN | POLLRDNORM)
#define WRITES (POLLOUT | POLLWRNORM)

enum { FEW = 16 }; /* sockets of one poll that need no memory */

size_t pre_conditions(struct pre_sock *s, rds_socket *rs, int events, struct rds_until *until, size_t max)
{
	static const uint32_t reads[] = {RDS_UNTIL_MESSAGE, RDS_UNTIL_COMPLETION, RDS_UNTIL_ZERO_COPY, RDS_UNTIL_CONGESTION};
	size_t n = 0;
	if (events & WRITES)
		until[n++] = (struct rds_until){.socket = rs, .kind = RDS_UNTIL_SEND_SPACE};
	if (!(events & (READS | POLLWRBAND)))
		return n;
	for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
		until[n++] = (struct rds_until){.socket = rs, .kind = reads[i]};
	if (!atomic_load(&s->ncongested) && !atomic_load(&s->narmed))
		return n;
	pthread_mutex_lock(&s->mu);
	for (size_t i = 0; i < atomic_load(&s->ncongested) && n < max; i++)
		until[n++] = (struct rds_until){.socket = rs, .kind = RDS_UNTIL_RELIEF, .addr = s->congested[i]};
	for (size_t i = 0; i < atomic_load(&s->narmed) && n < max; i++)
		until[n++] = (struct rds_until){.socket = rs, .kind = RDS_UNTIL_OP, .addr = s->armed[i].to, .id = s->armed[i].id};
	pthread_mutex_unlock(&s->mu);
	return n;
}

/* room is how many conditions s can have. */
static size_t room(struct pre_sock *s) { return PRE_CONDITIONS + atomic_load(&s->ncongested) + atomic_load(&s->narmed); }

void pre_met_congestion(struct pre_sock *s, const struct rds_addr *to)
{
	bool met = false;
	if (atomic_load(&s->monitor)) /* librds reports it */
		return;
	pthread_mutex_lock(&s->mu);
	if (!s->congested)
		s->congested = malloc(PRE_CONGESTED * sizeof *s->congested);
	size_t n = atomic_load(&s->ncongested), i = 0;
	while (s->congested && i < n && (!pre_same_host(&s->congested[i], to) || s->congested[i].port != to->port))
		i++;
	if (s->congested && i == n && n < PRE_CONGESTED) {
		s->congested[n] = *to;
		atomic_store(&s->ncongested, n + 1);
		met = true;
	}
	pthread_mutex_unlock(&s->mu);
	if (met)
		pre_rewatch(s);
}

bool pre_relieved(struct pre_sock *s, rds_socket *rs)
{
	bool any = false;
	pthread_mutex_lock(&s->mu);
	size_t n = atomic_load(&s->ncongested);
	for (size_t i = 0; i < n;) {
		struct rds_until u = {.socket = rs, .kind = RDS_UNTIL_RELIEF, .addr = s->congested[i]};
		if (rds_wait(&u, 1, 0) <= 0) {
			i++;
			continue;
		}
		s->congested[i] = s->congested[--n];
		any = true;
	}
	atomic_store(&s->ncongested, n);
	pthread_mutex_unlock(&s->mu);
	if (any)
		pre_rewatch(s);
	return any;
}

int pre_events(struct pre_sock *s, int events)
{
	rds_socket *rs;
	int got = 0;
	if (pre_live(s, &rs))
		return POLLERR;
	if (!rs)
		return events & WRITES;
	struct rds_until u[PRE_CONDITIONS + PRE_ARMED];
	size_t n = pre_conditions(s, rs, events, u, sizeof u / sizeof *u);
	int err = n ? rds_wait(u, n, 0) : 0;
	for (size_t i = 0; err > 0 && i < n; i++)
		if (u[i].ready && u[i].kind != RDS_UNTIL_RELIEF)
			got |= u[i].kind == RDS_UNTIL_SEND_SPACE ? WRITES : READS;
	if (atomic_load(&s->has_status) || atomic_load(&s->cong))
		got |= READS;
	if (events & (READS | POLLWRBAND) && atomic_load(&s->ncongested) && pre_relieved(s, rs))
		got |= READS | POLLWRBAND;
	got &= events;
	return err < 0 && err != -EINTR ? got | POLLERR : got;
}

bool pre_has_rds(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].fd >= 0 && pre_is(fds[i].fd))
			return true;
	return false;
}

/* look sets revents of the RDS sockets, and returns how many have any. */
static int look(struct pollfd *fds, struct pre_sock **socks, nfds_t n)
{
	int ready = 0;
	for (nfds_t i = 0; i < n; i++) {
		if (!socks[i])
			continue;
		fds[i].revents = (short)pre_events(socks[i], fds[i].events);
		ready += fds[i].revents != 0;
	}
	return ready;
}

/* direct waits for RDS sockets alone, without a descriptor. It returns -EAGAIN if that cannot be:
 * they are of several sessions, or not bound. */
static int direct(struct pollfd *fds, struct pre_sock **socks, nfds_t n, int ms)
{
	struct rds_until few[FEW * PRE_CONDITIONS], *u = few;
	size_t max = 0, k = 0;
	for (nfds_t i = 0; i < n; i++)
		max += socks[i] ? room(socks[i]) : 0;
	if (max > sizeof few / sizeof *few && !(u = malloc(max * sizeof *u)))
		return -EAGAIN;
	int err = 0;
	for (nfds_t i = 0; i < n && !err; i++) {
		rds_socket *rs;
		if (!socks[i])
			continue;
		if (pre_live(socks[i], &rs) || !rs || max - k < PRE_CONDITIONS || (k && rs->c != u[0].socket->c))
			err = -EAGAIN;
		else
			k += pre_conditions(socks[i], rs, fds[i].events, u + k, max - k < room(socks[i]) ? max - k : room(socks[i]));
	}
	if (!err)
		err = k ? rds_wait(u, k, ms) : -EAGAIN;
	if (u != few)
		free(u);
	return err;
}

/* left is the time until a deadline in ms, rounded up; -1 for none. */
static int left(int64_t deadline)
{
	if (deadline == RDSI_NEVER)
		return -1;
	int64_t ns = deadline - rdsi_now();
	if (ns <= 0)
		return 0;
	ns = (ns + RDSI_MS - 1) / RDSI_MS;
	return ns > INT32_MAX ? INT32_MAX : (int)ns;
}

/* mixed polls everything with the kernel's poll: the descriptors of RDS sockets show their state.
 * wait says whether it may wait. It returns what poll returns. */
static int mixed(struct pollfd *fds, struct pre_sock **socks, nfds_t n, int64_t deadline, const sigset_t *mask, bool wait)
{
	struct timespec ts = {0, 0}, *limit = &ts;
	for (nfds_t i = 0; i < n && wait; i++) {
		int err = socks[i] ? pre_watch(socks[i]) : 0;
		if (err)
			return err;
	}
	if (wait)
		limit = rdsi_left(deadline, &ts);
	int got = real_ppoll(fds, n, limit, mask);
	return got < 0 ? -errno : got;
}

/* others reports whether there are descriptors that are no RDS sockets. */
static bool others(const struct pollfd *fds, struct pre_sock **socks, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (!socks[i] && fds[i].fd >= 0)
			return true;
	return false;
}

/* count returns how many of fds have revents. */
static int count(const struct pollfd *fds, nfds_t n)
{
	int ready = 0;
	for (nfds_t i = 0; i < n; i++)
		ready += fds[i].revents != 0;
	return ready;
}

static int poll_socks(struct pollfd *fds, struct pre_sock **socks, nfds_t n, int64_t deadline, const sigset_t *mask)
{
	bool mix = others(fds, socks, n) || mask;
	for (nfds_t i = 0; i < n; i++)
		fds[i].revents = 0;
	for (;;) {
		int ready = look(fds, socks, n), err = 0;
		bool over = deadline != RDSI_NEVER && rdsi_now() >= deadline;
		if (!mix && (ready || over))
			return ready;
		if (!mix) {
			err = direct(fds, socks, n, left(deadline));
			if (err >= 0)
				continue;
			if (err != -EAGAIN && err != -EINTR)
				continue; /* the session has ended, which look reports */
		}
		if (mix || err == -EAGAIN)
			err = mixed(fds, socks, n, deadline, mask, !ready && !over);
		if (err < 0)
			return err;
		look(fds, socks, n);
		ready = count(fds, n);
		if (ready || over)
			return ready;
	}
}

int pre_ppoll_some(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	struct pre_sock *few[FEW], **socks = few;
	int64_t deadline = RDSI_NEVER;
	if (timeout) {
		if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)
			return -EINVAL;
		deadline = timeout->tv_sec || timeout->tv_nsec ? rdsi_now() : 0;
		if (timeout->tv_sec < INT32_MAX)
			deadline += (int64_t)timeout->tv_sec * 1000000000 + timeout->tv_nsec;
		else
			deadline = RDSI_NEVER;
	}
	if (n > FEW && !(socks = malloc(n * sizeof *socks)))
		return -ENOMEM;
	for (nfds_t i = 0; i < n; i++)
		socks[i] = fds[i].fd >= 0 ? pre_get(fds[i].fd) : NULL;
	int got = poll_socks(fds, socks, n, deadline, mask);
	for (nfds_t i = 0; i < n; i++)
		if (socks[i])
			pre_put(socks[i]);
	if (socks != few)
		free(socks);
	return got;
}
