/* progress.c - what goes out, and what has come. Each peer has its queues, and peers take turns, so that none that is
 * congested holds up another. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

enum { PIECES = 64, BUDGET = 64, STATUSES = 32, NOTICES = 16, ALL = 1 << 20 };

/* slice stores at to the pieces of iov with at most len bytes from off on, and returns how many bytes they have. */
static size_t slice(const struct iovec *iov, size_t iovs, size_t off, size_t len, struct iovec *to, size_t *n)
{
	size_t done = 0;
	*n = 0;
	for (size_t i = 0; i < iovs && done < len; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		size_t part = iov[i].iov_len - off;
		if (part > len - done)
			part = len - done;
		to[(*n)++] = (struct iovec){(char *)iov[i].iov_base + off, part};
		done += part;
		off = 0;
	}
	return done;
}

/* rfi_scatter copies data to iov at off, as far as there is room, and returns how much it copied. */
size_t rfi_scatter(const struct iovec *iov, size_t iovs, size_t off, const void *data, size_t len)
{
	struct iovec part[IOV_LIMIT];
	const char *from = data;
	size_t parts, n = slice(iov, iovs, off, len, part, &parts);
	for (size_t i = 0; i < parts; i++) {
		memcpy(part[i].iov_base, from, part[i].iov_len);
		from += part[i].iov_len;
	}
	return n;
}

/* ---- What goes out ---- */

/* rfi_push gives a datagram to the socket. -EAGAIN: not now. */
int rfi_push(struct rfi_ep *ep, struct peer *p, struct rds_msg *msg)
{
	if (ep->failed)
		return -ep->failed;
	msg->addr = p->addr;
	msg->flags |= RDS_DONTWAIT;
	int err = rds_sendmsg(ep->socket, msg);
	if (err == -ENOBUFS || err == -EMLINK)
		p->congested = true;
	else if (err == -EAGAIN || err == -ENOSPC)
		ep->full = true;
	else
		return err;
	return -EAGAIN;
}

/* rfi_xmit sends one datagram. With a token its status is reported. */
int rfi_xmit(struct rfi_ep *ep, struct peer *p, const struct wire *w, const struct iovec *iov, size_t n, uint64_t token)
{
	struct wire head = *w;
	struct iovec all[1 + IOV_LIMIT] = {{&head, sizeof head}};
	struct rds_msg msg = {.flags = token ? RDS_NOTIFY : 0, .iov = all, .iovlen = 1 + n, .token = token};
	head.magic = WIRE_MAGIC;
	for (size_t i = 0; i < n; i++)
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
		some = some || !list_empty(&p->queue[q]);
	if (!some)
		list_del(&p->busy);
	else if (list_empty(&p->busy))
		list_add(&ep->busy, &p->busy);
}

/*
 * A message is complete
 * - with FI_INJECT_COMPLETE when it is copied. What becomes of it then is told to nobody;
 * - with FI_DELIVERY_COMPLETE when the peer says that it is in the memory of a receive;
 * - else, with FI_TRANSMIT_COMPLETE, when its status comes: the peer's host has it, or it never will.
 * Those of fi_inject have no completion, and a status for each would cost the daemon's runs. So they have one as long
 * as nothing is known of the peer: what goes to an absent peer, or behind what was lost, has an error. A message that
 * is announced waits for the receiver, and with any level at least for the last piece's status. */
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
static int chunk(struct rfi_ep *ep, struct op *op, uint8_t kind, const struct iovec *iov, size_t iovs, uint64_t base,
		 uint64_t token)
{
	struct wire w = op->head;
	struct iovec part[IOV_LIMIT];
	size_t left = op->len - op->off, parts;
	size_t n = slice(iov, iovs, op->off, left < CHUNK ? left : CHUNK, part, &parts);
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
	if (done > 0)
		rfi_count(ep, C_REMOTE_READ, false);
	return done;
}

