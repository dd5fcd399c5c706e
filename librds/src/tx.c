#include "tx.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "notice.h"
#include "op.h"

int rdsi_tx_init(rds_client *c)
{
	struct rdsi_tx *t = &c->tx;
	const struct shm_params *p = &c->seg.params;
	t->max_msgs = t->nfree = p->max_msgs;
	t->ncell_free = p->cells;
	t->msgs = calloc(p->max_msgs, sizeof *t->msgs);
	t->free = malloc(p->max_msgs * sizeof *t->free);
	t->slots = calloc(p->slots, sizeof *t->slots);
	t->cells = calloc(p->cells, sizeof *t->cells);
	t->cell_free = malloc(p->cells * sizeof *t->cell_free);
	if (!t->msgs || !t->free || !t->slots || !t->cells || !t->cell_free)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->max_msgs; i++)
		t->free[i] = p->max_msgs - 1 - i;
	for (uint32_t i = 0; i < p->cells; i++)
		t->cell_free[i] = p->cells - 1 - i;
	return 0;
}

/* rdsi_tx_free frees everything, and the destinations that messages still name. */
void rdsi_tx_free(rds_client *c)
{
	struct rdsi_tx *t = &c->tx;
	for (uint32_t i = 0; t->msgs && i < t->max_msgs; i++) {
		struct rdsi_dest *d = t->msgs[i].dest;
		if (d && --d->pending == 0)
			rdsi_dest_end(d);
	}
	rdsi_arena_free_all(&t->arena);
	free(t->msgs);
	free(t->free);
	free(t->slots);
	free(t->cells);
	free(t->cell_free);
}

bool rdsi_tx_poll(rds_client *c)
{
	pthread_mutex_lock(&c->tx.mu);
	bool progress = !c->tx.dead && rdsi_tx_reap(c);
	pthread_mutex_unlock(&c->tx.mu);
	return progress;
}

bool rdsi_tx_empty(rds_client *c)
{
	pthread_mutex_lock(&c->tx.mu);
	bool empty = c->tx.dead || rdsi_avail(&c->seg.send_ret) == 0;
	pthread_mutex_unlock(&c->tx.mu);
	return empty;
}

static void freeze(rds_client *c, struct rdsi_cell *ce)
{
	if (!ce->frozen)
		ce->final = rdsi_cell_mark(c, ce);
	ce->frozen = true;
	ce->first = NULL;
}

/* rdsi_tx_close ends the use of the memory. It keeps the marks of all cells. */
void rdsi_tx_close(rds_client *c)
{
	struct rdsi_tx *t = &c->tx;
	pthread_mutex_lock(&t->mu);
	for (uint32_t i = 0; t->cells && i < c->seg.params.cells; i++)
		if (t->cells[i])
			freeze(c, t->cells[i]);
	t->dead = true;
	pthread_mutex_unlock(&t->mu);
}

/* give_back frees the id and its memory. */
static void give_back(rds_client *c, uint32_t id)
{
	struct rdsi_tx *t = &c->tx;
	struct rdsi_tx_msg *m = &t->msgs[id];
	struct rdsi_dest *d = m->dest;
	if (m->size)
		rdsi_arena_release(&t->arena, m->chunk, m->size);
	if (m->op_size)
		rdsi_arena_release(&t->arena, m->op_mem, m->op_size);
	if (m->settles)
		atomic_fetch_sub(&d->sock->promised, m->settles);
	if (m->notify) {
		atomic_fetch_sub(&c->wait.returns, 1);
		rdsi_outcome_due(d->sock, d->cell, id);
	}
	d->mem -= m->mem;
	if (--d->pending == 0)
		rdsi_list_del(&d->on_busy);
	*m = (struct rdsi_tx_msg){0};
	t->free[t->nfree++] = id;
}

/* rdsi_tx_retire ends message id. */
void rdsi_tx_retire(rds_client *c, uint32_t id)
{
	struct rdsi_tx_msg *m = &c->tx.msgs[id];
	struct rdsi_dest *d = m->dest;
	rds_socket *s = d->sock;
	rdsi_uncharge(d, &m->sum);
	if (d->run.id == id)
		d->run.mem = NULL; /* the daemon has taken it */
	if (m->zc)
		rdsi_zero_copied(s, m->zc_cookie);
	give_back(c, id);
	if (rdsi_waiting(s, WANT_SPACE) && rdsi_room(s))
		rdsi_notify(s, WANT_SPACE, false);
	if (d->pending == 0)
		rdsi_dest_end(d);
}

