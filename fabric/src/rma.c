/* rma.c - reads and writes of a peer's memory, which the peer carries out as it makes progress. */
#include <stdlib.h>
#include <string.h>

#include "fi.h"

static ssize_t start(struct rfi_ep *ep, const struct fi_msg_rma *m, bool write, uint64_t flags, size_t len)
{
	bool copy = write && flags & FI_INJECT;
	int err;
	flags |= FI_RMA | (write ? FI_WRITE : FI_READ);
	struct op *op = rfi_op(ep, write ? OP_WRITE : OP_READ, m->addr, flags, m->context, copy ? len : 0, &err);
	if (!op)
		return err;
	rfi_op_iov(op, m->msg_iov, m->iov_count, copy);
	op->head.kind = write ? W_WRITE : W_READ;
	op->head.addr = m->rma_iov->addr;
	op->head.tag = m->rma_iov->key;
	op->head.data = m->data;
	op->head.flags = flags & FI_REMOTE_CQ_DATA ? W_CQ_DATA : 0;
	op->direct = !copy && rfi_direct_try(ep, op, m->desc);
	return rfi_op_start(ep, op, Q_RMA);
}

static ssize_t rma(struct fid_ep *fid, const struct fi_msg_rma *m, bool write, uint64_t flags)
{
	struct rfi_ep *ep = EP(fid);
	size_t len = 0;
	if (m->iov_count > IOV_LIMIT || m->rma_iov_count != 1)
		return -FI_EINVAL;
	for (size_t i = 0; i < m->iov_count; i++)
		len += m->msg_iov[i].iov_len;
	if (len != m->rma_iov->len)
		return -FI_EINVAL;
	if (flags & FI_INJECT && len > INJECT_SIZE)
		return -FI_EMSGSIZE;
	rfi_lock(ep->domain);
	ssize_t err = start(ep, m, write, flags, len);
	rfi_unlock(ep->domain);
	return err;
}

static ssize_t rma_v(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, uint64_t addr, uint64_t key, uint64_t data,
		     void *context, bool write, uint64_t flags)
{
	struct fi_rma_iov remote = {.addr = addr, .key = key};
	struct fi_msg_rma m = {.msg_iov = iov, .desc = desc, .iov_count = count, .addr = to, .rma_iov = &remote, .rma_iov_count = 1, .context = context, .data = data};
	for (size_t i = 0; i < count && i < IOV_LIMIT; i++)
		remote.len += iov[i].iov_len;
	return rma(ep, &m, write, flags);
}

static ssize_t rma_one(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr, uint64_t key, uint64_t data, void *context,
		       bool write, uint64_t flags)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	return rma_v(ep, &iov, &desc, 1, to, addr, key, data, context, write, flags);
}

static ssize_t rma_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr, uint64_t key, void *context)
{
	return rma_one(ep, buf, len, desc, from, addr, key, 0, context, false, EP(ep)->tx_flags);
}

static ssize_t rma_readv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, uint64_t addr, uint64_t key,
			 void *context)
{
	return rma_v(ep, iov, desc, count, from, addr, key, 0, context, false, EP(ep)->tx_flags);
}

static ssize_t rma_readmsg(struct fid_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
	return rma(ep, m, false, flags);
}

static ssize_t rma_write(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr, uint64_t key, void *context)
{
	return rma_one(ep, buf, len, desc, to, addr, key, 0, context, true, EP(ep)->tx_flags);
}

static ssize_t rma_writev(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
			  void *context)
{
	return rma_v(ep, iov, desc, count, to, addr, key, 0, context, true, EP(ep)->tx_flags);
}

static ssize_t rma_writemsg(struct fid_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
	return rma(ep, m, true, flags);
}

static ssize_t rma_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t addr, uint64_t key)
{
	return rma_one(ep, buf, len, NULL, to, addr, key, 0, NULL, true, FI_INJECT | QUIET);
}

static ssize_t rma_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, uint64_t addr, uint64_t key,
			     void *context)
{
	return rma_one(ep, buf, len, desc, to, addr, key, data, context, true, EP(ep)->tx_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t rma_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t addr, uint64_t key)
{
	return rma_one(ep, buf, len, NULL, to, addr, key, data, NULL, true, FI_INJECT | QUIET | FI_REMOTE_CQ_DATA);
}

struct fi_ops_rma rfi_rma_ops = {
	.size = sizeof(struct fi_ops_rma), .read = rma_read, .readv = rma_readv, .readmsg = rma_readmsg, .write = rma_write, .writev = rma_writev,
	.writemsg = rma_writemsg, .inject = rma_inject, .writedata = rma_writedata, .injectdata = rma_injectdata,
};

/* ---- The target ---- */

/* rfi_on_wrote tells the program of data that came with a write. */
void rfi_on_wrote(struct rfi_ep *ep, struct peer *p, const struct wire *w)
{
	struct cqe e = {.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .len = w->len, .data = w->data, .src = FI_ADDR_NOTAVAIL};
	if (!ep->rx_cq)
		return;
	if (ep->caps & FI_SOURCE)
		e.src = rfi_av_find(ep->av, &p->addr);
	rfi_cq_add(ep->rx_cq, &e);
}

void rfi_on_write(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	int err;
	struct rfi_mr *mr = rfi_mr_find(ep->domain, w->tag, w->addr, len, FI_REMOTE_WRITE, &err);
	if (!mr) {
		rfi_answer(ep, p, W_ACK, w->id, (uint32_t)err);
		return;
	}
	memcpy(mr->mem + (w->addr - mr->base), data, len);
	if (!(w->flags & W_LAST))
		return;
	if (w->flags & W_CQ_DATA)
		rfi_on_wrote(ep, p, w);
	if (ep->cntrs[C_REMOTE_WRITE])
		rfi_cntr_count(ep->cntrs[C_REMOTE_WRITE], false);
	if (mr->cntr)
		rfi_cntr_count(mr->cntr, false);
	rfi_answer(ep, p, W_ACK, w->id, 0);
}

void rfi_on_read(struct rfi_ep *ep, struct peer *p, const struct wire *w)
{
	int err;
	struct rfi_mr *mr = rfi_mr_find(ep->domain, w->tag, w->addr, w->len, FI_REMOTE_READ, &err);
	struct op *op = mr && p->replies < REPLIES_MAX ? malloc(sizeof *op) : NULL;
	if (!op) {
		rfi_answer(ep, p, W_ACK, w->id, mr ? FI_ENOMEM : (uint32_t)err);
		return;
	}
	*op = (struct op){.kind = OP_SERVE, .peer = p, .head = *w, .len = w->len};
	op->head.flags = 0;
	list_init(&op->all);
	p->replies++;
	if (ep->cntrs[C_REMOTE_READ])
		rfi_cntr_count(ep->cntrs[C_REMOTE_READ], false);
	rfi_queue(ep, op, Q_REPLY);
}

/* rfi_on_part takes a piece of what an operation reads. */
void rfi_on_part(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	struct op *op = ids_get(&ep->op_ids, w->id);
	if (!op || op->peer != p || !op->owed || (op->kind != OP_READ && op->kind != OP_ATOMIC))
		return;
	if (op->kind == OP_READ)
		op->got += rfi_scatter(op->iov, op->iovs, w->addr, data, len);
	else
		op->got += rfi_scatter(op->result, op->results, w->addr, data, len);
	if (w->flags & W_LAST)
		rfi_op_end(ep, op, 0);
}