/* piece sends one datagram of op. It returns 0 if there is more, 1 if op has gone out, or an error. */
static int piece(struct rfi_ep *ep, struct op *op)
{
	struct iovec copy = {op->copy, op->len};
	if (op->kind == OP_MSG && op->peer->off) {
		op->kind = OP_RTS;
		op->head.kind = W_RTS;
	}
	uint64_t token = op->kind == OP_MSG && level(op) == ACKED ? op->name.id : 0;
	bool alone = op->kind == OP_RTS || op->kind == OP_READ; /* its memory is for later */
	int err;
	if (op->kind == OP_SERVE)
		return serve(ep, op);
	if (op->kind == OP_DATA)
		return chunk(ep, op, W_DATA, op->iov, op->iovs, 0, level(op) == PLACED ? 0 : op->name.id);
	if (op->kind == OP_WRITE && !op->direct)
		return chunk(ep, op, W_WRITE, op->iov, op->iovs, op->head.addr, 0);
	if (op->direct)
		return rfi_direct_xmit(ep, op);
	if (op->kind == OP_ATOMIC)
		err = rfi_xmit(ep, op->peer, &op->head, &copy, 1, 0);
	else
		err = rfi_xmit(ep, op->peer, &op->head, op->iov, alone ? 0 : op->iovs, token);
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
	bool first = list_empty(&p->queue[queue]);
	list_add(&p->queue[queue], &op->out);
	if (first)
		try(ep, op);
	if (!list_empty(&p->queue[queue]))
		rfi_wake(ep->domain); /* whoever waits has to wait for room, too */
	busy(ep, p);
}

/* turn sends a piece to p from the next of its queues, and returns whether something went. */
static bool turn(struct rfi_ep *ep, struct peer *p)
{
	for (int i = 0; i < Q_COUNT; i++) {
		int q = p->turn = (p->turn + 1) % Q_COUNT;
		if (!list_empty(&p->queue[q]))
			return try(ep, LIST_ENTRY(p->queue[q].next, struct op, out));
	}
	return false;
}

/* out sends what waits, at least PIECES datagrams if there are as many. */
static void out(struct rfi_ep *ep)
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
	struct op *op = rfi_reply_op(ep, p, OP_REPLY, &w, len);
	if (!op) {
		WARN(FI_LOG_EP_DATA, "a peer has %d answers to take, and no more are kept\n", p->replies);
		return;
	}
	rfi_op_iov(op, &iov, 1, true);
	list_add(&p->queue[Q_REPLY], &op->out);
	busy(ep, p);
}

void rfi_answer(struct rfi_ep *ep, struct peer *p, uint8_t kind, uint64_t id, int err)
{
	rfi_reply(ep, p, (struct wire){.kind = kind, .id = id, .err = (uint32_t)err}, NULL, 0);
}

/* ---- What has come ---- */

/* on_cts begins to send what the receiver wants of an announced message. */
static void on_cts(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	struct op *op = rfi_named(ep->op_ids, w->id);
	if (!op || op->peer != p || op->kind != OP_RTS || !op->owed || w->len > op->len)
		return;
	op->owed = false;
	p->owed--;
	op->kind = OP_DATA;
	op->len = w->len;
	op->head = (struct wire){.id = w->addr, .len = w->len};
	if (w->len)
		rfi_queue(ep, op, Q_REPLY);
	else if (op->flags & FI_DELIVERY_COMPLETE)
		rfi_op_owe(op);
	else
		rfi_op_end(ep, op, 0);
}

/* on_ack ends an operation that its peer has carried out or refused. */
static void on_ack(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	struct op *op = rfi_named(ep->op_ids, w->id);
	if (!op || op->peer != p || op->direct || !(op->owed || w->err))
		return;
	rfi_learn(ep, op, w);
	rfi_op_end(ep, op, (int)(w->err & 0xffff));
}

static void on_room(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	p->off = w->kind == W_OFF;
}

static handler *const handlers[W_KINDS] = {
	[W_MSG] = rfi_on_message, [W_RTS] = rfi_on_message, [W_CTS] = on_cts, [W_DATA] = rfi_on_data,
	[W_WRITE] = rfi_on_write, [W_READ] = rfi_on_read, [W_PART] = rfi_on_part,
	[W_ATOMIC] = rfi_on_atomic, [W_ACK] = on_ack, [W_OFF] = on_room, [W_ON] = on_room, [W_WROTE] = rfi_on_wrote,
};

