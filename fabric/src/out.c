/* out.c - what goes out. Each peer has its queues, and peers take turns, so that none that is congested holds up another. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

enum { PIECES = 64 }; /* that one call of rfi_out sends at least, if there are as many */

/* rfi_push gives a datagram to the socket. -EAGAIN: not now. */
int rfi_push(struct rfi_ep *ep, struct peer *p, struct rds_msg *msg)
{
	if (ep->failed)
		return -ep->failed;
	msg->addr = p->addr;
	msg->flags |= RDS_DONTWAIT;
	int err = rds_sendmsg(ep->socket, msg);
	if (err == -ENOBUFS)
		p->congested = true;
	else if (err == -EAGAIN || err == -ENOSPC || err == -EMLINK)
		ep->full = true;
	else
		return err;
	return -EAGAIN;
}

/* rfi_xmit sends one datagram. With a token its status is reported. */
int rfi_xmit(struct rfi_ep *ep, struct peer *p, const struct wire *w, const struct iovec *iov, size_t iovs, uint64_t token)
{
	struct wire head = *w;
	struct iovec all[1 + IOV_LIMIT] = {{&head, sizeof head}};
	struct rds_msg msg = {.flags = token ? RDS_NOTIFY : 0, .iov = all, .iovlen = 1 + iovs, .token = token};
	head.magic = WIRE_MAGIC;
	for (size_t i = 0; i < iovs; i++)
		all[1 + i] = iov[i];
	if (w->kind == W_PROBE)
		msg.dst_inc = p->inc;
	return rfi_push(ep, p, &msg);
}

/* busy puts p behind those that have something to send, or takes it out. */
static void busy(struct rfi_ep *ep, struct peer *p)
{
	bool some = false;
	for (int q = 0; q < Q_COUNT; q++)
		some = some || (!list_empty(&p->queue[q]) && !(q == Q_MSG && p->off));
	if (!some)
		list_del(&p->busy);
	else if (list_empty(&p->busy))
		list_add(&ep->busy, &p->busy);
}

/*
 * A message is complete
 * - with FI_INJECT_COMPLETE when it is copied. What becomes of it then is told to nobody;
 * - with FI_DELIVERY_COMPLETE when the peer says that it is in the memory of a receive, or kept for one;
 * - else, with FI_TRANSMIT_COMPLETE, when its status comes: the peer's host has it, or it never will.
 * Those of fi_inject have no completion, and a status for each would cost the daemon's runs. So they have
 * one as long as nothing is known of the peer: what goes to an absent peer, or behind what was lost, has an
 * error. A long message waits for the receiver, and with any level at least for the last piece's status.
 */
enum level { COPIED, ACKED, PLACED };

static enum level level(const struct op *op)
{
	if (op->flags & FI_DELIVERY_COMPLETE)
		return PLACED;
	if (op->flags & QUIET && op->flags & FI_INJECT)
		return op->peer->met ? COPIED : ACKED;
	return op->flags & FI_INJECT_COMPLETE ? COPIED : ACKED;
}

/* chunk sends the next piece of a long payload. It returns 1 when it was the last. */
static int chunk(struct rfi_ep *ep, struct op *op, uint8_t kind, const struct iovec *iov, size_t iovs, uint64_t base, uint64_t token)
{
	struct wire w = op->head;
	struct iovec part[IOV_LIMIT];
	size_t left = op->len - op->off, parts, n = rfi_slice(iov, iovs, op->off, left < CHUNK ? left : CHUNK, part, &parts);
	bool last = op->off + n >= op->len;
	w.kind = kind;
	w.addr = base + op->off;
	w.flags |= last ? W_LAST : 0;
	int err = rfi_xmit(ep, op->peer, &w, part, parts, last ? token : 0);
	if (err)
		return err;
	op->off += n;
	return last;
}

/* serve sends a piece of what a peer reads. The region is looked up again each time: it may have gone. */
static int serve(struct rfi_ep *ep, struct op *op)
{
	int err;
	struct rfi_mr *mr = rfi_mr_find(ep->domain, op->head.tag, op->head.addr, op->len, FI_REMOTE_READ, &err);
	if (!mr) {
		struct wire w = {.kind = W_ACK, .id = op->head.id, .err = (uint32_t)err};
		err = rfi_xmit(ep, op->peer, &w, NULL, 0, 0);
		return err ? err : 1;
	}
	struct iovec from = {mr->mem + (op->head.addr - mr->base), op->len};
	struct wire keep = op->head;
	op->head.tag = mr->base;
	int done = chunk(ep, op, W_PART, &from, 1, 0, 0);
	op->head = keep;
	return done;
}

