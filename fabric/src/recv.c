/* recv.c - receives: posted ones, unexpected messages, long messages on their way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

static uint64_t event_flags(const struct wire *w)
{
	bool tagged = w->kind == W_TMSG || w->kind == W_TRTS;
	return FI_RECV | (tagged ? FI_TAGGED : FI_MSG) | (w->flags & W_CQ_DATA ? FI_REMOTE_CQ_DATA : 0);
}

static bool is_long(const struct wire *w)
{
	return w->kind == W_RTS || w->kind == W_TRTS;
}

/* report tells the program the end of a receive, of n bytes at at. */
static void report(struct rfi_ep *ep, const struct rx *rx, const struct peer *p, const struct wire *w, size_t at, size_t n, int err, bool last)
{
	struct cqe e = {
		.context = rx->context, .flags = event_flags(w), .len = n, .data = w->data, .tag = w->tag, .src = FI_ADDR_NOTAVAIL,
		.err = err ? err : w->len > n ? FI_ETRUNC : 0, .olen = w->len > n ? w->len - n : 0,
	};
	if (rx->iovs)
		e.buf = (char *)rx->iov[0].iov_base + at;
	if (rx->flags & FI_MULTI_RECV && last)
		e.flags |= FI_MULTI_RECV;
	if (ep->caps & FI_SOURCE && p)
		e.src = rfi_av_find(ep->av, &p->addr);
	if (ep->cntrs[C_RECV])
		rfi_cntr_count(ep->cntrs[C_RECV], e.err != 0);
	if (ep->rx_cq && (e.err || !ep->rx_selective || rx->flags & (FI_COMPLETION | FI_MULTI_RECV)))
		rfi_cq_add(ep->rx_cq, &e);
}

