/* Destinations and barrier cells. */
#include <stdlib.h>

#include "tx.h"

#define SLOT_FIELD(d, field) rdsi_slot_field(&(d)->sock->c->seg, (d)->slot, offsetof(struct shm_slot, field))

/* rdsi_dest_is_open reports whether the daemon has handled the slot's OpenDest. Until then the
 * slot shows the state of its former user. */
bool rdsi_dest_is_open(const struct rdsi_dest *d) { return SLOT_FIELD(d, gen) == d->gen; }

/* rdsi_dest_unknown reports whether d must be open before a message is submitted, because the
 * daemon may refuse it, and is not open yet. */
bool rdsi_dest_unknown(struct rdsi_dest *d)
{
	if (!d->known && d->sock->c->tx.asks) {
		d->known = rdsi_dest_is_open(d);
		return !d->known;
	}
	return false;
}

bool rdsi_dest_congested(const struct rdsi_dest *d) { return SLOT_FIELD(d, congested) != 0 && rdsi_dest_is_open(d); }

/* rdsi_cell_mark is the highest id up to which all operations are locally complete. */
uint64_t rdsi_cell_mark(rds_client *c, struct rdsi_cell *ce)
{
	if (ce->frozen || c->tx.dead)
		return ce->final;
	if (ce->first) {
		if (!rdsi_dest_is_open(ce->first))
			return 0;
		ce->first = NULL;
	}
	return rdsi_cell_hwm(&c->seg, ce->idx);
}

struct rdsi_dest *rdsi_dest_find(rds_socket *s, const struct rds_addr *to)
{
	struct rdsi_dest *d = s->last_dest;
	if (d && rdsi_same(&d->to, to))
		return d;
	for (struct rdsi_node *n = rdsi_hash_first(&s->dests, rdsi_hash_addr(to)); n; n = rdsi_hash_next(n)) {
		d = RDSI_OF(n, struct rdsi_dest, node);
		if (rdsi_same(&d->to, to))
			return d;
	}
	return NULL;
}

struct rdsi_cell *rdsi_cell_find(rds_socket *s, const struct rds_addr *a)
{
	for (struct rdsi_node *n = rdsi_hash_first(&s->cells, rdsi_hash_ip(a->ip)); n; n = rdsi_hash_next(n)) {
		struct rdsi_cell *ce = RDSI_OF(n, struct rdsi_cell, node);
		if (memcmp(ce->ip, a->ip, sizeof ce->ip) == 0)
			return ce;
	}
	return NULL;
}

/* free_slot finds a slot that was never used or whose destination is gone. If there is none it
 * closes an idle destination: one without anything pending that was not used since the hand
 * passed it last. */
static bool free_slot(rds_client *c, uint32_t *slot)
{
	struct rdsi_tx *t = &c->tx;
	uint32_t slots = c->seg.params.slots;
	if (t->nslots < slots) {
		*slot = t->nslots++;
		return true;
	}
	rdsi_tx_reap(c);
	for (uint32_t n = 0; n < 2 * slots; n++) {
		uint32_t i = t->hand;
		t->hand = (t->hand + 1) % slots;
		struct rdsi_dest *d = t->slots[i];
		if (d && d->used) {
			d->used = false;
			continue;
		}
		if (d && (d->pending || !rdsi_dest_is_open(d)))
			continue;
		if (d)
			rdsi_dest_close(d);
		*slot = i;
		return true;
	}
	return false;
}

/* new_cell makes the cell of s for the address of d, which is its first destination there. */
static struct rdsi_cell *new_cell(rds_socket *s, struct rdsi_dest *d)
{
	struct rdsi_tx *t = &s->c->tx;
	struct rdsi_cell *ce = calloc(1, sizeof *ce);
	if (!ce)
		return NULL;
	ce->idx = t->cell_free[--t->ncell_free];
	memcpy(ce->ip, d->to.ip, sizeof ce->ip);
	ce->first = d;
	atomic_store(rdsi_want_cell(&s->c->seg, ce->idx), 0);
	t->cells[ce->idx] = ce;
	rdsi_hash_add(&s->cells, &ce->node, rdsi_hash_ip(ce->ip));
	return ce;
}

/* submit_open writes the descriptor that opens d. */
static void submit_open(struct rdsi_dest *d)
{
	rds_client *c = d->sock->c;
	atomic_fetch_and(rdsi_want_slot(&c->seg, d->slot), ~(SHM_WANT_RELIEF | SHM_WANT_CROWDED));
	struct shm_sub_dest e = {.kind = SHM_KIND_OPEN_DEST, .sock = d->sock->handle, .slot = d->slot, .cell = d->cell->idx,
		.port = d->to.port, .lane = d->sock->lane,
		.flags = d->sock->anybody ? SHM_DEST_ANYBODY : 0, .gen = d->gen};
	memcpy(e.addr, d->to.ip, sizeof e.addr);
	memcpy(rdsi_reserve(&c->seg.sub), &e, sizeof e);
}