/* rdsi_tx_gained wakes those who wait for message ids or send memory. */
void rdsi_tx_gained(rds_client *c)
{
	c->tx.starved = false;
	if (!rdsi_list_empty(&c->tx.over))
		rdsi_relieve_shares(c);
	if (atomic_load(&c->wait.memory) > 0)
		rdsi_notify_everybody(c, WANT_MEMORY);
}

/* take_window takes in the answer, if there is one. It reports whether there is more memory. */
static bool take_window(rds_client *c)
{
	struct rdsi_tx *t = &c->tx;
	if (atomic_load(&t->grow) != RDSI_ANSWERED)
		return false;
	bool more = t->grown.mem && !rdsi_arena_add(&t->arena, t->grown.mem);
	t->full = !more;
	atomic_store(&t->grow, RDSI_NO_GROWTH);
	return more;
}

/* rdsi_tx_reap takes in the messages that the daemon has finished with, and the memory that it has given. It
 * reports whether there were any. */
bool rdsi_tx_reap(rds_client *c)
{
	struct rdsi_tx *t = &c->tx;
	struct rdsi_consumer *ret = &c->seg.send_ret;
	uint32_t id, n = 0;
	t->sends = 0;
	if (t->dead)
		return false;
	bool more = take_window(c);
	while (rdsi_take_id(ret, &id)) {
		if (id >= t->max_msgs || !t->msgs[id].sent) {
			rdsi_broken(c, "message id %u returned twice or never sent", id);
			ret->bad = true; /* nothing more is to be learned from this ring */
			ret->tail = ret->next;
			break;
		}
		n++;
		rdsi_tx_retire(c, id);
	}
	if (n == 0 && ret->bad && !rdsi_client_err(c))
		rdsi_broken(c, "send-return ring: impossible index");
	if (n > 0)
		rdsi_release(ret);
	if (n > 0 || more)
		rdsi_tx_gained(c);
	return n > 0 || more;
}

/* rdsi_tx_take_id takes a free message id for something to d. There is one. */
uint32_t rdsi_tx_take_id(rds_client *c, struct rdsi_dest *d)
{
	if (d->pending++ == 0)
		rdsi_list_add(d->sock->busy.prev, &d->on_busy);
	return c->tx.free[--c->tx.nfree];
}

void rdsi_tx_unlock(rds_client *c)
{
	bool ring = false;
	if (!c->tx.dead && rdsi_publish(&c->seg.sub)) {
		c->tx.published++;
		ring = rdsi_daemon_sleeps(c);
	}
	pthread_mutex_unlock(&c->tx.mu);
	if (ring)
		rdsi_ring_daemon(c);
}

/* grown keeps the answer to the request for a window. A thread that finds the session broken reads answers
 * with tx.mu held, so it is taken in by the next that reaps. */
static void grown(struct rdsi_call *call, int err)
{
	rds_client *c = call->arg;
	struct rdsi_mapping m = {0};
	if (!err && call->nfds != 1)
		err = rdsi_broken(c, "an answer without a descriptor to GrowSend");
	if (!err)
		err = rdsi_map(call->fds[0], SHM_WINDOW_SIZE, true, false, &m);
	if (!err)
		err = rdsi_add_window(c, m);
	c->tx.grown = err ? (struct rdsi_mapping){0} : m;
	atomic_store(&c->tx.grow, RDSI_ANSWERED);
	rdsi_notify_everybody(c, WANT_MEMORY);
}

void rdsi_tx_grow(rds_client *c, int seen)
{
	struct rdsi_tx *t = &c->tx;
	pthread_mutex_lock(&t->mu);
	t->full = t->full || t->arena.count >= SHM_MAX_WINDOWS;
	bool need = atomic_load(&t->grow) == RDSI_NO_GROWTH && (int)t->arena.count == seen && !t->full && !t->dead;
	if (need)
		atomic_store(&t->grow, RDSI_ASKED);
	pthread_mutex_unlock(&t->mu);
	if (!need)
		return;
	struct rdsi_call none = {.arg = c}, *call = rdsi_call_new(IPC_GROW_SEND, IPC_GROW_SEND_OK);
	if (!call) {
		grown(&none, -ENOMEM);
		return;
	}
	call->late = grown;
	call->arg = c;
	int err = rdsi_call_run(c, call, rdsi_now());
	if (err != RDSI_LATE) {
		grown(call, err);
		rdsi_call_end(call);
	}
}
