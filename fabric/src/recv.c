/* recv.c - receives: posted ones, unexpected messages, long messages on their way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

/* Which posted receive a message is for. Receives without bits to ignore lie in lists by their tag, the others in one
 * list, and the one that was posted first counts. Unexpected messages lie in lists by tag, and in one in the order of
 * their arrival. */

static struct rx *first_in(struct link *head, const struct peer *p, uint64_t tag)
{
	LIST_EACH(l, after, head) {
		struct rx *rx = LIST_ENTRY(l, struct rx, link);
		if ((rx->tag | rx->ignore) == (tag | rx->ignore) && (!rx->peer || rx->peer == p))
			return rx;
	}
	return NULL;
}

/* match_posted returns the receive for a message of p, and leaves it posted. */
static struct rx *match_posted(struct matcher *m, const struct peer *p, uint64_t tag)
{
	struct rx *exact = first_in(&m->posted[rfi_hash(tag, MATCH_HEADS)], p, tag);
	struct rx *wild = first_in(&m->posted[MATCH_HEADS], p, tag);
	return !exact || (wild && wild->seq < exact->seq) ? wild : exact;
}

/* match_unexpected returns the first message that a receive is for, or that claim has claimed, and leaves it. */
static struct unexp *match_unexpected(struct matcher *m, const struct peer *p, const struct call *c, const void *claim)
{
	bool all = c->ignore || claim;
	LIST_EACH(l, after, all ? &m->all : &m->hashed[rfi_hash(c->tag, MATCH_HEADS)]) {
		struct unexp *u = all ? LIST_ENTRY(l, struct unexp, link) : LIST_ENTRY(l, struct unexp, hashed);
		bool fits = (u->head.tag | c->ignore) == (c->tag | c->ignore) && (!p || u->peer == p);
		if (u->claimed == claim && (claim || fits))
			return u;
	}
	return NULL;
}

static void match_take(struct unexp *u)
{
	list_del(&u->link);
	list_del(&u->hashed);
}

/* ---- Receives ---- */

/* report tells the program the end of a receive, of n bytes at at. */
static void report(struct rfi_ep *ep, const struct rx *rx, const struct peer *p, const struct wire *w, size_t at,
		   size_t n, int err, bool last)
{
	struct cqe e = {
		.context = rx->context, .len = n, .data = w->data, .tag = w->tag, .src = FI_ADDR_NOTAVAIL,
		.err = err ? err : w->len > n ? FI_ETRUNC : 0, .olen = w->len > n ? w->len - n : 0,
	};
	if (!ep->enabled) /* it is being closed */
		return;
	e.flags = FI_RECV | (w->flags & W_TAGGED ? FI_TAGGED : FI_MSG) | (w->flags & W_CQ_DATA ? FI_REMOTE_CQ_DATA : 0);
	if (rx->iovs)
		e.buf = (char *)rx->iov[0].iov_base + at;
	if (rx->flags & FI_MULTI_RECV && last)
		e.flags |= FI_MULTI_RECV;
	if (ep->caps & FI_SOURCE && p)
		e.src = rfi_av_find(ep->av, &p->addr);
	if (!(rx->flags & FI_PEEK))
		rfi_count(ep, C_RECV, e.err != 0);
	if (ep->bound[RX_CQ] && (e.err || !ep->selective[RX_CQ] || rx->flags & (FI_COMPLETION | FI_MULTI_RECV)))
		rfi_cq_add(ep->bound[RX_CQ], &e);
}

static void rx_free(struct rfi_ep *ep, struct rx *rx)
{
	list_del(&rx->link);
	ep->rx_used--;
	free(rx);
}

/* retire ends a receive that no message is for: it has err, once no long message is on its way there any more. */
static void retire(struct rfi_ep *ep, struct rx *rx, const struct peer *p, const struct wire *w, int err)
{
	rx->retired = true;
	list_del(&rx->link);
	report(ep, rx, p, w, rx->used, 0, err, !rx->pending);
	if (!rx->pending)
		rx_free(ep, rx);
}

/* stays tells whether rx takes more messages behind one of len bytes. */
static bool stays(const struct rfi_ep *ep, const struct rx *rx, size_t len)
{
	size_t left = rx->len - rx->used;
	return rx->flags & FI_MULTI_RECV && len < left && left - len >= ep->min_multi;
}

/* place takes room for at most len bytes of rx, and takes rx out of the posted ones if no more messages go there. */
static size_t place(struct rfi_ep *ep, struct rx *rx, size_t len, size_t *at)
{
	size_t left = rx->len - rx->used, n = len < left ? len : left;
	if (!stays(ep, rx, len)) {
		rx->retired = true;
		list_del(&rx->link);
	}
	*at = rx->used;
	rx->used += n;
	return n;
}

