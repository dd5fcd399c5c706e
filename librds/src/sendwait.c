/* What a sender does that cannot submit its message just now. */
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "notice.h"
#include "pollfd.h"
#include "tx.h"

#define RING_YIELD (INT64_C(200) * 1000)  /* how long a sender yields to a daemon that is behind */
#define RING_SLEEP (INT64_C(100) * 1000)  /* how long it sleeps then, before it looks again */
#define OPEN_PATIENCE (1000 * RDSI_MS)    /* how long a caller that does not wait waits for a destination */

/* pause sleeps for RING_SLEEP. It returns -EINTR if a signal handler ran. */
static int pause_once(void)
{
	struct timespec ts = {0, RING_SLEEP};
	return nanosleep(&ts, NULL) && errno == EINTR ? -EINTR : 0;
}

static bool ring_free(rds_client *c)
{
	struct rdsi_tx *t = &c->tx;
	pthread_mutex_lock(&t->mu);
	bool free = t->dead || rdsi_free_at_least(&c->seg.sub, RDSI_OPEN_ENTRIES);
	bool bad = !t->dead && c->seg.sub.bad;
	pthread_mutex_unlock(&t->mu);
	if (bad)
		rdsi_broken(c, "submission ring: impossible index");
	return free || bad || rdsi_client_err(c);
}

/* is_open reports that a send to the destination can be tried again at once. */
static bool is_open(rds_socket *s, const struct rds_addr *to)
{
	struct rdsi_tx *t = &s->c->tx;
	pthread_mutex_lock(&t->mu);
	struct rdsi_dest *d = t->dead ? NULL : rdsi_dest_find(s, to);
	bool open = !d || rdsi_dest_is_open(d) || rdsi_sock_err(s) || atomic_load(&s->closed);
	pthread_mutex_unlock(&t->mu);
	return open;
}

/* A condition that a sender yields for. */
struct until {
	rds_client *c;
	rds_socket *s; /* NULL: room in the ring */
	const struct rds_addr *to;
};

static bool holds(const struct until *u) { return u->s ? is_open(u->s, u->to) : ring_free(u->c); }

/* yield_until yields to the daemon until u holds. It gives up after a time in which a daemon
 * that is awake would have finished. */
static bool yield_until(const struct until *u)
{
	int64_t start = rdsi_now();
	for (int tries = 0; tries < 100 && rdsi_now() - start <= RING_YIELD; tries++) {
		sched_yield();
		if (holds(u))
			return true;
	}
	return false;
}

int rdsi_ring_wait(rds_client *c, bool dont_wait)
{
	if (yield_until(&(struct until){.c = c}))
		return 0;
	rdsi_ctl_look(c);
	return dont_wait ? -EAGAIN : pause_once();
}

/* open_wait waits until the daemon has opened the destination, as a control call waits for its
 * answer. It does so even for a caller that must not wait for its message; only if the daemon
 * is far behind does such a caller get an error. */
static int open_wait(rds_socket *s, const struct rds_addr *to, bool dont_wait, int64_t deadline)
{
	struct until u = {s->c, s, to};
	int64_t start = rdsi_now();
	int err = 0;
	bool done = yield_until(&u);
	while (!done && !err && rdsi_now() - start < OPEN_PATIENCE && rdsi_now() < deadline) {
		err = pause_once();
		rdsi_ctl_look(s->c);
		done = holds(&u);
	}
	if (done || err)
		return err;
	return dont_wait ? -EAGAIN : rdsi_now() >= deadline ? -ETIMEDOUT : 0;
}

/* wanted is what a sender waits for. */
static unsigned wanted(int why)
{
	return why == RDSI_NO_MEMORY ? WANT_MEMORY : why == RDSI_CONGESTED ? WANT_RELIEF : WANT_SPACE;
}

/* not_now is what a caller gets that does not wait. */
static int not_now(rds_socket *s, struct rdsi_out *m, int why)
{
	if (atomic_load(&s->poll_looks))
		rdsi_poll_look(s, NULL, 0); /* the descriptor must tell when it is worth another try */
	rdsi_ctl_look(s->c);
	if (why != RDSI_CONGESTED)
		return -EAGAIN;
	if (atomic_load(&s->cong_mon))
		rdsi_cong_failed(s, &m->to);
	return -ENOBUFS;
}

/* rdsi_send_wait waits for what why says is missing. The first call for a reason only registers
 * the waiter: the caller must try again before it waits. */
int rdsi_send_wait(rds_socket *s, struct rdsi_out *m, int why, struct rdsi_waiter *w, bool *entered, bool dont_wait, int64_t deadline)
{
	bool was = *entered;
	unsigned had = was ? w->want : 0;
	/* A waiter can be the leader. Who waits in another way must be none. */
	if (was && (why == RDSI_RING_FULL || why == RDSI_OPENING || had != wanted(why))) {
		rdsi_leave(w);
		*entered = false;
	}
	if (why == RDSI_RING_FULL) {
		int err = rdsi_ring_wait(s->c, dont_wait);
		return err ? err : rdsi_now() >= deadline ? -ETIMEDOUT : 0;
	}
	if (why == RDSI_OPENING)
		return open_wait(s, &m->to, dont_wait, deadline);
	if (why == RDSI_NO_MEMORY && m->windows >= 0)
		rdsi_tx_grow(s->c, m->windows);
	if (dont_wait)
		return not_now(s, m, why);
	if (!*entered) {
		rdsi_enter(s, w, wanted(why), false);
		w->through = m->through || deadline != RDSI_NEVER; /* the time limit would begin again */
		*entered = true;
		return 0;
	}
	int err = rdsi_park(w, deadline);
	rdsi_leave(w);
	*entered = false;
	return err;
}
