/* The high-water mark, and waiting for it and for statuses. */
#include <stdlib.h>

#include "barrier.h"
#include "op.h"
#include "pollfd.h"
#include "rx.h"
#include "tx.h"

/* mark returns the high-water mark. *behind: operations were issued beyond it. */
static uint64_t mark(rds_socket *s, const struct rds_addr *to, bool *behind)
{
	rds_client *c = s->c;
	uint64_t hwm = 0;
	*behind = false;
	pthread_mutex_lock(&c->tx.mu);
	struct rdsi_cell *ce = rdsi_cell_find(s, to);
	if (ce) {
		hwm = rdsi_cell_mark(c, ce);
		*behind = hwm != ce->last && !c->tx.dead;
	}
	pthread_mutex_unlock(&c->tx.mu);
	return hwm;
}

int rds_hwm(rds_socket *s, const struct rds_addr *addr, uint64_t *id)
{
	bool behind;
	if (rdsi_forked(s->c))
		return -ESTALE;
	*id = mark(s, addr, &behind);
	if (behind) {
		/* The daemon holds the mark back while it has a status and no room for it: a caller
		 * that looks at nothing else must make that room. */
		rdsi_rx_poll(s->c);
		*id = mark(s, addr, &behind);
	}
	return 0;
}

int rdsi_barrier_try(rds_socket *s, const struct rds_addr *to, uint64_t id, bool arm)
{
	rds_client *c = s->c;
	int got = 0;
	pthread_mutex_lock(&c->tx.mu);
	struct rdsi_cell *ce = rdsi_cell_find(s, to);
	if (c->tx.dead || atomic_load(&s->closed)) {
		got = -EBADF;
	} else if (id == 0) {
		got = 1;
	} else if (!ce || !rdsi_reached(ce->last, id)) {
		got = -EINVAL;
	} else if (rdsi_reached(rdsi_cell_mark(c, ce), id)) {
		got = 1;
	} else if (arm) {
		/* The smallest id anybody waits for. The daemon clears it when it is reached, and those
		 * who wait for more arm again. */
		_Atomic uint64_t *want = rdsi_want_cell(&c->seg, ce->idx);
		uint64_t now = atomic_load(want);
		if (now == 0 || !rdsi_reached(id, now))
			atomic_store(want, id);
		got = rdsi_reached(rdsi_cell_mark(c, ce), id);
	}
	pthread_mutex_unlock(&c->tx.mu);
	return got;
}

/* What a wait is for. */
struct target {
	rds_socket *s;
	const struct rds_addr *to;
	uint64_t id;
	struct rds_completion *comp;
	bool wakes; /* rds_wake ends it */
	int *why;   /* of rdsi_barrier_reach */
};

/* wait_for calls try until it returns 1 or an error, and waits for want in between. arm is set
 * once the caller is registered: from then on no wake-up is missed. */
static int wait_for(struct target *t, unsigned want, int64_t deadline, int (*try)(struct target *t, bool arm))
{
	rds_socket *s = t->s;
	struct rdsi_waiter w;
	for (;;) {
		int got = try(t, false);
		if (got)
			return got > 0 ? 0 : got;
		if (rdsi_now() >= deadline)
			return -ETIMEDOUT;
		rdsi_enter(s, &w, want, true);
		w.wakes = t->wakes;
		w.through = !t->wakes; /* nobody could wait for the operation again */
		got = try(t, true);
		if (got == 0)
			got = rdsi_client_err(s->c);
		int err = got ? 0 : rdsi_park(&w, deadline);
		rdsi_leave(&w);
		if (got || err == -EINTR || err == -ECANCELED)
			return got > 0 ? 0 : got ? got : err;
	}
}

static int try_barrier(struct target *t, bool arm)
{
	return rdsi_barrier_try(t->s, t->to, t->id, arm);
}

static int barrier(rds_socket *s, const struct rds_addr *to, uint64_t id, int64_t deadline, bool wakes)
{
	struct target t = {.s = s, .to = to, .id = id, .wakes = wakes};
	return wait_for(&t, WANT_BARRIER, deadline, try_barrier);
}

