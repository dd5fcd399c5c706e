/* atomic.c - atomics, which the target carries out as it makes progress, with its domain's lock held. */
#include <stdlib.h>
#include <string.h>

#include "fi.h"

enum form { F_WRITE, F_FETCH, F_COMPARE };

#define COMMON(T)                                      \
	case FI_MIN: v = a < m ? a : m; break;         \
	case FI_MAX: v = a > m ? a : m; break;         \
	case FI_SUM: v = (T)(m + a); break;            \
	case FI_PROD: v = (T)(m * a); break;           \
	case FI_LOR: v = m || a; break;                \
	case FI_LAND: v = m && a; break;               \
	case FI_LXOR: v = !m != !a; break;             \
	case FI_ATOMIC_WRITE: v = a; break;            \
	case FI_CSWAP: v = c == m ? a : m; break;      \
	case FI_CSWAP_NE: v = c != m ? a : m; break;   \
	case FI_CSWAP_LE: v = c <= m ? a : m; break;   \
	case FI_CSWAP_LT: v = c < m ? a : m; break;    \
	case FI_CSWAP_GE: v = c >= m ? a : m; break;   \
	case FI_CSWAP_GT: v = c > m ? a : m; break;
#define BITS(T)                                        \
	case FI_BOR: v = m | a; break;                 \
	case FI_BAND: v = m & a; break;                \
	case FI_BXOR: v = m ^ a; break;                \
	case FI_MSWAP: v = (T)((a & c) | (m & (T)~c)); break;
#define NONE(T)

/* TYPE makes the function that carries out op on one element. Neither has to be aligned. */
#define TYPE(name, T, more)                                                                            \
	static void name(enum fi_op op, char *mem, const char *operand, const char *compare, char *old) \
	{                                                                                              \
		T m, a, c = 0, v;                                                                      \
		memcpy(&m, mem, sizeof m);                                                             \
		memcpy(&a, operand, sizeof a);                                                         \
		if (compare)                                                                           \
			memcpy(&c, compare, sizeof c);                                                 \
		memcpy(old, &m, sizeof m);                                                             \
		v = m;                                                                                 \
		switch ((int)op) {                                                                     \
			COMMON(T)                                                                      \
			more(T)                                                                        \
		default:                                                                               \
			break;                                                                         \
		}                                                                                      \
		memcpy(mem, &v, sizeof v);                                                             \
	}

/* Sums of unsigned numbers wrap, and so those of signed ones do. */
TYPE(on_i8, int8_t, BITS)
TYPE(on_u8, uint8_t, BITS)
TYPE(on_i16, int16_t, BITS)
TYPE(on_u16, uint16_t, BITS)
TYPE(on_i32, int32_t, BITS)
TYPE(on_u32, uint32_t, BITS)
TYPE(on_i64, int64_t, BITS)
TYPE(on_u64, uint64_t, BITS)
TYPE(on_float, float, NONE)
TYPE(on_double, double, NONE)
TYPE(on_long_double, long double, NONE)

static const struct {
	void (*run)(enum fi_op, char *, const char *, const char *, char *);
	uint8_t size;
	bool bits;
} types[] = {
	[FI_INT8] = {on_i8, 1, true}, [FI_UINT8] = {on_u8, 1, true}, [FI_INT16] = {on_i16, 2, true}, [FI_UINT16] = {on_u16, 2, true},
	[FI_INT32] = {on_i32, 4, true}, [FI_UINT32] = {on_u32, 4, true}, [FI_INT64] = {on_i64, 8, true}, [FI_UINT64] = {on_u64, 8, true},
	[FI_FLOAT] = {on_float, sizeof(float), false}, [FI_DOUBLE] = {on_double, sizeof(double), false},
	[FI_LONG_DOUBLE] = {on_long_double, sizeof(long double), false},
};

