/*
 * rma.c - reads and writes of a peer's memory. The peer carries them out as it makes progress, or they
 * go directly, as operations of librds, which need no progress of the target.
 *
 * A peer's answer says where the region is, if the target's daemon may use it. Then operations with registered
 * memory at this end go directly. One that was refused or dropped is carried out by the target: the program sees nothing
 * of it. But it comes behind later ones, and what a connection that broke had brought is written again. So at an endpoint
 * that was opened with an order of remote memory the targets carry out all.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

enum { DIRECT_MIN = 4096 };

/* ---- Directly ---- */

static struct rkey *rkey(struct rfi_ep *ep, const struct peer *p, uint64_t key)
{
	return &ep->rkeys[rfi_hash((uint64_t)(uintptr_t)p >> 4 ^ key << 16, RKEYS)];
}

/* direct tells whether op can go directly. */
static bool direct(struct rfi_ep *ep, struct op *op)
{
	const struct rkey *k = rkey(ep, op->peer, op->head.tag);
	if (k->peer != op->peer || k->key != op->head.tag || op->head.addr < k->base)
		return false;
	if (ep->ordered || ep->domain->closing || op->kind == OP_ATOMIC || op->len < DIRECT_MIN || op->len > RDS_MAX_TRANSFER)
		return false;
	for (size_t i = 0; i < op->iovs; i++)
		if (rds_segment_at(ep->domain->client, op->iov[i].iov_base, op->iov[i].iov_len, &op->local[i]))
			return false;
	op->cookie = k->cookie;
	op->remote_off = op->head.addr - k->base;
	return true;
}

/* rfi_rma_start starts op, which may go directly if its payload was not copied. */
void rfi_rma_start(struct rfi_ep *ep, struct op *op, bool copied)
{
	op->direct = !copied && direct(ep, op);
	rfi_queue(ep, op, Q_RMA);
}

/* rfi_direct_xmit sends op. 0: it cannot go directly any more, and the target carries it out. */
int rfi_direct_xmit(struct rfi_ep *ep, struct op *op)
{
	struct wire w = {.magic = WIRE_MAGIC, .kind = W_WROTE, .len = op->len, .data = op->head.data};
	struct iovec iov = {&w, sizeof w};
	bool tells = op->head.flags & W_CQ_DATA;
	struct rds_rdma rdma = {
		.kind = op->kind == OP_WRITE ? RDS_OP_WRITE : RDS_OP_READ, .cookie = op->cookie, .remote_off = op->remote_off,
		.flags = RDS_OP_NOTIFY | RDS_OP_OWNER | (tells ? 0 : RDS_OP_SILENT), .token = op->name.id,
		.local = op->local, .segments = op->iovs,
	};
	struct rds_msg msg = {.op = &rdma, .iov = &iov, .iovlen = tells ? 1 : 0};
	int err = rfi_push(ep, op->peer, &msg);
	if (!err || err == -EAGAIN || ep->failed)
		return err ? err : 1;
	op->direct = false;
	return 0;
}

/* rfi_direct_end takes the status of op. If it has not run, and the peer is there, the peer carries it out. */
void rfi_direct_end(struct rfi_ep *ep, struct op *op, const struct rds_completion *c, int err)
{
	bool refused = c->status == RDS_REMOTE_ERROR, dropped = c->status == RDS_DROPPED && c->err != ECONNREFUSED;
	if (refused)
		rkey(ep, op->peer, op->head.tag)->peer = NULL;
	if (!refused && !dropped) {
		rfi_op_end(ep, op, err);
		return;
	}
	op->peer->owed -= op->owed;
	op->direct = op->owed = false;
	rfi_queue(ep, op, Q_RMA);
}

/* rfi_direct_leave has the targets carry out what waits to go directly with memory of b, and returns whether b is in use. */
bool rfi_direct_leave(struct rfi_domain *d, const rds_buffer *b)
{
	bool used = false;
	LIST_EACH(l, after, &d->eps) {
		struct rfi_ep *ep = LIST_ENTRY(l, struct rfi_ep, link);
		LIST_EACH(k, then, &ep->ops) {
			struct op *op = LIST_ENTRY(k, struct op, all);
			bool uses = false;
			for (size_t i = 0; i < op->iovs && op->direct; i++)
				uses = uses || op->local[i].buffer == b;
			used = used || (uses && op->owed);
			op->direct = op->direct && (!uses || op->owed);
		}
	}
	return used;
}

/* rfi_learn keeps what the answer to op says of its region. */
void rfi_learn(struct rfi_ep *ep, const struct op *op, const struct wire *w)
{
	if (w->data)
		*rkey(ep, op->peer, op->head.tag) = (struct rkey){op->peer, op->head.tag, w->data, w->tag};
}

