/*
 * Runs. A plain datagram of up to RUN_MAX bytes is sent as part of a run: it is appended to the
 * run of its destination if the daemon has not taken that yet, else it opens one. Nothing waits
 * for company. Everything else ends the destination's run before it, so that the order is
 * kept, and has a descriptor of its own.
 *
 * A call that sends several datagrams writes their frames first and then commits them together.
 * Until then the daemon does not see them and may take the run without them. Then they go into
 * another run.
 */
#include "trace.h"
#include "tx.h"

enum {
	RUN_MAX = 2 << 10,    /* the longest payload that goes into a run */
	LEAST_RUN = 256,      /* bytes of a run's chunk */
	MOST_RUN = 16 << 10,
	RUNS_TO_REAP = 8,     /* runs that are opened before a sender takes in returned messages */
};

bool rdsi_plain(const struct rds_msg *m)
{
	return !m->op && !m->atomic && !m->cookie && !m->from.buffer && !m->from.len && !(m->flags & (RDS_ZERO_COPY | RDS_NOTIFY)) && !m->give_up_ms && !m->dst_inc && !rdsi_traced(m);
}

/* rdsi_in_run reports whether m goes into a run. A ping, which is for port 0, does not. */
bool rdsi_in_run(rds_socket *s, const struct rdsi_out *m)
{
	const struct rds_addr *to = rdsi_no_addr(&m->to) ? &s->remote : &m->to;
	return !m->x && m->len <= RUN_MAX && to->port != 0;
}

/* shrink makes the next run smaller if r, which the daemon has taken, held little. */
static void shrink(struct rdsi_out_run *r)
{
	if (rdsi_run_len(r->state) < r->cap / 4)
		r->size = r->cap / 2 > LEAST_RUN ? r->cap / 2 : LEAST_RUN;
}

/* rdsi_run_takes reports whether a payload of n bytes can be appended to the run of d. After a
 * notice it cannot: what was submitted before the notice may end otherwise. */
bool rdsi_run_takes(struct rdsi_dest *d, size_t n)
{
	struct rdsi_out_run *r = &d->run;
	if (!r->mem || r->notices != atomic_load(&d->sock->noticed))
		return false;
	if (r->opened != d->sock->c->tx.published && r->next == r->state && atomic_load(rdsi_run_word(r->mem)) == SHM_RUN_CLOSED) {
		shrink(r);
		return false;
	}
	if (SHM_RUN_HEAD + rdsi_run_len(r->next) + rdsi_frame_size(n) > r->cap) {
		r->size = 2 * r->cap < MOST_RUN ? 2 * r->cap : MOST_RUN;
		return false;
	}
	return true;
}

/* room_to_open takes in returned messages now and then, and finds out why no run can be
 * opened. */
static int room_to_open(rds_client *c, struct rdsi_dest *d, struct rdsi_out *m)
{
	struct rdsi_tx *t = &c->tx;
	t->sends += RDSI_REAP_EVERY / RUNS_TO_REAP;
	if (t->sends < RDSI_REAP_EVERY && t->nfree > 0 && !rdsi_ids_over(d) && !rdsi_mem_over(d))
		return 0;
	rdsi_tx_reap(c);
	if (t->nfree == 0)
		return rdsi_starve(c, m);
	if (rdsi_ids_over(d))
		return rdsi_refuse(d);
	if (rdsi_mem_over(d))
		return t->full ? rdsi_refuse(d) : rdsi_starve(c, m);
	return 0;
}

/* open_run opens a run to d with room for m. */
static int open_run(rds_socket *s, struct rdsi_dest *d, struct rdsi_out *m)
{
	rds_client *c = s->c;
	struct rdsi_tx *t = &c->tx;
	struct rdsi_out_run *r = &d->run;
	if (!rdsi_free_at_least(&c->seg.sub, RDSI_MSG_ENTRIES))
		return RDSI_RING_FULL;
	int err = room_to_open(c, d, m);
	if (err)
		return err;
	size_t size = SHM_RUN_HEAD + rdsi_frame_size(m->len);
	if (size < LEAST_RUN)
		size = LEAST_RUN;
	if (size < r->size)
		size = r->size;
	size_t before = t->arena.in_use;
	uint32_t chunk;
	if (!rdsi_arena_take(c, size, &before, &chunk))
		return rdsi_starve(c, m);
	uint32_t id = rdsi_tx_take_id(c, d), mem = (uint32_t)(t->arena.in_use - before);
	t->msgs[id] = (struct rdsi_tx_msg){.dest = d, .chunk = chunk, .size = (uint32_t)size, .mem = mem, .sent = true};
	d->mem += mem;
	*r = (struct rdsi_out_run){.mem = rdsi_arena_mem(&t->arena, chunk), .cap = size, .id = id, .size = size,
		.opened = t->published, .notices = atomic_load(&s->noticed)};
	atomic_store(rdsi_run_word(r->mem), 0);
	struct shm_sub sub = {.kind = SHM_KIND_RUN, .sock = s->handle, .slot = d->slot, .msg_id = id, .chunk = chunk, .len = (uint32_t)size};
	memcpy(rdsi_reserve(&c->seg.sub), &sub, sizeof sub);
	return 0;
}

