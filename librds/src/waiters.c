#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "int.h"

void rdsi_waiters_init(struct rdsi_waiters *ws)
{
	pthread_mutex_init(&ws->mu, NULL);
	rdsi_list_init(&ws->all);
	rdsi_list_init(&ws->watches);
	rdsi_list_init(&ws->looks);
}

bool rdsi_waiting(rds_socket *s, unsigned want)
{
	for (; want; want &= want - 1)
		if (atomic_load(&s->counts[__builtin_ctz(want)]) > 0)
			return true;
	return false;
}

/* count adds d to the counters that tell without the lock what is waited for. */
static void count(struct rdsi_waiter *w, int d)
{
	for (size_t i = 0; i < w->count; i++)
		for (int k = 0; k < WANTS; k++)
			if (w->interests[i].want & 1u << k)
				atomic_fetch_add(&w->interests[i].sock->counts[k], d);
	if (w->want & WANT_RETURNS)
		atomic_fetch_add(&w->client->wait.returns, d);
	if (w->want & WANT_MEMORY)
		atomic_fetch_add(&w->client->wait.memory, d);
}

/* unlink takes w out of all lists. mu is held. */
static void unlink_waiter(struct rdsi_waiter *w)
{
	for (size_t i = 0; i < w->count; i++)
		rdsi_list_del(&w->interests[i].on_socket);
	rdsi_list_del(&w->on_client);
	count(w, -1);
}

