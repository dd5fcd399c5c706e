#include <stdlib.h>

#include "op.h"
#include "pollfd.h"
#include "rx.h"
#include "tx.h"

_Static_assert(RDS_SUCCESS == ABI_STATUS_SUCCESS && RDS_REMOTE_ERROR == ABI_STATUS_REMOTE_ERROR && RDS_CANCELED == ABI_STATUS_CANCELED, "statuses");
_Static_assert(RDS_DROPPED == ABI_STATUS_DROPPED && RDS_OTHER_ERROR == ABI_STATUS_OTHER_ERROR && RDS_UNKNOWN == ABI_STATUS_UNKNOWN, "statuses");

/* MESSAGES in an awaited.cell: id is a message id. The bit is in no number of a cell. */
enum { MESSAGES = 1 << 30 };
_Static_assert(SHM_MAX_TABLE <= MESSAGES, "cells");

/* An awaited status. */
struct awaited {
	struct rdsi_node node;
	uint32_t cell;
	uint64_t id;
	uint64_t token; /* of a message */
	uint32_t msg; /* of an operation: its message */
	bool wanted; /* false: nobody takes it */
};

/* The address of a cell that the socket has operations in. */
struct rx_cell {
	struct rdsi_node node;
	uint32_t cell;
	uint8_t ip[16];
};

static struct awaited *find_awaited(rds_socket *s, uint32_t cell, uint64_t id)
{
	for (struct rdsi_node *n = rdsi_hash_first(&s->awaited, rdsi_mix(cell, id)); n; n = rdsi_hash_next(n)) {
		struct awaited *a = RDSI_OF(n, struct awaited, node);
		if (a->cell == cell && a->id == id)
			return a;
	}
	return NULL;
}

static struct rx_cell *find_cell(rds_socket *s, uint32_t cell)
{
	for (struct rdsi_node *n = rdsi_hash_first(&s->rx_cells, rdsi_mix(cell, 0)); n; n = rdsi_hash_next(n)) {
		struct rx_cell *x = RDSI_OF(n, struct rx_cell, node);
		if (x->cell == cell)
			return x;
	}
	return NULL;
}

/* find_cell_of finds the cell of an address. */
static struct rx_cell *find_cell_of(rds_socket *s, const uint8_t ip[16])
{
	for (uint32_t i = 0; i < s->rx_cells.size; i++) {
		for (struct rdsi_node *n = s->rx_cells.heads[i]; n; n = n->next) {
			struct rx_cell *x = RDSI_OF(n, struct rx_cell, node);
			if (memcmp(x->ip, ip, sizeof x->ip) == 0)
				return x;
		}
	}
	return NULL;
}

/* add_cell notes the address of a cell. */
static bool add_cell(rds_socket *s, struct rdsi_cell *ce)
{
	if (find_cell(s, ce->idx))
		return true;
	struct rx_cell *x = rdsi_hash_reserve(&s->rx_cells) ? NULL : malloc(sizeof *x);
	if (!x)
		return false;
	x->cell = ce->idx;
	memcpy(x->ip, ce->ip, sizeof x->ip);
	rdsi_hash_add(&s->rx_cells, &x->node, rdsi_mix(ce->idx, 0));
	return true;
}

/* promise notes a status of cell ce; one that will come also as a, whose memory it makes. */
static void promise(rds_socket *s, struct rdsi_cell *ce, const struct awaited *a)
{
	pthread_mutex_lock(&s->c->rx.mu);
	bool ok = add_cell(s, ce);
	if (ok && a->wanted) {
		struct awaited *n = rdsi_hash_reserve(&s->awaited) ? NULL : malloc(sizeof *n);
		ok = n != NULL;
		if (n) {
			*n = *a;
			rdsi_hash_add(&s->awaited, &n->node, rdsi_mix(a->cell, a->id));
		}
	}
	rdsi_rx_unlock(s->c);
	if (!ok)
		rdsi_fail(s->c, -ECONNABORTED, "no memory to keep a status");
}

void rdsi_promise(rds_socket *s, struct rdsi_cell *ce, uint64_t id, uint32_t msg, bool notify)
{
	promise(s, ce, &(struct awaited){.cell = ce->idx, .id = id, .msg = msg, .wanted = notify});
}

void rdsi_promise_outcome(rds_socket *s, struct rdsi_cell *ce, uint32_t id, uint64_t token)
{
	promise(s, ce, &(struct awaited){.cell = ce->idx | MESSAGES, .id = id, .token = token, .wanted = true});
}

/* complete queues comp, a status of a host, and ends what awaits it: a, unless NULL. */
static void complete(rds_socket *s, struct awaited *a, const struct rx_cell *cell, struct rds_completion *comp)
{
	bool drop = a && !a->wanted;
	if (a) {
		rdsi_hash_del(&s->awaited, &a->node);
		free(a);
	}
	if (drop)
		return;
	memcpy(comp->to.ip, cell->ip, sizeof comp->to.ip);
	if (!rdsi_queue_push(&s->comps, comp, sizeof *comp)) {
		rdsi_fail(s->c, -ECONNABORTED, "no memory for a status");
		return;
	}
	atomic_fetch_add(&s->queued_comps, 1);
	rdsi_arrived(s, WANT_COMPLETION);
	rdsi_notify(s, WANT_COMPLETION, false);
}

