/* The leader: the one of a client's waiting threads that looks after the rings. */
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "int.h"
#include "rx.h"
#include "tx.h"

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* again reports whether to look once more before blocking, and gives the processor away before
 * if it is to. */
static bool again(struct rdsi_patience *p)
{
	if (p->strategy == RDS_WAIT_BLOCK)
		return false;
	switch (rdsi_next(p, rdsi_now())) {
	case RDS_WAIT_YIELD:
		sched_yield();
		return true;
	case RDS_WAIT_SPIN:
		relax();
		return true;
	default:
		return false;
	}
}

/* over ends the wait. */
static void over(struct rdsi_patience *p)
{
	if (p->since)
		rdsi_over(p, rdsi_now());
}

static bool signalled(struct rdsi_waiter *w) { return atomic_load(&w->state) & RDSI_SIGNALLED; }

/* poll_rings takes in what the daemon published, and wakes those whom it concerns. */
static bool poll_rings(rds_client *c)
{
	bool progress = rdsi_rx_poll(c);
	progress = rdsi_pass_wakes(c) || progress;
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
	int err = 0;
	while (!signalled(w) && !err) {
		bool progress = poll_rings(c);
		if (deadline != RDSI_NEVER && !signalled(w) && rdsi_now() >= deadline)
			err = -ETIMEDOUT; /* also beside a flood for others */
		else if (progress)
			over(&c->patience);
		else if (again(&c->patience))
			rdsi_ctl_look(c); /* it may look for ever */
		else
			err = sleep_leader(c, w, deadline);
	}
	over(&c->patience);
	return signalled(w) ? 0 : err;
}

/* follow sleeps until w is signalled or becomes the leader. */
static int follow(struct rdsi_waiter *w, uint32_t seen, int64_t deadline)
{
	struct timespec ts = {deadline / 1000000000, deadline % 1000000000};
	if (syscall(SYS_futex, &w->state, FUTEX_WAIT_BITSET_PRIVATE, seen, deadline == RDSI_NEVER ? NULL : &ts, NULL, FUTEX_BITSET_MATCH_ANY) == 0)
		return 0;
	return errno == EINTR || errno == ETIMEDOUT ? -errno : 0;
}

/* slice returns when rds_options.interrupt_ms ends the wait of w, or RDSI_NEVER. */
static int64_t slice(const struct rdsi_waiter *w)
{
	uint32_t ms = w->client->opts.interrupt_ms;
	return ms && !w->through && getpid() == (pid_t)syscall(SYS_gettid) ? rdsi_deadline(ms) : RDSI_NEVER;
}

static int park(struct rdsi_waiter *w, int64_t deadline)
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

int rdsi_park(struct rdsi_waiter *w, int64_t deadline)
{
	if (w->wakes && rdsi_take_wake(w))
		return -ECANCELED;
	int64_t back = slice(w);
	if (deadline <= back)
		return park(w, deadline);
	int err = park(w, back);
	return err == -ETIMEDOUT ? -EINTR : err;
}
