/* A message on its way into the submission ring. */
#include "trace.h"
#include "tx.h"

int rdsi_iov_len(const struct iovec *iov, size_t iovlen, size_t *len)
{
	*len = 0;
	for (size_t i = 0; i < iovlen; i++) {
		if (iov[i].iov_len > RDS_MAX_MESSAGE - *len)
			return -EMSGSIZE;
		*len += iov[i].iov_len;
	}
	return 0;
}

int rdsi_gather(uint8_t *dst, const struct iovec *iov, size_t iovlen)
{
	for (size_t i = 0; i < iovlen; i++) {
		if (iov[i].iov_len && RDSI_USER_COPY(dst, iov[i].iov_base, iov[i].iov_len))
			return -EFAULT;
		dst += iov[i].iov_len;
	}
	return 0;
}

/* rdsi_toward checks m and finds its destination, which may take messages. */
int rdsi_toward(rds_socket *s, struct rdsi_out *m, bool arm, struct rdsi_dest **dest)
{
	if (rdsi_no_addr(&m->to)) {
		if (rdsi_no_addr(&s->remote))
			return -ENOTCONN;
		m->to = s->remote;
	}
	size_t n = m->len;
	int err;
	if (m->x) {
		if (m->x->from.buffer && m->x->from.len > n)
			n = m->x->from.len;
		if (n <= s->sndbuf && n <= RDS_MAX_MESSAGE && (err = rdsi_check_extras(s, m->x)))
			return err;
	}
	if (n > s->sndbuf || n > RDS_MAX_MESSAGE)
		return -EMSGSIZE;
	struct rdsi_dest *d;
	if ((err = rdsi_dest_get(s, &m->to, &d)))
		return err;
	if (rdsi_dest_unknown(d))
		return RDSI_OPENING;
	struct rdsi_segment *seg = &s->c->seg;
	if (m->x && m->x->cookie && rdsi_dest_is_open(d) &&
	    rdsi_slot_field(seg, d->slot, offsetof(struct shm_slot, limits)) & SHM_SLOT_NO_RDMA)
		return -EOPNOTSUPP;
	if ((err = rdsi_unreachable(s, d)))
		return err;
	if (rdsi_look(d)) {
		if (!arm)
			return RDSI_CONGESTED;
		atomic_fetch_or(rdsi_want_slot(seg, d->slot), SHM_WANT_RELIEF);
		if (rdsi_look(d))
			return RDSI_CONGESTED;
	}
	*dest = d;
	return 0;
}

/* rdsi_starve notes that ids or memory ran out. */
int rdsi_starve(rds_client *c, struct rdsi_out *m)
{
	struct rdsi_tx *t = &c->tx;
	t->starved = true;
	m->windows = t->nfree == 0 || t->full ? -1 : (int)t->arena.count;
	return RDSI_NO_MEMORY;
}

/* rdsi_arena_take takes arena memory. If there is none it takes in returned messages and tries
 * again. *used is how much was in use before the message; it falls when messages come back. */
bool rdsi_arena_take(rds_client *c, size_t n, size_t *used, uint32_t *chunk)
{
	struct rdsi_arena *a = &c->tx.arena;
	if (rdsi_arena_alloc(a, n, chunk))
		return true;
	size_t now = a->in_use;
	if (!rdsi_tx_reap(c))
		return false;
	*used -= now - a->in_use;
	return rdsi_arena_alloc(a, n, chunk);
}

/* take_memory takes the memory of m's payload and operations. *mem is how much that was. */
static bool take_memory(rds_client *c, struct rdsi_out *m, struct rdsi_tx_msg *x, size_t op_size)
{
	struct rdsi_arena *a = &c->tx.arena;
	size_t before = a->in_use, size = m->len + rdsi_trace_tail(m->x, m->len);
	if (size && !rdsi_arena_take(c, size, &before, &x->chunk))
		return false;
	if (op_size && !rdsi_arena_take(c, op_size, &before, &x->op_mem)) {
		if (size)
			rdsi_arena_release(a, x->chunk, size);
		return false;
	}
	x->size = (uint32_t)size;
	x->op_size = (uint32_t)op_size;
	x->mem = (uint32_t)(a->in_use - before);
	return true;
}

/* set_aside takes an id and memory for m and charges its payload. */
static int set_aside(rds_socket *s, struct rdsi_out *m, struct rdsi_dest *d)
{
	rds_client *c = s->c;
	struct rdsi_tx *t = &c->tx;
	size_t op_size = m->x ? rdsi_op_memory(m->x) : 0;
	if (m->len + rdsi_trace_tail(m->x, m->len) + op_size > 0 && rdsi_mem_over(d)) {
		rdsi_tx_reap(c);
		if (rdsi_mem_over(d))
			return t->full ? rdsi_refuse(d) : rdsi_starve(c, m);
	}
	struct rdsi_tx_msg x = {.dest = d};
	if (!take_memory(c, m, &x, op_size))
		return rdsi_starve(c, m);
	size_t n = m->x && m->x->from.buffer ? m->x->from.len : m->len;
	x.sum = (struct rdsi_sum){1, n > 0, n};
	m->id = rdsi_tx_take_id(c, d);
	m->dest = d;
	t->msgs[m->id] = x;
	d->mem += x.mem;
	rdsi_charge(d, &x.sum);
	if (x.size)
		m->dst = rdsi_arena_mem(&t->arena, x.chunk);
	if (x.size > m->len)
		rdsi_trace_parse(m->x->traceparent, m->dst + m->len);
	if (op_size)
		rdsi_put_op_memory(m->x, rdsi_arena_mem(&t->arena, x.op_mem));
	return 0;
}

