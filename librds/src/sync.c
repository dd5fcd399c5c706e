/* Operations without a message, which the caller waits for. */
#include <stdlib.h>

#include "barrier.h"
#include "buffer.h"
#include "op.h"
#include "tx.h"

/* Words that are made at a time. */
#define WORDS (4096 / 8)

/* A word of an operation that nobody waits for any more. */
struct lent {
	struct rds_segment word;
	rds_socket *s;
	struct rds_addr to;
	uint64_t id;
};

/* send_by sends m, waiting until the deadline, whatever the socket's mode. */
static int send_by(rds_socket *s, struct rds_msg *m, int64_t deadline)
{
	struct rdsi_out out = {.to = m->addr, .x = m, .through = true};
	return rdsi_send(s, &out, false, deadline);
}

/* post sends m with its one operation, and stores where it goes and its id. */
static int post(rds_socket *s, struct rds_msg *m, int64_t deadline, struct rds_addr *to, uint64_t *id)
{
	if (deadline != RDSI_NEVER) {
		int64_t left = deadline - rdsi_now();
		if (left < 0)
			return -ETIMEDOUT;
		m->give_up_ms = (uint32_t)(left / RDSI_MS + 1); /* not before the deadline, or the limit is taken for the outcome */
	}
	*to = m->addr;
	if (rdsi_no_addr(to))
		rds_remote(s, to);
	int err = rds_reach(s, to);
	if (!err)
		err = send_by(s, m, deadline);
	if (err)
		return err;
	*id = m->op_id ? m->op_id : m->atomic_id;
	return 0;
}

/* complete is rdsi_barrier for an operation to to. If the host turns out not to be reached, *why is
 * the error that says why, and the operation is withdrawn unless it has gone out. */
static int complete(rds_socket *s, const struct rds_addr *to, uint64_t id, int64_t deadline, int *why)
{
	int err = rdsi_barrier_reach(s, to, id, deadline, why);
	if (err || !*why)
		return err;
	err = rdsi_withdraw(s, to, id, deadline);
	if (err == -EINTR || err == -ETIMEDOUT) /* else its status says what became of it */
		return err;
	return rdsi_barrier(s, to, id, deadline);
}

/* settled waits until a posted operation is locally complete and settled. *pending is its id if it
 * may still use its memory. */
static int settled(rds_socket *s, const struct rds_addr *to, uint64_t id, struct rds_completion *comp, int64_t deadline, uint64_t *pending)
{
	struct rds_completion got;
	int why = 0, err = complete(s, to, id, deadline, &why);
	if (err)
		*pending = id;
	else
		err = rdsi_wait_op(s, to, id, &got, deadline);
	if (err) {
		rdsi_disown(s, to, id);
		return err;
	}
	if (comp)
		*comp = got;
	err = rds_status_error(got.status);
	if (err && rdsi_now() >= deadline)
		return -ETIMEDOUT; /* it gave up for that */
	return got.status == RDS_DROPPED && why ? why : err;
}

/* run is post and settled. */
static int run(rds_socket *s, struct rds_msg *m, struct rds_completion *comp, int64_t deadline, uint64_t *pending)
{
	struct rds_addr to;
	uint64_t id;
	*pending = 0;
	int err = post(s, m, deadline, &to, &id);
	return err ? err : settled(s, &to, id, comp, deadline, pending);
}

int rds_transfer(rds_socket *s, const struct rds_addr *to, const struct rds_rdma *op, struct rds_completion *comp, int timeout_ms)
{
	uint64_t pending;
	if (rdsi_forked(s->c))
		return -ESTALE;
	struct rds_rdma o = *op;
	struct rds_msg m = {.op = &o};
	o.flags = RDS_OP_NOTIFY | RDS_OP_SILENT | (op->flags & RDS_OP_OWNER);
	if (to)
		m.addr = *to;
	return run(s, &m, comp, rdsi_deadline(timeout_ms), &pending);
}

/* reclaim takes back words whose operations are locally complete. For a closed socket nobody can
 * tell that, so its words are lost. words.mu is held. */
