/* ep.c - endpoints. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>

#include "fi.h"

enum { BUFFER = 8 << 20, LINGER_MS = 5000, FLUSH_MS = 2000 };

static int ep_enable(struct rfi_ep *ep)
{
	int err = 0;
	if (ep->enabled)
		return 0;
	if (!ep->av)
		return -FI_ENOAV;
	if (!ep->tx_cq && !ep->rx_cq && !ep->cntrs[C_SEND] && !ep->cntrs[C_RECV] && !ep->cntrs[C_READ] && !ep->cntrs[C_WRITE])
		return -FI_ENOCQ;
	if (ep->tx_cq)
		err = rfi_fds_watch(ep->tx_cq->epfd, ep);
	if (!err && ep->rx_cq)
		err = rfi_fds_watch(ep->rx_cq->epfd, ep);
	for (int i = 0; i < C_COUNT && !err; i++)
		if (ep->cntrs[i])
			err = rfi_fds_watch(ep->cntrs[i]->epfd, ep);
	if (err)
		return err;
	list_add(&ep->domain->eps, &ep->link);
	ep->enabled = true;
	return 0;
}

/* flush gives what waits some time to go out. */
static void flush(struct rfi_ep *ep)
{
	int64_t end = rfi_now_ms() + FLUSH_MS;
	while (!list_empty(&ep->busy) && !ep->failed && rfi_now_ms() < end) {
		rfi_progress(ep);
		rfi_unlock(ep->domain);
		sched_yield();
		rfi_lock(ep->domain);
	}
}

static void unbind(struct rfi_ep *ep)
{
	if (ep->tx_cq)
		ep->tx_cq->refs--;
	if (ep->rx_cq)
		ep->rx_cq->refs--;
	if (ep->av)
		ep->av->refs--;
	for (int i = 0; i < C_COUNT; i++)
		if (ep->cntrs[i])
			ep->cntrs[i]->refs--;
}

static void ep_free(struct rfi_ep *ep)
{
	match_end(&ep->match[0]);
	match_end(&ep->match[1]);
	free(ep->peers);
	free(ep->rkeys);
	ids_end(&ep->op_ids);
	ids_end(&ep->rx_ids);
	free(ep);
}

static int ep_close(struct fid *fid)
{
	struct rfi_ep *ep = EP(fid);
	struct rfi_domain *d = ep->domain;
	rfi_lock(d);
	flush(ep);
	if (ep->enabled) {
		list_del(&ep->link);
		if (ep->tx_cq)
			rfi_fds_forget(ep->tx_cq->epfd, ep);
		if (ep->rx_cq)
			rfi_fds_forget(ep->rx_cq->epfd, ep);
		for (int i = 0; i < C_COUNT; i++)
			if (ep->cntrs[i])
				rfi_fds_forget(ep->cntrs[i]->epfd, ep);
	}
	rfi_rx_end(ep);
	rfi_direct_close(ep);
	LIST_EACH(l, after, &ep->ops)
		rfi_op_free(ep, LIST_ENTRY(l, struct op, all));
	rfi_peers_end(ep);
	ep->peers = NULL;
	unbind(ep);
	d->refs--;
	rfi_unlock(d);
	/* What was sent and is not there yet gets some time. A thread that waits at the socket ends its wait. */
	rds_close_wait(ep->socket, LINGER_MS);
	rfi_lock(d);
	for (uint64_t last = d->leads; d->led && d->leads == last;) {
		rds_client_wake(d->client);
		pthread_cond_wait(&d->changed, &d->lock);
	}
	rfi_unlock(d);
	rds_socket_free(ep->socket);
	ep_free(ep);
	return 0;
}

static int bind_cq(struct rfi_ep *ep, struct rfi_cq *cq, uint64_t flags)
{
	if (flags & ~(uint64_t)(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) || !(flags & (FI_TRANSMIT | FI_RECV)) || cq->domain != ep->domain)
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		if (ep->tx_cq)
			return -FI_EINVAL;
		ep->tx_cq = cq;
		ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
		cq->refs++;
	}
	if (flags & FI_RECV) {
		if (ep->rx_cq)
			return -FI_EINVAL;
		ep->rx_cq = cq;
		ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
		cq->refs++;
	}
	return 0;
}

static int bind_cntr(struct rfi_ep *ep, struct rfi_cntr *c, uint64_t flags)
{
	static const uint64_t kinds[C_COUNT] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};
	if (!flags || flags & ~(uint64_t)(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE))
		return -FI_EINVAL;
	for (int i = 0; i < C_COUNT; i++)
		if (flags & kinds[i]) {
			if (ep->cntrs[i])
				return -FI_EINVAL;
			ep->cntrs[i] = c;
			c->refs++;
		}
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct rfi_ep *ep = EP(fid);
	int err = 0;
	rfi_lock(ep->domain);
	if (ep->enabled && other->fclass != FI_CLASS_EQ)
		err = -FI_EOPBADSTATE;
	else if (other->fclass == FI_CLASS_AV && !ep->av) {
		ep->av = (struct rfi_av *)(void *)other;
		ep->av->refs++;
	} else if (other->fclass == FI_CLASS_CQ)
		err = bind_cq(ep, (struct rfi_cq *)(void *)other, flags);
	else if (other->fclass == FI_CLASS_CNTR)
		err = bind_cntr(ep, (struct rfi_cntr *)(void *)other, flags);
	else if (other->fclass != FI_CLASS_EQ)
		err = -FI_EINVAL;
	rfi_unlock(ep->domain);
	return err;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct rfi_ep *ep = EP(fid);
	uint64_t *flags = arg;
	int err = 0;
	rfi_lock(ep->domain);
	switch (command) {
	case FI_ENABLE:
		err = ep_enable(ep);
		break;
	case FI_GETOPSFLAG:
		if (!(*flags & (FI_TRANSMIT | FI_RECV)) || (*flags & FI_TRANSMIT && *flags & FI_RECV))
			err = -FI_EINVAL;
		else
			*flags = *flags & FI_TRANSMIT ? ep->tx_flags : ep->rx_flags;
		break;
	case FI_SETOPSFLAG:
		if (!(*flags & (FI_TRANSMIT | FI_RECV)) || (*flags & FI_TRANSMIT && *flags & FI_RECV))
			err = -FI_EINVAL;
		else if (*flags & FI_TRANSMIT)
			ep->tx_flags = *flags & ~(uint64_t)FI_TRANSMIT;
		else
			ep->rx_flags = *flags & ~(uint64_t)FI_RECV;
		break;
	default:
		err = -FI_ENOSYS;
	}
	rfi_unlock(ep->domain);
	return err;
}

