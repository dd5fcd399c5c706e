/* op.c - operations, from the call to the completion, and the peers that they are for. */
#include <stdlib.h>
#include <string.h>

#include "fi.h"

/* rfi_name gives what lies in table a number that no other has had. */
void rfi_name(struct rfi_ep *ep, struct link *table, struct named *n)
{
	n->id = ++ep->last_id;
	list_add(&table[n->id % IDS], &n->link);
}

/* rfi_named returns what has the number, or NULL. */
void *rfi_named(struct link *table, uint64_t id)
{
	LIST_EACH(l, after, &table[id % IDS]) {
		struct named *n = LIST_ENTRY(l, struct named, link);
		if (n->id == id)
			return n;
	}
	return NULL;
}

/* complete tells the program the end of op. err is positive. */
static void complete(struct rfi_ep *ep, const struct op *op, int err)
{
	static const uint64_t event_flags = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
	struct cqe e = {.context = op->context, .flags = op->flags & event_flags, .src = FI_ADDR_NOTAVAIL, .err = err};
	bool wanted = !(op->flags & QUIET) && (!ep->selective[TX_CQ] || op->flags & FI_COMPLETION);
	rfi_count(ep, op->flags & FI_SEND ? C_SEND : op->flags & FI_READ ? C_READ : C_WRITE, err != 0);
	if (ep->bound[TX_CQ] && (err || wanted))
		rfi_cq_add(ep->bound[TX_CQ], &e);
}

/* rfi_op makes an operation for a call, with room for a copy of copy bytes. */
struct op *rfi_op(struct rfi_ep *ep, enum op_kind kind, const struct call *c, uint64_t flags, size_t copy, ssize_t *err)
{
	const struct waitable *cq = ep->bound[TX_CQ];
	bool full = ep->tx_used >= ep->tx_size || (cq && cq->count >= cq->size);
	const struct rds_addr *addr = ep->av ? rfi_av_addr(ep->av, c->peer) : NULL;
	struct peer *p = NULL;
	struct op *op = NULL;
	*err = !ep->enabled ? -FI_EOPBADSTATE : ep->failed ? -ep->failed : full ? -FI_EAGAIN : 0;
	if (ep->enabled && (full || !(++ep->turns % 32)))
		rfi_progress(ep); /* a program that only sends learns what its peers say */
	if (!*err && !addr)
		*err = -FI_EINVAL;
	if (!*err && (!(p = rfi_peer(ep, addr)) || !(op = malloc(sizeof *op + copy))))
		*err = -FI_ENOMEM;
	if (*err)
		return NULL;
	*op = (struct op){.kind = kind, .peer = p, .flags = flags, .context = c->context};
	rfi_name(ep, ep->op_ids, &op->name);
	list_init(&op->out);
	list_add(&ep->ops, &op->all);
	ep->tx_used++;
	return op;
}

/* rfi_room tells whether more is kept of p, and for it. A peer that had to announce its messages has little, and the
 * program knows whom it talks to. So one that ignores W_OFF, and a crowd of strangers, lose messages and answers. */
bool rfi_room(struct rfi_ep *ep, const struct peer *p)
{
	bool own = p->unexpected <= KEPT_MAX && p->replies < REPLIES_MAX;
	return own && (ep->kept <= KEPT_MAX || rfi_av_find(ep->av, &p->addr) != FI_ADDR_NOTAVAIL);
}

/* rfi_reply_op makes a reply that waits. NULL: no memory, or p has too many of them. */
struct op *rfi_reply_op(struct rfi_ep *ep, struct peer *p, enum op_kind kind, const struct wire *w, size_t copy)
{
	struct op *op = rfi_room(ep, p) ? malloc(sizeof *op + copy) : NULL;
	if (!op)
		return NULL;
	*op = (struct op){.kind = kind, .peer = p, .head = *w};
	list_init(&op->name.link);
	list_init(&op->out);
	list_init(&op->all);
	p->replies++;
	ep->kept += sizeof *op + copy;
	return op;
}

/* rfi_op_iov gives op its payload, which is copied behind it if copy is set. */
void rfi_op_iov(struct op *op, const struct iovec *iov, size_t count, bool copy)
{
	for (size_t i = 0; i < count; i++) {
		if (copy && iov[i].iov_len)
			memcpy(op->copy + op->len, iov[i].iov_base, iov[i].iov_len);
		op->iov[i] = iov[i];
		op->len += iov[i].iov_len;
	}
	op->iovs = count;
	if (copy) {
		op->iov[0] = (struct iovec){op->copy, op->len};
		op->iovs = 1;
	}
}

