/* What a message has besides a payload: operations, a cookie, a payload in a buffer, a limit. */
#include "buffer.h"
#include "op.h"
#include "trace.h"
#include "tx.h"

_Static_assert(RDS_OP_WRITE == ABI_OP_WRITE && RDS_OP_READ == ABI_OP_READ, "kinds");
_Static_assert(RDS_OP_FETCH_ADD == ABI_OP_FETCH_ADD && RDS_OP_CMP_SWAP == ABI_OP_CMP_SWAP, "kinds");
_Static_assert(RDS_MAX_RDMA == ABI_MAX_RDMA && RDS_MAX_MESSAGE == ABI_MAX_MESSAGE && RDS_MAX_SEGMENTS == ABI_MAX_SEGS &&
	RDS_MAX_TRANSFER == ABI_MAX_TRANSFER, "limits");

enum { ATOMIC_SIZE = 8, ALL_OP_FLAGS = RDS_OP_NOTIFY | RDS_OP_REPORT | RDS_OP_SILENT };

/* check_segment checks that g is memory of this client with at least least bytes. */
static int check_segment(rds_client *c, const struct rds_segment *g, size_t least)
{
	const rds_buffer *b = g->buffer;
	if (!b || b->c != c || b->freed || g->len < least || g->off > b->size || g->len > b->size - g->off)
		return -EINVAL;
	return 0;
}

/* check_rdma checks what the client can check. The daemon checks the rest, and its result is a
 * status. */
static int check_rdma(rds_client *c, const struct rds_rdma *op)
{
	if ((op->kind != RDS_OP_READ && op->kind != RDS_OP_WRITE) || op->flags & ~(unsigned)(ALL_OP_FLAGS | RDS_OP_OWNER) || !op->cookie || !op->segments)
		return -EINVAL;
	if (op->segments > RDS_MAX_SEGMENTS)
		return -EMSGSIZE;
	size_t total = 0;
	for (size_t i = 0; i < op->segments; i++) {
		int err = check_segment(c, &op->local[i], 1);
		if (err)
			return err;
		if (op->local[i].len > RDS_MAX_TRANSFER - total)
			return -EMSGSIZE;
		total += op->local[i].len;
	}
	return 0;
}

static int check_atomic(rds_client *c, const struct rds_atomic *a)
{
	bool add = a->kind == RDS_OP_FETCH_ADD;
	if ((!add && a->kind != RDS_OP_CMP_SWAP) || a->flags & ~(unsigned)ALL_OP_FLAGS || !a->cookie || (add && a->masked))
		return -EINVAL;
	if (!a->masked && (a->compare_mask | a->swap_mask))
		return -EINVAL;
	int err = check_segment(c, &a->local, 1);
	if (!err && (a->local.len != ATOMIC_SIZE || (a->local.buffer->shift + a->local.off) % ATOMIC_SIZE))
		err = -EFAULT;
	return err;
}

static bool settles(uint32_t flags) { return flags & (RDS_OP_NOTIFY | RDS_OP_REPORT); }

static bool room_to_settle(rds_socket *s, int n)
{
	int room = (int)s->c->tx.max_msgs - n;
	if (atomic_load(&s->promised) + atomic_load(&s->queued_comps) <= room)
		return true;
	/* Returned messages give back their places. */
	return rdsi_tx_reap(s->c) && atomic_load(&s->promised) + atomic_load(&s->queued_comps) <= room;
}

int rdsi_check_extras(rds_socket *s, struct rds_msg *m)
{
	rds_client *c = s->c;
	int err = 0, count = 0;
	if (m->flags & RDS_NOTIFY) {
		if (m->op || m->atomic)
			return -EINVAL;
		if (!c->tx.tells)
			return -EOPNOTSUPP;
		count++;
	}
	uint8_t parent[SHM_TRACEPARENT_LEN];
	if (rdsi_traced(m) && (err = rdsi_trace_parse(m->traceparent, parent)))
		return err;
	if (m->from.buffer || m->from.len) {
		size_t n;
		if (rdsi_iov_len(m->iov, m->iovlen, &n) || n)
			return -EINVAL;
		err = check_segment(c, &m->from, 0);
	}
	if (!err && m->op) {
		err = check_rdma(c, m->op);
		count += settles(m->op->flags);
	}
	if (!err && m->atomic) {
		err = check_atomic(c, m->atomic);
		count += settles(m->atomic->flags);
	}
	if (err)
		return err;
	if (m->cookie && (m->op || m->atomic || !rdsi_region_known(c, m->cookie)))
		return -EINVAL;
	if ((count && !room_to_settle(s, count)) || (m->flags & RDS_ZERO_COPY && s->zc_open >= c->tx.max_msgs))
		return -ENOSPC;
	return 0;
}

/* rdsi_names_freed reports that a buffer that m names was closed. */
bool rdsi_names_freed(const struct rds_msg *m)
{
	if ((m->from.buffer && m->from.buffer->freed) || (m->atomic && m->atomic->local.buffer->freed))
		return true;
	for (size_t i = 0; m->op && i < m->op->segments; i++)
		if (m->op->local[i].buffer->freed)
			return true;
	return false;
}

/* list_size is the size of the segment list. A single segment is in the descriptor. */
static size_t list_size(const struct rds_msg *m)
{
	return m->op && m->op->segments > 1 ? m->op->segments * sizeof(struct shm_seg_entry) : 0;
}

/* rdsi_op_memory is how much of the send arena m's operations take: the segment list, and behind
 * it, at a multiple of SHM_UNIT, the operands of the atomic. */
