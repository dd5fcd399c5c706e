/* The leader: the one of a client's waiting threads that looks after the rings, and how long
 * it yields before it sleeps. */
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "int.h"
#include "rx.h"
#include "tx.h"

enum {
	MAX_VAIN = 4,            /* waits in a row that spinning may fail to shorten */
	SLOW_YIELD = 100 * 1000, /* ns above which another program had the processor */
	SPIN_PAUSE = 50000000    /* ns for which nobody yields then */
};

/* spin_again yields once if the window is still open, and reports whether it was. */
static bool spin_again(struct rdsi_spinner *s)
{
	if (s->window <= 0)
		return false;
	if (s->since == 0) {
		s->since = s->last = rdsi_now();
		if (s->vain >= MAX_VAIN || s->since < s->until)
			return false;
	}
	sched_yield();
	int64_t now = rdsi_now();
	if (now - s->last > SLOW_YIELD) {
		s->until = now + SPIN_PAUSE;
		return false;
	}
	s->last = now;
	return now - s->since < s->window;
}

/* spin_slept ends a wait that did not end while spinning. */
static void spin_slept(struct rdsi_spinner *s)
{
	if (s->window <= 0)
		return;
	if (rdsi_now() - s->since < 2 * s->window)
		s->vain = 0;
	else if (s->vain < MAX_VAIN)
		s->vain++;
	s->since = 0;
}

static bool signalled(struct rdsi_waiter *w) { return atomic_load(&w->state) & RDSI_SIGNALLED; }

/* poll_rings takes in what the daemon published, and wakes those whom it concerns. */
static bool poll_rings(rds_client *c)
{
	bool progress = rdsi_rx_poll(c);
	if (atomic_load(&c->wait.returns) > 0)
		progress = rdsi_tx_poll(c) || progress;
	return progress;
}

/* announce tells the daemon for what it has to ring. A thread that begins to wait for
 * returned messages at this moment is either seen here, or sees the announcement and widens
 * it. */
static void announce(rds_client *c)
{
	if (atomic_load(&c->wait.returns) == 0)
		atomic_store(c->seg.client_asleep, SHM_ASLEEP_FOR_EVENTS);
	if (atomic_load(&c->wait.returns) > 0)
		atomic_store(c->seg.client_asleep, SHM_ASLEEP);
}

static void drain(int fd)
{
	uint8_t buf[512];
	while (read(fd, buf, sizeof buf) < 0 && errno == EINTR)
		;
}

/* block sleeps until somebody rings, the control socket has something, or the deadline. */
static int block(rds_client *c, int64_t deadline)
{
	struct timespec ts;
	struct pollfd fds[3] = {
		{.fd = c->bell_dead ? -1 : c->bell, .events = POLLIN}, {.fd = c->self, .events = POLLIN}, {.fd = c->ctl.fd, .events = POLLIN}};
	int n = ppoll(fds, rdsi_client_err(c) ? 2 : 3, rdsi_left(deadline, &ts), NULL);
	if (n < 0) {
		if (errno == EINTR)
			return -EINTR;
		poll(NULL, 0, 1); /* the kernel is out of memory: not without a pause */
		return 0;
	}
	if (fds[0].revents & POLLIN)
		drain(c->bell);
	else if (fds[0].revents)
		c->bell_dead = true; /* the control socket says more */
	if (fds[1].revents & POLLIN)
		drain(c->self);
	if (fds[2].revents)
		rdsi_ctl_poll(c);
	return 0;
}

/* sleep_leader blocks. The announcement comes before the last look at the rings, so whoever
 * publishes after that look sees it and rings. */
static int sleep_leader(rds_client *c, struct rdsi_waiter *w, int64_t deadline)
{
	int err = 0;
	pthread_mutex_lock(&c->wait.mu);
	if (signalled(w) || c->wait.closed) {
		pthread_mutex_unlock(&c->wait.mu);
		return 0;
	}
	rdsi_pin(c);
	c->wait.blocked = true;
	pthread_mutex_unlock(&c->wait.mu);

	rdsi_tx_poll(c); /* warm ids and memory for the next messages */
	announce(c);
	if (rdsi_rx_empty(c) && (atomic_load(&c->wait.returns) == 0 || rdsi_tx_empty(c)))
		err = block(c, deadline);
	atomic_store(c->seg.client_asleep, SHM_AWAKE);

	pthread_mutex_lock(&c->wait.mu);
	c->wait.blocked = false;
	pthread_mutex_unlock(&c->wait.mu);
	rdsi_unpin(c);
	return err;
}

/* lead looks after the rings for all waiters until w is signalled. */
static int lead(struct rdsi_waiter *w, int64_t deadline)
{
	rds_client *c = w->client;
	c->spin.since = 0;
	while (!signalled(w)) {
		bool progress = poll_rings(c);
		if (deadline != RDSI_NEVER && !signalled(w) && rdsi_now() >= deadline)
			return -ETIMEDOUT; /* also beside a flood for others */
		if (progress) {
			c->spin.vain = c->spin.since ? 0 : c->spin.vain;
			c->spin.since = 0;
			continue;
		}
		if (spin_again(&c->spin))
			continue;
		int err = sleep_leader(c, w, deadline);
		spin_slept(&c->spin);
		if (err)
			return signalled(w) ? 0 : err;
	}
	return 0;
}

/* follow sleeps until w is signalled or becomes the leader. */
static int follow(struct rdsi_waiter *w, uint32_t seen, int64_t deadline)
{
	struct timespec ts = {deadline / 1000000000, deadline % 1000000000};
	if (syscall(SYS_futex, &w->state, FUTEX_WAIT_BITSET_PRIVATE, seen, deadline == RDSI_NEVER ? NULL : &ts, NULL, FUTEX_BITSET_MATCH_ANY) == 0)
		return 0;
	return errno == EINTR || errno == ETIMEDOUT ? -errno : 0;
}

int rdsi_park(struct rdsi_waiter *w, int64_t deadline)
{
	struct rdsi_waiters *ws = &w->client->wait;
	while (!signalled(w)) {
		pthread_mutex_lock(&ws->mu);
		if (!ws->leader && !signalled(w))
			ws->leader = w;
		bool leads = ws->leader == w;
		uint32_t seen = atomic_load(&w->state);
		pthread_mutex_unlock(&ws->mu);
		if (leads)
			return lead(w, deadline);
		if (seen & RDSI_SIGNALLED)
			break;
		int err = follow(w, seen, deadline);
		if (err && !signalled(w)) {
			/* It may have become the leader meanwhile; rdsi_leave passes that on. */
			return err;
		}
	}
	return 0;
}
