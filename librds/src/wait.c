/* Conditions of sockets, and waiting for them. */
#include <stdlib.h>

#include "barrier.h"
#include "notice.h"
#include "op.h"
#include "pollfd.h"
#include "rx.h"
#include "tx.h"

/* rdsi_wants is what can make a condition true; 0 for a kind that there is not. */
unsigned rdsi_wants(const struct rds_until *u)
{
	switch (u->kind) {
	case RDS_UNTIL_MESSAGE:
		return WANT_MESSAGE;
	case RDS_UNTIL_SEND_SPACE:
		return WANT_SPACE | WANT_MEMORY;
	case RDS_UNTIL_SEND_TO:
		return WANT_SPACE | WANT_MEMORY | WANT_RELIEF;
	case RDS_UNTIL_COMPLETION:
	case RDS_UNTIL_STATUS:
		return WANT_COMPLETION;
	case RDS_UNTIL_NOTICE:
		return WANT_NOTICE;
	case RDS_UNTIL_ZERO_COPY:
		return WANT_ZERO_COPY;
	case RDS_UNTIL_CONGESTION:
		return WANT_CONGESTION;
	case RDS_UNTIL_OP:
		return WANT_BARRIER;
	case RDS_UNTIL_RELIEF:
		return WANT_RELIEF;
	case RDS_UNTIL_UNREACHABLE:
		return WANT_REACH;
	default:
		return 0;
	}
}

static bool sends(const struct rds_until *u)
{
	return u->kind == RDS_UNTIL_SEND_SPACE || u->kind == RDS_UNTIL_SEND_TO || u->kind == RDS_UNTIL_RELIEF;
}

/* ready_send checks the conditions of sending. */
static void ready_send(rds_socket *s, struct rds_until *until, size_t count, bool arm)
{
	struct rdsi_tx *t = &s->c->tx;
	bool space = false, any = false;
	for (size_t i = 0; i < count; i++) {
		space = space || until[i].kind == RDS_UNTIL_SEND_SPACE || until[i].kind == RDS_UNTIL_SEND_TO;
		any = any || sends(&until[i]) || until[i].kind == RDS_UNTIL_ZERO_COPY || until[i].kind == RDS_UNTIL_UNREACHABLE;
	}
	pthread_mutex_lock(&t->mu);
	if (!t->dead && (any || !rdsi_list_empty(&t->over))) { /* what comes back may relieve those */
		rdsi_tx_reap(s->c);
		bool room = space && !rdsi_full(s, arm) && t->nfree > 0 && !t->starved;
		for (size_t i = 0; i < count; i++) {
			struct rds_until *u = &until[i];
			if (u->kind == RDS_UNTIL_SEND_SPACE)
				u->ready = room;
			if (u->kind == RDS_UNTIL_UNREACHABLE)
				u->ready = rdsi_reason(s, &u->addr) != 0;
			if (u->kind != RDS_UNTIL_SEND_TO && u->kind != RDS_UNTIL_RELIEF)
				continue;
			struct rdsi_dest *d = rdsi_dest_find(s, &u->addr);
			u->ready = (!d || rdsi_relieved(d, arm)) && (room || u->kind == RDS_UNTIL_RELIEF);
		}
	}
	pthread_mutex_unlock(&t->mu);
}

/* ready_taken checks what is taken from queues. rx.mu is held. */
static int ready_taken(rds_socket *s, struct rds_until *u)
{
	int i;
	switch (u->kind) {
	case RDS_UNTIL_MESSAGE:
		u->ready = rdsi_unread(s);
		break;
	case RDS_UNTIL_COMPLETION:
		u->ready = s->comps.n > 0;
		break;
	case RDS_UNTIL_NOTICE:
		u->ready = s->notices.n > 0;
		break;
	case RDS_UNTIL_ZERO_COPY:
		u->ready = s->zc_done.n > 0;
		break;
	case RDS_UNTIL_CONGESTION:
		u->ready = s->cong_update != 0;
		break;
	case RDS_UNTIL_STATUS:
		i = rdsi_find_status(s, &u->addr, u->id);
		if (i < -1)
			return i;
		u->ready = i >= 0;
	}
	return 0;
}

