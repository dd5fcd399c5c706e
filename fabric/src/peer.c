/* peer.c - the sockets at the other side, and what happens when one is gone. */
#include <stdlib.h>
#include <string.h>

#include "fi.h"

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
	for (int i = 0; i < Q_COUNT; i++)
		list_init(&p->queue[i]);
	list_add(head, &p->link);
	return p;
}

/* rfi_peer_of returns the peer of a number of the address vector. NULL: it has none, or no memory. */
struct peer *rfi_peer_of(struct rfi_ep *ep, fi_addr_t n)
{
	struct rfi_av *av = ep->av;
	return n < av->count && av->entries[n].used ? rfi_peer(ep, &av->entries[n].addr) : NULL;
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

/*
 * rfi_peer_lost ends what waits for a peer that is not what it was. What has not gone out stays: it
 * is for whoever is bound next. What waits for a status stays, too: the status says more precisely.
 */
void rfi_peer_lost(struct rfi_ep *ep, const struct rds_addr *addr, int err)
{
	struct peer *p = rfi_peer(ep, addr);
	if (!p)
		return;
	p->met = p->off = p->stopped = false;
	LIST_EACH(l, after, &ep->ops) {
		struct op *op = LIST_ENTRY(l, struct op, all);
		if (op->peer == p && (op->owed || op->off || op->kind == OP_DATA))
			rfi_op_end(ep, op, err);
	}
	LIST_EACH(m, then, &ep->transfers) {
		struct transfer *t = LIST_ENTRY(m, struct transfer, link);
		if (t->peer == p)
			rfi_transfer_end(ep, t, err);
	}
	rfi_rx_lost(ep, p, err);
	replies_end(ep, p);
}

/* rfi_probe sends a probe to peers that owe an answer for long. If the socket that it is for is gone, a notice says so. */
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