/* rfi_op_owe notes that op has gone out, and its peer has to answer. */
void rfi_op_owe(struct op *op)
{
	if (!op->peer->owed++)
		op->peer->heard_ms = rfi_now_ms();
	op->owed = true;
}

void rfi_op_free(struct rfi_ep *ep, struct op *op)
{
	list_del(&op->out);
	list_del(&op->all);
	list_del(&op->name.link);
	if (op->kind == OP_REPLY || op->kind == OP_SERVE) {
		op->peer->replies--;
		ep->kept -= sizeof *op + (op->kind == OP_REPLY ? op->len : 0);
	} else
		ep->tx_used--;
	op->peer->owed -= op->owed;
	free(op);
}

void rfi_op_end(struct rfi_ep *ep, struct op *op, int err)
{
	complete(ep, op, err);
	rfi_op_free(ep, op);
}

/* ---- Peers: the sockets at the other side, and what happens when one is gone ---- */

/* rfi_peer returns the peer at addr, and makes it if there is none. NULL: no memory. */
struct peer *rfi_peer(struct rfi_ep *ep, const struct rds_addr *addr)
{
	struct link *head = &ep->peers[rfi_addr_hash(addr, PEER_HEADS)];
	LIST_EACH(l, after, head) {
		struct peer *p = LIST_ENTRY(l, struct peer, link);
		if (p->addr.port == addr->port && !memcmp(p->addr.ip, addr->ip, 16))
			return p;
	}
	struct peer *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->addr = *addr;
	list_init(&p->busy);
	lists_init(p->queue, Q_COUNT);
	list_add(head, &p->link);
	return p;
}

static void replies_end(struct rfi_ep *ep, struct peer *p)
{
	LIST_EACH(l, after, &p->queue[Q_REPLY]) {
		struct op *op = LIST_ENTRY(l, struct op, out);
		if (op->kind == OP_REPLY || op->kind == OP_SERVE)
			rfi_op_free(ep, op);
	}
}

/* rfi_peers_end frees the peers, when there are no operations any more. */
void rfi_peers_end(struct rfi_ep *ep)
{
	for (int i = 0; i < PEER_HEADS; i++)
		LIST_EACH(l, after, &ep->peers[i]) {
			struct peer *p = LIST_ENTRY(l, struct peer, link);
			replies_end(ep, p);
			free(p);
		}
}

/* rfi_peer_lost ends what waits for a peer that is not what it was. What has not gone out stays: it is for whoever is
 * bound next. What waits for a status stays, too: the status says more precisely. */
void rfi_peer_lost(struct rfi_ep *ep, struct peer *p, int err)
{
	p->met = p->off = p->stopped = false;
	p->inc = 0;
	LIST_EACH(l, after, &ep->ops) {
		struct op *op = LIST_ENTRY(l, struct op, all);
		if (op->peer == p && !op->direct && (op->owed || op->off || op->kind == OP_DATA))
			rfi_op_end(ep, op, err);
	}
	LIST_EACH(m, then, &ep->transfers) {
		struct transfer *t = LIST_ENTRY(m, struct transfer, link);
		if (t->peer == p)
			rfi_transfer_end(ep, t, err);
	}
	for (int i = 0; i < 2; i++) /* long messages that p has announced, and nobody has asked for */
		LIST_EACH(k, later, &ep->match[i].all) {
			struct unexp *u = LIST_ENTRY(k, struct unexp, link);
			if (u->peer == p && u->head.kind == W_RTS)
				u->head.err = (uint32_t)err;
		}
	replies_end(ep, p);
}

/* rfi_probe sends to peers that owe an answer for long. If the socket that it is for is gone, a notice says so. */
void rfi_probe(struct rfi_ep *ep)
{
	static const struct wire probe = {.kind = W_PROBE};
	int64_t now = rfi_now_ms();
	if (now - ep->probe_ms < PROBE_MS)
		return;
	ep->probe_ms = now;
	for (int i = 0; i < PEER_HEADS; i++)
		LIST_EACH(l, after, &ep->peers[i]) {
			struct peer *p = LIST_ENTRY(l, struct peer, link);
			if (p->owed && now - p->heard_ms >= PROBE_MS)
				rfi_xmit(ep, p, &probe, NULL, 0, 0);
		}
}