/* unopen takes back the run to d that open_run has opened last. */
static void unopen(rds_client *c, struct rdsi_dest *d)
{
	c->seg.sub.next--;
	rdsi_tx_retire(c, d->run.id);
	rdsi_tx_gained(c);
}

/* put_frame writes the frame of a payload of n bytes behind the others. The padding is 0: what
 * the memory had before is nobody else's business. After -EFAULT nothing is behind the others. */
static int put_frame(struct rdsi_out_run *r, const struct iovec *iov, size_t iovlen, size_t n)
{
	uint8_t *b = r->mem + SHM_RUN_HEAD + rdsi_run_len(r->next);
	rdsi_put32(b + rdsi_frame_size(n) - FRAMES_HEAD, 0);
	rdsi_put32(b, (uint32_t)n);
	int err = rdsi_gather(b + FRAMES_HEAD, iov, iovlen);
	if (err)
		return err;
	r->next = rdsi_run_append(r->next, n);
	r->fresh += n > 0;
	return 0;
}

/* rdsi_append writes the frame of m into the run of its destination. It is uncommitted then. */
int rdsi_append(rds_socket *s, struct rdsi_out *m, bool arm)
{
	rds_client *c = s->c;
	struct rdsi_dest *d;
	int err = rdsi_toward(s, m, arm, &d);
	if (err)
		return err;
	if (c->tx.cur && c->tx.cur != d)
		return RDSI_OTHER_RUN;
	if (!rdsi_room(s)) {
		rdsi_tx_reap(c);
		if (rdsi_full(s, arm))
			return RDSI_FULL;
	}
	bool fresh = !rdsi_run_takes(d, m->len);
	if (fresh) {
		if (c->tx.cur)
			return RDSI_OTHER_RUN;
		d->run.mem = NULL;
		if ((err = open_run(s, d, m)))
			return err;
	}
	if ((err = put_frame(&d->run, m->iov, m->iovlen, m->len))) {
		if (fresh)
			unopen(c, d); /* the daemon takes no run without a datagram */
		return err;
	}
	rdsi_charge(d, &(struct rdsi_sum){1, m->len > 0, m->len});
	c->tx.cur = d;
	return 0;
}

/* rdsi_append_more appends those of msgs that go on where the last append of this call ended:
 * plain datagrams to the same destination, for which there is room. It returns how many. What
 * rdsi_append has checked still holds, because tx.mu was held since. */
size_t rdsi_append_more(rds_client *c, struct rds_msg *msgs, size_t count)
{
	struct rdsi_dest *d = c->tx.cur;
	rds_socket *s = d->sock;
	size_t n = 0, bytes = s->sndbuf - rdsi_charged(s), few = rdsi_max_msgs(s->sndbuf) - s->msgs;
	struct rdsi_sum sum = {0};
	if (rdsi_charged(s) >= s->sndbuf || s->msgs >= rdsi_max_msgs(s->sndbuf))
		return 0;
	for (; n < count; n++) {
		struct rds_msg *m = &msgs[n];
		size_t k;
		if (!rdsi_plain(m) || rdsi_iov_len(m->iov, m->iovlen, &k) || k > RUN_MAX || k > s->sndbuf)
			break;
		if (!rdsi_same(rdsi_no_addr(&m->addr) ? &s->remote : &m->addr, &d->to))
			break;
		if (sum.bytes >= bytes || sum.non_empty >= few || !rdsi_run_takes(d, k))
			break;
		m->op_id = m->atomic_id = 0;
		if (put_frame(&d->run, m->iov, m->iovlen, k))
			break; /* its own submission fails */
		sum.datagrams++;
		sum.non_empty += k > 0;
		sum.bytes += k;
	}
	rdsi_charge(d, &sum);
	return n;
}

/* rdsi_commit_run lets the daemon see the uncommitted frames. It returns false if the daemon
 * has taken their run without them, so that they are to be sent again. */
bool rdsi_commit_run(rds_client *c)
{
	struct rdsi_dest *d = c->tx.cur;
	if (!d)
		return true;
	c->tx.cur = NULL;
	struct rdsi_out_run *r = &d->run;
	if (rdsi_half_full(d->sock))
		r->next |= SHM_RUN_ACK_NOW;
	if (r->mem) {
		uint64_t was = r->state;
		if (r->opened == c->tx.published) {
			atomic_store(rdsi_run_word(r->mem), r->next);
		} else if (!atomic_compare_exchange_strong(rdsi_run_word(r->mem), &was, r->next)) {
			shrink(r);
			r->mem = NULL;
		}
	}
	struct rdsi_sum sum = {rdsi_run_datagrams(r->next) - rdsi_run_datagrams(r->state), r->fresh,
		rdsi_run_payload(r->next) - rdsi_run_payload(r->state)};
	r->fresh = 0;
	if (!r->mem) {
		rdsi_uncharge(d, &sum);
		return false;
	}
	r->state = r->next;
	struct rdsi_tx_msg *x = &c->tx.msgs[r->id];
	x->sum.datagrams += sum.datagrams;
	x->sum.non_empty += sum.non_empty;
	x->sum.bytes += sum.bytes;
	return true;
}