static void rx_free(struct rfi_ep *ep, struct rx *rx)
{
	list_del(&rx->link);
	ep->rx_used--;
	free(rx);
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

static void transfer_begin(struct rfi_ep *ep, struct rx *rx, struct peer *p, const struct wire *w)
{
	struct wire cts = {.magic = WIRE_MAGIC, .kind = W_CTS, .id = w->id};
	struct transfer *t = calloc(1, sizeof *t);
	if (w->err || !t || ids_add(&ep->rx_ids, t, &t->id)) {
		free(t);
		if (!w->err)
			rfi_answer(ep, p, W_FIN, w->id, FI_ENOMEM);
		report(ep, rx, p, w, rx->used, 0, w->err ? (int)(w->err & 0xffff) : FI_ENOMEM, !rx->pending);
		list_del(&rx->link);
		rx->retired = true;
		if (!rx->pending)
			rx_free(ep, rx);
		return;
	}
	t->rx = rx;
	t->peer = p;
	t->head = *w;
	t->want = place(ep, rx, w->len, &t->at);
	rx->pending++;
	if (!p->owed++)
		p->heard_ms = rfi_now_ms();
	list_add(&ep->transfers, &t->link);
	cts.addr = t->id;
	cts.len = t->want;
	rfi_reply(ep, p, &cts, NULL, 0);
	if (!t->want)
		rfi_transfer_end(ep, t, 0);
}

void rfi_transfer_end(struct rfi_ep *ep, struct transfer *t, int err)
{
	struct rx *rx = t->rx;
	bool last = !--rx->pending && rx->retired;
	if (t->head.flags & W_DELIVERY && !err)
		rfi_answer(ep, t->peer, W_FIN, t->head.id, 0);
	report(ep, rx, t->peer, &t->head, t->at, err ? t->got : t->want, err, last);
	t->peer->owed--;
	list_del(&t->link);
	ids_del(&ep->rx_ids, t->id);
	free(t);
	if (last)
		rx_free(ep, rx);
}

void rfi_on_data(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	struct transfer *t = ids_get(&ep->rx_ids, w->id);
	if (!t || t->peer != p || w->addr > t->want || len > t->want - w->addr)
		return;
	t->got += rfi_scatter(t->rx->iov, t->rx->iovs, t->at + w->addr, data, len);
	if (t->got >= t->want)
		rfi_transfer_end(ep, t, 0);
}

/* deliver brings a message into the receive that it is for. */
static void deliver(struct rfi_ep *ep, struct rx *rx, struct peer *p, const struct wire *w, const char *data)
{
	size_t at;
	if (is_long(w)) {
		transfer_begin(ep, rx, p, w);
		return;
	}
	size_t n = place(ep, rx, w->len, &at);
	rfi_scatter(rx->iov, rx->iovs, at, data, n);
	if (w->flags & W_DELIVERY)
		rfi_answer(ep, p, W_FIN, w->id, 0);
	bool last = rx->retired && !rx->pending;
	report(ep, rx, p, w, at, n, 0, last);
	if (last)
		rx_free(ep, rx);
}

/* keep keeps a message that no receive was for, and asks a peer with too many of them to stop. */
static void keep(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	struct unexp *u = malloc(sizeof *u + len);
	if (!u) {
		WARN(FI_LOG_EP_DATA, "no memory for a message that is lost\n");
		rfi_answer(ep, p, W_FIN, w->id, FI_ENOMEM);
		return;
	}
	u->peer = p;
	u->head = *w;
	u->len = len;
	u->claimed = NULL;
	memcpy(u->data, data, len);
	match_keep(&ep->match[w->kind == W_TMSG || w->kind == W_TRTS], u);
	p->unexpected += len + sizeof *u;
	ep->unexpected += len + sizeof *u;
	if (p->unexpected > PEER_UNEXPECTED && !p->stopped) {
		p->stopped = true;
		rfi_answer(ep, p, W_OFF, 0, 0);
	}
}

/* release frees a message that is no longer unexpected. */
static void release(struct rfi_ep *ep, struct unexp *u)
{
	struct peer *p = u->peer;
	p->unexpected -= u->len + sizeof *u;
	ep->unexpected -= u->len + sizeof *u;
	if (p->stopped && p->unexpected < PEER_UNEXPECTED / 2) {
		p->stopped = false;
		rfi_answer(ep, p, W_ON, 0, 0);
	}
	match_take(u);
	free(u);
}

void rfi_on_message(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	bool tagged = w->kind == W_TMSG || w->kind == W_TRTS;
	if (is_long(w) ? len != 0 : len != w->len)
		return;
	struct rx *rx = match_posted(&ep->match[tagged], p, tagged ? w->tag : 0);
	if (rx)
		deliver(ep, rx, p, w, data);
	else
		keep(ep, p, w, data, len);
}

/* drop ends a message that the program does not want. */
static void drop(struct rfi_ep *ep, struct unexp *u)
{
	struct wire cts = {.magic = WIRE_MAGIC, .kind = W_CTS, .id = u->head.id};
	if (is_long(&u->head))
		rfi_reply(ep, u->peer, &cts, NULL, 0);
	if (u->head.flags & W_DELIVERY)
		rfi_answer(ep, u->peer, W_FIN, u->head.id, 0);
	release(ep, u);
}

static struct unexp *claimed(struct rfi_ep *ep, const void *context)
{
	LIST_EACH(l, after, &ep->claimed) {
		struct unexp *u = LIST_ENTRY(l, struct unexp, link);
		if (u->claimed == context)
			return u;
	}
	return NULL;
}

/* peek is a receive with FI_PEEK, FI_DISCARD, or both, of the unexpected message u, if there is one. */
static ssize_t peek(struct rfi_ep *ep, const struct fi_msg_tagged *m, struct unexp *u, uint64_t flags)
{
	struct rx rx = {.context = m->context, .flags = FI_COMPLETION, .iovs = 0};
	if (!u) {
		struct wire none = {.kind = W_TMSG, .tag = m->tag};
		report(ep, &rx, NULL, &none, 0, 0, FI_ENOMSG, false);
		return 0;
	}
	report(ep, &rx, u->peer, &u->head, 0, u->head.len, 0, false);
	if (flags & FI_DISCARD)
		drop(ep, u);
	else if (flags & FI_CLAIM) {
		match_take(u);
		u->claimed = m->context;
		list_add(&ep->claimed, &u->link);
	}
	return 0;
}

/* rfi_post posts a receive, or takes the unexpected message that it is for. */
ssize_t rfi_post(struct rfi_ep *ep, const struct fi_msg_tagged *m, bool tagged, uint64_t flags)
{
	struct matcher *match = &ep->match[tagged];
	bool directed = ep->caps & FI_DIRECTED_RECV && m->addr != FI_ADDR_UNSPEC;
	if (!ep->enabled || m->iov_count > IOV_LIMIT || (flags & FI_MULTI_RECV && (m->iov_count != 1 || tagged)))
		return ep->enabled ? -FI_EINVAL : -FI_EOPBADSTATE;
	if (ep->failed)
		return -ep->failed;
	struct peer *from = directed ? rfi_peer_of(ep, m->addr) : NULL;
	if (directed && !from)
		return -FI_EINVAL;
	if (flags & (FI_PEEK | FI_CLAIM | FI_DISCARD))
		rfi_progress(ep);
	struct unexp *u = flags & FI_CLAIM && !(flags & FI_PEEK) ? claimed(ep, m->context) : match_unexpected(match, from, m->tag, m->ignore);
	if (flags & FI_PEEK || (flags & FI_CLAIM && !u) || (flags & FI_DISCARD && !(flags & FI_CLAIM)))
		return peek(ep, m, u, flags);
	if (flags & FI_DISCARD) {
		struct rx none = {.context = m->context, .flags = FI_COMPLETION};
		u->head.flags &= (uint8_t)~W_CQ_DATA;
		report(ep, &none, u->peer, &u->head, 0, u->head.len, 0, false);
		drop(ep, u);
		return 0;
	}
	if (ep->rx_used >= ep->rx_size)
		return -FI_EAGAIN;
	struct rx *rx = calloc(1, sizeof *rx);
	if (!rx)
		return -FI_ENOMEM;
	*rx = (struct rx){.peer = from, .tag = m->tag, .ignore = m->ignore, .flags = flags, .context = m->context, .iovs = m->iov_count};
	list_init(&rx->link);
	for (size_t i = 0; i < m->iov_count; i++) {
		rx->iov[i] = m->msg_iov[i];
		rx->len += m->msg_iov[i].iov_len;
	}
	ep->rx_used++;
	while (u) {
		bool more = stays(ep, rx, u->head.len);
		match_take(u);
		deliver(ep, rx, u->peer, &u->head, u->data);
		release(ep, u);
		if (!more)
			return 0;
		u = match_unexpected(match, from, m->tag, m->ignore);
	}
	match_post(match, rx);
	return 0;
}

/* rfi_cancel ends a posted receive. */
ssize_t rfi_cancel(fid_t fid, void *context)
{
	struct rfi_ep *ep = EP(fid);
	ssize_t err = -FI_ENOENT;
	rfi_lock(ep->domain);
	for (int m = 0; m < 2 && err; m++)
		for (int i = 0; i <= MATCH_HEADS && err; i++)
			LIST_EACH(l, after, i < MATCH_HEADS ? &ep->match[m].posted[i] : &ep->match[m].wild) {
				struct rx *rx = LIST_ENTRY(l, struct rx, link);
				struct wire none = {.kind = m ? W_TMSG : W_MSG, .tag = rx->tag};
				if (rx->context != context)
					continue;
				rx->retired = true;
				list_del(&rx->link);
				report(ep, rx, NULL, &none, rx->used, 0, FI_ECANCELED, !rx->pending);
				if (!rx->pending)
					rx_free(ep, rx);
				err = 0;
				break;
			}
	rfi_unlock(ep->domain);
	return err;
}

static void end_list(struct rfi_ep *ep, struct link *head, bool tagged)
{
	LIST_EACH(l, after, head) {
		struct rx *rx = LIST_ENTRY(l, struct rx, link);
		struct wire none = {.kind = tagged ? W_TMSG : W_MSG, .tag = rx->tag};
		if (ep->failed)
			report(ep, rx, NULL, &none, rx->used, 0, ep->failed, true);
		rx_free(ep, rx);
	}
}

/* rfi_rx_lost notes with long messages that p has announced, and nobody has asked for, that they will not come. */
void rfi_rx_lost(struct rfi_ep *ep, const struct peer *p, int err)
{
	for (int m = 0; m < 2; m++)
		LIST_EACH(l, after, &ep->match[m].all) {
			struct unexp *u = LIST_ENTRY(l, struct unexp, link);
			if (u->peer == p && is_long(&u->head))
				u->head.err = (uint32_t)err;
		}
}

/* rfi_rx_end ends all receives: with errors if the endpoint has failed, else it is being closed. */
void rfi_rx_end(struct rfi_ep *ep)
{
	bool failed = ep->failed;
	LIST_EACH(l, after, &ep->transfers) {
		struct transfer *t = LIST_ENTRY(l, struct transfer, link);
		if (failed)
			rfi_transfer_end(ep, t, ep->failed);
		else {
			bool last = !--t->rx->pending && t->rx->retired;
			if (last)
				rx_free(ep, t->rx);
			list_del(&t->link);
			free(t);
		}
	}
	for (int m = 0; m < 2; m++) {
		for (int i = 0; i < MATCH_HEADS; i++)
			end_list(ep, &ep->match[m].posted[i], m);
		end_list(ep, &ep->match[m].wild, m);
		LIST_EACH(u, then, &ep->match[m].all) {
			struct unexp *x = LIST_ENTRY(u, struct unexp, link);
			match_take(x);
			free(x);
		}
	}
	LIST_EACH(c, next, &ep->claimed)
		free(LIST_ENTRY(c, struct unexp, link));
	list_init(&ep->claimed);
}