/* valid returns the size of an element, or 0 if there is no such operation. */
static size_t valid(enum form form, unsigned type, unsigned op)
{
	bool bits = op == FI_BOR || op == FI_BAND || op == FI_BXOR || op == FI_MSWAP, compares = op >= FI_CSWAP && op <= FI_MSWAP;
	if (type >= sizeof types / sizeof *types || !types[type].run || op > FI_MSWAP || (bits && !types[type].bits))
		return 0;
	if (compares != (form == F_COMPARE) || (op == FI_ATOMIC_READ && form != F_FETCH))
		return 0;
	return types[type].size;
}

static int query(enum form form, enum fi_datatype type, enum fi_op op, size_t *count)
{
	size_t size = valid(form, type, op);
	if (!size)
		return -FI_EOPNOTSUPP;
	if (count)
		*count = ATOMIC_BYTES / size;
	return 0;
}

int rfi_query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags)
{
	enum form form = flags & FI_COMPARE_ATOMIC ? F_COMPARE : flags & FI_FETCH_ATOMIC ? F_FETCH : F_WRITE;
	int err = flags & ~(uint64_t)(FI_COMPARE_ATOMIC | FI_FETCH_ATOMIC | FI_TAGGED) ? -FI_EBADFLAGS : query(form, type, op, &attr->count);
	if (!err)
		attr->size = types[type].size;
	return err;
}

/* gather copies the elements of iov to to, and returns how many bytes they have, or SIZE_MAX. */
static size_t gather(char *to, const struct fi_ioc *iov, size_t count, size_t size)
{
	size_t n = 0;
	for (size_t i = 0; i < count; i++) {
		if (iov[i].count > (ATOMIC_BYTES - n) / size)
			return SIZE_MAX;
		if (iov[i].addr)
			memcpy(to + n, iov[i].addr, iov[i].count * size);
		else
			memset(to + n, 0, iov[i].count * size); /* FI_ATOMIC_READ has no operand */
		n += iov[i].count * size;
	}
	return n;
}

struct lists {
	const struct fi_ioc *compare, *result;
	size_t compares, results;
};

static ssize_t run(struct rfi_ep *ep, const struct fi_msg_atomic *m, enum form form, const struct lists *more, uint64_t flags, size_t size)
{
	char operand[2 * ATOMIC_BYTES];
	const struct fi_rma_ioc *remote = m->rma_iov;
	struct fi_ioc none = {NULL, remote->count};
	bool read = m->op == FI_ATOMIC_READ;
	size_t n = gather(operand, read ? &none : m->msg_iov, read ? 1 : m->iov_count, size), all = n;
	int err;
	if (n != remote->count * size || !n)
		return -FI_EINVAL;
	if (form == F_COMPARE) {
		if (gather(operand + n, more->compare, more->compares, size) != n)
			return -FI_EINVAL;
		all = 2 * n;
	}
	flags |= FI_ATOMIC | (form == F_WRITE ? FI_WRITE : FI_READ);
	struct op *op = rfi_op(ep, OP_ATOMIC, m->addr, flags, m->context, all, &err);
	if (!op)
		return err;
	struct iovec iov = {operand, all};
	rfi_op_iov(op, &iov, 1, true);
	for (size_t i = 0; form != F_WRITE && i < more->results; i++)
		op->result[op->results++] = (struct iovec){more->result[i].addr, more->result[i].count * size};
	op->head.kind = W_ATOMIC;
	op->head.err = (uint32_t)form << 16 | (uint32_t)m->op << 8 | (uint32_t)m->datatype;
	op->head.len = remote->count;
	op->head.addr = remote->addr;
	op->head.tag = remote->key;
	op->head.data = m->data;
	op->head.flags = flags & FI_REMOTE_CQ_DATA ? W_CQ_DATA : 0;
	return rfi_op_start(ep, op, Q_RMA);
}