void rdsi_settle(rds_socket *s, const struct shm_event_status *e)
{
	struct rx_cell *cell = find_cell(s, e->cell);
	if (!cell || s->comps.n >= s->c->rx.max_statuses) {
		rdsi_broken(s->c, "a status nobody asked for, of operation %llu of cell %u", (unsigned long long)e->op_id, e->cell);
		return;
	}
	struct rds_completion comp = {.token = e->token, .id = e->op_id, .status = e->status, .err = (int32_t)e->err};
	struct awaited *a = e->op_id ? find_awaited(s, e->cell, e->op_id) : find_awaited(s, e->cell | MESSAGES, e->token);
	if (!e->op_id && !a) {
		rdsi_broken(s->c, "a status nobody asked for, of message %llu", (unsigned long long)e->token);
		return;
	}
	if (!e->op_id)
		comp.token = a->token;
	complete(s, a, cell, &comp);
}

void rdsi_outcome_due(rds_socket *s, const struct rdsi_cell *ce, uint32_t id)
{
	pthread_mutex_lock(&s->c->rx.mu);
	rdsi_take_events(s->c);
	struct awaited *a = find_awaited(s, ce->idx | MESSAGES, id);
	if (a) {
		struct rds_completion comp = {.token = a->token, .status = RDS_UNKNOWN};
		complete(s, a, find_cell(s, ce->idx), &comp);
	}
	rdsi_rx_unlock(s->c);
}

/* find_comp is the place of an operation's completion in the queue, or -1. A status of a message,
 * which has id 0, is none. */
static int find_comp(rds_socket *s, const struct rds_addr *to, uint64_t id)
{
	for (uint32_t i = 0; i < s->comps.n; i++) {
		struct rds_completion *c = rdsi_queue_at(&s->comps, i, sizeof *c);
		if (id != 0 && c->id == id && memcmp(c->to.ip, to->ip, sizeof to->ip) == 0)
			return (int)i;
	}
	return -1;
}

/* find_wanted finds what awaits the completion of an operation, or NULL if nobody takes one. */
static struct awaited *find_wanted(rds_socket *s, const struct rds_addr *to, uint64_t id)
{
	struct rx_cell *cell = find_cell_of(s, to->ip);
	struct awaited *a = cell ? find_awaited(s, cell->cell, id) : NULL;
	return a && a->wanted ? a : NULL;
}

int rdsi_find_status(rds_socket *s, const struct rds_addr *to, uint64_t id)
{
	int i = find_comp(s, to, id);
	if (i >= 0)
		return i;
	return find_wanted(s, to, id) ? -1 : -EINVAL;
}

int rdsi_message_of(rds_socket *s, const struct rds_addr *to, uint64_t id, uint32_t *msg)
{
	pthread_mutex_lock(&s->c->rx.mu);
	rdsi_take_events(s->c);
	struct awaited *a = find_wanted(s, to, id);
	int got = a ? 1 : find_comp(s, to, id) >= 0 ? 0 : -EINVAL;
	if (a)
		*msg = a->msg;
	rdsi_rx_unlock(s->c);
	return got;
}

void rdsi_disown(rds_socket *s, const struct rds_addr *to, uint64_t id)
{
	struct rds_completion comp;
	pthread_mutex_lock(&s->c->rx.mu);
	int i = find_comp(s, to, id);
	if (i >= 0) {
		rdsi_queue_remove(&s->comps, (uint32_t)i, &comp, sizeof comp);
		atomic_fetch_sub(&s->queued_comps, 1);
		rdsi_taken(s);
	} else {
		struct rx_cell *cell = find_cell_of(s, to->ip);
		struct awaited *a = cell ? find_awaited(s, cell->cell, id) : NULL;
		if (a)
			a->wanted = false;
		rdsi_notify(s, WANT_COMPLETION, false); /* one who waits for it waits in vain */
	}
	rdsi_rx_unlock(s->c);
}

static void end_hash(struct rdsi_hash *h, size_t off)
{
	struct rdsi_node *n;
	uint32_t at = 0;
	while ((n = rdsi_hash_any(h, &at))) {
		rdsi_hash_del(h, n);
		free((char *)n - off);
	}
	rdsi_hash_end(h);
}

void rdsi_statuses_end(rds_socket *s)
{
	end_hash(&s->awaited, offsetof(struct awaited, node));
	end_hash(&s->rx_cells, offsetof(struct rx_cell, node));
}

int rds_status_error(uint32_t status)
{
	switch (status) {
	case RDS_SUCCESS:
		return 0;
	case RDS_CANCELED:
		return -ECANCELED;
	case RDS_DROPPED:
		return -EPIPE;
	case RDS_UNKNOWN:
		return -ETIME;
	default:
		return -EIO;
	}
}

ssize_t rds_completions(rds_socket *s, struct rds_completion *completions, size_t count)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	if (atomic_load(&s->c->wait.returns) > 0)
		rdsi_tx_poll(s->c);
	pthread_mutex_lock(&s->c->rx.mu);
	rdsi_take_events(s->c);
	size_t n = rdsi_queue_move(&s->comps, completions, count, sizeof *completions);
	atomic_fetch_sub(&s->queued_comps, (int)n);
	rdsi_taken(s);
	rdsi_rx_unlock(s->c);
	return (ssize_t)n;
}
