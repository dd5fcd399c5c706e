/* calls.c - the calls of the program that send, receive, read, write and do atomics. */
#include "fi.h"

/* rfi_issue starts an operation with the head w. With FI_INJECT, and for an atomic, its len bytes are copied. */
ssize_t rfi_issue(struct rfi_ep *ep, const struct call *c, enum op_kind kind, uint64_t flags, size_t len,
		  const struct wire *w)
{
	bool copy = kind == OP_ATOMIC || (c->flags & FI_INJECT && kind != OP_READ);
	ssize_t err;
	struct op *op = rfi_op(ep, kind, c, c->flags | flags, copy ? len : 0, &err);
	if (!op)
		return err;
	rfi_op_iov(op, c->iov, c->iovs, copy);
	op->head = *w;
	op->head.id = op->name.id;
	for (op->iovs = kind == OP_ATOMIC ? 0 : op->iovs; op->iovs < c->results; op->iovs++)
		op->iov[op->iovs] = (struct iovec){c->result[op->iovs].addr, c->result[op->iovs].count * c->size};
	if (kind == OP_MSG || kind == OP_RTS)
		rfi_queue(ep, op, Q_MSG);
	else
		rfi_rma_start(ep, op, copy);
	return 0;
}

/* total stores how many bytes the memory of a call has, and returns whether there may be as many. */
static int total(const struct call *c, size_t *len)
{
	size_t most = c->flags & FI_INJECT ? INJECT_SIZE : LONGEST;
	*len = 0;
	if (c->iovs > IOV_LIMIT)
		return -FI_EINVAL;
	for (size_t i = 0; i < c->iovs && *len <= most; i++)
		*len = c->iov[i].iov_len > most ? SIZE_MAX : *len + c->iov[i].iov_len;
	return *len > most ? -FI_EMSGSIZE : 0;
}

/* send_call queues a short message, or announces a long one, which the receiver then asks for. */
static ssize_t send_call(struct rfi_ep *ep, const struct call *c)
{
	uint64_t family = c->tagged ? FI_TAGGED : FI_MSG;
	bool tells = c->flags & FI_REMOTE_CQ_DATA;
	size_t len;
	int err = total(c, &len);
	if (err)
		return err;
	struct wire w = {
		.kind = len > EAGER_MAX ? W_RTS : W_MSG, .len = len, .tag = c->tag, .data = tells ? c->data : 0,
		.flags = (tells ? W_CQ_DATA : 0) | (c->flags & FI_DELIVERY_COMPLETE ? W_DELIVERY : 0) |
			 (c->tagged ? W_TAGGED : 0),
	};
	return rfi_issue(ep, c, len > EAGER_MAX ? OP_RTS : OP_MSG, FI_SEND | family, len, &w);
}

static ssize_t rma_call(struct rfi_ep *ep, const struct call *c)
{
	size_t len;
	int err = total(c, &len);
	if (err || c->remotes > 1 || (c->remotes && c->remote != len))
		return err ? err : -FI_EINVAL;
	struct wire w = {
		.kind = c->write ? W_WRITE : W_READ, .len = len, .tag = c->tag, .data = c->data, .addr = c->at,
		.flags = c->flags & FI_REMOTE_CQ_DATA ? W_CQ_DATA : 0,
	};
	return rfi_issue(ep, c, c->write ? OP_WRITE : OP_READ, FI_RMA | (c->write ? FI_WRITE : FI_READ), len, &w);
}

/* CALL makes the function name, which has run carry out the call with these members. */
#define CALL(name, run, params, ...)                 \
	static ssize_t name params                   \
	{                                            \
		const struct call c = {__VA_ARGS__}; \
		LOCKED(EP(ep)->domain);              \
		return run(EP(ep), &c);              \
	}

/* Parameters that many of them have, and what they mean in a call. */
#define ARG_EP struct fid_ep *ep
#define ARG_IN ARG_EP, const void *buf, size_t len
#define ARG_OUT ARG_EP, void *buf, size_t len, void *desc
#define ARG_V ARG_EP, const struct iovec *iov, void **desc, size_t count
#define ARG_AT fi_addr_t to, uint64_t addr, uint64_t key
#define BUF .iov = &(struct iovec){(void *)(uintptr_t)buf, len}, .iovs = 1
#define VEC .iov = iov, .iovs = count
#define WRITE .write = true
#define AT .peer = to, .at = addr, .tag = key
#define TX .context = context, .flags = EP(ep)->tx_flags
#define RX(multi) .context = context, .flags = EP(ep)->rx_flags & ~((multi) ? 0 : FI_MULTI_RECV)
#define TX_DATA .context = context, .data = data, .flags = EP(ep)->tx_flags | FI_REMOTE_CQ_DATA
#define INJECT .flags = FI_INJECT | QUIET
#define INJECT_DATA .data = data, .flags = FI_INJECT | QUIET | FI_REMOTE_CQ_DATA
#define TAG .tagged = true, .tag = tag
#define TAGGED .tagged = true, .tag = m->tag
#define ANY .peer = m->addr, .context = m->context, .data = m->data, .flags = flags
#define MSG .iov = m->msg_iov, .iovs = m->iov_count, ANY
#define REMOTE .remotes = m->rma_iov_count, .at = m->rma_iov->addr, .tag = m->rma_iov->key
#define RMA MSG, REMOTE, .remote = m->rma_iov->len

