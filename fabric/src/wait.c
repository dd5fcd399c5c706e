/*
 * wait.c - waiting. Of the threads that wait for something of a domain, one waits at the daemon and
 * makes progress for all. The others wait for its news. A thread that makes progress while that one
 * waits tells it of what it has completed with rds_client_wake.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "fi.h"

enum { SLICE_MS = PROBE_MS / 2, UNTIL_FEW = 64 };

void rfi_progress_all(struct rfi_domain *d)
{
	LIST_EACH(l, after, &d->eps)
		rfi_progress(LIST_ENTRY(l, struct rfi_ep, link));
}

/* rfi_changed tells the threads that wait that something has completed. */
void rfi_changed(struct rfi_domain *d)
{
	if (!d->waiters)
		return;
	pthread_cond_broadcast(&d->changed);
	if (d->led)
		rds_client_wake(d->client);
}

static bool until_room(struct rfi_domain *d, size_t n)
{
	if (n <= d->untils)
		return true;
	struct rds_until *more = realloc(d->until, (n + UNTIL_FEW) * sizeof *more);
	if (!more)
		return false;
	d->until = more;
	d->untils = n + UNTIL_FEW;
	return true;
}

/* conditions appends to d->until what wakes ep, from n on. */
static size_t conditions(struct rfi_domain *d, struct rfi_ep *ep, size_t n)
{
	static const uint32_t kinds[] = {RDS_UNTIL_MESSAGE, RDS_UNTIL_COMPLETION, RDS_UNTIL_NOTICE};
	for (size_t i = 0; i < 3; i++) {
		if (i == 0 && ep->unexpected > UNEXPECTED_MAX)
			continue;
		if (!until_room(d, n + 1))
			return n;
		d->until[n++] = (struct rds_until){.socket = ep->socket, .kind = kinds[i]};
	}
	if (ep->full && until_room(d, n + 1))
		d->until[n++] = (struct rds_until){.socket = ep->socket, .kind = RDS_UNTIL_SEND_SPACE};
	LIST_EACH(l, after, &ep->busy) {
		struct peer *p = LIST_ENTRY(l, struct peer, busy);
		if (p->congested && until_room(d, n + 1))
			d->until[n++] = (struct rds_until){.socket = ep->socket, .kind = RDS_UNTIL_SEND_TO, .addr = p->addr};
	}
	return n;
}

static void sleep_until(struct rfi_domain *d, int64_t end, bool forever)
{
	struct timespec until = {.tv_sec = end / 1000, .tv_nsec = end % 1000 * 1000000};
	if (forever)
		pthread_cond_wait(&d->changed, &d->lock);
	else
		pthread_cond_timedwait(&d->changed, &d->lock, &until);
}

/* lead waits at the daemon for ms, without the lock. */
static void lead(struct rfi_domain *d, size_t n, int ms)
{
	struct rds_until *until = d->until;
	d->until = NULL; /* this thread's while it waits */
	d->untils = 0;
	d->led = true;
	d->leads++;
	rfi_unlock(d);
	int err = rds_wait(until, n, ms);
	if (err < 0 && err != -ECANCELED && err != -EINTR) { /* the daemon has ended: progress finds it */
		struct timespec t = {.tv_nsec = 1000000};
		nanosleep(&t, NULL);
	}
	rfi_lock(d);
	d->led = false;
	free(until);
	pthread_cond_broadcast(&d->changed);
}

int rfi_wait(struct rfi_domain *d, rfi_done *done, void *arg, int timeout_ms)
{
	int64_t end = rfi_now_ms() + (timeout_ms < 0 ? 0 : timeout_ms), left;
	int err = 0;
	d->waiters++;
	for (;;) {
		rfi_progress_all(d);
		if (done(arg))
			break;
		left = end - rfi_now_ms();
		if (timeout_ms >= 0 && left <= 0) {
			err = -FI_EAGAIN;
			break;
		}
		size_t n = 0;
		if (!d->led)
			LIST_EACH(l, after, &d->eps) {
				struct rfi_ep *ep = LIST_ENTRY(l, struct rfi_ep, link);
				if (!ep->failed)
					n = conditions(d, ep, n);
			}
		if (!n)
			sleep_until(d, end, timeout_ms < 0);
		else
			lead(d, n, timeout_ms < 0 || left > SLICE_MS ? SLICE_MS : (int)left);
	}
	d->waiters--;
	if (d->waiters && !d->led)
		pthread_cond_broadcast(&d->changed); /* another one leads */
	return err;
}

