/*
 * Poll descriptors. Each is an eventfd that the library makes readable and unreadable, so that
 * a program can wait for a socket in an event loop of its own. While there are any, a thread
 * waits all the time, and so leads when nobody else does.
 */
#include "pollfd.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rx.h"

static void put(struct rdsi_pollfd *p)
{
	if (atomic_fetch_sub(&p->refs, 1) != 1)
		return;
	pthread_mutex_destroy(&p->mu);
	pthread_mutex_destroy(&p->look);
	free(p);
}

/* ring makes the descriptor readable. If it was readable, that is a new edge. */
static void ring(struct rdsi_pollfd *p)
{
	pthread_mutex_lock(&p->mu);
	if (p->fd >= 0 && p->peer >= 0) {
		rdsi_mirror_set(p);
	} else if (p->fd >= 0) {
		rdsi_ring(p->fd);
		p->set = true;
	}
	pthread_mutex_unlock(&p->mu);
}

/* quiet makes it unreadable. */
static void quiet(struct rdsi_pollfd *p)
{
	uint64_t n;
	pthread_mutex_lock(&p->mu);
	if (p->fd >= 0 && p->peer >= 0) {
		rdsi_mirror_clear(p);
	} else if (p->fd >= 0 && p->set) {
		while (read(p->fd, &n, sizeof n) < 0 && errno == EINTR)
			;
		p->set = false;
	}
	pthread_mutex_unlock(&p->mu);
}

static bool readable(struct rdsi_pollfd *p)
{
	pthread_mutex_lock(&p->mu);
	bool set = p->set;
	pthread_mutex_unlock(&p->mu);
	return set;
}

/* The poll set of a new socket. */
static const uint32_t takeables[] = {RDS_UNTIL_MESSAGE, RDS_UNTIL_COMPLETION, RDS_UNTIL_NOTICE, RDS_UNTIL_ZERO_COPY, RDS_UNTIL_CONGESTION};
enum { TAKEABLES = sizeof takeables / sizeof *takeables };

/* is_taken reports whether a condition is about a queue: what arrives there makes it true, so it
 * needs no look. */
static bool is_taken(uint32_t kind)
{
	for (int i = 0; i < TAKEABLES; i++)
		if (takeables[i] == kind)
			return true;
	return false;
}

/* wants is what the poll set has of queues, or of the other conditions. rx.mu is held. */
static unsigned wants(rds_socket *s, bool taken)
{
	unsigned want = 0;
	if (!s->poll_for)
		return taken ? WANT_MESSAGE | WANT_COMPLETION | WANT_NOTICE | WANT_ZERO_COPY | WANT_CONGESTION : 0;
	for (size_t i = 0; i < s->poll_for->count; i++)
		if (is_taken(s->poll_for->until[i].kind) == taken)
			want |= rdsi_wants(&s->poll_for->until[i]);
	return want;
}

/* idle reports that nothing of the poll set waits to be taken. */
static bool idle(rds_socket *s)
{
	unsigned want = wants(s, true);
	return !((want & WANT_MESSAGE && rdsi_unread(s)) || (want & WANT_COMPLETION && s->comps.n) || (want & WANT_NOTICE && s->notices.n) ||
		(want & WANT_ZERO_COPY && s->zc_done.n) || (want & WANT_CONGESTION && s->cong_update));
}

void rdsi_arrived(rds_socket *s, unsigned want)
{
	if (s->poll && wants(s, true) & want)
		ring(s->poll);
}

void rdsi_poll_woken(rds_socket *s)
{
	if (s->poll)
		ring(s->poll);
}

void rdsi_left_over(rds_socket *s)
{
	if (s->poll && !readable(s->poll))
		rdsi_arrived(s, WANT_MESSAGE);
}

void rdsi_taken(rds_socket *s)
{
	struct rdsi_pollfd *p = s->poll;
	if (!p || !idle(s))
		return;
	if (p->watched) {
		if (readable(p))
			rdsi_look_at(&p->watch);
		return;
	}
	quiet(p);
	if (rdsi_sock_err(s) || rdsi_woken(s))
		ring(p); /* whoever polls must see the end */
}

/* unwatch ends the looks at the conditions of s. rx.mu is held. */
static void unwatch(rds_socket *s)
{
	if (s->poll->watched)
		rdsi_unwatch(&s->poll->watch);
	s->poll->watched = false;
	atomic_store(&s->poll_looks, false);
}

/* watch arranges that the poll set is looked at when something comes in for it. */
static void watch(rds_socket *s)
{
	unwatch(s);
	unsigned want = wants(s, false);
	if (want) {
		rdsi_watch(s, &s->poll->watch, want);
		s->poll->watched = true;
		atomic_store(&s->poll_looks, true);
	}
}

void rdsi_pollset_put(struct rdsi_pollset *p)
{
	if (p && atomic_fetch_sub(&p->refs, 1) == 1)
		free(p);
}

/* fill_set copies the poll set of s, which is set or the default. */
static void fill_set(rds_socket *s, const struct rdsi_pollset *set, struct rds_until *u)
{
	if (set)
		memcpy(u, set->until, set->count * sizeof *u);
	for (int i = 0; !set && i < TAKEABLES; i++)
		u[i] = (struct rds_until){.socket = s, .kind = takeables[i]};
}

