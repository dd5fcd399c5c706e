#include "rx.h"

#include <stdlib.h>

#include "notice.h"
#include "op.h"
#include "pollfd.h"

_Static_assert(RDS_LOST == SHM_NOTICE_LOST && RDS_NO_SOCKET == SHM_NOTICE_NO_SOCKET && RDS_PEER_DOWN == SHM_NOTICE_PEER_DOWN, "notices");
_Static_assert(RDS_PEER_UP == SHM_NOTICE_PEER_UP && RDS_GAVE_UP == SHM_NOTICE_GAVE_UP && RDS_UNREACHABLE == SHM_NOTICE_UNREACHABLE, "notices");
_Static_assert(RDS_NOT_GRANTED == SHM_NOTICE_NOT_GRANTED, "notices");

/* An entry of the event ring, as the descriptors that it may be. */
union entry {
	uint64_t words[SHM_ENTRY_SIZE / 8];
	struct shm_event event;
	struct shm_event_status status;
	struct shm_event_notice notice;
};

int rdsi_rx_init(rds_client *c)
{
	struct rdsi_rx *r = &c->rx;
	const struct shm_params *p = &c->seg.params;
	r->max_rx = p->max_rx;
	r->max_statuses = p->max_msgs + p->event_entries; /* promised, and in the ring when their ids were back */
	r->windows = calloc(p->recv_windows, sizeof *r->windows);
	return r->windows ? 0 : -ENOMEM;
}

void rdsi_rx_free(rds_client *c)
{
	free(c->rx.windows);
	free(c->rx.socks);
	free(c->rx.lent);
	rdsi_queue_end(&c->rx.early);
}

void rdsi_rx_close(rds_client *c)
{
	struct rdsi_rx *r = &c->rx;
	pthread_mutex_lock(&r->mu);
	r->dead = true;
	for (uint32_t i = 0; i < r->nsocks; i++) {
		rds_socket *s = r->socks[i];
		if (s) {
			atomic_store(&s->closed, true); /* before anybody finds what is forgotten */
			rdsi_forget(s);
		}
	}
	rdsi_rx_unlock(c);
}

bool rdsi_rx_poll(rds_client *c)
{
	pthread_mutex_lock(&c->rx.mu);
	uint32_t n = rdsi_take_events(c);
	rdsi_rx_unlock(c);
	return n > 0;
}

bool rdsi_rx_empty(rds_client *c)
{
	pthread_mutex_lock(&c->rx.mu);
	bool empty = c->rx.dead || rdsi_avail(&c->seg.event) == 0;
	rdsi_rx_unlock(c);
	return empty;
}

void rdsi_give_back(rds_client *c, uint32_t id)
{
	if (!c->rx.dead) {
		rdsi_put_id(&c->seg.recv_ret, id);
		c->rx.returned = true;
	}
}

void rdsi_rx_unlock(rds_client *c)
{
	bool ring = false;
	if (c->rx.returned && !c->rx.dead) {
		c->rx.returned = false;
		rdsi_publish(&c->seg.recv_ret);
		if (c->seg.recv_ret.bad && !rdsi_client_err(c))
			rdsi_broken(c, "receive-return ring: impossible index");
		ring = rdsi_daemon_sleeps(c);
	}
	pthread_mutex_unlock(&c->rx.mu);
	if (ring)
		rdsi_ring_daemon(c);
}

/* sock_of returns the open socket with a handle, or NULL. */
static rds_socket *sock_of(struct rdsi_rx *r, uint32_t handle)
{
	uint32_t i = handle & (SHM_MAX_SOCKS - 1);
	rds_socket *s = i < r->nsocks ? r->socks[i] : NULL;
	return s && s->handle == handle ? s : NULL;
}

/* unknown handles an event for a handle that no open socket has. */
static void unknown(rds_client *c, const union entry *e)
{
	struct rdsi_rx *r = &c->rx;
	if (r->binding) {
		if (r->early.n >= r->max_rx + r->max_statuses)
			rdsi_broken(c, "%u events for a socket that is being bound", r->early.n);
		else if (!rdsi_queue_push(&r->early, e, sizeof *e))
			rdsi_fail(c, -ECONNABORTED, "no memory for events");
	} else if (e->event.kind == SHM_EV_DATA) {
		rdsi_give_back(c, e->event.rx_id); /* for a socket that was closed */
	}
}