static ssize_t atomic(struct fid_ep *fid, const struct fi_msg_atomic *m, enum form form, const struct lists *more, uint64_t flags)
{
	struct rfi_ep *ep = EP(fid);
	size_t size = valid(form, m->datatype, m->op);
	if (!size)
		return -FI_EOPNOTSUPP;
	if (m->rma_iov_count != 1 || m->iov_count > IOV_LIMIT || (more && (more->results > IOV_LIMIT || more->compares > IOV_LIMIT)))
		return -FI_EINVAL;
	rfi_lock(ep->domain);
	ssize_t err = run(ep, m, form, more, flags, size);
	rfi_unlock(ep->domain);
	return err;
}

/* DESCRIBE makes the description of an atomic on the elements of iov. */
#define DESCRIBE(iov_, count_, to, addr_, key_, type, op_, ctx)                                                         \
	struct fi_rma_ioc remote = {.addr = (addr_), .key = (key_)};                                                     \
	struct fi_msg_atomic m = {.msg_iov = (iov_), .iov_count = (count_), .addr = (to), .rma_iov = &remote, .rma_iov_count = 1, \
				  .datatype = (type), .op = (op_), .context = (ctx)};                                    \
	for (size_t i = 0; i < (count_) && i < IOV_LIMIT; i++)                                                           \
		remote.count += (iov_)[i].count

static ssize_t at_writev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t n, fi_addr_t to, uint64_t addr, uint64_t key,
			 enum fi_datatype type, enum fi_op op, void *context)
{
	DESCRIBE(iov, n, to, addr, key, type, op, context);
	return atomic(ep, &m, F_WRITE, NULL, EP(ep)->tx_flags);
}

static ssize_t at_write(struct fid_ep *ep, const void *buf, size_t n, void *desc, fi_addr_t to, uint64_t addr, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc iov = {(void *)(uintptr_t)buf, n};
	return at_writev(ep, &iov, NULL, 1, to, addr, key, type, op, context);
}

static ssize_t at_writemsg(struct fid_ep *ep, const struct fi_msg_atomic *m, uint64_t flags)
{
	return atomic(ep, m, F_WRITE, NULL, flags);
}

static ssize_t at_inject(struct fid_ep *ep, const void *buf, size_t n, fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type,
			 enum fi_op op)
{
	struct fi_ioc iov = {(void *)(uintptr_t)buf, n};
	DESCRIBE(&iov, (size_t)1, to, addr, key, type, op, NULL);
	return atomic(ep, &m, F_WRITE, NULL, FI_INJECT | QUIET);
}

static ssize_t at_fetchv(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t n, struct fi_ioc *result, void **rdesc, size_t results,
			 fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct lists more = {.result = result, .results = results};
	const struct fi_ioc *counted = n ? iov : result;
	DESCRIBE(counted, n ? n : results, to, addr, key, type, op, context);
	return atomic(ep, &m, F_FETCH, &more, EP(ep)->tx_flags);
}

static ssize_t at_fetch(struct fid_ep *ep, const void *buf, size_t n, void *desc, void *result, void *rdesc, fi_addr_t to, uint64_t addr,
			uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc iov = {(void *)(uintptr_t)buf, n}, to_iov = {result, n};
	return at_fetchv(ep, &iov, NULL, 1, &to_iov, NULL, 1, to, addr, key, type, op, context);
}

static ssize_t at_fetchmsg(struct fid_ep *ep, const struct fi_msg_atomic *m, struct fi_ioc *result, void **rdesc, size_t results, uint64_t flags)
{
	struct lists more = {.result = result, .results = results};
	return atomic(ep, m, F_FETCH, &more, flags);
}

static ssize_t at_compv(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t n, const struct fi_ioc *compare, void **cdesc,
			size_t compares, struct fi_ioc *result, void **rdesc, size_t results, fi_addr_t to, uint64_t addr, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	struct lists more = {compare, result, compares, results};
	DESCRIBE(iov, n, to, addr, key, type, op, context);
	return atomic(ep, &m, F_COMPARE, &more, EP(ep)->tx_flags);
}

