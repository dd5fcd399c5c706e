/* wait.c - waiting. Of the threads that wait for something of a domain, one waits at the daemon and makes progress for
 * all. The others wait for its news. A thread that makes progress while that one waits tells it of what it has completed
 * with rds_client_wake. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "fi.h"

enum { SLICE_MS = PROBE_MS / 2, UNTIL_FEW = 64 };

void rfi_progress_all(struct rfi_domain *d)
{
	LIST_EACH(l, after, &d->eps)
		rfi_progress(LIST_ENTRY(l, struct rfi_ep, link));
}

/* ring makes the timer of w, which its descriptor watches, readable: see rung. */
static void ring(struct waitable *w, int rung)
{
	if (!rung && !w->rung)
		return;
	struct itimerspec at = {.it_value = {.tv_sec = rung == 1 ? PROBE_MS / 1000 : 0, .tv_nsec = rung == 2}};
	timerfd_settime(w->evfd, 0, &at, NULL);
	w->rung = rung;
}

/* rfi_changed tells whoever waits for w, or polls its descriptor. */
void rfi_changed(struct waitable *w)
{
	struct rfi_domain *d = w->domain;
	if (w->evfd >= 0 && w->rung < 2)
		ring(w, 2);
	if (!d->waiters)
		return;
	pthread_cond_broadcast(&d->changed);
	if (d->led)
		rds_client_wake(d->client);
}

/* rfi_wake has whoever waits at the daemon, or polls a descriptor, look again: there is more to wait for. */
void rfi_wake(struct rfi_domain *d)
{
	if (d->led || d->armed)
		rds_client_wake(d->client);
	d->armed = false;
}

/* until appends a condition to d->until, which has n. Without memory it is left out: the wait ends with its slice. */
static size_t until(struct rfi_domain *d, size_t n, struct rfi_ep *ep, uint32_t kind, const struct rds_addr *addr)
{
	if (n == d->untils) {
		struct rds_until *more = realloc(d->until, (n + UNTIL_FEW) * sizeof *more);
		if (!more)
			return n;
		d->until = more;
		d->untils = n + UNTIL_FEW;
	}
	d->until[n] = (struct rds_until){.socket = ep->socket, .kind = kind, .addr = *addr};
	return n + 1;
}

/* conditions appends to d->until what wakes ep, from n on. */
static size_t conditions(struct rfi_domain *d, struct rfi_ep *ep, size_t n)
{
	n = until(d, n, ep, RDS_UNTIL_MESSAGE, &ep->addr);
	n = until(d, n, ep, RDS_UNTIL_COMPLETION, &ep->addr);
	n = until(d, n, ep, RDS_UNTIL_NOTICE, &ep->addr);
	if (ep->full)
		n = until(d, n, ep, RDS_UNTIL_SEND_SPACE, &ep->addr);
	LIST_EACH(l, after, &ep->busy) {
		struct peer *p = LIST_ENTRY(l, struct peer, busy);
		if (p->congested)
			n = until(d, n, ep, RDS_UNTIL_SEND_TO, &p->addr);
	}
	return n;
}

/* more tells whether something may go out at once: progress ends after some pieces. */
static bool more(const struct rfi_ep *ep)
{
	LIST_EACH(l, after, &ep->busy)
		if (!ep->full && !LIST_ENTRY(l, struct peer, busy)->congested)
			return true;
	return false;
}

/* lead waits at the daemon for ms, without the lock. */
static void lead(struct rfi_domain *d, size_t n, int ms)
{
	struct rds_until *mine = d->until; /* while this thread waits */
	d->until = NULL;
	d->untils = 0;
	d->led = true;
	d->leads++;
	rfi_unlock(d);
	rds_wait(mine, n, ms); /* if the daemon has ended, progress finds it */
	rfi_lock(d);
	d->led = false;
	free(mine);
	pthread_cond_broadcast(&d->changed);
}

static bool ready(const struct waitable *w, uint64_t n, uint64_t errs)
{
	if (w->fid.fclass == FI_CLASS_CNTR)
		return w->value >= n || w->errs != errs;
	return w->count >= n || w->errs || w->signaled || w->overrun;
}

