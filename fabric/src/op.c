/* op.c - operations: from the call to the completion. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

static const uint64_t event_flags = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;

/* rfi_complete tells the program the end of op. err is positive. */
void rfi_complete(struct rfi_ep *ep, const struct op *op, int err)
{
	int c = op->flags & FI_SEND ? C_SEND : op->flags & FI_READ ? C_READ : C_WRITE;
	if (ep->cntrs[c])
		rfi_cntr_count(ep->cntrs[c], err != 0);
	if (!ep->tx_cq || (!err && (op->flags & QUIET || (ep->tx_selective && !(op->flags & FI_COMPLETION)))))
		return;
	struct cqe e = {.context = op->context, .flags = op->flags & event_flags, .src = FI_ADDR_NOTAVAIL, .err = err};
	rfi_cq_add(ep->tx_cq, &e);
}

/* rfi_op makes an operation to dest, with room for a copy of copy bytes. */
struct op *rfi_op(struct rfi_ep *ep, enum op_kind kind, fi_addr_t dest, uint64_t flags, void *context, size_t copy, int *err)
{
	struct peer *p = NULL;
	struct op *op = NULL;
	*err = !ep->enabled ? -FI_EOPBADSTATE : ep->failed ? -ep->failed : 0;
	if (!*err && (ep->tx_used >= ep->tx_size || (ep->tx_cq && ep->tx_cq->count >= ep->tx_cq->size))) {
		rfi_progress(ep);
		*err = -FI_EAGAIN;
	}
	if (!*err && !(p = rfi_peer_of(ep, dest)))
		*err = -FI_EINVAL;
	if (!*err && !(op = malloc(sizeof *op + copy)))
		*err = -FI_ENOMEM;
	if (*err)
		return NULL;
	*op = (struct op){.kind = kind, .peer = p, .flags = flags, .context = context, .head.magic = WIRE_MAGIC};
	*err = ids_add(&ep->op_ids, op, &op->id);
	if (*err) {
		free(op);
		return NULL;
	}
	op->head.id = op->id;
	list_init(&op->out);
	list_add(&ep->ops, &op->all);
	ep->tx_used++;
	return op;
}

/* rfi_op_iov gives op its payload, which is copied behind it if copy is set. */
int rfi_op_iov(struct op *op, const struct iovec *iov, size_t count, bool copy)
{
	for (size_t i = 0; i < count; i++) {
		if (copy)
			memcpy(op->copy + op->len, iov[i].iov_base, iov[i].iov_len);
		op->iov[i] = iov[i];
		op->len += iov[i].iov_len;
	}
	op->iovs = count;
	if (copy) {
		op->iov[0] = (struct iovec){op->copy, op->len};
		op->iovs = 1;
	}
	op->head.len = op->len;
	return 0;
}

ssize_t rfi_op_start(struct rfi_ep *ep, struct op *op, int queue)
{
	op->indirect = queue == Q_RMA && !op->direct;
	op->peer->indirect += op->indirect;
	rfi_queue(ep, op, queue);
	if (!(++ep->turns % 32))
		rfi_progress(ep); /* a program that only sends learns what its peers say */
	return 0;
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
	if (op->kind == OP_REPLY || op->kind == OP_SERVE)
		op->peer->replies--;
	else {
		ids_del(&ep->op_ids, op->id);
		ep->tx_used--;
	}
	op->peer->owed -= op->owed;
	op->peer->indirect -= op->indirect;
	free(op);
}

void rfi_op_end(struct rfi_ep *ep, struct op *op, int err)
{
	rfi_complete(ep, op, err);
	rfi_op_free(ep, op);
}