/* ---- Messages ---- */

CALL(msg_send, send_call, (ARG_IN, void *desc, fi_addr_t to, void *context), BUF, .peer = to, TX)
CALL(msg_sendv, send_call, (ARG_V, fi_addr_t to, void *context), VEC, .peer = to, TX)
CALL(msg_sendmsg, send_call, (ARG_EP, const struct fi_msg *m, uint64_t flags), MSG)
CALL(msg_inject, send_call, (ARG_IN, fi_addr_t to), BUF, .peer = to, INJECT)
CALL(msg_senddata, send_call, (ARG_IN, void *desc, uint64_t data, fi_addr_t to, void *context),
     BUF, .peer = to, TX_DATA)
CALL(msg_injectdata, send_call, (ARG_IN, uint64_t data, fi_addr_t to), BUF, .peer = to, INJECT_DATA)
CALL(msg_recv, rfi_post, (ARG_OUT, fi_addr_t from, void *context), BUF, .peer = from, RX(true))
CALL(msg_recvv, rfi_post, (ARG_V, fi_addr_t from, void *context), VEC, .peer = from, RX(count == 1))
CALL(msg_recvmsg, rfi_post, (ARG_EP, const struct fi_msg *m, uint64_t flags), MSG)

struct fi_ops_msg rfi_msg_ops = {
	.size = sizeof(struct fi_ops_msg), .recv = msg_recv, .recvv = msg_recvv, .recvmsg = msg_recvmsg,
	.send = msg_send, .sendv = msg_sendv, .sendmsg = msg_sendmsg,
	.inject = msg_inject, .senddata = msg_senddata, .injectdata = msg_injectdata,
};

CALL(tag_send, send_call, (ARG_IN, void *desc, fi_addr_t to, uint64_t tag, void *context), BUF, .peer = to, TAG, TX)
CALL(tag_sendv, send_call, (ARG_V, fi_addr_t to, uint64_t tag, void *context), VEC, .peer = to, TAG, TX)
CALL(tag_sendmsg, send_call, (ARG_EP, const struct fi_msg_tagged *m, uint64_t flags), MSG, TAGGED)
CALL(tag_inject, send_call, (ARG_IN, fi_addr_t to, uint64_t tag), BUF, .peer = to, TAG, INJECT)
CALL(tag_senddata, send_call, (ARG_IN, void *desc, uint64_t data, fi_addr_t to, uint64_t tag, void *context),
     BUF, .peer = to, TAG, TX_DATA)
CALL(tag_injectdata, send_call, (ARG_IN, uint64_t data, fi_addr_t to, uint64_t tag), BUF, .peer = to, TAG, INJECT_DATA)
CALL(tag_recv, rfi_post, (ARG_OUT, fi_addr_t from, uint64_t tag, uint64_t ignore, void *context),
     BUF, .peer = from, TAG, .ignore = ignore, RX(false))
CALL(tag_recvv, rfi_post, (ARG_V, fi_addr_t from, uint64_t tag, uint64_t ignore, void *context),
     VEC, .peer = from, TAG, .ignore = ignore, RX(false))
CALL(tag_recvmsg, rfi_post, (ARG_EP, const struct fi_msg_tagged *m, uint64_t flags),
     MSG, TAGGED, .ignore = m->ignore)

struct fi_ops_tagged rfi_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged), .recv = tag_recv, .recvv = tag_recvv, .recvmsg = tag_recvmsg,
	.send = tag_send, .sendv = tag_sendv, .sendmsg = tag_sendmsg,
	.inject = tag_inject, .senddata = tag_senddata, .injectdata = tag_injectdata,
};

/* ---- Remote memory ---- */

CALL(rma_read, rma_call, (ARG_OUT, ARG_AT, void *context), BUF, AT, TX)
CALL(rma_readv, rma_call, (ARG_V, ARG_AT, void *context), VEC, AT, TX)
CALL(rma_readmsg, rma_call, (ARG_EP, const struct fi_msg_rma *m, uint64_t flags), RMA)
CALL(rma_write, rma_call, (ARG_IN, void *desc, ARG_AT, void *context), WRITE, BUF, AT, TX)
CALL(rma_writev, rma_call, (ARG_V, ARG_AT, void *context), WRITE, VEC, AT, TX)
CALL(rma_writemsg, rma_call, (ARG_EP, const struct fi_msg_rma *m, uint64_t flags), WRITE, RMA)
CALL(rma_inject, rma_call, (ARG_IN, ARG_AT), WRITE, BUF, AT, INJECT)
CALL(rma_writedata, rma_call, (ARG_IN, void *desc, uint64_t data, ARG_AT, void *context), WRITE, BUF, AT, TX_DATA)
CALL(rma_injectdata, rma_call, (ARG_IN, uint64_t data, ARG_AT), WRITE, BUF, AT, INJECT_DATA)

