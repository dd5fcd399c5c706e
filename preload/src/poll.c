/* poll for descriptors of which some are RDS sockets. */
#include <stdlib.h>

#include "../../librds/src/cancel.h"
#include "../../librds/src/pollfd.h"
#include "pre.h"

#define READS (POLLIN | POLLRDNORM)
#define WRITES (POLLOUT | POLLWRNORM)

enum { FEW = 16 }; /* sockets of one poll that need no memory */
enum { LOOK_EVERY = 10 * RDSI_MS }; /* where the descriptor cannot show what is waited for */
enum { KINDS = 6 }; /* conditions of a socket, without those of barriers and congested destinations */

/* makes returns the events that a condition makes true. */
static int makes(uint32_t kind)
{
	switch (kind) {
	case RDS_UNTIL_SEND_SPACE:
		return WRITES;
	case RDS_UNTIL_RELIEF:
		return READS | POLLWRBAND;
	case RDS_UNTIL_NOTICE:
		return POLLERR;
	default:
		return READS;
	}
}

size_t pre_room(struct pre_sock *s) { return KINDS + atomic_load(&s->narmed) + atomic_load(&s->ncongested); }

size_t pre_conditions(struct pre_sock *s, rds_socket *rs, int events, struct rds_until *until, size_t max)
{
	static const uint32_t kinds[KINDS] = {RDS_UNTIL_SEND_SPACE, RDS_UNTIL_MESSAGE, RDS_UNTIL_COMPLETION, RDS_UNTIL_ZERO_COPY, RDS_UNTIL_CONGESTION, RDS_UNTIL_NOTICE};
	size_t n = 0;
	events = (events & ~POLLERR) | (s->errors ? POLLERR : 0); /* nobody has to ask for it */
	for (size_t i = 0; i < KINDS && n < max; i++)
		if (events & makes(kinds[i]))
			until[n++] = (struct rds_until){.socket = rs, .kind = kinds[i]};
	if (!atomic_load(&s->ncongested) && !atomic_load(&s->narmed))
		return n;
	pthread_mutex_lock(&s->mu);
	for (size_t i = 0; events & makes(RDS_UNTIL_OP) && i < atomic_load(&s->narmed) && n < max; i++)
		until[n++] = (struct rds_until){.socket = rs, .kind = RDS_UNTIL_OP, .addr = s->armed[i].to, .id = s->armed[i].id};
	for (size_t i = 0; events & makes(RDS_UNTIL_RELIEF) && i < atomic_load(&s->ncongested) && n < max; i++)
		until[n++] = (struct rds_until){.socket = rs, .kind = RDS_UNTIL_RELIEF, .addr = s->congested[i]};
	pthread_mutex_unlock(&s->mu);
	return n;
}

static bool same(const struct rds_addr *a, const struct rds_addr *b) { return pre_same_host(a, b) && a->port == b->port; }

void pre_met_congestion(struct pre_sock *s, const struct rds_addr *to)
{
	bool met = false;
	if (atomic_load(&s->monitor)) /* librds reports it */
		return;
	pthread_mutex_lock(&s->mu);
	if (!s->congested)
		s->congested = malloc(PRE_CONGESTED * sizeof *s->congested);
	size_t n = atomic_load(&s->ncongested), i = 0;
	while (s->congested && i < n && !same(&s->congested[i], to))
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

/* drop drops those of the congested destinations of s that until says are free again. It reports
 * whether there were any: of several threads that find it out, one reports it. */
static bool drop(struct pre_sock *s, const struct rds_until *until, size_t count)
{
	bool any = false;
	pthread_mutex_lock(&s->mu);
	size_t n = atomic_load(&s->ncongested);
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; until[i].kind == RDS_UNTIL_RELIEF && until[i].ready && k < n; k++) {
			if (!same(&s->congested[k], &until[i].addr))
				continue;
			s->congested[k] = s->congested[--n];
			any = true;
			break;
		}
	}
	atomic_store(&s->ncongested, n);
	pthread_mutex_unlock(&s->mu);
	if (any)
		pre_rewatch(s);
	return any;
}

void pre_tell_relief(struct pre_sock *s, rds_socket *rs)
{
	size_t max = pre_room(s);
	struct rds_until *u = malloc(max * sizeof *u);
	size_t n = u ? pre_conditions(s, rs, POLLWRBAND, u, max) : 0;
	if (n && rds_wait(u, n, 0) > 0)
		drop(s, u, n);
	free(u);
}

bool pre_has_rds(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].fd >= 0 && pre_is(fds[i].fd))
			return true;
	return false;
}

/* A set is the sockets of a poll and their conditions. The look at the sockets and the wait for
 * them use the same conditions: what ends the wait is something that the look reports. */
struct set {
	struct pollfd *fds;
	struct pre_sock **socks;
	nfds_t n;
	struct rds_until *until, few[FEW * KINDS];
	size_t count, max;
	bool together; /* one call can wait for all of them: they are bound, in one session */
};

/* grow makes room for n more conditions. */
static int grow(struct set *p, size_t n)
{
	if (p->max - p->count >= n)
		return 0;
	size_t max = 2 * (p->count + n);
	struct rds_until *u = realloc(p->until == p->few ? NULL : p->until, max * sizeof *u);
	if (!u)
		return -ENOMEM;
	if (p->until == p->few)
		memcpy(u, p->few, p->count * sizeof *u);
	p->until = u;
	p->max = max;
	return 0;
}

