/* The life of a socket. */
#include <stdlib.h>

#include "buffer.h"
#include "notice.h"
#include "pollfd.h"
#include "region.h"
#include "rx.h"
#include "tx.h"

/* rdsi_check_dest returns why to cannot be a destination of s, or 0. */
int rdsi_check_dest(rds_socket *s, const struct rds_addr *to)
{
	int err = rdsi_check_addr(to);
	return err ? err : rdsi_is_v4(to) != rdsi_is_v4(&s->local) ? -EOPNOTSUPP : 0;
}

/* put_addr writes an address of a control frame. */
static uint8_t *put_addr(uint8_t *b, const struct rds_addr *a)
{
	memcpy(b, a->ip, 16);
	b = rdsi_put16(b + 16, a->port);
	*b++ = rdsi_is_v4(a);
	*b++ = 0;
	return b;
}

static rds_socket *new_socket(rds_client *c)
{
	rds_socket *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->c = c;
	s->refs = 1;
	s->sndbuf = s->rcvbuf = SHM_DEFAULT_BUF;
	s->wanted_notices = UINT32_MAX;
	rdsi_list_init(&s->waiters);
	rdsi_list_init(&s->busy);
	return s;
}

/* ask_bind asks the daemon for a socket. Messages for it may arrive before the answer. */
static int ask_bind(rds_client *c, const struct rds_addr *addr, rds_socket *s)
{
	struct rdsi_call *call = rdsi_call_new(IPC_BIND, IPC_BIND_OK);
	if (!call)
		return -ENOMEM;
	call->len = (uint32_t)(rdsi_put32(put_addr(call->body, addr), SHM_DEFAULT_BUF) - call->body);
	rdsi_rx_start_bind(c);
	int err = rdsi_call_run(c, call, RDSI_NEVER);
	if (!err) {
		s->handle = rdsi_get32(call->body);
		s->incarnation = rdsi_get32(call->body + 4);
		memcpy(s->local.ip, call->body + 8, 16);
		s->local.port = rdsi_get16(call->body + 24);
	}
	int end = rdsi_rx_end_bind(c, err ? NULL : s);
	rdsi_call_end(call);
	return err ? err : end;
}

int rds_bind(rds_client *c, const struct rds_addr *addr, rds_socket **socket)
{
	*socket = NULL;
	if (rdsi_forked(c))
		return -ESTALE;
	struct rds_addr at = *addr;
	int err = rdsi_unspecified(&at) ? rdsi_only_addr(c, &at) : rdsi_check_addr(&at);
	if (!err && at.port == 1)
		err = -EINVAL;
	if (err)
		return err;
	rds_socket *s = new_socket(c);
	if (!s)
		return -ENOMEM;
	pthread_mutex_lock(&c->binds);
	err = atomic_load(&c->shut) ? -EBADF : rdsi_client_err(c);
	if (!err)
		err = ask_bind(c, &at, s);
	pthread_mutex_unlock(&c->binds);
	if (err) {
		free(s);
		return err;
	}
	atomic_fetch_add(&c->refs, 1);
	*socket = s;
	return 0;
}

int rds_local(rds_socket *s, struct rds_addr *addr)
{
	*addr = s->local;
	return rdsi_forked(s->c) ? -ESTALE : 0;
}

uint32_t rds_incarnation(rds_socket *s) { return rdsi_forked(s->c) ? 0 : s->incarnation; }

int rds_connect(rds_socket *s, const struct rds_addr *addr)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	if (rdsi_unspecified(addr))
		return -EDESTADDRREQ;
	int err = rdsi_check_dest(s, addr);
	if (err)
		return err;
	pthread_mutex_lock(&s->c->tx.mu);
	if (atomic_load(&s->closed))
		err = -EBADF;
	else
		s->remote = *addr;
	pthread_mutex_unlock(&s->c->tx.mu);
	return err;
}

int rds_remote(rds_socket *s, struct rds_addr *addr)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	pthread_mutex_lock(&s->c->tx.mu);
	*addr = s->remote;
	pthread_mutex_unlock(&s->c->tx.mu);
	return 0;
}

/* shut makes all calls of s fail, once. */
static int shut(rds_socket *s)
{
	pthread_mutex_lock(&s->c->tx.mu);
	bool was = atomic_exchange(&s->closed, true);
	pthread_mutex_unlock(&s->c->tx.mu);
	if (was && !atomic_exchange(&s->interrupted, false))
		return -EBADF;
	rdsi_notify(s, WANT_ALL, false);
	return 0;
}