static void wake(struct rdsi_waiter *w, uint32_t why)
{
	atomic_fetch_or(&w->state, why);
	syscall(SYS_futex, &w->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void look_at(struct rdsi_waiters *ws, struct rdsi_waiter *w);

/* signal wakes w, once. mu is held and w is not signalled yet. */
static void signal_waiter(struct rdsi_waiters *ws, struct rdsi_waiter *w)
{
	if (w->watch) {
		look_at(ws, w);
		return;
	}
	unlink_waiter(w);
	if (ws->leader == w) {
		atomic_fetch_or(&w->state, RDSI_SIGNALLED);
		if (ws->blocked)
			rdsi_ring(w->client->self);
		return;
	}
	wake(w, RDSI_SIGNALLED);
}

static void look_at(struct rdsi_waiters *ws, struct rdsi_waiter *w)
{
	if (w->looks)
		return;
	w->looks = true;
	rdsi_list_add(ws->looks.prev, &w->on_looks);
	struct rdsi_waiter *k = ws->keeper;
	if (k && !(atomic_load(&k->state) & RDSI_SIGNALLED))
		signal_waiter(ws, k);
}

/* widen makes the daemon ring for returned messages, too, if the leader sleeps for events
 * alone. mu is held. */
static void widen(rds_client *c, unsigned want)
{
	uint32_t was = SHM_ASLEEP_FOR_EVENTS;
	if (want & WANT_RETURNS && c->wait.blocked)
		atomic_compare_exchange_strong(c->seg.client_asleep, &was, SHM_ASLEEP);
}

void rdsi_await_return(rds_client *c)
{
	struct rdsi_waiters *ws = &c->wait;
	atomic_fetch_add(&ws->returns, 1);
	pthread_mutex_lock(&ws->mu);
	if (!ws->closed)
		widen(c, WANT_RETURNS);
	pthread_mutex_unlock(&ws->mu);
}

void rdsi_enter_many(struct rdsi_waiter *w, bool watcher)
{
	struct rdsi_waiters *ws = &w->client->wait;
	pthread_mutex_lock(&ws->mu);
	atomic_store(&w->state, 0);
	w->watcher = watcher;
	rdsi_list_init(&w->on_looks);
	for (size_t i = 0; i < w->count; i++) {
		struct rdsi_interest *in = &w->interests[i];
		struct rdsi_link *list = &in->sock->waiters;
		in->waiter = w;
		rdsi_list_add(watcher ? list : list->prev, &in->on_socket); /* one wakes watchers first */
	}
	rdsi_list_add(ws->all.prev, &w->on_client);
	count(w, 1);
	if (ws->closed)
		signal_waiter(ws, w);
	else
		widen(w->client, w->want);
	pthread_mutex_unlock(&ws->mu);
}

void rdsi_enter(rds_socket *s, struct rdsi_waiter *w, unsigned want, bool watcher)
{
	*w = (struct rdsi_waiter){.client = s->c, .want = want, .count = 1};
	w->one = (struct rdsi_interest){.sock = s, .want = want};
	w->interests = &w->one;
	rdsi_enter_many(w, watcher);
}

bool rdsi_leave(struct rdsi_waiter *w)
{
	struct rdsi_waiters *ws = &w->client->wait;
	pthread_mutex_lock(&ws->mu);
	bool signalled = atomic_load(&w->state) & RDSI_SIGNALLED;
	if (!signalled)
		unlink_waiter(w);
	if (ws->leader == w) {
		ws->leader = NULL;
		if (!rdsi_list_empty(&ws->all)) {
			ws->leader = RDSI_OF(ws->all.next, struct rdsi_waiter, on_client);
			wake(ws->leader, RDSI_POKED);
		}
	}
	pthread_mutex_unlock(&ws->mu);
	return signalled;
}

void rdsi_notify(rds_socket *s, unsigned want, bool one)
{
	if (!rdsi_waiting(s, want))
		return;
	struct rdsi_waiters *ws = &s->c->wait;
	pthread_mutex_lock(&ws->mu);
	for (struct rdsi_link *l = s->waiters.next, *next; l != &s->waiters; l = next) {
		next = l->next;
		struct rdsi_interest *in = RDSI_OF(l, struct rdsi_interest, on_socket);
		struct rdsi_waiter *w = in->waiter;
		if (!(in->want & want))
			continue;
		/* A waiter has one interest at a socket, so next is another waiter's. */
		bool watcher = w->watcher;
		signal_waiter(ws, w);
		if (one && !watcher)
			break;
	}
	pthread_mutex_unlock(&ws->mu);
}

static void notify_list(struct rdsi_waiters *ws, struct rdsi_link *list, unsigned want)
{
	for (struct rdsi_link *l = list->next, *next; l != list; l = next) {
		next = l->next;
		struct rdsi_waiter *w = RDSI_OF(l, struct rdsi_waiter, on_client);
		if (w->want & want)
			signal_waiter(ws, w);
	}
}

void rdsi_notify_everybody(rds_client *c, unsigned want)
{
	struct rdsi_waiters *ws = &c->wait;
	pthread_mutex_lock(&ws->mu);
	/* Watches first: they may signal the keeper, which then is not met below. */
	notify_list(ws, &ws->watches, want);
	notify_list(ws, &ws->all, want);
	pthread_mutex_unlock(&ws->mu);
}

void rdsi_signal_those(rds_client *c, bool (*which)(struct rdsi_waiter *w))
{
	struct rdsi_waiters *ws = &c->wait;
	pthread_mutex_lock(&ws->mu);
	for (struct rdsi_link *l = ws->all.next, *next; l != &ws->all; l = next) {
		next = l->next;
		struct rdsi_waiter *w = RDSI_OF(l, struct rdsi_waiter, on_client);
		if (which(w))
			signal_waiter(ws, w);
	}
	pthread_mutex_unlock(&ws->mu);
}

void rdsi_waiters_close(rds_client *c)
{
	pthread_mutex_lock(&c->wait.mu);
	c->wait.closed = true;
	pthread_mutex_unlock(&c->wait.mu);
	rdsi_notify_everybody(c, WANT_ALL);
}

void rdsi_watch(rds_socket *s, struct rdsi_waiter *w, unsigned want)
{
	struct rdsi_waiters *ws = &s->c->wait;
	*w = (struct rdsi_waiter){.client = s->c, .want = want, .count = 1, .watcher = true, .watch = true};
	w->one = (struct rdsi_interest){.waiter = w, .sock = s, .want = want};
	w->interests = &w->one;
	rdsi_list_init(&w->on_looks);
	pthread_mutex_lock(&ws->mu);
	rdsi_list_add(&s->waiters, &w->one.on_socket);
	rdsi_list_add(&ws->watches, &w->on_client);
	count(w, 1);
	widen(s->c, want);
	pthread_mutex_unlock(&ws->mu);
}

void rdsi_unwatch(struct rdsi_waiter *w)
{
	struct rdsi_waiters *ws = &w->client->wait;
	pthread_mutex_lock(&ws->mu);
	unlink_waiter(w);
	rdsi_list_del(&w->on_looks);
	w->looks = false;
	pthread_mutex_unlock(&ws->mu);
}

void rdsi_look_at(struct rdsi_waiter *w)
{
	struct rdsi_waiters *ws = &w->client->wait;
	pthread_mutex_lock(&ws->mu);
	look_at(ws, w);
	pthread_mutex_unlock(&ws->mu);
}

void rdsi_wake_keeper(rds_client *c)
{
	struct rdsi_waiter *k;
	pthread_mutex_lock(&c->wait.mu);
	if ((k = c->wait.keeper) && !(atomic_load(&k->state) & RDSI_SIGNALLED))
		signal_waiter(&c->wait, k);
	pthread_mutex_unlock(&c->wait.mu);
}
