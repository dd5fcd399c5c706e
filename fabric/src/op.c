/* op.c - operations: from the call to the completion. */
#include <stdlib.h>
#include <string.h>

#include "fi.h"

/* ---- Numbers ---- */

static bool more_ids(struct ids *t)
{
	uint32_t room = t->room ? 2 * t->room : 64;
	struct id *slots = realloc(t->slots, room * sizeof *slots);
	if (!slots)
		return false;
	for (uint32_t i = room; i > t->room; i--) {
		slots[i - 1] = (struct id){.uses = 1, .next = t->free};
		t->free = i;
	}
	t->slots = slots;
	t->room = room;
	return true;
}

int ids_add(struct ids *t, void *what, uint64_t *id)
{
	if (!t->free && !more_ids(t))
		return -FI_ENOMEM;
	uint32_t i = t->free - 1;
	t->free = t->slots[i].next;
	t->slots[i].what = what;
	*id = (uint64_t)t->slots[i].uses << 32 | i;
	return 0;
}

void *ids_get(const struct ids *t, uint64_t id)
{
	uint32_t i = (uint32_t)id;
	return i < t->room && t->slots[i].uses == id >> 32 ? t->slots[i].what : NULL;
}

void ids_del(struct ids *t, uint64_t id)
{
	struct id *slot = &t->slots[(uint32_t)id];
	slot->what = NULL;
	if (!++slot->uses) /* 0 is no number */
		slot->uses = 1;
	slot->next = t->free;
	t->free = (uint32_t)id + 1;
}

/* ---- Operations ---- */

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
struct op *rfi_op(struct rfi_ep *ep, enum op_kind kind, const struct call *c, size_t copy, ssize_t *err)
{
	const struct waitable *cq = ep->bound[TX_CQ];
	struct peer *p = NULL;
	struct op *op = NULL;
	*err = !ep->enabled ? -FI_EOPBADSTATE : ep->failed ? -ep->failed : 0;
	if (!*err && (ep->tx_used >= ep->tx_size || (cq && cq->count >= cq->size))) {
		rfi_progress(ep);
		*err = -FI_EAGAIN;
	}
	if (!*err && !(p = rfi_peer_of(ep, c->peer)))
		*err = -FI_EINVAL;
	if (!*err && !(op = malloc(sizeof *op + copy)))
		*err = -FI_ENOMEM;
	if (*err)
		return NULL;
	*op = (struct op){.kind = kind, .peer = p, .flags = c->flags, .context = c->context};
	*err = ids_add(&ep->op_ids, op, &op->id);
	if (*err) {
		free(op);
		return NULL;
	}
	list_init(&op->out);
	list_add(&ep->ops, &op->all);
	ep->tx_used++;
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
	complete(ep, op, err);
	rfi_op_free(ep, op);
}