static bool transfer_begin(struct rfi_ep *ep, struct rx *rx, struct peer *p, const struct wire *w)
{
	struct transfer *t = malloc(sizeof *t);
	int err = (int)(w->err & 0xffff);
	if (!err && !t) {
		err = FI_ENOMEM;
		rfi_answer(ep, p, W_ACK, w->id, err);
	}
	if (err) {
		free(t);
		retire(ep, rx, p, w, err);
		return false;
	}
	*t = (struct transfer){.rx = rx, .peer = p, .head = *w};
	rfi_name(ep, ep->rx_ids, &t->name);
	t->want = place(ep, rx, w->len, &t->at);
	bool more = !rx->retired;
	rx->pending++;
	if (!p->owed++)
		p->heard_ms = rfi_now_ms();
	list_add(&ep->transfers, &t->link);
	rfi_reply(ep, p, (struct wire){.kind = W_CTS, .id = w->id, .addr = t->name.id, .len = t->want}, NULL, 0);
	if (!t->want)
		rfi_transfer_end(ep, t, 0);
	return more;
}

void rfi_transfer_end(struct rfi_ep *ep, struct transfer *t, int err)
{
	struct rx *rx = t->rx;
	bool last = !--rx->pending && rx->retired;
	if (t->head.flags & W_DELIVERY && !err)
		rfi_answer(ep, t->peer, W_ACK, t->head.id, 0);
	report(ep, rx, t->peer, &t->head, t->at, err ? t->got : t->want, err, last);
	t->peer->owed--;
	list_del(&t->link);
	list_del(&t->name.link);
	free(t);
	if (last)
		rx_free(ep, rx);
}

void rfi_on_data(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	struct transfer *t = rfi_named(ep->rx_ids, w->id);
	if (!t || t->peer != p || w->addr > t->want || len > t->want - w->addr)
		return;
	t->got += rfi_scatter(t->rx->iov, t->rx->iovs, t->at + w->addr, data, len);
	if (t->got >= t->want)
		rfi_transfer_end(ep, t, 0);
}

/* deliver brings a message into the receive that it is for. */
static bool deliver(struct rfi_ep *ep, struct rx *rx, struct peer *p, const struct wire *w, const char *data)
{
	size_t at;
	if (w->kind == W_RTS)
		return transfer_begin(ep, rx, p, w);
	size_t n = place(ep, rx, w->len, &at);
	rfi_scatter(rx->iov, rx->iovs, at, data, n);
	if (w->flags & W_DELIVERY)
		rfi_answer(ep, p, W_ACK, w->id, 0);
	bool more = !rx->retired, last = !more && !rx->pending;
	report(ep, rx, p, w, at, n, 0, last);
	if (last)
		rx_free(ep, rx);
	return more;
}

/* keep keeps a message that no receive was for, and asks a peer with too many of them to announce the next. */
static void keep(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	struct matcher *match = &ep->match[w->flags & W_TAGGED ? 1 : 0];
	struct unexp *u = rfi_room(ep, p) ? malloc(sizeof *u + len) : NULL;
	if (!u) {
		WARN(FI_LOG_EP_DATA, "no memory for a message that is lost, or too many of a peer\n");
		rfi_answer(ep, p, W_ACK, w->id, FI_ENOMEM);
		return;
	}
	*u = (struct unexp){.peer = p, .head = *w, .len = len};
	memcpy(u->data, data, len);
	list_add(&match->all, &u->link);
	list_add(&match->hashed[rfi_hash(w->tag, MATCH_HEADS)], &u->hashed);
	p->unexpected += len + sizeof *u;
	ep->kept += len + sizeof *u;
	if (!p->stopped && (p->unexpected > PEER_UNEXPECTED || ep->kept > KEPT_MAX / 2)) {
		p->stopped = true;
		rfi_answer(ep, p, W_OFF, 0, 0);
	}
}

/* release frees a message that is no longer unexpected. */
static void release(struct rfi_ep *ep, struct unexp *u)
{
	struct peer *p = u->peer;
	p->unexpected -= u->len + sizeof *u;
	ep->kept -= u->len + sizeof *u;
	if (p->stopped && p->unexpected < PEER_UNEXPECTED / 2) {
		p->stopped = false;
		rfi_answer(ep, p, W_ON, 0, 0);
	}
	match_take(u);
	free(u);
}

void rfi_on_message(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	if (w->kind == W_RTS ? len != 0 || w->err : len != w->len)
		return;
	struct rx *rx = match_posted(&ep->match[w->flags & W_TAGGED ? 1 : 0], p, w->tag);
	if (rx)
		deliver(ep, rx, p, w, data);
	else
		keep(ep, p, w, data, len);
}

/* drop ends a message that the program does not want. */
static void drop(struct rfi_ep *ep, struct unexp *u)
{
	if (u->head.kind == W_RTS)
		rfi_answer(ep, u->peer, W_CTS, u->head.id, 0);
	if (u->head.flags & W_DELIVERY)
		rfi_answer(ep, u->peer, W_ACK, u->head.id, 0);
	release(ep, u);
}