/* The descriptor is made unreadable before the look: what comes in later causes another. */
int rdsi_poll_look(rds_socket *s, struct rds_until *until, size_t count)
{
	rds_client *c = s->c;
	pthread_mutex_lock(&c->rx.mu);
	struct rdsi_pollfd *p = s->poll;
	struct rdsi_pollset *set = s->poll_for;
	if (p)
		atomic_fetch_add(&p->refs, 1);
	if (set)
		atomic_fetch_add(&set->refs, 1);
	rdsi_rx_unlock(c);

	size_t n = set ? set->count : TAKEABLES;
	struct rds_until *u = malloc(n * sizeof *u);
	int got = -ENOMEM;
	if (p) {
		pthread_mutex_lock(&p->look);
		quiet(p);
	}
	if (u) {
		fill_set(s, set, u);
		got = rdsi_ready(s, u, n, p != NULL);
	}
	if (p && p->peer >= 0)
		rdsi_mirror_room(p, u, u ? n : 0, got);
	else if (p && (got || rdsi_sock_err(s) || rdsi_woken(s)))
		ring(p);
	if (p) {
		pthread_mutex_unlock(&p->look);
		put(p);
	}
	for (size_t i = 0, k = 0; got > 0 && i < n && k < count; i++)
		if (u[i].ready)
			until[k++] = u[i];
	free(u);
	rdsi_pollset_put(set);
	return got;
}

int rds_poll_set(rds_socket *s, const struct rds_until *until, size_t count)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	if (count == 0)
		return -EINVAL;
	for (size_t i = 0; i < count; i++)
		if (until[i].socket != s || !rdsi_wants(&until[i]))
			return -EINVAL;
	struct rdsi_pollset *set = malloc(sizeof *set + count * sizeof *until);
	if (!set)
		return -ENOMEM;
	set->refs = 1;
	set->count = count;
	memcpy(set->until, until, count * sizeof *until);
	int err = rdsi_ready(s, set->until, count, false);
	pthread_mutex_lock(&s->c->rx.mu);
	if (err >= 0 && atomic_load(&s->closed))
		err = -EBADF;
	struct rdsi_pollset *old = err < 0 ? set : s->poll_for;
	if (err >= 0) {
		s->poll_for = set;
		if (s->poll)
			watch(s);
	}
	rdsi_rx_unlock(s->c);
	rdsi_pollset_put(old);
	if (err < 0)
		return err;
	rdsi_poll_look(s, NULL, 0);
	return 0;
}

int rds_polled(rds_socket *s, struct rds_until *until, size_t count)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	int n = rdsi_poll_look(s, until, count);
	if (n == 0 && rdsi_take_wake_of(s)) {
		rdsi_poll_look(s, NULL, 0); /* the descriptor was readable for the wake */
		return -ECANCELED;
	}
	if (n == 0)
		rdsi_ctl_look(s->c);
	return n ? n : rdsi_sock_err(s);
}

int rdsi_pollfd_new(rds_socket *s, int fd, int peer)
{
	struct rdsi_pollfd *p = calloc(1, sizeof *p);
	if (!p)
		return -ENOMEM;
	p->fd = fd;
	p->peer = peer;
	if (peer < 0 && (p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
		free(p);
		return -errno;
	}
	pthread_mutex_init(&p->mu, NULL);
	pthread_mutex_init(&p->look, NULL);
	p->refs = 1;
	int err = rdsi_polls_add(s->c, p);
	if (err) {
		if (peer < 0)
			close(p->fd);
		put(p);
		return err;
	}
	s->poll = p;
	watch(s);
	return 0;
}

int rds_pollfd(rds_socket *s)
{
	int err = 0, fd = -1;
	if (rdsi_forked(s->c))
		return -ESTALE;
	pthread_mutex_lock(&s->c->rx.mu);
	if (atomic_load(&s->closed))
		err = -EBADF;
	else if (!s->poll)
		err = rdsi_pollfd_new(s, -1, -1);
	if (!err)
		fd = s->poll->fd;
	rdsi_rx_unlock(s->c);
	if (err)
		return err;
	rdsi_poll_look(s, NULL, 0); /* an error makes it readable */
	return fd;
}

void rdsi_pollfd_close(rds_socket *s)
{
	struct rdsi_pollfd *p = s->poll;
	if (!p)
		return;
	unwatch(s);
	rdsi_polls_remove(s->c, p);
	ring(p);
	pthread_mutex_lock(&p->mu);
	if (p->peer < 0)
		close(p->fd);
	p->fd = -1;
	pthread_mutex_unlock(&p->mu);
	s->poll = NULL;
	put(p);
}

void rdsi_pollfd_ring(struct rdsi_pollfd *p)
{
	ring(p);
	pthread_mutex_lock(&p->mu);
	if (p->fd >= 0 && p->peer >= 0)
		rdsi_mirror_end(p);
	pthread_mutex_unlock(&p->mu);
}

void rdsi_pollfd_abandon(rds_socket *s)
{
	if (s->poll && s->poll->fd >= 0 && s->poll->peer < 0)
		close(s->poll->fd);
	s->poll = NULL;
}