/* fail ends everything: the session with the daemon has ended. */
static void fail(struct rfi_ep *ep, int err)
{
	char text[256];
	ep->failed = err == -EBADF ? FI_ECONNRESET : -err;
	rds_client_error(ep->domain->client, text, sizeof text);
	WARN(FI_LOG_EP_DATA, "the endpoint has failed: %s %s\n", rds_error_text(err), text);
	LIST_EACH(l, after, &ep->ops)
		rfi_op_end(ep, LIST_ENTRY(l, struct op, all), ep->failed);
	rfi_rx_end(ep, ep->failed);
}

/* receive takes at most n datagrams. */
static void receive(struct rfi_ep *ep, int n)
{
	struct rds_borrowed b;
	int err = 0;
	while (n-- > 0 && !(err = rds_borrow(ep->socket, &b, RDS_DONTWAIT))) {
		struct peer *p = rfi_peer(ep, &b.addr);
		struct wire w;
		if (p && b.len >= sizeof w) {
			memcpy(&w, b.data, sizeof w);
			if (p->inc && p->inc != b.src_inc) /* another socket at the port */
				rfi_peer_lost(ep, p, FI_ECONNREFUSED);
			p->inc = b.src_inc;
			p->met = true;
			if (p->owed)
				p->heard_ms = rfi_now_ms();
			if (w.magic == WIRE_MAGIC && w.kind < W_KINDS && handlers[w.kind])
				handlers[w.kind](ep, p, &w, (const char *)b.data + sizeof w, b.len - sizeof w);
		}
		rds_return(ep->socket, &b);
	}
	if (err && err != -EAGAIN && err != -EINTR && err != -ENOMEM)
		fail(ep, err);
}

/* statuses takes what became of messages whose completion waits for it, and of operations of librds. */
static void statuses(struct rfi_ep *ep)
{
	struct rds_completion c[STATUSES];
	ssize_t n = rds_completions(ep->socket, c, STATUSES);
	for (ssize_t i = 0; i < n; i++) {
		struct op *op = rfi_named(ep->op_ids, c[i].token);
		int err = c[i].status == RDS_SUCCESS ? 0 : c[i].err ? c[i].err : FI_ECONNRESET;
		if (!op)
			continue;
		if (!err)
			op->peer->met = true;
		if (op->direct)
			rfi_direct_end(ep, op, &c[i], err);
		else
			rfi_op_end(ep, op, err);
	}
}

/* lost ends what waits for the peer that a notice is about, unless another socket than inc has been heard of there
 * since. One without an address is about several. */
static void lost(struct rfi_ep *ep, const struct rds_notice *n, uint32_t inc)
{
	int err = n->kind == RDS_NO_SOCKET && n->to.port ? FI_ECONNREFUSED : FI_ECONNRESET;
	for (int i = 0; i < PEER_HEADS; i++)
		LIST_EACH(l, after, &ep->peers[i]) {
			struct peer *p = LIST_ENTRY(l, struct peer, link);
			if (!n->to.port || (p->inc == inc && p->addr.port == n->to.port && !memcmp(p->addr.ip, n->to.ip, 16)))
				rfi_peer_lost(ep, p, err);
		}
}

void rfi_progress(struct rfi_ep *ep)
{
	struct rds_notice notice[NOTICES];
	uint32_t inc[NOTICES];
	if (ep->failed)
		return;
	ssize_t n = rds_notices(ep->socket, notice, NOTICES); /* behind all that their peers have sent */
	for (ssize_t i = 0; i < n; i++) {
		struct peer *p = notice[i].to.port ? rfi_peer(ep, &notice[i].to) : NULL;
		inc[i] = p ? p->inc : 0;
	}
	receive(ep, n > 0 ? ALL : BUDGET);
	statuses(ep);
	for (ssize_t i = 0; i < n; i++)
		lost(ep, &notice[i], inc[i]);
	if (!list_empty(&ep->ops))
		rfi_probe(ep);
	out(ep);
}