/* finish closes s at the daemon and drops it here, once. */
static void finish(rds_socket *s)
{
	rds_client *c = s->c;
	if (atomic_exchange(&s->finished, true))
		return;
	/* One bind or close at a time: the index must not belong to a new socket before this
	 * one has left the table. */
	pthread_mutex_lock(&c->binds);
	/* If the daemon has gone, or goes just now, the port is free all the same. */
	struct rdsi_call *call = rdsi_call_new(IPC_CLOSE_SOCK, IPC_OK);
	int err = -ENOMEM;
	if (call) {
		call->len = (uint32_t)(rdsi_put32(call->body, s->handle) - call->body);
		err = atomic_load(&c->shut) ? -EBADF : rdsi_call_run(c, call, RDSI_NEVER);
	}
	rdsi_call_end(call);
	rdsi_regions_end(s);
	rdsi_rx_remove(s);
	rdsi_forget_socket(s, err == 0);
	pthread_mutex_unlock(&c->binds);
}

/* all_returned reports that no message of s is outstanding. */
static bool all_returned(rds_socket *s)
{
	pthread_mutex_lock(&s->c->tx.mu);
	rdsi_tx_reap(s->c);
	bool done = !s->c->tx.dead && rdsi_list_empty(&s->busy);
	pthread_mutex_unlock(&s->c->tx.mu);
	return done;
}

static int wait_returned(rds_socket *s, int64_t deadline, bool again)
{
	struct rdsi_waiter w;
	for (;;) {
		if (all_returned(s))
			return 0;
		rdsi_enter(s, &w, WANT_SPACE, true);
		w.through = !again;
		int err = atomic_load(&s->c->shut) ? -EBADF : rdsi_client_err(s->c);
		if (!err && !all_returned(s))
			err = rdsi_park(&w, deadline);
		rdsi_leave(&w);
		if (err)
			return err;
	}
}

/* close_wait is rds_close_wait. Without again a signal handler ends it for good. */
static int close_wait(rds_socket *s, int timeout_ms, bool again)
{
	rdsi_refused("", 0);
	int64_t deadline = rdsi_deadline(timeout_ms);
	int err = shut(s);
	if (err)
		return err;
	rdsi_rx_discard(s);
	err = wait_returned(s, deadline, again);
	if (err == -EINTR && again) {
		atomic_store(&s->interrupted, true);
		return err;
	}
	finish(s);
	rdsi_refused("", 0); /* about the close itself */
	return err ? err : rdsi_undelivered(s);
}

int rds_close_wait(rds_socket *s, int timeout_ms) { return rdsi_forked(s->c) ? -ESTALE : close_wait(s, timeout_ms, true); }

int rds_close(rds_socket *s)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	pthread_mutex_lock(&s->c->tx.mu);
	int64_t linger = s->linger;
	pthread_mutex_unlock(&s->c->tx.mu);
	if (linger > 0)
		return close_wait(s, linger > INT32_MAX ? INT32_MAX : (int)linger, false);
	rdsi_refused("", 0);
	int err = shut(s);
	if (!err)
		finish(s);
	return err;
}

/* rdsi_socket_put frees the socket when its handle and its destinations are gone. */
void rdsi_socket_put(rds_socket *s)
{
	struct rdsi_node *n;
	uint32_t at = 0;
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	while ((n = rdsi_hash_any(&s->cells, &at))) {
		rdsi_hash_del(&s->cells, n);
		free(RDSI_OF(n, struct rdsi_cell, node));
	}
	rdsi_hash_end(&s->cells);
	rdsi_hash_end(&s->dests);
	rdsi_queue_end(&s->comps);
	rdsi_queue_end(&s->notices);
	rdsi_queue_end(&s->zc_done);
	rdsi_pollset_put(s->poll_for);
	free(s);
}

void rds_socket_free(rds_socket *s)
{
	if (!s)
		return;
	rds_client *c = s->c;
	if (rdsi_forked(c)) {
		rdsi_pollfd_abandon(s);
		return;
	}
	rds_close(s);
	finish(s); /* if the client was closed first */
	rdsi_lent_end(s);
	rdsi_socket_put(s);
	rdsi_client_put(c);
}

/* rdsi_put_expose writes the body of Expose. */
uint32_t rdsi_put_expose(uint8_t *body, uint32_t region, const struct rds_addr *peer)
{
	return (uint32_t)(put_addr(rdsi_put32(body, region), peer) - body);
}