static ssize_t at_comp(struct fid_ep *ep, const void *buf, size_t n, void *desc, const void *compare, void *cdesc, void *result, void *rdesc,
		       fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc iov = {(void *)(uintptr_t)buf, n}, c = {(void *)(uintptr_t)compare, n}, r = {result, n};
	return at_compv(ep, &iov, NULL, 1, &c, NULL, 1, &r, NULL, 1, to, addr, key, type, op, context);
}

static ssize_t at_compmsg(struct fid_ep *ep, const struct fi_msg_atomic *m, const struct fi_ioc *compare, void **cdesc, size_t compares,
			  struct fi_ioc *result, void **rdesc, size_t results, uint64_t flags)
{
	struct lists more = {compare, result, compares, results};
	return atomic(ep, m, F_COMPARE, &more, flags);
}

static int write_valid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	return query(F_WRITE, type, op, count);
}

static int fetch_valid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	return query(F_FETCH, type, op, count);
}

static int comp_valid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	return query(F_COMPARE, type, op, count);
}

struct fi_ops_atomic rfi_atomic_ops = {
	.size = sizeof(struct fi_ops_atomic), .write = at_write, .writev = at_writev, .writemsg = at_writemsg, .inject = at_inject,
	.readwrite = at_fetch, .readwritev = at_fetchv, .readwritemsg = at_fetchmsg, .compwrite = at_comp, .compwritev = at_compv,
	.compwritemsg = at_compmsg, .writevalid = write_valid, .readwritevalid = fetch_valid, .compwritevalid = comp_valid,
};

/* ---- The target ---- */

void rfi_on_atomic(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	enum form form = (enum form)(w->err >> 16);
	enum fi_op op = (enum fi_op)(w->err >> 8 & 0xff);
	unsigned type = w->err & 0xff;
	size_t size = form <= F_COMPARE ? valid(form, type, op) : 0, n = w->len;
	char old[ATOMIC_BYTES];
	int err = FI_EOPNOTSUPP;
	if (!size || n > ATOMIC_BYTES / size || len != n * size * (form == F_COMPARE ? 2 : 1)) {
		rfi_answer(ep, p, W_ACK, w->id, (uint32_t)err);
		return;
	}
	uint64_t access = op == FI_ATOMIC_READ ? FI_REMOTE_READ : form == F_WRITE ? FI_REMOTE_WRITE : FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct rfi_mr *mr = rfi_mr_find(ep->domain, w->tag, w->addr, n * size, access, &err);
	if (!mr) {
		rfi_answer(ep, p, W_ACK, w->id, (uint32_t)err);
		return;
	}
	char *mem = mr->mem + (w->addr - mr->base);
	for (size_t i = 0; i < n; i++)
		types[type].run(op, mem + i * size, data + i * size, form == F_COMPARE ? data + (n + i) * size : NULL, old + i * size);
	int c = op == FI_ATOMIC_READ ? C_REMOTE_READ : C_REMOTE_WRITE;
	if (ep->cntrs[c])
		rfi_cntr_count(ep->cntrs[c], false);
	if (mr->cntr)
		rfi_cntr_count(mr->cntr, false);
	if (w->flags & W_CQ_DATA && ep->rx_cq) {
		struct cqe e = {.flags = FI_ATOMIC | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .data = w->data, .src = FI_ADDR_NOTAVAIL};
		rfi_cq_add(ep->rx_cq, &e);
	}
	struct wire part = {.magic = WIRE_MAGIC, .kind = W_PART, .flags = W_LAST, .id = w->id, .len = n * size};
	if (form == F_WRITE)
		rfi_answer(ep, p, W_ACK, w->id, 0);
	else
		rfi_reply(ep, p, &part, old, n * size);
}
