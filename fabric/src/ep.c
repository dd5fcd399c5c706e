/* ep.c - endpoints. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

enum { BUFFER = 8 << 20, LINGER_MS = 5000, FLUSH_MS = 2000 };

/* What each of BOUND is about. */
static const uint64_t kinds[BOUND] = {
	[TX_CQ] = FI_TRANSMIT, [RX_CQ] = FI_RECV, [C_SEND] = FI_SEND, [C_RECV] = FI_RECV, [C_READ] = FI_READ,
	[C_WRITE] = FI_WRITE, [C_REMOTE_READ] = FI_REMOTE_READ, [C_REMOTE_WRITE] = FI_REMOTE_WRITE,
};

static int ep_enable(struct rfi_ep *ep)
{
	int err = 0, some = 0;
	if (ep->enabled)
		return 0;
	if (!ep->av)
		return -FI_ENOAV;
	for (int i = 0; i < BOUND && !err; i++) {
		some += ep->bound[i] && i < C_REMOTE_READ;
		err = rfi_fds_watch(ep->bound[i], ep);
	}
	if (err || !some)
		return err ? err : -FI_ENOCQ;
	list_add(&ep->domain->eps, &ep->link);
	ep->enabled = true;
	return 0;
}

/* waits tells whether something has not gone out. What was injected is complete for the program, also where it is only announced. */
static bool waits(const struct rfi_ep *ep)
{
	LIST_EACH(l, after, &ep->ops) {
		const struct op *op = LIST_ENTRY(l, struct op, all);
		if (!list_empty(&op->out) || op->flags & QUIET)
			return true;
	}
	return !list_empty(&ep->busy);
}

/* flush gives what waits some time to go out. */
static void flush(struct rfi_ep *ep)
{
	int64_t end = rfi_now_ms() + FLUSH_MS;
	while (!ep->failed && waits(ep) && rfi_now_ms() < end) {
		rfi_progress(ep);
		rfi_unlock(ep->domain);
		sched_yield();
		rfi_lock(ep->domain);
	}
}

/* lasting calls wait until end, also through signals and rds_client_wake. */
static int lasting(int (*wait)(rds_socket *, int ms), rds_socket *s, int64_t end)
{
	int err;
	do {
		int64_t left = end - rfi_now_ms();
		err = wait(s, left > 0 ? (int)left : 0);
	} while (err == -EINTR || err == -ECANCELED);
	return err;
}

static int ep_close(struct fid *fid)
{
	struct rfi_ep *ep = EP(fid);
	struct rfi_domain *d = ep->domain;
	rfi_lock(d);
	flush(ep);
	list_del(&ep->link);
	ep->enabled = false;
	rfi_rx_end(ep, FI_ECANCELED);
	rfi_direct_close(ep);
	LIST_EACH(l, after, &ep->ops)
		rfi_op_free(ep, LIST_ENTRY(l, struct op, all));
	rfi_peers_end(ep);
	for (int i = 0; i < BOUND; i++)
		if (ep->bound[i])
			ep->bound[i]->refs--;
	if (ep->av)
		ep->av->refs--;
	d->refs--;
	rfi_unlock(d);
	/* What was sent and is not there yet gets some time. A thread that waits at the socket ends its wait. */
	int64_t end = rfi_now_ms() + LINGER_MS;
	if (lasting(rds_barrier_all, ep->socket, end) == -ETIMEDOUT)
		WARN(FI_LOG_EP_CTRL, "direct reads and writes still use memory of the endpoint: close its region to wait for them\n");
	lasting(rds_close_wait, ep->socket, end);
	rfi_lock(d);
	for (uint64_t last = d->leads; d->led && d->leads == last;) {
		rds_client_wake(d->client);
		pthread_cond_wait(&d->changed, &d->lock);
	}
	rfi_unlock(d);
	rds_socket_free(ep->socket);
	free(ep);
	return 0;
}

static int bind_waitable(struct rfi_ep *ep, struct waitable *w, uint64_t flags)
{
	bool cq = w->fid.fclass == FI_CLASS_CQ;
	uint64_t allowed = cq ? FI_SELECTIVE_COMPLETION : 0, wanted = flags & ~(uint64_t)FI_SELECTIVE_COMPLETION;
	int from = cq ? TX_CQ : C_SEND, to = cq ? C_SEND : BOUND;
	for (int i = from; i < to; i++) {
		allowed |= kinds[i];
		if (wanted & kinds[i] && ep->bound[i])
			return -FI_EINVAL;
	}
	if (!wanted || flags & ~allowed || w->domain != ep->domain)
		return -FI_EINVAL;
	for (int i = from; i < to; i++)
		if (wanted & kinds[i]) {
			ep->bound[i] = w;
			w->refs++;
			if (cq)
				ep->selective[i] = flags & FI_SELECTIVE_COMPLETION;
		}
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct rfi_ep *ep = EP(fid);
	LOCKED(ep->domain);
	if (ep->enabled)
		return -FI_EOPBADSTATE;
	if (other->fclass == FI_CLASS_CQ || other->fclass == FI_CLASS_CNTR)
		return bind_waitable(ep, WAITABLE(other), flags);
	if (other->fclass == FI_CLASS_EQ)
		return 0;
	if (other->fclass != FI_CLASS_AV || ep->av || AV(other)->domain != ep->domain)
		return -FI_EINVAL;
	ep->av = AV(other);
	ep->av->refs++;
	return 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	LOCKED(EP(fid)->domain);
	return command == FI_ENABLE ? ep_enable(EP(fid)) : -FI_ENOSYS;
}

static struct fi_ops ep_fid_ops = FID_OPS(ep_close, ep_bind, ep_control);