/* prepare checks m and sets aside what it needs. */
static int prepare(rds_socket *s, struct rdsi_out *m, bool arm)
{
	rds_client *c = s->c;
	struct rdsi_tx *t = &c->tx;
	struct rdsi_dest *d;
	int err = rdsi_toward(s, m, arm, &d);
	if (err)
		return err;
	if (++t->sends >= RDSI_REAP_EVERY || !rdsi_room(s) || t->nfree == 0 || rdsi_ids_over(d)) {
		rdsi_tx_reap(c);
		if (rdsi_full(s, arm))
			return RDSI_FULL;
		if (t->nfree == 0)
			return rdsi_starve(c, m);
		if (rdsi_ids_over(d))
			return rdsi_refuse(d);
	}
	return set_aside(s, m, d);
}

/* commit writes m's descriptors. The ring has room for RDSI_MSG_ENTRIES. It ends the
 * destination's run: another sender may have opened one since m was prepared. */
static void commit(rds_socket *s, struct rdsi_out *m)
{
	rds_client *c = s->c;
	struct rdsi_tx_msg *x = &c->tx.msgs[m->id];
	rdsi_end_run(m->dest);
	x->sent = true;
	struct shm_sub sub = {.kind = SHM_KIND_SEND, .sock = s->handle, .slot = m->dest->slot, .msg_id = m->id,
		.chunk = x->chunk, .len = (uint32_t)x->sum.bytes};
	if (rdsi_half_full(s))
		sub.flags = SHM_SUB_ACK_NOW;
	void *entry = rdsi_reserve(&c->seg.sub);
	if (m->x)
		rdsi_commit_extras(s, m, x, &sub);
	memcpy(entry, &sub, sizeof sub);
	m->id = RDSI_NO_ID;
}

/* rdsi_drop gives back what m had set aside. */
void rdsi_drop(rds_client *c, struct rdsi_out *m)
{
	if (m->id == RDSI_NO_ID)
		return;
	rdsi_tx_retire(c, m->id);
	rdsi_tx_gained(c);
	m->id = RDSI_NO_ID;
}

/* rdsi_submit puts m into the ring without publishing it. After a reason that can be waited
 * for, m keeps what was set aside for it. arm says that the caller is registered as a waiter
 * and wants congestion relief announced. */
int rdsi_submit(rds_socket *s, struct rdsi_out *m, bool arm)
{
	rds_client *c = s->c;
	int err = atomic_load(&s->closed) || c->tx.dead ? -EBADF : rdsi_sock_err(s);
	if (err) {
		rdsi_drop(c, m);
		return err;
	}
	if (rdsi_in_run(s, m))
		return rdsi_append(s, m, arm);
	if (c->tx.cur)
		return RDSI_OTHER_RUN;
	if (m->id != RDSI_NO_ID && m->x && rdsi_names_freed(m->x)) { /* while the ring was full */
		rdsi_drop(c, m);
		return -EINVAL;
	}
	if (m->id == RDSI_NO_ID) {
		if ((err = prepare(s, m, arm)))
			return err;
		if (!m->copied && m->len > RDSI_INLINE_COPY) {
			rdsi_pin(c);
			return RDSI_COPY;
		}
		if (!m->copied && (err = rdsi_gather(m->dst, m->iov, m->iovlen))) {
			rdsi_drop(c, m);
			return err;
		}
	}
	if (!rdsi_free_at_least(&c->seg.sub, RDSI_MSG_ENTRIES)) {
		m->copied = true;
		return RDSI_RING_FULL;
	}
	commit(s, m);
	return 0;
}

/* try_send submits m and publishes it. */
static int try_send(rds_socket *s, struct rdsi_out *m, bool arm)
{
	rds_client *c = s->c;
	pthread_mutex_lock(&c->tx.mu);
	int err = rdsi_submit(s, m, arm);
	while (!rdsi_commit_run(c)) /* the next run is not visible before it is committed */
		if ((err = rdsi_submit(s, m, arm)))
			break;
	rdsi_tx_unlock(c);
	return err;
}

/* rdsi_send queues m, waiting until the deadline, or with dont_wait not at all. */
int rdsi_send(rds_socket *s, struct rdsi_out *m, bool dont_wait, int64_t deadline)
{
	rds_client *c = s->c;
	struct rdsi_waiter w;
	bool entered = false;
	m->id = RDSI_NO_ID;
	m->copied = false;
	for (;;) {
		int err = try_send(s, m, entered);
		if (err > RDSI_FULL) {
			if (entered)
				rdsi_leave(&w);
			return err;
		}
		if (err == RDSI_COPY) {
			err = rdsi_gather(m->dst, m->iov, m->iovlen);
			m->copied = true;
			rdsi_unpin(c);
		} else {
			err = rdsi_send_wait(s, m, err, &w, &entered, dont_wait, deadline);
		}
		if (err) {
			if (entered)
				rdsi_leave(&w);
			pthread_mutex_lock(&c->tx.mu);
			rdsi_drop(c, m);
			pthread_mutex_unlock(&c->tx.mu);
			return err;
		}
	}
}