/* look_at returns those of events that hold at s, and adds its conditions to the set. */
static int look_at(struct set *p, struct pre_sock *s, int events)
{
	rds_socket *rs;
	int got = 0, err = pre_live(s, &rs);
	if (err || !rs) {
		p->together = false;
		return err ? POLLERR : events & WRITES;
	}
	size_t max = pre_room(s);
	if ((err = grow(p, max)))
		return err;
	struct rds_until *u = p->until + p->count;
	size_t n = pre_conditions(s, rs, events, u, max);
	p->count += n;
	p->together = p->together && (!n || rs->c == p->until[0].socket->c);
	err = n ? rds_wait(u, n, 0) : rds_client_error(rs->c, NULL, 0);
	for (size_t i = 0; err > 0 && i < n; i++)
		if (u[i].ready && u[i].kind != RDS_UNTIL_RELIEF)
			got |= makes(u[i].kind);
	if (err > 0 && drop(s, u, n))
		got |= makes(RDS_UNTIL_RELIEF);
	if (atomic_load(&s->has_status) || atomic_load(&s->cong))
		got |= READS;
	return (got & (events | POLLERR)) | (err < 0 && err != -EINTR ? POLLERR : 0);
}

/* look sets revents of the RDS sockets, and returns how many have any. */
static int look(struct set *p)
{
	int ready = 0;
	p->count = 0;
	p->together = true;
	for (nfds_t i = 0; i < p->n; i++) {
		if (!p->socks[i])
			continue;
		int got = look_at(p, p->socks[i], p->fds[i].events);
		if (got < 0)
			return got;
		p->fds[i].revents = (short)got;
		ready += got != 0;
	}
	return ready;
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

/* shown makes what the kernel's poll is asked for: of RDS sockets what their descriptors show. They
 * show the end of congestion and errors as POLLIN, as all that can be read, so for those alone looks
 * have to do. It reports whether they have to. */
static bool shown(const struct set *p, struct pollfd *fds)
{
	bool looks = false;
	memcpy(fds, p->fds, p->n * sizeof *fds);
	for (nfds_t i = 0; i < p->n; i++) {
		struct pre_sock *s = p->socks[i];
		if (!s)
			continue;
		bool relief = fds[i].events & POLLWRBAND && atomic_load(&s->ncongested), errors = atomic_load(&s->rs) && s->errors;
		looks = looks || (!(fds[i].events & READS) && (relief || errors));
		fds[i].events &= ~POLLWRBAND; /* which a UNIX socket always has */
	}
	return looks;
}

/* mixed polls everything with the kernel's poll: the descriptors of RDS sockets show their state.
 * wait says whether it may wait. It sets revents of the others. */
static int mixed(struct set *p, int64_t deadline, const sigset_t *mask, bool wait)
{
	struct timespec ts = {0, 0}, *limit = &ts;
	for (nfds_t i = 0; i < p->n && wait; i++) {
		int err = p->socks[i] ? pre_watch(p->socks[i]) : 0;
		if (err)
			return err;
	}
	struct pollfd *fds = malloc(p->n * sizeof *fds);
	if (!fds)
		return -ENOMEM;
	if (shown(p, fds) && deadline > rdsi_now() + LOOK_EVERY)
		deadline = rdsi_now() + LOOK_EVERY;
	if (wait)
		limit = rdsi_left(deadline, &ts);
	int err = RDSI_UNCANCELLED(real_ppoll(fds, p->n, limit, mask)) < 0 ? -errno : 0;
	for (nfds_t i = 0; i < p->n && !err; i++)
		p->fds[i].revents = fds[i].revents;
	free(fds);
	return err;
}

/* others reports whether there are descriptors that are no RDS sockets. */
static bool others(const struct set *p)
{
	for (nfds_t i = 0; i < p->n; i++)
		if (!p->socks[i] && p->fds[i].fd >= 0)
			return true;
	return false;
}

/* count returns how many have revents. */
static int count(const struct set *p)
{
	int ready = 0;
	for (nfds_t i = 0; i < p->n; i++)
		ready += p->fds[i].revents != 0;
	return ready;
}

static int poll_socks(struct set *p, int64_t deadline, const sigset_t *mask)
{
	bool mix = others(p) || mask;
	for (nfds_t i = 0; i < p->n; i++)
		p->fds[i].revents = 0;
	for (;;) {
		int ready = look(p), err = 0;
		bool over = deadline != RDSI_NEVER && rdsi_now() >= deadline;
		if (ready < 0 || (!mix && (ready || over)))
			return ready;
		if (!mix && p->together && p->count) {
			err = rds_wait(p->until, p->count, left(deadline));
			if (err == -EINTR || err == -ENOMEM)
				return err;
			continue; /* also at the end of the session, which look reports */
		}
		err = mixed(p, deadline, mask, !ready && !over);
		if (err < 0 || (err = look(p)) < 0)
			return err;
		ready = count(p);
		if (ready || over)
			return ready;
	}
}

int pre_ppoll_some(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	struct pre_sock *few[FEW], **socks = few;
	struct set p = {.fds = fds, .n = n, .max = FEW * KINDS};
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
	p.socks = socks;
	p.until = p.few;
	int got = poll_socks(&p, deadline, mask);
	for (nfds_t i = 0; i < n; i++)
		if (socks[i])
			pre_put(socks[i]);
	if (socks != few)
		free(socks);
	if (p.until != p.few)
		free(p.until);
	return got;
}