/* on_message queues a message. */
static void on_message(rds_client *c, rds_socket *s, const struct shm_event *e)
{
	if (atomic_load(&s->closed)) { /* it closes, and waits to */
		rdsi_give_back(c, e->rx_id);
		return;
	}
	if (c->rx.waiting >= c->rx.max_rx) {
		rdsi_broken(c, "more than %u messages", c->rx.max_rx);
		return;
	}
	if (!rdsi_queue_push(&s->rxq, e, sizeof *e)) {
		rdsi_fail(c, -ECONNABORTED, "no memory for a message");
		return;
	}
	c->rx.waiting++;
	rdsi_arrived(s, WANT_MESSAGE);
	rdsi_notify(s, WANT_MESSAGE, true);
}

/* about is the destination of a notice. */
static struct rds_addr about(const struct shm_event_notice *e)
{
	struct rds_addr a = {.port = e->port};
	memcpy(a.ip, e->addr, sizeof a.ip);
	if (rdsi_no_addr(&a))
		a.port = 0;
	return a;
}

static void on_notice(rds_socket *s, const struct shm_event_notice *e)
{
	atomic_fetch_add(&s->noticed, 1); /* see rdsi_run_takes */
	if (e->notice == SHM_NOTICE_UNREACHABLE)
		rdsi_notify(s, WANT_REACH, false);
	if (e->notice < 32 && !(s->wanted_notices & 1u << e->notice))
		return;
	struct rds_notice n = {.kind = e->notice, .reason = e->reason, .to = about(e), .count = e->count};
	if (!rdsi_add_notice(s, n)) {
		rdsi_fail(s->c, -ECONNABORTED, "no memory for a notice");
		return;
	}
	rdsi_arrived(s, WANT_NOTICE);
	rdsi_notify(s, WANT_NOTICE, false);
}

/* dispatch hands one event to its socket. */
static void dispatch(rds_client *c, const union entry *e)
{
	rds_socket *s = sock_of(&c->rx, e->event.sock); /* in the same place in all kinds */
	struct rds_addr to;
	if (!s) {
		unknown(c, e);
		return;
	}
	switch (e->event.kind) {
	case SHM_EV_DATA:
		on_message(c, s, &e->event);
		break;
	case SHM_EV_STATUS:
		rdsi_settle(s, &e->status);
		break;
	case SHM_EV_NOTICE:
		on_notice(s, &e->notice);
		break;
	case SHM_EV_BARRIER:
		rdsi_notify(s, WANT_BARRIER, false);
		break;
	case SHM_EV_RELIEF:
		to = about(&e->notice);
		rdsi_cong_relieved(s, &to);
		rdsi_notify(s, WANT_RELIEF, false);
		break;
	case SHM_EV_CROWDED: /* what is on its way there does not count any more */
		rdsi_notify(s, WANT_SPACE, false);
		break;
	case SHM_EV_OVERRUN:
		atomic_store(&s->overrun, true);
		rdsi_arrived(s, WANT_ALL);
		rdsi_notify(s, WANT_ALL, false);
		break;
	default: /* a kind of a later version: nothing in it needs an answer */
		break;
	}
}

/* release gives n events back to the daemon. */
static void release(rds_client *c, uint32_t n)
{
	if (n > 0) {
		rdsi_release(&c->seg.event);
		if (rdsi_half_taken(&c->seg.event) && rdsi_wake_for_room(c->seg.daemon_asleep))
			rdsi_ring_pipe(c->daemon_bell); /* the memory is in use: a close waits for rx.mu */
	} else if (c->seg.event.bad && !rdsi_client_err(c)) {
		rdsi_broken(c, "event ring: impossible index");
	}
}

uint32_t rdsi_take_events(rds_client *c)
{
	union entry e;
	uint32_t n = 0;
	if (c->rx.dead)
		return 0;
	/* At most one ring's worth: a daemon that never stops must not hold the caller. */
	for (; n < c->seg.params.event_entries && rdsi_take(&c->seg.event, e.words); n++)
		dispatch(c, &e);
	release(c, n);
	return n;
}