/* peek is a receive with FI_PEEK, FI_DISCARD, or both, of the unexpected message u, if there is one. */
static ssize_t peek(struct rfi_ep *ep, const struct call *c, struct unexp *u)
{
	struct rx rx = {.context = c->context, .flags = FI_COMPLETION | (c->flags & FI_PEEK)};
	if (!u) {
		struct wire none = {.flags = c->tagged ? W_TAGGED : 0, .tag = c->tag};
		report(ep, &rx, NULL, &none, 0, 0, FI_ENOMSG, false);
		return 0;
	}
	struct wire head = u->head;
	if (!(c->flags & FI_PEEK))
		head.flags &= (uint8_t)~W_CQ_DATA;
	report(ep, &rx, u->peer, &head, 0, head.len, 0, false);
	if (c->flags & FI_DISCARD)
		drop(ep, u);
	else if (c->flags & FI_CLAIM)
		u->claimed = c->context;
	return 0;
}

/* receive posts a receive, or takes the unexpected message u that it is for. */
static ssize_t receive(struct rfi_ep *ep, const struct call *c, struct peer *from, struct unexp *u)
{
	struct matcher *match = &ep->match[c->tagged];
	if (ep->rx_used >= ep->rx_size)
		return -FI_EAGAIN;
	struct rx *rx = malloc(sizeof *rx);
	if (!rx)
		return -FI_ENOMEM;
	*rx = (struct rx){.peer = from, .tag = c->tag, .ignore = c->ignore, .flags = c->flags, .context = c->context};
	rx->iovs = c->iovs;
	list_init(&rx->link);
	for (size_t i = 0; i < c->iovs; i++) {
		rx->iov[i] = c->iov[i];
		rx->len += c->iov[i].iov_len;
	}
	ep->rx_used++;
	while (u) {
		match_take(u);
		bool more = deliver(ep, rx, u->peer, &u->head, u->data);
		release(ep, u);
		if (!more)
			return 0;
		u = match_unexpected(match, from, c, NULL);
	}
	rx->seq = match->seq++;
	list_add(&match->posted[rx->ignore ? MATCH_HEADS : rfi_hash(rx->tag, MATCH_HEADS)], &rx->link);
	return 0;
}

/* rfi_post carries out a call to receive. With FI_PEEK, FI_CLAIM and FI_DISCARD it is about a message that is there. */
ssize_t rfi_post(struct rfi_ep *ep, const struct call *c)
{
	bool directed = ep->caps & FI_DIRECTED_RECV && c->peer != FI_ADDR_UNSPEC;
	if (!ep->enabled || c->iovs > IOV_LIMIT || (c->flags & FI_MULTI_RECV && (c->iovs != 1 || c->tagged)))
		return ep->enabled ? -FI_EINVAL : -FI_EOPBADSTATE;
	if (ep->failed)
		return -ep->failed;
	const struct rds_addr *addr = directed ? rfi_av_addr(ep->av, c->peer) : NULL;
	struct peer *from = addr ? rfi_peer(ep, addr) : NULL;
	if (directed && !from)
		return addr ? -FI_ENOMEM : -FI_EINVAL;
	bool now = c->flags & (FI_PEEK | FI_DISCARD), taken = c->flags & FI_CLAIM && !(c->flags & FI_PEEK);
	if (now || taken)
		rfi_progress(ep);
	struct unexp *u = match_unexpected(&ep->match[c->tagged], from, c, taken ? c->context : NULL);
	if (now || (taken && !u))
		return peek(ep, c, u);
	return receive(ep, c, from, u);
}

/* end_posted ends posted receives with err: one of context, or all. It returns whether there was one. */
static bool end_posted(struct rfi_ep *ep, const void *context, bool all, int err)
{
	bool found = false;
	for (int m = 0; m < 2; m++)
		for (int i = 0; i <= MATCH_HEADS; i++)
			LIST_EACH(l, after, &ep->match[m].posted[i]) {
				struct rx *rx = LIST_ENTRY(l, struct rx, link);
				struct wire none = {.flags = m ? W_TAGGED : 0, .tag = rx->tag};
				if (!all && (found || rx->context != context))
					continue;
				retire(ep, rx, NULL, &none, err);
				found = true;
			}
	return found;
}

/* rfi_cancel ends a posted receive. */
ssize_t rfi_cancel(fid_t fid, void *context)
{
	struct rfi_ep *ep = EP(fid);
	rfi_lock(ep->domain);
	bool found = end_posted(ep, context, false, FI_ECANCELED);
	rfi_unlock(ep->domain);
	return found ? 0 : -FI_ENOENT;
}

/* rfi_rx_end ends all receives with err, and drops the messages that have come. */
void rfi_rx_end(struct rfi_ep *ep, int err)
{
	LIST_EACH(l, after, &ep->transfers)
		rfi_transfer_end(ep, LIST_ENTRY(l, struct transfer, link), err);
	end_posted(ep, NULL, true, err);
	for (int i = 0; i < 2; i++)
		LIST_EACH(u, then, &ep->match[i].all) {
			match_take(LIST_ENTRY(u, struct unexp, link));
			free(LIST_ENTRY(u, struct unexp, link));
		}
}
