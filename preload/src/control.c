/* The control messages of sendmsg. */
#include <stdlib.h>

#include "pre.h"

#define BIT(t) (1u << (t))
#define ATOMICS (BIT(PRE_CMSG_FADD) | BIT(PRE_CMSG_CSWP) | BIT(PRE_CMSG_MASKED_FADD) | BIT(PRE_CMSG_MASKED_CSWP))
#define OPERATIONS (BIT(PRE_CMSG_RDMA_ARGS) | ATOMICS)
enum { MAX_CONTROL = 128 << 10 }; /* bytes: the kernel's net.core.optmem_max */
#define DESCRIBES (BIT(PRE_CMSG_RDMA_DEST) | BIT(PRE_CMSG_RDMA_MAP) | BIT(PRE_CMSG_ZCOPY_COOKIE))

/* A control is one control message. */
struct control {
	int level, type;
	const uint8_t *data;
	size_t len;
};

/* next takes the next message from *b. It returns 1, 0 at the end, or -EINVAL for a malformed
 * chain. As in the kernel a rest that is too short for a header ends the chain. */
static int next(const uint8_t **b, size_t *left, struct control *c)
{
	struct cmsghdr m;
	if (*left < sizeof m)
		return 0;
	memcpy(&m, *b, sizeof m);
	if (m.cmsg_len < sizeof m || m.cmsg_len > *left)
		return -EINVAL;
	*c = (struct control){m.cmsg_level, m.cmsg_type, *b + sizeof m, m.cmsg_len - sizeof m};
	size_t step = CMSG_ALIGN(m.cmsg_len);
	step = step < *left ? step : *left;
	*b += step;
	*left -= step;
	return 1;
}

static bool can_be_sent(int type) { return type > 0 && type < 32 && (OPERATIONS | DESCRIBES) & BIT(type); }

/* load_vector copies the local vector of an operation, and checks it as far as its size goes. */
static int load_vector(struct pre_out *o, const struct pre_rdma_args *a)
{
	if (a->nr_local == 0)
		return -EINVAL;
	if (a->nr_local > PRE_MAX_SEGMENTS)
		return -EMSGSIZE;
	struct pre_iovec *v = realloc(o->local, a->nr_local * sizeof *v);
	if (!v)
		return -ENOMEM;
	o->local = v;
	o->nlocal = a->nr_local;
	int err = pre_load(v, a->local_addr, o->nlocal * sizeof *v);
	for (size_t i = 0; i < o->nlocal && !err; i++)
		if (v[i].bytes == 0 || v[i].addr + v[i].bytes < v[i].addr)
			err = -EINVAL;
	return err;
}

/* args_of decodes the arguments of an RDMA operation. */
static int args_of(const struct control *c, struct pre_rdma_args *a)
{
	if (c->len < sizeof *a)
		return -EINVAL;
	memcpy(a, c->data, sizeof *a);
	return 0;
}

/* pre_controls_load copies the control messages of h, as the kernel does, and makes the kernel's first
 * pass over the chain: its form, and how many remote bytes there are, of which it allows more than
 * the kernel. */
int pre_controls_load(struct pre_out *o, const struct msghdr *h)
{
	struct control c;
	uint64_t sum = 0;
	int more, err;
	size_t n = h->msg_controllen;
	if (n > MAX_CONTROL)
		return -ENOBUFS;
	if (n > sizeof o->few && !(o->control = malloc(n)))
		return -ENOMEM;
	o->ncontrol = n;
	if ((err = pre_load(o->control, (uintptr_t)h->msg_control, n)))
		return err;
	const uint8_t *b = o->control;
	while ((more = next(&b, &n, &c)) > 0) {
		struct pre_rdma_args a;
		if (c.level != (int)PRE_SOL_RDS || c.type != PRE_CMSG_RDMA_ARGS)
			continue;
		if ((err = args_of(&c, &a)))
			return err;
		sum += a.remote.bytes < PRE_MAX_TRANSFER + 1 ? a.remote.bytes : PRE_MAX_TRANSFER + 1;
		if (sum > PRE_MAX_TRANSFER)
			sum = PRE_MAX_TRANSFER + 1;
	}
	return more < 0 ? more : sum > PRE_MAX_TRANSFER ? -EMSGSIZE : 0;
}

/* check makes the kernel's second pass: each message alone, and MSG_ZEROCOPY's cookie. */
static int check(struct pre_out *o)
{
	const uint8_t *b = o->control;
	size_t left = o->ncontrol;
	struct control c;
	bool cookie = false;
	int err = 0;
	while (!err && next(&b, &left, &c) > 0) {
		struct pre_rdma_args a;
		if (c.level != (int)PRE_SOL_RDS)
			continue;
		if (!can_be_sent(c.type))
			return -EINVAL;
		cookie = cookie || c.type == PRE_CMSG_ZCOPY_COOKIE;
		if (c.type == PRE_CMSG_RDMA_ARGS && !(err = args_of(&c, &a)))
			err = load_vector(o, &a);
	}
	return err ? err : o->flags & MSG_ZEROCOPY && !cookie ? -EINVAL : 0;
}