/* A try for rdsi_barrier_reach. */
static int try_reach(struct target *t, bool arm)
{
	int got = rdsi_barrier_try(t->s, t->to, t->id, arm);
	if (got)
		return got;
	pthread_mutex_lock(&t->s->c->tx.mu);
	*t->why = t->s->c->tx.dead ? 0 : rdsi_reason(t->s, t->to);
	pthread_mutex_unlock(&t->s->c->tx.mu);
	return *t->why != 0;
}

int rdsi_barrier_reach(rds_socket *s, const struct rds_addr *to, uint64_t id, int64_t deadline, int *why)
{
	struct target t = {.s = s, .to = to, .id = id, .why = why};
	return wait_for(&t, WANT_BARRIER | WANT_REACH, deadline, try_reach);
}

int rdsi_barrier(rds_socket *s, const struct rds_addr *to, uint64_t id, int64_t deadline) { return barrier(s, to, id, deadline, false); }

int rds_barrier(rds_socket *s, const struct rds_addr *addr, uint64_t id, int timeout_ms)
{
	return rdsi_forked(s->c) ? -ESTALE : barrier(s, addr, id, rdsi_deadline(timeout_ms), true);
}

/* The last operation to an address. */
struct issued {
	struct rds_addr to;
	uint64_t id;
};

/* snapshot copies the last ids of all cells of s with operations. */
static int snapshot(rds_socket *s, struct issued **all, size_t *count)
{
	*count = 0;
	pthread_mutex_lock(&s->c->tx.mu);
	*all = malloc((s->cells.count + 1) * sizeof **all);
	for (uint32_t i = 0; *all && i < s->cells.size; i++) {
		for (struct rdsi_node *n = s->cells.heads[i]; n; n = n->next) {
			struct rdsi_cell *ce = RDSI_OF(n, struct rdsi_cell, node);
			if (!ce->last)
				continue;
			struct issued *x = &(*all)[(*count)++];
			*x = (struct issued){.id = ce->last};
			memcpy(x->to.ip, ce->ip, sizeof x->to.ip);
		}
	}
	pthread_mutex_unlock(&s->c->tx.mu);
	return *all ? 0 : -ENOMEM;
}

int rds_barrier_all(rds_socket *s, int timeout_ms)
{
	struct issued *all;
	size_t count;
	if (rdsi_forked(s->c))
		return -ESTALE;
	if (atomic_load(&s->closed))
		return -EBADF;
	int64_t deadline = rdsi_deadline(timeout_ms);
	int err = snapshot(s, &all, &count);
	for (size_t i = 0; !err && i < count; i++)
		err = barrier(s, &all[i].to, all[i].id, deadline, true);
	free(all);
	return err;
}

static int take_status(struct target *t, bool arm)
{
	rds_socket *s = t->s;
	(void)arm;
	pthread_mutex_lock(&s->c->rx.mu);
	int got = -EBADF;
	if (!atomic_load(&s->closed)) {
		rdsi_take_events(s->c);
		int i = rdsi_find_status(s, t->to, t->id);
		got = i == -1 ? 0 : i < 0 ? i : 1;
		if (got > 0) {
			rdsi_queue_remove(&s->comps, (uint32_t)i, t->comp, sizeof *t->comp);
			atomic_fetch_sub(&s->queued_comps, 1);
			rdsi_taken(s);
		}
	}
	rdsi_rx_unlock(s->c);
	return got;
}

int rdsi_wait_op(rds_socket *s, const struct rds_addr *to, uint64_t id, struct rds_completion *comp, int64_t deadline)
{
	struct target t = {.s = s, .to = to, .id = id, .comp = comp};
	return wait_for(&t, WANT_COMPLETION, deadline, take_status);
}

int rds_wait_op(rds_socket *s, const struct rds_addr *addr, uint64_t id, struct rds_completion *comp, int timeout_ms)
{
	struct rds_completion dropped;
	struct target t = {.s = s, .to = addr, .id = id, .comp = comp ? comp : &dropped, .wakes = true};
	return rdsi_forked(s->c) ? -ESTALE : wait_for(&t, WANT_COMPLETION, rdsi_deadline(timeout_ms), take_status);
}