bool rdsi_rx_next(rds_socket *s, struct shm_event *out)
{
	rds_client *c = s->c;
	union entry e;
	uint32_t n = 0;
	if (s->rxq.n) {
		rdsi_queue_pop(&s->rxq, out, sizeof *out);
		c->rx.waiting--;
		return true;
	}
	if (c->rx.dead)
		return false;
	while (n < c->seg.params.event_entries && rdsi_take(&c->seg.event, e.words)) {
		n++;
		if (e.event.kind == SHM_EV_DATA && e.event.sock == s->handle) {
			*out = e.event;
			release(c, n);
			return true;
		}
		dispatch(c, &e);
	}
	release(c, n);
	return false;
}

void rdsi_forget(rds_socket *s)
{
	rdsi_queue_end(&s->rxq);
	s->in = (struct rdsi_in_run){0};
	rdsi_statuses_end(s);
	rdsi_cong_forget(s);
	rdsi_pollfd_close(s);
}

void rdsi_rx_start_bind(rds_client *c)
{
	pthread_mutex_lock(&c->rx.mu);
	rdsi_take_events(c); /* what is of closed sockets need not wait */
	c->rx.binding = true;
	rdsi_rx_unlock(c);
}

/* add makes s known under its handle. */
static int add(rds_client *c, rds_socket *s)
{
	struct rdsi_rx *r = &c->rx;
	uint32_t i = s->handle & (SHM_MAX_SOCKS - 1), n = r->nsocks;
	if (i >= n) {
		n = i + 1 > 2 * n ? i + 1 : 2 * n;
		rds_socket **socks = realloc(r->socks, n * sizeof(rds_socket *));
		if (!socks)
			return -ENOMEM;
		memset(socks + r->nsocks, 0, (n - r->nsocks) * sizeof(rds_socket *));
		r->socks = socks;
		r->nsocks = n;
	}
	if (r->socks[i])
		return rdsi_broken(c, "handle %#x of two sockets", s->handle);
	r->socks[i] = s;
	return 0;
}

int rdsi_rx_end_bind(rds_client *c, rds_socket *s)
{
	struct rdsi_rx *r = &c->rx;
	union entry e;
	int err = 0;
	pthread_mutex_lock(&r->mu);
	r->binding = false;
	if (r->dead) { /* the events lie in memory that is gone */
		rdsi_queue_end(&r->early);
		err = -EBADF;
	} else {
		err = s ? add(c, s) : 0;
		while (r->early.n) {
			rdsi_queue_pop(&r->early, &e, sizeof e);
			dispatch(c, &e);
		}
	}
	rdsi_rx_unlock(c);
	return err;
}

/* drop gives back the messages that s has not received. */
static void drop(rds_socket *s)
{
	struct shm_event e;
	if (s->in.rest)
		rdsi_run_end(s);
	while (s->rxq.n) {
		rdsi_queue_pop(&s->rxq, &e, sizeof e);
		rdsi_give_back(s->c, e.rx_id);
		s->c->rx.waiting--;
	}
}

/* rdsi_rx_remove drops s after the daemon has closed it. */
void rdsi_rx_remove(rds_socket *s)
{
	rds_client *c = s->c;
	uint32_t i = s->handle & (SHM_MAX_SOCKS - 1);
	pthread_mutex_lock(&c->rx.mu);
	rdsi_take_events(c); /* its statuses and notices up to the close */
	if (i < c->rx.nsocks && c->rx.socks[i] == s)
		c->rx.socks[i] = NULL;
	drop(s);
	rdsi_forget(s);
	rdsi_rx_unlock(c);
}

/* rdsi_rx_discard gives back the messages that s, which was shut, has not read. */
void rdsi_rx_discard(rds_socket *s)
{
	rds_client *c = s->c;
	pthread_mutex_lock(&c->rx.mu);
	rdsi_take_events(c);
	drop(s);
	rdsi_rx_unlock(c);
}