/* expect notes an operation whose status the program wants, and sets what librds is asked for. */
static int expect(struct pre_sock *s, uint64_t user, uint64_t flags, uint64_t *token, uint32_t *op_flags)
{
	bool notify = flags & PRE_NOTIFY_ME;
	size_t i = 0;
	*token = 0;
	if (!notify && !atomic_load(&s->recverr))
		return 0;
	pthread_mutex_lock(&s->mu);
	while (i < s->nops && s->ops[i].used)
		i++;
	if (i == s->nops) {
		size_t n = s->nops ? 2 * s->nops : 64;
		struct pre_op *more = realloc(s->ops, n * sizeof *more);
		if (!more) {
			pthread_mutex_unlock(&s->mu);
			return -ENOMEM;
		}
		memset(more + s->nops, 0, (n - s->nops) * sizeof *more);
		s->ops = more;
		s->nops = n;
	}
	s->ops[i] = (struct pre_op){user, true, notify};
	atomic_fetch_add(&s->pending_ops, 1);
	pthread_mutex_unlock(&s->mu);
	*token = i + 1;
	*op_flags |= RDS_OP_NOTIFY;
	return 0;
}

/* forget_op ends the wait for an operation. mu is held. */
static struct pre_op forget_op(struct pre_sock *s, uint64_t token)
{
	struct pre_op op = {0};
	if (token == 0 || token > s->nops || !s->ops[token - 1].used)
		return op;
	op = s->ops[token - 1];
	s->ops[token - 1].used = false;
	atomic_fetch_sub(&s->pending_ops, 1);
	return op;
}

/* An operation without NOTIFY_ME is reported by RDS_RECVERR if it failed and the program has not
 * cancelled it. mu is held. */
void pre_settled(struct pre_sock *s, const struct rds_completion *c)
{
	struct pre_op op = forget_op(s, c->token);
	if (!op.used || (!op.notify && (c->status == RDS_SUCCESS || c->status == RDS_CANCELED)))
		return;
	s->status = (struct pre_notify){.user_token = op.token, .status = (int32_t)(c->status == RDS_UNKNOWN ? PRE_STATUS_DROPPED : c->status)};
	atomic_store(&s->has_status, true);
}

static int add_rdma(struct pre_sock *s, struct pre_out *o, const struct pre_rdma_args *a)
{
	uint64_t sum = 0;
	o->vec = calloc(o->nlocal, sizeof *o->vec);
	if (!o->vec)
		return -ENOMEM;
	o->nvec = o->nlocal;
	for (size_t i = 0; i < o->nlocal; i++) {
		struct pre_iovec v = o->local[i];
		if (v.bytes > a->remote.bytes - sum)
			return -EINVAL;
		sum += v.bytes;
		int err = pre_segment(s, v.addr, v.bytes, &o->vec[i]);
		if (err)
			return err;
	}
	o->op = (struct rds_rdma){.kind = a->flags & PRE_READWRITE ? RDS_OP_WRITE : RDS_OP_READ, .cookie = a->cookie,
		.remote_off = a->remote.addr, .local = o->vec, .segments = o->nvec};
	o->m.op = &o->op;
	int err = expect(s, a->user_token, a->flags, &o->op.token, &o->op.flags);
	o->tokens[0] = o->op.token;
	return err;
}

static int add_atomic(struct pre_sock *s, struct pre_out *o, int type, const struct pre_atomic_args *a)
{
	struct rds_atomic *op = &o->atomic;
	*op = (struct rds_atomic){.kind = RDS_OP_FETCH_ADD, .cookie = a->cookie, .remote_off = a->remote_addr};
	int err = a->local_addr % 8 ? -EFAULT : pre_segment(s, a->local_addr, 8, &op->local);
	if (err)
		return err;
	switch (type) {
	case PRE_CMSG_FADD:
		op->add = a->word[0];
		break;
	case PRE_CMSG_MASKED_FADD:
		op->add = a->word[0];
		op->no_carry = a->word[1];
		break;
	case PRE_CMSG_MASKED_CSWP:
		op->masked = 1;
		op->compare_mask = a->word[2];
		op->swap_mask = a->word[3];
		/* fallthrough */
	default:
		op->kind = RDS_OP_CMP_SWAP;
		op->compare = a->word[0];
		op->swap = a->word[1];
	}
	o->m.atomic = op;
	err = expect(s, a->user_token, a->flags, &op->token, &op->flags);
	o->tokens[1] = op->token;
	return err;
}

