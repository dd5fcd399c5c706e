/*
 * Borrowed datagrams: the program looks at them where they lie in the receive arena. A receive id
 * goes back to the daemon when none of its datagrams is borrowed and none is left to receive. Until
 * then all that the daemon counts for it fills the socket's receive buffer.
 */
#include <stdlib.h>

#include "rx.h"
#include "trace.h"

/* A slot of a socket is one datagram that it lent. Guarded by rx.mu. */
struct rdsi_lent {
	uint32_t rx_id;
	uint32_t times; /* that the slot was returned */
	const uint8_t *parent; /* its traceparent, NULL: it has none */
	uint32_t next;  /* free slot behind this one, NONE: there is none; OUT: it is lent */
};

enum { NONE = UINT32_MAX, OUT = UINT32_MAX - 1 };

/* hold takes rx_id for the first time. The daemon hands it out again only when it came back. */
static int hold(rds_client *c, uint32_t rx_id)
{
	if (c->rx.lent[rx_id])
		return rdsi_broken(c, "receive id %u comes while a datagram of it is borrowed", rx_id);
	c->rx.lent[rx_id] = 1;
	return 0;
}

/* let_go ends one hold of rx_id. */
static void let_go(rds_client *c, uint32_t rx_id)
{
	if (--c->rx.lent[rx_id] == 0)
		rdsi_give_back(c, rx_id);
}

void rdsi_run_end(rds_socket *s)
{
	struct rdsi_in_run *in = &s->in;
	in->rest = NULL;
	if (in->lent)
		let_go(s->c, in->ev.rx_id);
	else
		rdsi_give_back(s->c, in->ev.rx_id);
}

/* ready makes room for one more borrowed datagram. */
static int ready(rds_socket *s)
{
	static _Atomic uint32_t lenders;
	struct rdsi_rx *r = &s->c->rx;
	if (!r->lent && !(r->lent = calloc(r->max_rx, sizeof *r->lent)))
		return -ENOMEM;
	if (s->lent && s->lent_free != NONE)
		return 0;
	uint32_t n = s->lent ? 2 * s->nlent : 8;
	struct rdsi_lent *grown = n >= OUT ? NULL : realloc(s->lent, n * sizeof *grown);
	if (!grown)
		return -ENOMEM;
	for (uint32_t i = s->nlent; i < n; i++)
		grown[i] = (struct rdsi_lent){.next = i + 1 < n ? i + 1 : NONE};
	s->lent_free = s->nlent;
	s->lent = grown;
	s->nlent = n;
	while (!s->lender)
		s->lender = atomic_fetch_add(&lenders, 1) + 1;
	return 0;
}

/* lend notes that a datagram of e is borrowed. There is room. */
static void lend(rds_socket *s, struct rds_borrowed *b, const struct shm_event *e, const uint8_t *p, size_t n, const uint8_t *parent)
{
	uint32_t i = s->lent_free;
	struct rdsi_lent *l = &s->lent[i];
	s->lent_free = l->next;
	l->next = OUT;
	l->rx_id = e->rx_id;
	l->parent = parent;
	*b = (struct rds_borrowed){.data = p, .len = n, .src_inc = e->src_inc, .time_ns = e->recv_time, .assembly_ns = e->assembly,
		.cookie = e->flags & SHM_EVENT_RUN ? 0 : e->cookie, .id = (uint64_t)l->times << 32 | i, .lender = s->lender};
	memcpy(b->addr.ip, e->src_addr, sizeof b->addr.ip);
	b->addr.port = e->src_port;
}

/* lend_frame lends the next datagram of the run of s. What is left of the run counts as a whole
 * from now on: no more parts of it are given back. */
static int lend_frame(rds_socket *s, struct rds_borrowed *b)
{
	struct rdsi_in_run *in = &s->in;
	const uint8_t *p;
	size_t n, size = rdsi_run_first(s, &p, &n);
	int err = !size ? rdsi_client_err(s->c) : in->lent ? 0 : hold(s->c, in->ev.rx_id);
	if (err)
		return err;
	in->lent = true;
	in->told = 0;
	s->c->rx.lent[in->ev.rx_id]++;
	lend(s, b, &in->ev, p, n, NULL);
	rdsi_run_pass(s, size);
	return 1;
}

int rdsi_lend_next(rds_socket *s, struct rds_borrowed *b)
{
	struct shm_event e;
	const uint8_t *p, *parent;
	int err = ready(s);
	if (err)
		return err;
	if (!s->in.rest) {
		if (!rdsi_rx_next(s, &e))
			return 0;
		if (!(e.flags & SHM_EVENT_RUN)) {
			if (!(err = rdsi_payload(s->c, &e, &p)) && !(err = rdsi_trace_find(s->c, &e, &parent)))
				err = hold(s->c, e.rx_id);
			if (err)
				return err;
			lend(s, b, &e, p, e.len, parent);
			return 1;
		}
		if ((err = rdsi_run_begin(s, &e)))
			return err;
	}
	return lend_frame(s, b);
}

/* take_back ends the loan of slot i. */
static void take_back(rds_socket *s, uint32_t i)
{
	struct rdsi_lent *l = &s->lent[i];
	l->times++;
	l->next = s->lent_free;
	s->lent_free = i;
	if (!s->c->rx.dead)
		let_go(s->c, l->rx_id);
}

/* find finds the slot of b: its index, or an error. */
static int64_t find(rds_socket *s, const struct rds_borrowed *b)
{
	uint32_t i = (uint32_t)b->id, times = (uint32_t)(b->id >> 32);
	if (!b->lender || b->lender != s->lender || i >= s->nlent)
		return -EINVAL;
	const struct rdsi_lent *l = &s->lent[i];
	if (times == l->times)
		return l->next == OUT ? (int64_t)i : -EINVAL;
	return (int32_t)(times - l->times) < 0 ? -EALREADY : -EINVAL;
}

int rds_return(rds_socket *s, const struct rds_borrowed *b)
{
	rds_client *c = s->c;
	if (rdsi_forked(c))
		return -ESTALE;
	pthread_mutex_lock(&c->rx.mu);
	int64_t i = c->rx.dead ? -EBADF : find(s, b);
	if (i >= 0)
		take_back(s, (uint32_t)i);
	rdsi_rx_unlock(c);
	return i < 0 ? (int)i : 0;
}

int rds_borrowed_traceparent(rds_socket *s, const struct rds_borrowed *b, char *text)
{
	rds_client *c = s->c;
	if (rdsi_forked(c))
		return -ESTALE;
	pthread_mutex_lock(&c->rx.mu);
	int64_t i = c->rx.dead ? -EBADF : find(s, b);
	if (i >= 0)
		rdsi_trace_text(text, s->lent[i].parent);
	rdsi_rx_unlock(c);
	return i < 0 ? (int)i : 0;
}

void rdsi_lent_end(rds_socket *s)
{
	pthread_mutex_lock(&s->c->rx.mu);
	for (uint32_t i = 0; i < s->nlent; i++)
		if (s->lent[i].next == OUT)
			take_back(s, i);
	free(s->lent);
	s->lent = NULL;
	s->nlent = 0;
	rdsi_rx_unlock(s->c);
}