/* ---- Descriptors ---- */

int rfi_fds_open(int *epfd, int *evfd)
{
	struct epoll_event e = {.events = EPOLLIN};
	*epfd = epoll_create1(EPOLL_CLOEXEC);
	*evfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (*epfd >= 0 && *evfd >= 0 && !epoll_ctl(*epfd, EPOLL_CTL_ADD, *evfd, &e))
		return 0;
	if (*epfd >= 0)
		close(*epfd);
	if (*evfd >= 0)
		close(*evfd);
	*epfd = *evfd = -1;
	return -FI_EMFILE;
}

int rfi_fds_watch(int epfd, struct rfi_ep *ep)
{
	struct epoll_event e = {.events = EPOLLIN};
	if (epfd < 0)
		return 0;
	int fd = rds_pollfd(ep->socket);
	if (fd < 0)
		return fd;
	return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e) && errno != EEXIST ? -errno : 0;
}

void rfi_fds_forget(int epfd, struct rfi_ep *ep)
{
	if (epfd >= 0)
		epoll_ctl(epfd, EPOLL_CTL_DEL, rds_pollfd(ep->socket), NULL);
}

void rfi_ring(int fd, bool *rung)
{
	uint64_t one = 1;
	if (fd >= 0 && !*rung)
		*rung = write(fd, &one, sizeof one) == sizeof one;
}

void rfi_unring(int fd, bool *rung)
{
	uint64_t n;
	if (fd >= 0 && *rung && read(fd, &n, sizeof n) == sizeof n)
		*rung = false;
}

/* armed makes the descriptors of the domain's sockets unreadable until something comes. */
static bool armed(struct rfi_domain *d)
{
	LIST_EACH(l, after, &d->eps) {
		struct rfi_ep *ep = LIST_ENTRY(l, struct rfi_ep, link);
		size_t n = conditions(d, ep, 0);
		if (ep->failed || rds_poll_set(ep->socket, d->until, n) || rds_polled(ep->socket, NULL, 0))
			return false;
	}
	return true;
}

static int try_cq(struct rfi_cq *cq)
{
	rfi_lock(cq->domain);
	rfi_progress_all(cq->domain);
	bool idle = !cq->count && !cq->err_count && !cq->signaled;
	cq->signaled = false;
	if (idle) {
		rfi_unring(cq->evfd, &cq->rung);
		idle = cq->epfd < 0 || armed(cq->domain);
	}
	rfi_unlock(cq->domain);
	return idle ? 0 : -FI_EAGAIN;
}

static int try_cntr(struct rfi_cntr *c)
{
	rfi_lock(c->domain);
	rfi_progress_all(c->domain);
	bool idle = !c->rung;
	rfi_unring(c->evfd, &c->rung);
	idle = idle && (c->epfd < 0 || armed(c->domain));
	rfi_unlock(c->domain);
	return idle ? 0 : -FI_EAGAIN;
}

int rfi_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	int err = 0;
	for (int i = 0; i < count && !err; i++)
		switch (fids[i]->fclass) {
		case FI_CLASS_CQ:
			err = try_cq((struct rfi_cq *)(void *)fids[i]);
			break;
		case FI_CLASS_CNTR:
			err = try_cntr((struct rfi_cntr *)(void *)fids[i]);
			break;
		case FI_CLASS_EQ:
			err = rfi_eq_ready((struct rfi_eq *)(void *)fids[i]) ? -FI_EAGAIN : 0;
			break;
		default:
			err = -FI_EINVAL;
		}
	return err;
}
