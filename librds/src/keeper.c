/* The thread that serves a client's poll descriptors. */
#include <signal.h>
#include <stdlib.h>

#include "pollfd.h"
#include "tx.h"

/* none reports that there are no descriptors. */
static bool none(rds_client *c)
{
	pthread_mutex_lock(&c->polls.mu);
	bool empty = rdsi_list_empty(&c->polls.fds);
	pthread_mutex_unlock(&c->polls.mu);
	return empty;
}

/* over reports that there are no descriptors. The thread then ends, and the next descriptor
 * starts a new one. */
static bool over(rds_client *c)
{
	pthread_mutex_lock(&c->polls.mu);
	bool empty = rdsi_list_empty(&c->polls.fds) || rdsi_client_err(c);
	if (empty)
		c->polls.keeper = KEEPER_ENDED;
	pthread_mutex_unlock(&c->polls.mu);
	return empty;
}

/* keeps makes w the waiter that is woken for looks. It reports whether none is due now. */
static bool keeps(struct rdsi_waiters *ws, struct rdsi_waiter *w)
{
	pthread_mutex_lock(&ws->mu);
	ws->keeper = w;
	bool nothing = rdsi_list_empty(&ws->looks);
	pthread_mutex_unlock(&ws->mu);
	return nothing;
}

/* next_look takes a watch whose poll set is due, and returns its socket with a reference. */
static rds_socket *next_look(struct rdsi_waiters *ws)
{
	rds_socket *s = NULL;
	pthread_mutex_lock(&ws->mu);
	ws->keeper = NULL;
	if (!rdsi_list_empty(&ws->looks)) {
		struct rdsi_waiter *w = RDSI_OF(ws->looks.next, struct rdsi_waiter, on_looks);
		rdsi_list_del(&w->on_looks);
		w->looks = false;
		s = w->one.sock;
		atomic_fetch_add(&s->refs, 1);
	}
	pthread_mutex_unlock(&ws->mu);
	return s;
}

/* keep waits, and thereby looks after the rings, until the last descriptor or the client is
 * closed. */
static void *keep(void *arg)
{
	rds_client *c = arg;
	struct rdsi_waiters *ws = &c->wait;
	rds_socket *s;
	do {
		struct rdsi_waiter w = {.client = c, .want = WANT_END | WANT_ZERO_COPY};
		rdsi_enter_many(&w, true);
		rdsi_tx_poll(c); /* a leader that sleeps for events alone was not rung for what came back before */
		if (keeps(ws, &w) && !none(c) && !rdsi_client_err(c))
			rdsi_park(&w, RDSI_NEVER);
		s = next_look(ws);
		rdsi_leave(&w);
		for (; s; s = next_look(ws)) {
			rdsi_poll_look(s, NULL, 0); /* an error makes it readable */
			rdsi_socket_put(s);
		}
	} while (!over(c));
	return NULL;
}

/* start starts the thread with the signals blocked, which are the program's. A fault may be of memory that is being moved
 * (move.c), and the kernel ends a process that blocks it. polls.mu is held. */
static int start(rds_client *c)
{
	sigset_t all, old;
	pthread_t thread;
	if (c->polls.keeper == KEEPER_ENDED)
		pthread_join(c->polls.thread, NULL);
	c->polls.keeper = KEEPER_NONE;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = -pthread_create(&thread, NULL, keep, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err) {
		c->polls.thread = thread;
		c->polls.keeper = KEEPER_RUNS;
	}
	return err;
}

int rdsi_polls_add(rds_client *c, struct rdsi_pollfd *p)
{
	int err = 0;
	pthread_mutex_lock(&c->polls.mu);
	rdsi_list_add(&c->polls.fds, &p->link);
	if (c->polls.keeper != KEEPER_RUNS && !rdsi_client_err(c))
		err = start(c);
	if (err)
		rdsi_list_del(&p->link);
	pthread_mutex_unlock(&c->polls.mu);
	return err;
}

void rdsi_polls_remove(rds_client *c, struct rdsi_pollfd *p)
{
	pthread_mutex_lock(&c->polls.mu);
	rdsi_list_del(&p->link);
	bool last = rdsi_list_empty(&c->polls.fds);
	pthread_mutex_unlock(&c->polls.mu);
	if (last)
		rdsi_wake_keeper(c);
}

void rdsi_polls_ring_all(rds_client *c)
{
	pthread_mutex_lock(&c->polls.mu);
	for (struct rdsi_link *l = c->polls.fds.next; l != &c->polls.fds; l = l->next)
		rdsi_pollfd_ring(RDSI_OF(l, struct rdsi_pollfd, link));
	pthread_mutex_unlock(&c->polls.mu);
}

/* The thread ends by itself: the client has an error, and its waiters are closed. */
void rdsi_polls_join(rds_client *c)
{
	pthread_mutex_lock(&c->polls.mu);
	bool join = c->polls.keeper != KEEPER_NONE;
	pthread_t thread = c->polls.thread;
	c->polls.keeper = KEEPER_NONE;
	pthread_mutex_unlock(&c->polls.mu);
	if (join)
		pthread_join(thread, NULL);
}