size_t rdsi_op_memory(const struct rds_msg *m)
{
	size_t n = list_size(m);
	return m->atomic ? rdsi_round_up(n, SHM_UNIT) + sizeof(struct shm_atomic_entry) : n;
}

static struct shm_atomic_entry operands(const struct rds_atomic *a)
{
	if (a->kind == RDS_OP_FETCH_ADD)
		return (struct shm_atomic_entry){.compare_add = a->add, .compare_mask = a->no_carry};
	if (a->masked)
		return (struct shm_atomic_entry){a->compare, a->swap, a->compare_mask, a->swap_mask};
	return (struct shm_atomic_entry){a->compare, a->swap, ~UINT64_C(0), ~UINT64_C(0)};
}

void rdsi_put_op_memory(const struct rds_msg *m, uint8_t *b)
{
	for (size_t i = 0; list_size(m) && i < m->op->segments; i++) {
		const struct rds_segment *g = &m->op->local[i];
		struct shm_seg_entry e = {.region = g->buffer->id, .off = g->buffer->shift + g->off, .len = g->len};
		memcpy(b + i * sizeof e, &e, sizeof e);
	}
	if (m->atomic) {
		struct shm_atomic_entry e = operands(m->atomic);
		memcpy(b + rdsi_round_up(list_size(m), SHM_UNIT), &e, sizeof e);
	}
}

static uint16_t op_flags(uint32_t flags)
{
	return (uint16_t)((flags & RDS_OP_SILENT ? ABI_FLAG_SILENT : 0) | (flags & RDS_OP_REPORT ? ABI_FLAG_REPORT : 0) |
		(flags & RDS_OP_NOTIFY ? ABI_FLAG_NOTIFY : 0) | (flags & RDS_OP_OWNER ? ABI_FLAG_OWNER : 0));
}

/* promise reserves a place for the status of the operation that was just submitted. */
static void promise(rds_socket *s, struct rdsi_cell *ce, uint32_t id, uint32_t flags)
{
	if (!settles(flags))
		return;
	s->c->tx.msgs[id].settles++;
	atomic_fetch_add(&s->promised, 1);
	rdsi_promise(s, ce, ce->last, id, flags & RDS_OP_NOTIFY);
}

static uint64_t commit_rdma(rds_client *c, struct rdsi_cell *ce, const struct rds_rdma *op, uint32_t list)
{
	struct shm_sub_op e = {.op = (uint8_t)op->kind, .flags = op_flags(op->flags), .n_seg = (uint16_t)op->segments,
		.cookie = op->cookie, .remote_off = op->remote_off, .token = op->token, .op_id = ++ce->last};
	for (size_t i = 0; i < op->segments; i++)
		e.len += op->local[i].len;
	if (op->segments == 1) {
		e.region = op->local[0].buffer->id;
		e.off = op->local[0].buffer->shift + op->local[0].off;
	} else {
		e.seg_chunk = list;
	}
	memcpy(rdsi_reserve(&c->seg.sub), &e, sizeof e);
	return e.op_id;
}

static uint64_t commit_atomic(rds_client *c, struct rdsi_cell *ce, const struct rds_atomic *a, uint32_t chunk)
{
	struct shm_sub_op e = {.op = (uint8_t)a->kind, .flags = op_flags(a->flags), .n_seg = 1, .region = a->local.buffer->id,
		.off = a->local.buffer->shift + a->local.off, .len = ATOMIC_SIZE, .seg_chunk = chunk, .cookie = a->cookie, .remote_off = a->remote_off,
		.token = a->token, .op_id = ++ce->last};
	memcpy(rdsi_reserve(&c->seg.sub), &e, sizeof e);
	return e.op_id;
}

/* rdsi_commit_extras completes the descriptor of m and writes those of its operations behind it.
 * It assigns the operations' ids, in the order of the ring. */
void rdsi_commit_extras(rds_socket *s, struct rdsi_out *m, struct rdsi_tx_msg *x, struct shm_sub *sub)
{
	struct rds_msg *e = m->x;
	struct rdsi_cell *ce = m->dest->cell;
	sub->cookie = e->cookie;
	sub->give_up = e->give_up_ms;
	sub->dst_inc = e->dst_inc;
	if (e->from.buffer && x->sum.bytes) {
		sub->flags |= SHM_SUB_FROM_BUF;
		sub->buf = e->from.buffer->id;
		sub->off = e->from.buffer->shift + e->from.off;
	}
	if (e->flags & RDS_ZERO_COPY) {
		x->zc = true;
		x->zc_cookie = e->zero_copy_cookie;
		s->zc_open++;
	}
	if (e->flags & RDS_NOTIFY) {
		sub->flags |= SHM_SUB_NOTIFY;
		x->notify = true;
		rdsi_await_return(s->c);
		x->settles++;
		atomic_fetch_add(&s->promised, 1);
		rdsi_promise_outcome(s, ce, m->id, e->token);
	}
	if (x->size > m->len)
		sub->flags |= SHM_SUB_TRACEPARENT;
	if (e->op || e->atomic)
		sub->kind = SHM_KIND_SEND_OP;
	if (e->op && e->atomic)
		sub->flags |= SHM_SUB_TWO_OPS;
	if (e->op) {
		e->op_id = commit_rdma(s->c, ce, e->op, x->op_mem);
		promise(s, ce, m->id, e->op->flags);
	}
	if (e->atomic) {
		e->atomic_id = commit_atomic(s->c, ce, e->atomic, x->op_mem + (uint32_t)(rdsi_round_up(list_size(e), SHM_UNIT) / SHM_UNIT));
		promise(s, ce, m->id, e->atomic->flags);
	}
}