int rdsi_ready(rds_socket *s, struct rds_until *until, size_t count, bool arm)
{
	int n = 0, err = 0;
	for (size_t i = 0; i < count; i++) {
		until[i].ready = 0;
		if (until[i].kind != RDS_UNTIL_OP)
			continue;
		int got = rdsi_barrier_try(s, &until[i].addr, until[i].id, arm);
		if (got < 0)
			return got;
		until[i].ready = (uint32_t)got;
	}
	ready_send(s, until, count, arm);
	pthread_mutex_lock(&s->c->rx.mu);
	if (atomic_load(&s->closed)) {
		err = -EBADF;
	} else {
		rdsi_take_events(s->c);
		for (size_t i = 0; !err && i < count; i++) {
			err = ready_taken(s, &until[i]);
			n += until[i].ready != 0;
		}
	}
	rdsi_rx_unlock(s->c);
	return err ? err : n;
}

/* ready_all checks conditions of several sockets: each run of those with the same socket. */
static int ready_all(struct rds_until *until, size_t count, bool arm)
{
	int ready = 0;
	bool overrun = false;
	for (size_t i = 0, k; i < count; i = k) {
		rds_socket *s = until[i].socket;
		for (k = i; k < count && until[k].socket == s; k++)
			overrun = overrun || (atomic_load(&s->overrun) && (sends(&until[k]) || until[k].kind == RDS_UNTIL_MESSAGE));
		int n = rdsi_ready(s, until + i, k - i, arm);
		if (n < 0)
			return n;
		ready += n;
	}
	return ready || !overrun ? ready : -ENOBUFS;
}

/* add_interest adds what u waits for to the interests of w. A socket has one. */
static void add_interest(struct rdsi_waiter *w, const struct rds_until *u)
{
	size_t i = 0;
	while (i < w->count && w->interests[i].sock != u->socket)
		i++;
	if (i == w->count)
		w->interests[w->count++] = (struct rdsi_interest){.sock = u->socket};
	w->interests[i].want |= rdsi_wants(u);
	w->want |= rdsi_wants(u);
}

/* enter makes w a waiter for count conditions. */
static int enter(struct rdsi_waiter *w, const struct rds_until *until, size_t count)
{
	*w = (struct rdsi_waiter){.client = until[0].socket->c, .interests = &w->one};
	if (count > 1) {
		w->interests = malloc(count * sizeof *w->interests);
		if (!w->interests)
			return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		add_interest(w, &until[i]);
	w->wakes = true;
	rdsi_enter_many(w, true);
	return 0;
}

static void leave(struct rdsi_waiter *w)
{
	rdsi_leave(w);
	if (w->interests != &w->one)
		free(w->interests);
}

static int check(const struct rds_until *until, size_t count)
{
	if (count == 0)
		return -EINVAL;
	for (size_t i = 0; i < count; i++) {
		if (!until[i].socket || until[i].socket->c != until[0].socket->c || !rdsi_wants(&until[i]))
			return -EINVAL;
	}
	return rdsi_forked(until[0].socket->c) ? -ESTALE : 0;
}

int rds_wait(struct rds_until *until, size_t count, int timeout_ms)
{
	struct rdsi_waiter w;
	int n = check(until, count);
	if (n)
		return n;
	int64_t deadline = timeout_ms ? rdsi_deadline(timeout_ms) : 0;
	for (;;) {
		n = ready_all(until, count, false);
		if (n)
			return n;
		if (timeout_ms == 0 || rdsi_now() >= deadline) {
			rdsi_ctl_look(until[0].socket->c);
			return rdsi_client_err(until[0].socket->c);
		}
		if ((n = enter(&w, until, count)))
			return n;
		n = ready_all(until, count, true);
		if (n == 0)
			n = rdsi_client_err(w.client);
		int err = n ? 0 : rdsi_park(&w, deadline);
		leave(&w);
		if (n || err == -EINTR || err == -ECANCELED)
			return n ? n : err;
	}
}
