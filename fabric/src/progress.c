/* progress.c - what has come for an endpoint. */
#include <errno.h>
#include <string.h>

#include "fi.h"

enum { BUDGET = 64, STATUSES = 32, NOTICES = 16 };

/* rfi_slice stores at to the pieces of iov that have at most len bytes from off on, and returns how many bytes they have. */
size_t rfi_slice(const struct iovec *iov, size_t iovs, size_t off, size_t len, struct iovec *to, size_t *n)
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
	size_t parts, n = rfi_slice(iov, iovs, off, len, part, &parts);
	for (size_t i = 0; i < parts; i++) {
		memcpy(part[i].iov_base, from, part[i].iov_len);
		from += part[i].iov_len;
	}
	return n;
}

/* on_cts begins to send what the receiver wants of an announced message. */
static void on_cts(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	struct op *op = ids_get(&ep->op_ids, w->id);
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
	struct op *op = ids_get(&ep->op_ids, w->id);
	if (!op || op->peer != p || !(op->owed || w->err))
		return;
	rfi_learn(ep, op, w);
	rfi_op_end(ep, op, (int)(w->err & 0xffff));
}

static void on_room(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	p->off = w->kind == W_OFF;
	if (!p->off && list_empty(&p->busy))
		list_add(&ep->busy, &p->busy);
}

static handler *const handlers[W_KINDS] = {
	[W_MSG] = rfi_on_message, [W_RTS] = rfi_on_message, [W_CTS] = on_cts, [W_DATA] = rfi_on_data, [W_WRITE] = rfi_on_write,
	[W_READ] = rfi_on_read, [W_PART] = rfi_on_part, [W_ATOMIC] = rfi_on_atomic, [W_ACK] = on_ack, [W_OFF] = on_room,
	[W_ON] = on_room, [W_WROTE] = rfi_on_wrote,
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

static int receive(struct rfi_ep *ep)
{
	struct rds_borrowed b;
	int n = 0, err = 0;
	while (n < BUDGET && ep->unexpected <= UNEXPECTED_MAX && !(err = rds_borrow(ep->socket, &b, RDS_DONTWAIT))) {
		struct peer *p = rfi_peer(ep, &b.addr);
		struct wire w;
		n++;
		if (p && b.len >= sizeof w) {
			memcpy(&w, b.data, sizeof w);
			p->inc = b.src_inc;
			p->met = true;
			if (p->owed)
				p->heard_ms = rfi_now_ms();
			if (w.magic == WIRE_MAGIC && w.kind < W_KINDS && handlers[w.kind])
				handlers[w.kind](ep, p, &w, (const char *)b.data + sizeof w, b.len - sizeof w);
		}
		rds_return(ep->socket, &b);
	}
	if (err && err != -EAGAIN && err != -EINTR)
		fail(ep, err);
	return n;
}

/* statuses takes what became of messages whose completion waits for it, and of operations of librds. */
static int statuses(struct rfi_ep *ep)
{
	struct rds_completion c[STATUSES];
	ssize_t n = rds_completions(ep->socket, c, STATUSES);
	for (ssize_t i = 0; i < n; i++) {
		struct op *op = ids_get(&ep->op_ids, c[i].token);
		int err = c[i].status == RDS_SUCCESS ? 0 : c[i].err ? c[i].err : c[i].status == RDS_CANCELED ? FI_ECANCELED : FI_ECONNRESET;
		if (!op)
			continue;
		if (!err)
			op->peer->met = true;
		if (op->direct)
			rfi_direct_end(ep, op, &c[i], err);
		else
			rfi_op_end(ep, op, err);
	}
	return n > 0 ? (int)n : 0;
}

static int notices(struct rfi_ep *ep)
{
	struct rds_notice notice[NOTICES];
	ssize_t n = rds_notices(ep->socket, notice, NOTICES);
	for (ssize_t i = 0; i < n; i++)
		if (notice[i].kind == RDS_NO_SOCKET || notice[i].kind == RDS_LOST)
			rfi_peer_lost(ep, &notice[i].to, notice[i].kind == RDS_NO_SOCKET ? FI_ECONNREFUSED : FI_ECONNRESET);
	return n > 0 ? (int)n : 0;
}

int rfi_progress(struct rfi_ep *ep)
{
	if (ep->failed)
		return 0;
	int n = receive(ep);
	n += statuses(ep);
	n += notices(ep);
	if (!list_empty(&ep->busy))
		rfi_out(ep);
	if (!n && !(list_empty(&ep->ops) && list_empty(&ep->transfers)))
		rfi_probe(ep);
	return n;
}