int rfi_wait(struct waitable *w, uint64_t want, int timeout_ms)
{
	struct rfi_domain *d = w->domain;
	int64_t end = rfi_now_ms() + (timeout_ms < 0 ? 0 : timeout_ms), left;
	uint64_t errs = w->errs;
	int err = 0;
	d->waiters++;
	for (;;) {
		rfi_progress_all(d);
		if (ready(w, want, errs))
			break;
		left = end - rfi_now_ms();
		if (timeout_ms >= 0 && left <= 0) {
			err = -FI_EAGAIN;
			break;
		}
		size_t n = 0;
		bool goes_on = false;
		LIST_EACH(l, after, &d->eps) {
			struct rfi_ep *ep = LIST_ENTRY(l, struct rfi_ep, link);
			goes_on = goes_on || more(ep);
			if (ep->failed)
				err = -ep->failed; /* nothing comes any more */
			else if (!d->led)
				n = conditions(d, ep, n);
		}
		if (err)
			break;
		if (goes_on)
			continue;
		struct timespec at = {.tv_sec = end / 1000, .tv_nsec = end % 1000 * 1000000};
		if (!n && timeout_ms < 0)
			pthread_cond_wait(&d->changed, &d->lock);
		else if (!n)
			pthread_cond_timedwait(&d->changed, &d->lock, &at);
		else
			lead(d, n, timeout_ms < 0 || left > SLICE_MS ? SLICE_MS : (int)left);
	}
	d->waiters--;
	if (d->waiters && !d->led)
		pthread_cond_broadcast(&d->changed); /* another one leads */
	return err;
}

/* ---- Descriptors ---- */

int rfi_fds_open(struct waitable *w)
{
	struct epoll_event e = {.events = EPOLLIN};
	w->epfd = epoll_create1(EPOLL_CLOEXEC);
	w->evfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return w->epfd < 0 || w->evfd < 0 || epoll_ctl(w->epfd, EPOLL_CTL_ADD, w->evfd, &e) ? -FI_EMFILE : 0;
}

int rfi_fds_watch(struct waitable *w, struct rfi_ep *ep)
{
	struct epoll_event e = {.events = EPOLLIN};
	if (!w || w->epfd < 0)
		return 0;
	int fd = rds_pollfd(ep->socket);
	if (fd < 0)
		return fd;
	return epoll_ctl(w->epfd, EPOLL_CTL_ADD, fd, &e) && errno != EEXIST ? -errno : 0;
}

/* armed makes the descriptor of w unreadable until something comes to the domain's sockets, or does not for long. */
static bool armed(struct waitable *w)
{
	struct rfi_domain *d = w->domain;
	bool late = false;
	LIST_EACH(l, after, &d->eps) {
		struct rfi_ep *ep = LIST_ENTRY(l, struct rfi_ep, link);
		size_t n = conditions(d, ep, 0);
		late = late || !list_empty(&ep->ops) || !list_empty(&ep->transfers);
		if (ep->failed || more(ep) || rds_poll_set(ep->socket, d->until, n) || rds_polled(ep->socket, NULL, 0))
			return false;
	}
	ring(w, late);
	d->armed = true;
	return true;
}

/* idle tells whether w has nothing, and its descriptor will be readable once it has. */
static bool idle(struct waitable *w)
{
	rfi_progress_all(w->domain);
	bool none = !w->count && !w->signaled;
	w->signaled = false;
	return none && (w->epfd < 0 || armed(w));
}

int rfi_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	int err = 0;
	for (int i = 0; i < count && !err; i++) {
		struct waitable *w = WAITABLE(fids[i]);
		if (w->fid.fclass != FI_CLASS_CQ && w->fid.fclass != FI_CLASS_EQ && w->fid.fclass != FI_CLASS_CNTR)
			return -FI_EINVAL;
		rfi_lock(w->domain);
		err = idle(w) ? 0 : -FI_EAGAIN;
		rfi_unlock(w->domain);
	}
	return err;
}