struct fi_ops_rma rfi_rma_ops = {
	.size = sizeof(struct fi_ops_rma), .read = rma_read, .readv = rma_readv, .readmsg = rma_readmsg,
	.write = rma_write, .writev = rma_writev, .writemsg = rma_writemsg,
	.inject = rma_inject, .writedata = rma_writedata, .injectdata = rma_injectdata,
};

/* ---- Atomics: the memory that a call has is a list of elements ---- */

#define ARG_HOW enum fi_datatype type, enum fi_op op
#define ARG_ONE ARG_EP, const void *buf, size_t n, void *desc
#define ARG_MORE ARG_EP, const struct fi_ioc *iov, void **desc, size_t n
#define ARG_TO ARG_AT, ARG_HOW, void *context
#define ARG_RESULT struct fi_ioc *result, void **result_desc, size_t results
#define ARG_COMPARE const struct fi_ioc *compare, void **compare_desc, size_t compares
#define ONE(member, ptr) .member = &(struct fi_ioc){(void *)(uintptr_t)(ptr), n}, .member##s = 1
#define MORE .operand = iov, .operands = n
#define RESULT .result = result, .results = results
#define COMPARE .compare = compare, .compares = compares
#define HOW AT, .type = type, .op = op
#define ATOMIC_MSG                                                                        \
	.operand = m->msg_iov, .operands = m->iov_count, ANY, REMOTE, .remote = m->rma_iov->count, \
	.type = m->datatype, .op = m->op

CALL(at_write, rfi_atomic, (ARG_ONE, ARG_TO), ONE(operand, buf), HOW, TX)
CALL(at_writev, rfi_atomic, (ARG_MORE, ARG_TO), MORE, HOW, TX)
CALL(at_writemsg, rfi_atomic, (ARG_EP, const struct fi_msg_atomic *m, uint64_t flags), ATOMIC_MSG)
CALL(at_inject, rfi_atomic, (ARG_EP, const void *buf, size_t n, ARG_AT, ARG_HOW), ONE(operand, buf), HOW, INJECT)
CALL(at_fetch, rfi_atomic, (ARG_ONE, void *to_buf, void *to_desc, ARG_TO),
     ONE(operand, buf), ONE(result, to_buf), HOW, TX, .form = F_FETCH)
CALL(at_fetchv, rfi_atomic, (ARG_MORE, ARG_RESULT, ARG_TO), MORE, RESULT, HOW, TX, .form = F_FETCH)
CALL(at_fetchmsg, rfi_atomic, (ARG_EP, const struct fi_msg_atomic *m, ARG_RESULT, uint64_t flags),
     ATOMIC_MSG, RESULT, .form = F_FETCH)
CALL(at_comp, rfi_atomic, (ARG_ONE, const void *with, void *with_desc, void *to_buf, void *to_desc, ARG_TO),
     ONE(operand, buf), ONE(compare, with), ONE(result, to_buf), HOW, TX, .form = F_COMPARE)
CALL(at_compv, rfi_atomic, (ARG_MORE, ARG_COMPARE, ARG_RESULT, ARG_TO),
     MORE, COMPARE, RESULT, HOW, TX, .form = F_COMPARE)
CALL(at_compmsg, rfi_atomic, (ARG_EP, const struct fi_msg_atomic *m, ARG_COMPARE, ARG_RESULT, uint64_t flags),
     ATOMIC_MSG, COMPARE, RESULT, .form = F_COMPARE)

#define VALID(name, form) \
	static int name(ARG_EP, ARG_HOW, size_t *count) { return rfi_atomic_valid(form, type, op, count); }
VALID(write_valid, F_WRITE)
VALID(fetch_valid, F_FETCH)
VALID(comp_valid, F_COMPARE)

struct fi_ops_atomic rfi_atomic_ops = {
	.size = sizeof(struct fi_ops_atomic), .write = at_write, .writev = at_writev, .writemsg = at_writemsg,
	.inject = at_inject, .readwrite = at_fetch, .readwritev = at_fetchv, .readwritemsg = at_fetchmsg,
	.compwrite = at_comp, .compwritev = at_compv, .compwritemsg = at_compmsg,
	.writevalid = write_valid, .readwritevalid = fetch_valid, .compwritevalid = comp_valid,
};