static void reclaim(struct rdsi_words *w)
{
	for (uint32_t n = w->lent.n; n > 0; n--) {
		struct lent l;
		uint64_t hwm = 0;
		rdsi_queue_pop(&w->lent, &l, sizeof l);
		bool closed = atomic_load(&l.s->closed);
		if (!closed)
			rds_hwm(l.s, &l.to, &hwm);
		if (!closed && !rdsi_reached(hwm, l.id)) {
			rdsi_queue_push(&w->lent, &l, sizeof l);
			continue;
		}
		if (!closed)
			rdsi_queue_push(&w->free, &l.word, sizeof l.word);
		rdsi_socket_put(l.s);
	}
}

/* take_word returns an unused word. */
static int take_word(rds_client *c, struct rds_segment *word)
{
	struct rdsi_words *w = &c->words;
	int err = 0;
	pthread_mutex_lock(&w->mu);
	reclaim(w);
	if (!w->free.n) {
		rds_buffer *b;
		if (!(err = rdsi_buffer_alloc(c, WORDS * 8, &b))) {
			for (size_t i = 0; i < WORDS; i++) {
				struct rds_segment g = {b, i * 8, 8};
				rdsi_queue_push(&w->free, &g, sizeof g);
			}
			rdsi_buffer_orphan(b);
		}
	}
	if (!err && w->free.n)
		rdsi_queue_pop(&w->free, word, sizeof *word);
	else if (!err)
		err = -ENOMEM;
	pthread_mutex_unlock(&w->mu);
	return err;
}

/* put_word gives a word back, or lends it to an operation that may still write to it. */
static void put_word(rds_socket *s, const struct rds_segment *word, const struct rds_addr *to, uint64_t pending)
{
	struct rdsi_words *w = &s->c->words;
	pthread_mutex_lock(&w->mu);
	if (pending) {
		struct lent l = {*word, s, *to, pending};
		l.to.port = 0;
		atomic_fetch_add(&s->refs, 1);
		if (!rdsi_queue_push(&w->lent, &l, sizeof l))
			rdsi_socket_put(s);
	} else {
		rdsi_queue_push(&w->free, word, sizeof *word);
	}
	pthread_mutex_unlock(&w->mu);
}

/* read_word reads the 8 bytes of g, unless they have been unmapped. */
static int read_word(rds_client *c, const struct rds_segment *g, uint64_t *v)
{
	int err = 0;
	pthread_mutex_lock(&c->tx.mu);
	if (c->tx.dead || g->buffer->freed)
		err = -EBADF;
	else
		*v = atomic_load((_Atomic uint64_t *)(g->buffer->map.mem + g->buffer->shift + g->off));
	pthread_mutex_unlock(&c->tx.mu);
	return err;
}

int rds_atomic_op(rds_socket *s, const struct rds_addr *to, const struct rds_atomic *atomic, uint64_t *old, struct rds_completion *comp, int timeout_ms)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	int64_t deadline = rdsi_deadline(timeout_ms);
	struct rds_atomic a = *atomic;
	struct rds_msg m = {.atomic = &a};
	uint64_t pending, v = 0;
	bool own = !a.local.buffer;
	int err = own ? take_word(s->c, &a.local) : 0;
	if (err)
		return err;
	a.flags = RDS_OP_NOTIFY | RDS_OP_SILENT;
	if (to)
		m.addr = *to;
	else
		rds_remote(s, &m.addr);
	err = run(s, &m, comp, deadline, &pending);
	if (!err)
		err = read_word(s->c, &a.local, &v);
	if (own)
		put_word(s, &a.local, &m.addr, pending);
	if (!err && old)
		*old = v;
	return err;
}

void rdsi_words_end(rds_client *c)
{
	struct lent l;
	while (c->words.lent.n) {
		rdsi_queue_pop(&c->words.lent, &l, sizeof l);
		rdsi_socket_put(l.s);
	}
	rdsi_queue_end(&c->words.lent);
	rdsi_queue_end(&c->words.free);
}
