/* msg.c - the calls that send messages. */
#include <errno.h>
#include <string.h>

#include "fi.h"

/* post queues a short message, or announces a long one, which the receiver then asks for. */
static ssize_t post(struct rfi_ep *ep, const struct fi_msg_tagged *m, const struct wire *w, uint64_t flags)
{
	bool copy = flags & FI_INJECT;
	int err;
	struct op *op = rfi_op(ep, w->len > EAGER_MAX ? OP_RTS : OP_MSG, m->addr, flags, m->context, copy ? w->len : 0, &err);
	if (!op)
		return err;
	uint64_t id = op->id;
	op->head = *w;
	rfi_op_iov(op, m->msg_iov, m->iov_count, copy);
	op->head.id = id;
	return rfi_op_start(ep, op, Q_MSG);
}

static ssize_t send_locked(struct rfi_ep *ep, const struct fi_msg_tagged *m, bool tagged, uint64_t flags, size_t len)
{
	struct wire w = {
		.magic = WIRE_MAGIC, .len = len, .tag = tagged ? m->tag : 0, .data = flags & FI_REMOTE_CQ_DATA ? m->data : 0,
		.kind = tagged ? (len > EAGER_MAX ? W_TRTS : W_TMSG) : (len > EAGER_MAX ? W_RTS : W_MSG),
		.flags = (flags & FI_REMOTE_CQ_DATA ? W_CQ_DATA : 0) | (flags & FI_DELIVERY_COMPLETE ? W_DELIVERY : 0),
	};
	struct peer *p = ep->enabled ? rfi_peer_of(ep, m->addr) : NULL;
	flags |= FI_SEND | (tagged ? FI_TAGGED : FI_MSG);
	bool now = p && len <= EAGER_MAX && !(flags & (FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)) && list_empty(&p->queue[Q_MSG]) && !p->off &&
		   !(ep->tx_cq && ep->tx_cq->count >= ep->tx_cq->size);
	if (!now)
		return post(ep, m, &w, flags);
	int err = rfi_xmit(ep, p, &w, m->msg_iov, m->iov_count, 0);
	if (err == -EAGAIN && flags & QUIET) {
		rfi_progress(ep);
		return -FI_EAGAIN;
	}
	if (err == -EAGAIN)
		return post(ep, m, &w, flags);
	if (err)
		return err;
	struct op done = {.flags = flags, .context = m->context};
	rfi_complete(ep, &done, 0);
	if (!(++ep->turns % 32))
		rfi_progress(ep);
	return 0;
}

static ssize_t send_any(struct fid_ep *fid, const struct fi_msg_tagged *m, bool tagged, uint64_t flags)
{
	struct rfi_ep *ep = EP(fid);
	size_t len = 0;
	if (m->iov_count > IOV_LIMIT)
		return -FI_EINVAL;
	for (size_t i = 0; i < m->iov_count; i++)
		len += m->msg_iov[i].iov_len;
	if (flags & FI_INJECT && len > INJECT_SIZE)
		return -FI_EMSGSIZE;
	rfi_lock(ep->domain);
	ssize_t err = send_locked(ep, m, tagged, flags, len);
	rfi_unlock(ep->domain);
	return err;
}

/* one makes the description of a message with one piece. */
#define ONE(buf, len, to, label, ctx, cqdata)                                                           \
	struct iovec iov = {(void *)(uintptr_t)(buf), (len)};                                               \
	struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1, .addr = (to), .tag = (label), .context = (ctx), .data = (cqdata)}
#define INJECTED (FI_INJECT | QUIET)

static ssize_t msg_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
	ONE(buf, len, to, 0, context, 0);
	return send_any(ep, &m, false, EP(ep)->tx_flags);
}

static ssize_t msg_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, void *context)
{
	struct fi_msg_tagged m = {.msg_iov = iov, .iov_count = count, .addr = to, .context = context};
	return send_any(ep, &m, false, EP(ep)->tx_flags);
}

static ssize_t msg_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
	struct fi_msg_tagged m = {.msg_iov = msg->msg_iov, .iov_count = msg->iov_count, .addr = msg->addr, .context = msg->context, .data = msg->data};
	return send_any(ep, &m, false, flags);
}