/* open_dest opens a slot. The opening is submitted together with the message behind it. */
static int open_dest(rds_socket *s, const struct rds_addr *to, struct rdsi_dest **dest)
{
	rds_client *c = s->c;
	struct rdsi_tx *t = &c->tx;
	int err = rdsi_check_dest(s, to);
	if (!err && s->anybody && !t->anybody)
		err = -EOPNOTSUPP;
	if (err)
		return err;
	/* What follows an opening never finds the ring full. */
	if (!rdsi_free_at_least(&c->seg.sub, RDSI_OPEN_ENTRIES))
		return RDSI_RING_FULL;
	struct rdsi_cell *ce = rdsi_cell_find(s, to);
	if (!ce && t->ncell_free == 0)
		return -EMLINK;
	if (rdsi_hash_reserve(&s->dests) || rdsi_hash_reserve(&s->cells))
		return -ENOMEM;
	struct rdsi_dest *d = calloc(1, sizeof *d);
	if (!d)
		return -ENOMEM;
	d->sock = s;
	d->to = *to;
	d->run.id = RDSI_NO_ID;
	rdsi_list_init(&d->on_busy);
	rdsi_list_init(&d->on_over);
	if (!free_slot(c, &d->slot) || !(d->cell = ce ? ce : new_cell(s, d))) {
		free(d);
		return -EMLINK;
	}
	if (++t->gen == 0)
		t->gen = 1; /* 0 is closed */
	d->gen = t->gen;
	d->open = s->opened = true;
	t->slots[d->slot] = d;
	rdsi_hash_add(&s->dests, &d->node, rdsi_hash_addr(to));
	atomic_fetch_add(&s->refs, 1);
	submit_open(d);
	*dest = d;
	return 0;
}

/* rdsi_dest_get finds the destination to, or opens it. */
int rdsi_dest_get(rds_socket *s, const struct rds_addr *to, struct rdsi_dest **d)
{
	*d = rdsi_dest_find(s, to);
	int err = *d ? 0 : open_dest(s, to, d);
	if (!err) {
		(*d)->used = true;
		s->last_dest = *d;
	}
	return err;
}

void rdsi_dest_end(struct rdsi_dest *d)
{
	if (d->open || d->pending)
		return;
	rds_socket *s = d->sock;
	free(d);
	rdsi_socket_put(s);
}

/* forget takes d out of the tables. */
static void forget(struct rdsi_dest *d)
{
	rds_socket *s = d->sock;
	rdsi_list_del(&d->on_over);
	d->over = false;
	s->c->tx.slots[d->slot] = NULL;
	rdsi_hash_del(&s->dests, &d->node);
	if (s->last_dest == d)
		s->last_dest = NULL;
	d->open = false;
}

/* rdsi_dest_close closes d, which is open and has nothing pending. The ring has room. */
void rdsi_dest_close(struct rdsi_dest *d)
{
	struct shm_sub_dest e = {.kind = SHM_KIND_CLOSE_DEST, .sock = d->sock->handle, .slot = d->slot};
	if (d->cell->first == d)
		d->cell->first = NULL; /* it is open, so the daemon knows the cell */
	memcpy(rdsi_reserve(&d->sock->c->seg.sub), &e, sizeof e);
	forget(d);
	/* Nobody announces relief of a closed slot: a sender that waits for it looks again, and
	 * opens another. */
	rdsi_relieve(d);
	rdsi_dest_end(d);
}

/* rdsi_forget_socket drops all slots and cells of a socket. answered says that the daemon has
 * closed the socket, behind everything that was submitted. */
void rdsi_forget_socket(rds_socket *s, bool answered)
{
	struct rdsi_tx *t = &s->c->tx;
	struct rdsi_node *n;
	pthread_mutex_lock(&t->mu);
	for (uint32_t i = 0; i < s->cells.size; i++) {
		for (n = s->cells.heads[i]; n; n = n->next) {
			struct rdsi_cell *ce = RDSI_OF(n, struct rdsi_cell, node);
			if (answered)
				ce->first = NULL;
			if (!ce->frozen)
				ce->final = rdsi_cell_mark(s->c, ce);
			ce->frozen = true;
			ce->first = NULL;
			t->cells[ce->idx] = NULL;
			t->cell_free[t->ncell_free++] = ce->idx;
		}
	}
	uint32_t at = 0;
	while ((n = rdsi_hash_any(&s->dests, &at))) {
		struct rdsi_dest *d = RDSI_OF(n, struct rdsi_dest, node);
		forget(d);
		rdsi_dest_end(d);
	}
	pthread_mutex_unlock(&t->mu);
}
