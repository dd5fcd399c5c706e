/* atomic.c - atomics, which the target carries out as it makes progress, with its domain's lock held. */
#include <stdlib.h>
#include <string.h>

#include "fi.h"

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
	static void on_##name(enum fi_op op, char *mem, const char *operand, const char *compare, char *old) \
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
#define TYPES(X)                                                                                                   \
	X(FI_INT8, int8_t, BITS) X(FI_UINT8, uint8_t, BITS) X(FI_INT16, int16_t, BITS) X(FI_UINT16, uint16_t, BITS) \
	X(FI_INT32, int32_t, BITS) X(FI_UINT32, uint32_t, BITS) X(FI_INT64, int64_t, BITS) X(FI_UINT64, uint64_t, BITS) \
	X(FI_FLOAT, float, NONE) X(FI_DOUBLE, double, NONE) X(FI_LONG_DOUBLE, long double, NONE)
TYPES(TYPE)

enum { HAS_NONE, HAS_BITS };
#define ROW(name, T, more) [name] = {on_##name, sizeof(T), HAS_##more},
static const struct {
	void (*run)(enum fi_op, char *, const char *, const char *, char *);
	uint8_t size;
	bool bits;
} types[] = {TYPES(ROW)};

/* valid returns the size of an element, or 0 if there is no such operation. */
static size_t valid(enum form form, unsigned type, unsigned op)
{
	bool bits = op == FI_BOR || op == FI_BAND || op == FI_BXOR || op == FI_MSWAP;
	bool compares = op >= FI_CSWAP && op <= FI_MSWAP;
	if (type >= sizeof types / sizeof *types || !types[type].run || op > FI_MSWAP || (bits && !types[type].bits))
		return 0;
	if (compares != (form == F_COMPARE) || (op == FI_ATOMIC_READ && form != F_FETCH))
		return 0;
	return types[type].size;
}

int rfi_atomic_valid(enum form form, enum fi_datatype type, enum fi_op op, size_t *count)
{
	size_t size = valid(form, type, op);
	if (!size)
		return -FI_EOPNOTSUPP;
	if (count)
		*count = ATOMIC_BYTES / size;
	return 0;
}

int rfi_query_atomic(struct fid_domain *d, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *a, uint64_t how)
{
	enum form form = how & FI_COMPARE_ATOMIC ? F_COMPARE : how & FI_FETCH_ATOMIC ? F_FETCH : F_WRITE;
	if (how & ~(uint64_t)(FI_COMPARE_ATOMIC | FI_FETCH_ATOMIC | FI_TAGGED))
		return -FI_EBADFLAGS;
	a->size = valid(form, type, op);
	return rfi_atomic_valid(form, type, op, &a->count);
}

/* gather copies the elements of iov to to, and returns how many bytes they have, or SIZE_MAX. */
static size_t gather(char *to, const struct fi_ioc *iov, size_t count, size_t size)
{
	size_t n = 0;
	for (size_t i = 0; i < count; i++) {
		if (iov[i].count > (ATOMIC_BYTES - n) / size)
			return SIZE_MAX;
		if (iov[i].count)
			memcpy(to + n, iov[i].addr, iov[i].count * size);
		n += iov[i].count * size;
	}
	return n;
}

/* rfi_atomic carries out a call. Its operands, and behind them what to compare with, go out as copies. */
ssize_t rfi_atomic(struct rfi_ep *ep, const struct call *c)
{
	char operands[2 * ATOMIC_BYTES];
	const struct fi_ioc *from = c->op == FI_ATOMIC_READ ? c->result : c->operand;
	size_t size = valid(c->form, c->type, c->op), froms = c->op == FI_ATOMIC_READ ? c->results : c->operands, n, all;
	if (!size)
		return -FI_EOPNOTSUPP;
	if (c->remotes > 1 || froms > IOV_LIMIT || c->results > IOV_LIMIT || c->compares > IOV_LIMIT)
		return -FI_EINVAL;
	n = all = gather(operands, from, froms, size);
	if (n == SIZE_MAX || !n || (c->remotes && n != c->remote * size))
		return -FI_EINVAL;
	if (c->form == F_COMPARE && gather(operands + n, c->compare, c->compares, size) != n)
		return -FI_EINVAL;
	if (c->form == F_COMPARE)
		all = 2 * n;
	if (c->op == FI_ATOMIC_READ) /* has no operand: what its result holds now is nobody's business */
		memset(operands, 0, n);
	struct wire w = {
		.kind = W_ATOMIC, .err = (uint32_t)c->form << 16 | (uint32_t)c->op << 8 | (uint32_t)c->type, .len = n / size,
		.addr = c->at, .tag = c->tag, .data = c->data, .flags = c->flags & FI_REMOTE_CQ_DATA ? W_CQ_DATA : 0,
	};
	struct call whole = *c;
	whole.iov = &(struct iovec){operands, all};
	whole.iovs = 1;
	whole.size = size;
	return rfi_issue(ep, &whole, OP_ATOMIC, FI_ATOMIC | (c->form == F_WRITE ? FI_WRITE : FI_READ), all, &w);
}

/* ---- The target ---- */

void rfi_on_atomic(struct rfi_ep *ep, struct peer *p, const struct wire *w, const char *data, size_t len)
{
	enum form form = (enum form)(w->err >> 16);
	enum fi_op op = (enum fi_op)(w->err >> 8 & 0xff);
	unsigned type = w->err & 0xff;
	size_t size = form <= F_COMPARE ? valid(form, type, op) : 0, n = w->len;
	uint64_t access = (form == F_WRITE ? 0 : FI_REMOTE_READ) | (op == FI_ATOMIC_READ ? 0 : FI_REMOTE_WRITE);
	char old[ATOMIC_BYTES];
	struct rfi_mr *mr = NULL;
	int err = FI_EOPNOTSUPP;
	if (size && n <= ATOMIC_BYTES / size && len == n * size * (form == F_COMPARE ? 2 : 1))
		mr = rfi_mr_find(ep->domain, w->tag, w->addr, n * size, access, &err);
	if (!mr) {
		rfi_answer(ep, p, W_ACK, w->id, err);
		return;
	}
	char *mem = mr->mem + (w->addr - mr->base);
	const char *compare = form == F_COMPARE ? data + n * size : NULL;
	for (size_t i = 0; i < n; i++)
		types[type].run(op, mem + i * size, data + i * size, compare ? compare + i * size : NULL, old + i * size);
	rfi_count(ep, op == FI_ATOMIC_READ ? C_REMOTE_READ : C_REMOTE_WRITE, false);
	err = w->flags & W_CQ_DATA ? rfi_wrote(ep, p, w, n * size) : 0;
	if (err || form == F_WRITE)
		rfi_answer(ep, p, W_ACK, w->id, err);
	else
		rfi_reply(ep, p, (struct wire){.kind = W_PART, .flags = W_LAST, .id = w->id, .len = n * size}, old, n * size);
}