/* piece sends one datagram of op. It returns 0 if there is more, 1 if op has gone out, or an error. */
static int piece(struct rfi_ep *ep, struct op *op)
{
	int err;
	switch (op->kind) {
	case OP_DATA:
		return chunk(ep, op, W_DATA, op->iov, op->iovs, 0, level(op) == PLACED ? 0 : op->id);
	case OP_WRITE:
	case OP_READ:
		if (op->direct)
			err = rfi_direct_xmit(ep, op);
		else if (op->kind == OP_WRITE)
			return chunk(ep, op, W_WRITE, op->iov, op->iovs, op->head.addr, 0);
		else
			err = rfi_xmit(ep, op->peer, &op->head, NULL, 0, 0);
		break;
	case OP_SERVE:
		return serve(ep, op);
	case OP_RTS:
		err = rfi_xmit(ep, op->peer, &op->head, NULL, 0, 0);
		break;
	default:
		err = rfi_xmit(ep, op->peer, &op->head, op->iov, op->iovs, op->kind == OP_MSG && level(op) == ACKED ? op->id : 0);
	}
	return err ? err : 1;
}

/* try sends a piece of op, and returns false if it cannot go now. */
static bool try(struct rfi_ep *ep, struct op *op)
{
	int done = piece(ep, op);
	if (done == -EAGAIN)
		return false;
	if (!done)
		return true;
	list_del(&op->out);
	if (op->kind == OP_REPLY || op->kind == OP_SERVE)
		rfi_op_free(ep, op);
	else if (done < 0)
		rfi_op_end(ep, op, -done);
	else if (op->kind == OP_MSG && level(op) == COPIED)
		rfi_op_end(ep, op, 0);
	else if (op->kind != OP_MSG || level(op) == PLACED)
		rfi_op_owe(op);
	return true;
}

/* rfi_queue sends op, or what of it can go, and queues the rest. */
void rfi_queue(struct rfi_ep *ep, struct op *op, int queue)
{
	struct peer *p = op->peer;
	bool first = list_empty(&p->queue[queue]) && !(queue == Q_MSG && p->off);
	list_add(&p->queue[queue], &op->out);
	if (first)
		try(ep, op);
	busy(ep, p);
}

/* turn sends a piece to p from the next of its queues, and returns whether something went. */
static bool turn(struct rfi_ep *ep, struct peer *p)
{
	for (int i = 0; i < Q_COUNT; i++) {
		int q = p->turn = (p->turn + 1) % Q_COUNT;
		if (!list_empty(&p->queue[q]) && !(q == Q_MSG && p->off))
			return try(ep, LIST_ENTRY(p->queue[q].next, struct op, out));
	}
	return false;
}

void rfi_out(struct rfi_ep *ep)
{
	int left = PIECES;
	bool some = true;
	ep->full = false;
	LIST_EACH(c, next, &ep->busy)
		LIST_ENTRY(c, struct peer, busy)->congested = false;
	while (some && left > 0 && !ep->full) {
		some = false;
		LIST_EACH(l, after, &ep->busy) {
			struct peer *p = LIST_ENTRY(l, struct peer, busy);
			if (!p->congested && turn(ep, p)) {
				some = true;
				left--;
			}
			busy(ep, p);
			if (ep->full && !list_empty(l)) { /* the next call begins with this one */
				list_del(&ep->busy);
				list_add(l, &ep->busy);
				break;
			}
		}
	}
}

/* rfi_reply sends an answer, now or when there is room. A peer that does not take its answers gets no more of them. */
void rfi_reply(struct rfi_ep *ep, struct peer *p, struct wire w, const void *data, size_t len)
{
	struct iovec iov = {(void *)(uintptr_t)data, len};
	if (list_empty(&p->queue[Q_REPLY]) && rfi_xmit(ep, p, &w, &iov, len ? 1 : 0, 0) != -EAGAIN)
		return;
	struct op *op = p->replies < REPLIES_MAX ? malloc(sizeof *op + len) : NULL;
	if (!op) {
		WARN(FI_LOG_EP_DATA, "a peer has %d answers to take, and no more are kept\n", p->replies);
		return;
	}
	*op = (struct op){.kind = OP_REPLY, .peer = p, .head = w};
	rfi_op_iov(op, &iov, 1, true);
	list_init(&op->all);
	p->replies++;
	list_add(&p->queue[Q_REPLY], &op->out);
	busy(ep, p);
}

void rfi_answer(struct rfi_ep *ep, struct peer *p, uint8_t kind, uint64_t id, int err)
{
	rfi_reply(ep, p, (struct wire){.kind = kind, .id = id, .err = (uint32_t)err}, NULL, 0);
}