static int ep_getopt(fid_t fid, int level, int name, void *value, size_t *len)
{
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (*len < sizeof(size_t))
		return -FI_ETOOSMALL;
	*(size_t *)value = EP(fid)->min_multi;
	*len = sizeof(size_t);
	return 0;
}

static int ep_setopt(fid_t fid, int level, int name, const void *value, size_t len)
{
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (len != sizeof(size_t))
		return -FI_EINVAL;
	EP(fid)->min_multi = *(const size_t *)value;
	return 0;
}

static ssize_t no_left(struct fid_ep *ep) { return -FI_ENOSYS; }
ABSENT(no_ctx_tx, struct fid_ep *ep, int i, struct fi_tx_attr *attr, struct fid_ep **tx, void *context)
ABSENT(no_ctx_rx, struct fid_ep *ep, int i, struct fi_rx_attr *attr, struct fid_ep **rx, void *context)

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep), .cancel = rfi_cancel, .getopt = ep_getopt, .setopt = ep_setopt,
	.tx_ctx = no_ctx_tx, .rx_ctx = no_ctx_rx, .rx_size_left = no_left, .tx_size_left = no_left,
};

static int cm_getname(fid_t fid, void *addr, size_t *len)
{
	struct sockaddr_storage sa;
	size_t full = rds_addr_to(&EP(fid)->addr, &sa), room = *len;
	memcpy(addr, &sa, room < full ? room : full);
	*len = full;
	return room < full ? -FI_ETOOSMALL : 0;
}

ABSENT(no_setname, fid_t fid, void *addr, size_t len)
ABSENT(no_getpeer, struct fid_ep *ep, void *addr, size_t *len)
ABSENT(no_connect, struct fid_ep *ep, const void *addr, const void *param, size_t len)
ABSENT(no_listen, struct fid_pep *pep)
ABSENT(no_accept, struct fid_ep *ep, const void *param, size_t len)
ABSENT(no_shutdown, struct fid_ep *ep, uint64_t flags)
ABSENT(no_reject, struct fid_pep *pep, fid_t handle, const void *param, size_t len)
ABSENT(no_join, struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context)

static struct fi_ops_cm cm_ops = {
	.size = sizeof(struct fi_ops_cm), .setname = no_setname, .getname = cm_getname, .getpeer = no_getpeer,
	.connect = no_connect, .listen = no_listen, .accept = no_accept,
	.reject = no_reject, .shutdown = no_shutdown, .join = no_join,
};

static int bound(struct rfi_ep *ep, struct fi_info *info)
{
	struct rds_addr at;
	int err = info->src_addr ? rds_addr_from(info->src_addr, (socklen_t)info->src_addrlen, &at) : 0;
	if (!info->src_addr && rds_addrs(ep->domain->client, &at, 1) < 1)
		err = -FI_EADDRNOTAVAIL;
	if (!err)
		err = rds_bind(ep->domain->client, &at, &ep->socket);
	if (err) {
		WARN(FI_LOG_EP_CTRL, "bind: %s %s\n", rds_error_text(err), rds_refusal());
		return err;
	}
	rds_set_option(ep->socket, RDS_OPT_SNDBUF, BUFFER); /* a daemon that allows less gives less */
	rds_set_option(ep->socket, RDS_OPT_RCVBUF, BUFFER);
	rds_set_option(ep->socket, RDS_OPT_NOTICES, 1 << RDS_LOST | 1 << RDS_NO_SOCKET);
	ep->last_id = (uint64_t)rds_incarnation(ep->socket) << 32; /* no number of whoever had the port */
	return rds_local(ep->socket, &ep->addr);
}

int rfi_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out, void *context)
{
	static const struct fi_tx_attr tx_none;
	static const struct fi_rx_attr rx_none;
	const struct fi_tx_attr *tx = info->tx_attr ? info->tx_attr : &tx_none;
	const struct fi_rx_attr *rx = info->rx_attr ? info->rx_attr : &rx_none;
	struct rfi_ep *ep = calloc(1, sizeof *ep);
	if (!ep)
		return -FI_ENOMEM;
	ep->fid = (struct fid_ep){
		.fid = {.fclass = FI_CLASS_EP, .context = context, .ops = &ep_fid_ops}, .ops = &ep_ops, .cm = &cm_ops,
		.msg = &rfi_msg_ops, .tagged = &rfi_tagged_ops, .rma = &rfi_rma_ops, .atomic = &rfi_atomic_ops,
	};
	ep->domain = DOMAIN(domain);
	ep->caps = info->caps;
	ep->ordered = (tx->msg_order | rx->msg_order) & RMA_ORDERS;
	ep->tx_flags = tx->op_flags;
	ep->rx_flags = rx->op_flags;
	ep->tx_size = tx->size ? tx->size : TX_SIZE;
	ep->rx_size = rx->size ? rx->size : RX_SIZE;
	ep->min_multi = 64;
	struct link *lists[] = {&ep->link, &ep->busy, &ep->ops, &ep->transfers, &ep->match[0].all, &ep->match[1].all};
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		list_init(lists[i]);
	lists_init(ep->peers, PEER_HEADS);
	lists_init(ep->op_ids, IDS);
	lists_init(ep->rx_ids, IDS);
	for (int i = 0; i < 2; i++) {
		lists_init(ep->match[i].posted, MATCH_HEADS + 1);
		lists_init(ep->match[i].hashed, MATCH_HEADS);
	}
	int err = bound(ep, info);
	if (err) {
		rds_socket_free(ep->socket);
		free(ep);
		return err;
	}
	rfi_hold(ep->domain);
	*out = &ep->fid;
	return 0;
}