static ssize_t msg_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to)
{
	ONE(buf, len, to, 0, NULL, 0);
	return send_any(ep, &m, false, INJECTED);
}

static ssize_t msg_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, void *context)
{
	ONE(buf, len, to, 0, context, data);
	return send_any(ep, &m, false, EP(ep)->tx_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t msg_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to)
{
	ONE(buf, len, to, 0, NULL, data);
	return send_any(ep, &m, false, INJECTED | FI_REMOTE_CQ_DATA);
}

static ssize_t post_any(struct fid_ep *ep, const struct fi_msg_tagged *m, bool tagged, uint64_t flags)
{
	rfi_lock(EP(ep)->domain);
	ssize_t err = rfi_post(EP(ep), m, tagged, flags);
	rfi_unlock(EP(ep)->domain);
	return err;
}

static ssize_t msg_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
	ONE(buf, len, from, 0, context, 0);
	return post_any(ep, &m, false, EP(ep)->rx_flags);
}

static ssize_t msg_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, void *context)
{
	struct fi_msg_tagged m = {.msg_iov = iov, .iov_count = count, .addr = from, .context = context};
	return post_any(ep, &m, false, EP(ep)->rx_flags);
}

static ssize_t msg_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
	struct fi_msg_tagged m = {.msg_iov = msg->msg_iov, .iov_count = msg->iov_count, .addr = msg->addr, .context = msg->context};
	return post_any(ep, &m, false, flags);
}

struct fi_ops_msg rfi_msg_ops = {
	.size = sizeof(struct fi_ops_msg), .recv = msg_recv, .recvv = msg_recvv, .recvmsg = msg_recvmsg, .send = msg_send, .sendv = msg_sendv,
	.sendmsg = msg_sendmsg, .inject = msg_inject, .senddata = msg_senddata, .injectdata = msg_injectdata,
};

static ssize_t tag_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t tag, void *context)
{
	ONE(buf, len, to, tag, context, 0);
	return send_any(ep, &m, true, EP(ep)->tx_flags);
}

static ssize_t tag_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, uint64_t tag, void *context)
{
	struct fi_msg_tagged m = {.msg_iov = iov, .iov_count = count, .addr = to, .tag = tag, .context = context};
	return send_any(ep, &m, true, EP(ep)->tx_flags);
}

static ssize_t tag_sendmsg(struct fid_ep *ep, const struct fi_msg_tagged *m, uint64_t flags)
{
	return send_any(ep, m, true, flags);
}

static ssize_t tag_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t tag)
{
	ONE(buf, len, to, tag, NULL, 0);
	return send_any(ep, &m, true, INJECTED);
}

static ssize_t tag_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, uint64_t tag, void *context)
{
	ONE(buf, len, to, tag, context, data);
	return send_any(ep, &m, true, EP(ep)->tx_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t tag_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t tag)
{
	ONE(buf, len, to, tag, NULL, data);
	return send_any(ep, &m, true, INJECTED | FI_REMOTE_CQ_DATA);
}

static ssize_t tag_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t tag, uint64_t ignore, void *context)
{
	ONE(buf, len, from, tag, context, 0);
	m.ignore = ignore;
	return post_any(ep, &m, true, EP(ep)->rx_flags);
}

static ssize_t tag_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, uint64_t tag, uint64_t ignore,
			 void *context)
{
	struct fi_msg_tagged m = {.msg_iov = iov, .iov_count = count, .addr = from, .tag = tag, .ignore = ignore, .context = context};
	return post_any(ep, &m, true, EP(ep)->rx_flags);
}

static ssize_t tag_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *m, uint64_t flags)
{
	return post_any(ep, m, true, flags);
}

struct fi_ops_tagged rfi_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged), .recv = tag_recv, .recvv = tag_recvv, .recvmsg = tag_recvmsg, .send = tag_send, .sendv = tag_sendv,
	.sendmsg = tag_sendmsg, .inject = tag_inject, .senddata = tag_senddata, .injectdata = tag_injectdata,
};