/* add_dest lets the message carry the cookie of a region of this socket. */
static int add_dest(struct pre_sock *s, struct pre_out *o, uint64_t cookie)
{
	o->m.cookie = cookie;
	return pre_mr_offer(s, cookie, &o->m.addr);
}

static int add_map(struct pre_sock *s, rds_socket *rs, struct pre_out *o, const struct pre_mr_args *a)
{
	int err = pre_register(s, rs, a, 0, &o->mapped);
	if (!err) {
		o->m.cookie = rds_region_cookie(o->mapped->region);
		o->mapped->granted = true;
		o->mapped->to = o->m.addr;
	}
	return err;
}

/* A chain is what the messages of one sendmsg say. */
struct chain {
	uint32_t present;
	struct pre_rdma_args args;
	struct pre_atomic_args atomic;
	int atomic_type;
	struct pre_mr_args map;
	uint64_t dest;
	uint32_t cookie;
};

/* decode adds c to ch. */
static int decode(struct chain *ch, const struct control *c)
{
	void *to = c->type == PRE_CMSG_RDMA_ARGS ? (void *)&ch->args : c->type == PRE_CMSG_RDMA_MAP ? (void *)&ch->map :
		c->type == PRE_CMSG_RDMA_DEST ? (void *)&ch->dest : c->type == PRE_CMSG_ZCOPY_COOKIE ? (void *)&ch->cookie : (void *)&ch->atomic;
	size_t n = c->type == PRE_CMSG_RDMA_ARGS ? sizeof ch->args : c->type == PRE_CMSG_RDMA_MAP ? sizeof ch->map :
		c->type == PRE_CMSG_RDMA_DEST ? sizeof ch->dest : c->type == PRE_CMSG_ZCOPY_COOKIE ? sizeof ch->cookie : sizeof ch->atomic;
	uint32_t was = ch->present;
	if (c->len < n)
		return -EINVAL;
	memcpy(to, c->data, n);
	ch->present |= BIT(c->type);
	if (BIT(c->type) & ATOMICS)
		ch->atomic_type = c->type;
	bool twice = was & BIT(c->type) && c->type != PRE_CMSG_ZCOPY_COOKIE;
	bool two_atomics = BIT(c->type) & ATOMICS && was & ATOMICS;
	bool both = ch->present & OPERATIONS && ch->present & DESCRIBES;
	uint32_t cookies = BIT(PRE_CMSG_RDMA_DEST) | BIT(PRE_CMSG_RDMA_MAP);
	return twice || two_atomics || both || (ch->present & cookies) == cookies ? -EINVAL : 0;
}

/* silence applies RDS_RDMA_SILENT, which counts if every operation has it. */
static void silence(struct pre_out *o, const struct chain *ch)
{
	bool silent = o->len == 0 && (!o->m.op || ch->args.flags & PRE_SILENT) && (!o->m.atomic || ch->atomic.flags & PRE_SILENT);
	if (silent) {
		o->op.flags |= RDS_OP_SILENT;
		o->atomic.flags |= RDS_OP_SILENT;
	}
}

int pre_controls(struct pre_sock *s, rds_socket *rs, struct pre_out *o)
{
	const uint8_t *b = o->control;
	size_t left = o->ncontrol;
	struct chain ch = {0};
	struct control c;
	int err = check(o);
	while (!err && (err = next(&b, &left, &c)) > 0)
		err = c.level == (int)PRE_SOL_RDS ? decode(&ch, &c) : 0;
	bool zero_copy = o->flags & MSG_ZEROCOPY && s->zerocopy;
	o->op.flags = o->atomic.flags = 0;
	if (!err && ch.present & BIT(PRE_CMSG_RDMA_ARGS))
		err = add_rdma(s, o, &ch.args);
	if (!err && ch.present & BIT(PRE_CMSG_RDMA_DEST))
		err = add_dest(s, o, ch.dest);
	if (!err && ch.present & BIT(PRE_CMSG_RDMA_MAP))
		err = add_map(s, rs, o, &ch.map);
	if (!err && ch.atomic_type)
		err = add_atomic(s, o, ch.atomic_type, &ch.atomic);
	if (!err && ch.present & BIT(PRE_CMSG_ZCOPY_COOKIE) && !zero_copy)
		err = -EINVAL;
	if (err)
		return err;
	silence(o, &ch);
	if (zero_copy) {
		o->m.flags |= RDS_ZERO_COPY;
		o->m.zero_copy_cookie = ch.cookie;
	}
	return 0;
}

/* pre_undo takes back what a send that failed has done. */
void pre_undo(struct pre_sock *s, struct pre_out *o)
{
	pthread_mutex_lock(&s->mu);
	forget_op(s, o->tokens[0]);
	forget_op(s, o->tokens[1]);
	pthread_mutex_unlock(&s->mu);
	if (o->mapped)
		pre_mr_drop(o->mapped); /* nobody was told of the key */
}