static struct fi_ops ep_fid_ops = {
	.size = sizeof(struct fi_ops), .close = ep_close, .bind = ep_bind, .control = ep_control, .ops_open = rfi_no_ops_open,
};

static int ep_getopt(fid_t fid, int level, int name, void *value, size_t *len)
{
	if (level != FI_OPT_ENDPOINT)
		return -FI_ENOPROTOOPT;
	if (name != FI_OPT_MIN_MULTI_RECV && name != FI_OPT_CM_DATA_SIZE)
		return -FI_ENOPROTOOPT;
	if (*len < sizeof(size_t))
		return -FI_ETOOSMALL;
	*(size_t *)value = name == FI_OPT_MIN_MULTI_RECV ? EP(fid)->min_multi : 0;
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

UNSUPPORTED(no_ctx_tx, struct fid_ep *ep, int i, struct fi_tx_attr *attr, struct fid_ep **tx, void *context)
UNSUPPORTED(no_ctx_rx, struct fid_ep *ep, int i, struct fi_rx_attr *attr, struct fid_ep **rx, void *context)

static ssize_t rx_left(struct fid_ep *ep)
{
	return (ssize_t)(EP(ep)->rx_size - EP(ep)->rx_used);
}

static ssize_t tx_left(struct fid_ep *ep)
{
	return (ssize_t)(EP(ep)->tx_size - EP(ep)->tx_used);
}

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep), .cancel = rfi_cancel, .getopt = ep_getopt, .setopt = ep_setopt, .tx_ctx = no_ctx_tx, .rx_ctx = no_ctx_rx,
	.rx_size_left = rx_left, .tx_size_left = tx_left,
};

static int bound(struct rfi_ep *ep, struct fi_info *info)
{
	struct rds_addr at;
	int err;
	if (info->src_addr)
		err = rds_addr_from(info->src_addr, (socklen_t)info->src_addrlen, &at);
	else
		err = rds_addrs(ep->domain->client, &at, 1) < 1 ? -FI_EADDRNOTAVAIL : 0;
	if (!err)
		err = rds_bind(ep->domain->client, &at, &ep->socket);
	if (err) {
		WARN(FI_LOG_EP_CTRL, "bind: %s %s\n", rds_error_text(err), rds_refusal());
		return err;
	}
	rds_set_option(ep->socket, RDS_OPT_SNDBUF, BUFFER); /* a daemon that allows less gives less */
	rds_set_option(ep->socket, RDS_OPT_RCVBUF, BUFFER);
	return rds_local(ep->socket, &ep->addr);
}

int rfi_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out, void *context)
{
	struct rfi_ep *ep = calloc(1, sizeof *ep);
	if (!ep)
		return -FI_ENOMEM;
	ep->fid.fid = (struct fid){.fclass = FI_CLASS_EP, .context = context, .ops = &ep_fid_ops};
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &rfi_cm_ops;
	ep->fid.msg = &rfi_msg_ops;
	ep->fid.tagged = &rfi_tagged_ops;
	ep->fid.rma = &rfi_rma_ops;
	ep->fid.atomic = &rfi_atomic_ops;
	ep->domain = DOMAIN(domain);
	ep->caps = info->caps;
	ep->tx_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
	ep->rx_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
	ep->tx_size = info->tx_attr && info->tx_attr->size ? info->tx_attr->size : TX_SIZE;
	ep->rx_size = info->rx_attr && info->rx_attr->size ? info->rx_attr->size : RX_SIZE;
	ep->min_multi = 64;
	list_init(&ep->link);
	list_init(&ep->busy);
	list_init(&ep->ops);
	list_init(&ep->transfers);
	list_init(&ep->claimed);
	ep->peers = calloc(PEER_HEADS, sizeof *ep->peers);
	ep->rkeys = calloc(RKEYS, sizeof *ep->rkeys);
	for (int i = 0; ep->peers && i < PEER_HEADS; i++)
		list_init(&ep->peers[i]);
	int err = !ep->peers || !ep->rkeys || match_init(&ep->match[0]) || match_init(&ep->match[1]) ? -FI_ENOMEM : bound(ep, info);
	if (err) {
		rds_socket_free(ep->socket);
		ep_free(ep);
		return err;
	}
	rfi_lock(ep->domain);
	ep->domain->refs++;
	rfi_unlock(ep->domain);
	*out = &ep->fid;
	return 0;
}
