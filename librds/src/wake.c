/*
 * Wakes: another thread, or a signal handler, ends a wait. A wake is a flag of its socket or client,
 * and stays until a wait takes it. rds_wake takes no lock: it sets flags and rings the leader, who
 * then wakes the threads that may take the flag. A thread looks for it before it parks.
 */
#include "pollfd.h"
#include "rx.h"

/* set sets the flag of a wake. A client that is being closed waits until the ring is over. */
static int set(rds_client *c, _Atomic bool *woken)
{
	int was = errno, err = 0;
	rdsi_pin(c);
	if (atomic_load(&c->shut)) {
		err = -EBADF;
	} else {
		atomic_store(woken, true);
		atomic_store(&c->wait.wakes, true);
		rdsi_ring(c->self);
	}
	rdsi_unpin(c);
	errno = was;
	return err;
}

int rds_wake(rds_socket *s)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	return atomic_load(&s->closed) ? -EBADF : set(s->c, &s->woken);
}

int rds_client_wake(rds_client *c) { return rdsi_forked(c) ? -ESTALE : set(c, &c->woken); }

static bool take(_Atomic bool *woken) { return atomic_load(woken) && atomic_exchange(woken, false); }

bool rdsi_woken(rds_socket *s) { return atomic_load(&s->woken) || atomic_load(&s->c->woken); }

bool rdsi_take_wake(struct rdsi_waiter *w)
{
	for (size_t i = 0; i < w->count; i++)
		if (take(&w->interests[i].sock->woken))
			return true;
	return take(&w->client->woken);
}

bool rdsi_take_wake_of(rds_socket *s) { return take(&s->woken) || take(&s->c->woken); }

/* may_take reports whether there is a wake for w. */
static bool may_take(struct rdsi_waiter *w)
{
	bool woken = atomic_load(&w->client->woken);
	for (size_t i = 0; i < w->count && !woken; i++)
		woken = atomic_load(&w->interests[i].sock->woken);
	return woken;
}

/* The flags of sockets were set before that of the client, so each is seen here or causes another call. */
bool rdsi_pass_wakes(rds_client *c)
{
	struct rdsi_waiters *ws = &c->wait;
	if (!take(&ws->wakes))
		return false;
	pthread_mutex_lock(&c->rx.mu);
	for (uint32_t i = 0; i < c->rx.nsocks; i++)
		if (c->rx.socks[i] && rdsi_woken(c->rx.socks[i]))
			rdsi_poll_woken(c->rx.socks[i]);
	rdsi_rx_unlock(c);
	rdsi_signal_those(c, may_take);
	return true;
}