/* tell stores in an answer where mr is. The region is for operations at one endpoint, which does not count accesses. */
static void tell(struct rfi_ep *ep, struct rfi_mr *mr, struct wire *answer)
{
	if (mr->buffer && !mr->owner && !ep->bound[C_REMOTE_READ] && !ep->bound[C_REMOTE_WRITE]) {
		unsigned reads = mr->access & FI_REMOTE_READ ? RDS_ALLOW_READ : 0;
		unsigned writes = mr->access & FI_REMOTE_WRITE ? RDS_ALLOW_WRITE : 0;
		if (rds_register(ep->socket, mr->buffer, 0, mr->len, RDS_OPEN | reads | writes, &mr->region))
			mr->region = NULL; /* and the daemon is not asked again */
		mr->owner = ep;
	}
	answer->data = mr->region && mr->owner == ep ? rds_region_cookie(mr->region) : 0;
	answer->tag = mr->base;
}

/* rfi_direct_close gives up the regions of an endpoint that is being closed. */
void rfi_direct_close(struct rfi_ep *ep)
{
	for (int i = 0; i < MR_HEADS; i++)
		LIST_EACH(l, after, &ep->domain->mrs[i]) {
			struct rfi_mr *mr = LIST_ENTRY(l, struct rfi_mr, link);
			if (mr->owner != ep)
				continue;
			rds_region_free(mr->region);
			mr->region = NULL;
			mr->owner = NULL;
		}
}

/* ---- By the target ---- */

/* rfi_wrote tells the program of data that came with a write or an atomic. It returns 0, or an error: there is no end
 * of what strangers may send. */
int rfi_wrote(struct rfi_ep *ep, const struct peer *p, const struct wire *w, size_t len)
{
	struct waitable *cq = ep->bound[RX_CQ];
	uint64_t family = w->kind == W_ATOMIC ? FI_ATOMIC : FI_RMA;
	struct cqe e = {.len = len, .data = w->data, .src = FI_ADDR_NOTAVAIL};
	e.flags = family | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
	if (ep->caps & FI_SOURCE)
		e.src = rfi_av_find(ep->av, &p->addr);
	if (cq && (!(ep->caps & family) || (cq->count >= cq->size && rfi_av_find(ep->av, &p->addr) == FI_ADDR_NOTAVAIL)))
		return FI_ENOMEM;
	return cq && !rfi_cq_add(cq, &e) ? FI_ENOMEM : 0;
}

void rfi_on_wrote(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	if (rfi_wrote(ep, p, w, w->len))
		WARN(FI_LOG_EP_DATA, "the data of a write is lost: the completion queue is full\n");
}

void rfi_on_write(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	int err;
	struct rfi_mr *mr = rfi_mr_find(ep->domain, w->tag, w->addr, len, FI_REMOTE_WRITE, &err);
	if (!mr) {
		rfi_answer(ep, p, W_ACK, w->id, err);
		return;
	}
	memcpy(mr->mem + (w->addr - mr->base), data, len);
	if (!(w->flags & W_LAST))
		return;
	rfi_count(ep, C_REMOTE_WRITE, false);
	struct wire ack = {.kind = W_ACK, .id = w->id};
	ack.err = w->flags & W_CQ_DATA ? (uint32_t)rfi_wrote(ep, p, w, w->len) : 0;
	tell(ep, mr, &ack);
	rfi_reply(ep, p, ack, NULL, 0);
}

void rfi_on_read(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	int err;
	struct rfi_mr *mr = rfi_mr_find(ep->domain, w->tag, w->addr, w->len, FI_REMOTE_READ, &err);
	struct op *op = mr ? rfi_reply_op(ep, p, OP_SERVE, w, 0) : NULL;
	if (!op) {
		rfi_answer(ep, p, W_ACK, w->id, mr ? FI_ENOMEM : err);
		return;
	}
	op->len = w->len;
	tell(ep, mr, &op->head);
	op->head.tag = w->tag; /* serve() puts the base there */
	op->head.flags = 0;
	rfi_queue(ep, op, Q_REPLY);
}

/* rfi_on_part takes a piece of what an operation reads. */
void rfi_on_part(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	struct op *op = rfi_named(ep->op_ids, w->id);
	if (!op || op->peer != p || !op->owed || op->direct || (op->kind != OP_READ && op->kind != OP_ATOMIC))
		return;
	rfi_scatter(op->iov, op->iovs, w->addr, data, len);
	if (!(w->flags & W_LAST))
		return;
	rfi_learn(ep, op, w);
	rfi_op_end(ep, op, 0);
}
