/*
 * Threads that wait. Of all threads that wait in one client, one leads: it looks after the
 * rings for everybody and sleeps in ppoll. The others sleep on a futex of their own. It works
 * as rds/waiters.go and rds/lead.go do.
 *
 * A thread enters, checks again whether it has to wait, parks, and leaves. Everything that
 * happens after it has entered signals it, so nothing is missed in between.
 */
#ifndef RDSI_WAITERS_H
#define RDSI_WAITERS_H

#include <pthread.h>
#include <rds/rds.h>
#include <stdatomic.h>
#include <stdint.h>

#include "list.h"

/* What a waiter waits for. */
enum {
	WANT_MESSAGE = 1 << 0,
	WANT_SPACE = 1 << 1,
	WANT_MEMORY = 1 << 2, /* message ids or send memory of the whole client */
	WANT_RELIEF = 1 << 3,
	WANT_COMPLETION = 1 << 4,
	WANT_BARRIER = 1 << 5,
	WANT_REACH = WANT_BARRIER, /* that a host is not reached ends waits for its operations */
	WANT_NOTICE = 1 << 6,
	WANT_ZERO_COPY = 1 << 7,
	WANT_CONGESTION = 1 << 8,
	WANT_END = 1 << 9, /* of the client only */
	WANTS = 10,
	WANT_ALL = (1 << WANTS) - 1,
	/* what returned messages may help with */
	WANT_RETURNS = WANT_SPACE | WANT_MEMORY | WANT_ZERO_COPY | WANT_RELIEF | WANT_CONGESTION,
};

struct rdsi_waiter;

/* A rdsi_interest is what a waiter wants of one socket. */
struct rdsi_interest {
	struct rdsi_waiter *waiter;
	rds_socket *sock;
	unsigned want;
	struct rdsi_link on_socket;
};

/* A rdsi_waiter is one thread that waits, or a watch (see pollset.c). */
struct rdsi_waiter {
	rds_client *client;
	unsigned want; /* of all interests */
	size_t count;  /* interests */
	struct rdsi_interest *interests;
	struct rdsi_interest one; /* for waits at one socket */
	bool watcher;             /* only looks: it is woken along with those that consume, not in their place */
	bool watch;               /* never parks: its poll set has to be looked at */
	bool looks;               /* a watch that is in waiters.looks */
	bool through;             /* rds_options.interrupt_ms does not end it: the call could not go on */
	bool wakes;               /* rds_wake ends its waiting; only the thread itself uses this */
	_Atomic uint32_t state;   /* futex: RDSI_SIGNALLED, RDSI_POKED */
	struct rdsi_link on_client;
	struct rdsi_link on_looks;
};

enum { RDSI_SIGNALLED = 1, RDSI_POKED = 2 };

/* rdsi_waiters are all waiters of a client. Lock order: tx.mu, rx.mu, polls.mu, mu. */
struct rdsi_waiters {
	pthread_mutex_t mu;
	struct rdsi_link all;     /* not yet signalled */
	struct rdsi_link watches;
	struct rdsi_link looks;   /* watches whose poll sets have to be looked at */
	struct rdsi_waiter *leader;
	struct rdsi_waiter *keeper; /* woken to look at them */
	bool blocked; /* the leader is, or is about to be, in ppoll */
	bool closed;  /* nobody waits any more */
	_Atomic bool wakes;  /* somebody has to pass a wake on */
	_Atomic int returns; /* waiters that returned messages may help, and messages whose return says what became of them */
	_Atomic int memory;  /* waiters for WANT_MEMORY */
};

void rdsi_waiters_init(struct rdsi_waiters *ws);

/* rdsi_await_return has waiters look at returned messages until one more is back, which was just
 * submitted. */
void rdsi_await_return(rds_client *c);

/* rdsi_enter registers w as a waiter at one socket. */
void rdsi_enter(rds_socket *s, struct rdsi_waiter *w, unsigned want, bool watcher);

/* rdsi_enter_many registers w, whose interests, count, client and want are set. */
void rdsi_enter_many(struct rdsi_waiter *w, bool watcher);

/* rdsi_leave ends the waiting of w and reports whether it was signalled. */
bool rdsi_leave(struct rdsi_waiter *w);

/* rdsi_park waits until w is signalled. It returns 0, -ETIMEDOUT or -EINTR, and with w.wakes
 * -ECANCELED if it took a wake. */
int rdsi_park(struct rdsi_waiter *w, int64_t deadline);

/* wake.c. rdsi_pass_wakes has those look who may take a wake, and reports whether there was one. It
 * is for the leader. rdsi_take_wake takes a wake of a socket of w, or of the client. */
bool rdsi_pass_wakes(rds_client *c);
bool rdsi_take_wake(struct rdsi_waiter *w);

/* rdsi_notify wakes those at s that wait for one of want; with one only one of those that
 * consume. rdsi_notify_everybody wakes all waiters of the client for one of want. */
void rdsi_notify(rds_socket *s, unsigned want, bool one);
void rdsi_notify_everybody(rds_client *c, unsigned want);
/* rdsi_signal_those wakes the waiters of the client that which chooses. */
void rdsi_signal_those(rds_client *c, bool (*which)(struct rdsi_waiter *w));
bool rdsi_waiting(rds_socket *s, unsigned want);

/* rdsi_waiters_close wakes everybody. Who enters later is woken at once. */
void rdsi_waiters_close(rds_client *c);

/* Watches, see pollset.c. */
void rdsi_watch(rds_socket *s, struct rdsi_waiter *w, unsigned want);
void rdsi_unwatch(struct rdsi_waiter *w);
void rdsi_look_at(struct rdsi_waiter *w);
/* rdsi_wake_keeper wakes the thread that serves the poll descriptors, if it waits. */
void rdsi_wake_keeper(rds_client *c);

#endif
