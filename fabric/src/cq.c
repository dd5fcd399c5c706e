/* cq.c - completion queues, event queues and counters. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fi.h"

_Static_assert(offsetof(struct cqe, src) == offsetof(struct fi_cq_err_entry, err_data), "layouts");
enum { CQ_SIZE = TX_SIZE + RX_SIZE, IDLE_READS = 1000, NAP_NS = 50000 };

/* ---- What all three have ---- */

static int w_close(struct fid *fid)
{
	struct waitable *w = WAITABLE(fid);
	if (!rfi_let_go(w->domain, &w->refs))
		return -FI_EBUSY;
	if (fid->fclass == FI_CLASS_EQ)
		for (size_t i = 0; i < w->count; i++)
			free(w->ring[(w->head + i) & (w->room - 1)].buf);
	if (w->epfd >= 0)
		close(w->epfd);
	if (w->evfd >= 0)
		close(w->evfd);
	free(w->ring);
	free(w);
	return 0;
}

static int w_control(struct fid *fid, int command, void *arg)
{
	struct waitable *w = WAITABLE(fid);
	if (command == FI_GETWAITOBJ)
		*(enum fi_wait_obj *)arg = w->wait;
	else if (command == FI_GETWAIT && w->epfd >= 0)
		*(int *)arg = w->epfd;
	else
		return command == FI_GETWAIT ? -FI_ENODATA : -FI_ENOSYS;
	return 0;
}

static struct fi_ops fid_ops = FID_OPS(w_close, rfi_no_bind, w_control);

static int w_open(struct rfi_domain *d, size_t class, enum fi_wait_obj wait, void *context, struct waitable **out)
{
	if (wait != FI_WAIT_NONE && wait != FI_WAIT_UNSPEC && wait != FI_WAIT_FD && wait != FI_WAIT_YIELD)
		return -FI_ENOSYS;
	struct waitable *w = malloc(sizeof *w);
	if (!w)
		return -FI_ENOMEM;
	*w = (struct waitable){.domain = d, .wait = wait, .epfd = -1, .evfd = -1};
	w->fid = (struct fid){.fclass = class, .context = context, .ops = &fid_ops};
	rfi_hold(d);
	int err = wait == FI_WAIT_FD ? rfi_fds_open(w) : 0;
	if (err)
		w_close(&w->fid);
	*out = w;
	return err;
}

/* rfi_cq_add queues a completion, or with e->err an error. The queue grows: what may complete was accepted before. Without
 * memory for it the queue is overrun, and rfi_cq_add returns false. */
bool rfi_cq_add(struct waitable *w, const struct cqe *e)
{
	w->domain->idle = 0;
	if (w->count == w->room) {
		size_t more = w->room ? 2 * w->room : 64;
		struct cqe *to = malloc(more * sizeof *to);
		if (!to) {
			w->overrun = w->fid.fclass == FI_CLASS_CQ;
			rfi_changed(w);
			return false;
		}
		for (size_t i = 0; i < w->count; i++)
			to[i] = w->ring[(w->head + i) & (w->room - 1)];
		free(w->ring);
		w->ring = to;
		w->room = more;
		w->head = 0;
	}
	struct cqe *new = &w->ring[(w->head + w->count++) & (w->room - 1)];
	*new = *e;
	new->prov_errno = e->err;
	w->errs += e->err != 0;
	rfi_changed(w);
	return true;
}

static void drop(struct waitable *w)
{
	w->errs -= w->ring[w->head].err != 0;
	w->head = (w->head + 1) & (w->room - 1);
	w->count--;
}

/* ---- Completion queues ---- */

static const size_t sizes[] = {
	[FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry), [FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
	[FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry), [FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
};

/* take stores up to n completions, up to an error. The queue's format is the beginning of the longest one. */
static ssize_t take(struct waitable *w, void *buf, size_t n, fi_addr_t *src)
{
	size_t size = sizes[w->format], i = 0;
	char *to = buf;
	for (; i < n && w->count && !w->ring[w->head].err; i++) {
		memcpy(to + i * size, &w->ring[w->head], size);
		if (src)
			src[i] = w->ring[w->head].src;
		drop(w);
	}
	if (i || (!n && w->count))
		return (ssize_t)i;
	return w->count ? -FI_EAVAIL : w->overrun ? -FI_EOVERRUN : -FI_EAGAIN;
}

/* A program that only polls leaves the processor to the daemon. One that finds nothing for long sleeps between its reads:
 * a kernel may have the ranks of a job yield to each other for seconds, and nobody else run. */
static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t n, fi_addr_t *src)
{
	struct waitable *w = WAITABLE(fid);
	rfi_lock(w->domain);
	if (w->count < n || !n)
		rfi_progress_all(w->domain);
	ssize_t got = take(w, buf, n, src);
	unsigned *vain = &w->domain->idle, idle = *vain = got != -FI_EAGAIN ? 0 : *vain < IDLE_READS ? *vain + 1 : IDLE_READS;
	rfi_unlock(w->domain);
	if (idle >= IDLE_READS)
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	else if (idle)
		sched_yield();
	return got;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t n) { return cq_readfrom(fid, buf, n, NULL); }

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
	struct waitable *w = WAITABLE(fid);
	LOCKED(w->domain);
	if (!w->count || !w->ring[w->head].err)
		return -FI_EAGAIN;
	memcpy(buf, &w->ring[w->head], offsetof(struct fi_cq_err_entry, err_data));
	buf->err_data_size = 0;
	if (!(flags & FI_PEEK))
		drop(w);
	return 1;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t n, fi_addr_t *src, const void *cond, int timeout)
{
	struct waitable *w = WAITABLE(fid);
	if (w->wait == FI_WAIT_NONE)
		return -FI_EINVAL;
	LOCKED(w->domain);
	int err = rfi_wait(w, w->threshold && cond ? (size_t)cond : 1, timeout);
	w->signaled = false;
	ssize_t got = take(w, buf, n, src);
	return got == -FI_EAGAIN && err ? err : got;
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t n, const void *cond, int ms)
{
	return cq_sreadfrom(fid, buf, n, NULL, cond, ms);
}

static int cq_signal(struct fid_cq *fid)
{
	struct waitable *w = WAITABLE(fid);
	LOCKED(w->domain);
	w->signaled = true;
	rfi_changed(w);
	return 0;
}

static const char *error_text(int prov_errno, char *buf, size_t len)
{
	const char *text = fi_strerror(prov_errno < 0 ? -prov_errno : prov_errno);
	if (buf && len)
		strncpy(buf, text, len - 1)[len - 1] = 0;
	return text;
}

static const char *cq_strerror(struct fid_cq *cq, int e, const void *d, char *b, size_t n) { return error_text(e, b, n); }

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq), .read = cq_read, .readfrom = cq_readfrom, .readerr = cq_readerr,
	.sread = cq_sread, .sreadfrom = cq_sreadfrom, .signal = cq_signal, .strerror = cq_strerror,
};

int rfi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	struct waitable *w;
	if ((unsigned)attr->format > FI_CQ_FORMAT_TAGGED || attr->flags & ~(uint64_t)FI_AFFINITY)
		return -FI_EINVAL;
	int err = w_open(DOMAIN(domain), FI_CLASS_CQ, attr->wait_obj, context, &w);
	if (err)
		return err;
	w->cq.ops = &cq_ops;
	attr->format = w->format = attr->format ? attr->format : FI_CQ_FORMAT_CONTEXT;
	attr->size = w->size = attr->size ? attr->size : CQ_SIZE;
	w->threshold = attr->wait_cond == FI_CQ_COND_THRESHOLD;
	*out = &w->cq;
	return 0;
}

/* ---- Event queues: the provider has no events, but programs write theirs ---- */

static ssize_t eq_write(struct fid_eq *fid, uint32_t kind, const void *buf, size_t len, uint64_t flags)
{
	struct waitable *w = WAITABLE(fid);
	struct cqe e = {.flags = kind, .len = len, .buf = malloc(len ? len : 1)};
	if (flags || !e.buf) {
		free(e.buf);
		return flags ? -FI_EBADFLAGS : -FI_ENOMEM;
	}
	memcpy(e.buf, buf, len);
	LOCKED(w->domain);
	if (rfi_cq_add(w, &e))
		return (ssize_t)len;
	free(e.buf);
	return -FI_ENOMEM;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *kind, void *buf, size_t len, int timeout, uint64_t flags)
{
	struct waitable *w = WAITABLE(fid);
	LOCKED(w->domain);
	ssize_t got = rfi_wait(w, 1, timeout);
	const struct cqe *e = got ? NULL : &w->ring[w->head];
	if (e && len < e->len)
		got = -FI_ETOOSMALL;
	else if (e) {
		*kind = (uint32_t)e->flags;
		memcpy(buf, e->buf, e->len);
		got = (ssize_t)e->len;
		if (!(flags & FI_PEEK)) {
			free(e->buf);
			drop(w);
		}
	}
	return got;
}

static ssize_t eq_read(struct fid_eq *eq, uint32_t *k, void *b, size_t n, uint64_t f) { return eq_sread(eq, k, b, n, 0, f); }
static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf, uint64_t flags) { return -FI_EAGAIN; }
static const char *eq_strerror(struct fid_eq *eq, int e, const void *d, char *b, size_t n) { return error_text(e, b, n); }

static struct fi_ops_eq eq_ops = {
	.size = sizeof(struct fi_ops_eq), .read = eq_read, .readerr = eq_readerr, .write = eq_write,
	.sread = eq_sread, .strerror = eq_strerror,
};

int rfi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
	struct rfi_fabric *f = (struct rfi_fabric *)(void *)fabric;
	struct waitable *w;
	int err = w_open(&f->events, FI_CLASS_EQ, attr ? attr->wait_obj : FI_WAIT_NONE, context, &w);
	if (err)
		return err;
	w->eq.ops = &eq_ops;
	*out = &w->eq;
	return 0;
}

/* ---- Counters ---- */

static void change(struct waitable *w, bool errs, bool add, uint64_t n)
{
	uint64_t *v = errs ? &w->errs : &w->value;
	*v = add ? *v + n : n;
	w->signaled = true;
	rfi_changed(w);
}

void rfi_count(struct rfi_ep *ep, int counter, bool failed)
{
	if (ep->bound[counter])
		change(ep->bound[counter], failed, true, 1);
}

/* look returns what of a counter, and yields the processor if that has not changed. */
static uint64_t look(struct waitable *w, const uint64_t *what)
{
	rfi_lock(w->domain);
	uint64_t was = *what;
	rfi_progress_all(w->domain);
	uint64_t now = *what;
	rfi_unlock(w->domain);
	if (now == was)
		sched_yield();
	return now;
}

static uint64_t cntr_read(struct fid_cntr *fid) { return look(WAITABLE(fid), &WAITABLE(fid)->value); }
static uint64_t cntr_readerr(struct fid_cntr *fid) { return look(WAITABLE(fid), &WAITABLE(fid)->errs); }

/* CHANGE makes a call that changes a counter. */
#define CHANGE(name, errs_, add)                          \
	static int name(struct fid_cntr *fid, uint64_t n) \
	{                                                 \
		LOCKED(WAITABLE(fid)->domain);            \
		change(WAITABLE(fid), errs_, add, n);     \
		return 0;                                 \
	}

CHANGE(cntr_add, false, true)
CHANGE(cntr_set, false, false)
CHANGE(cntr_adderr, true, true)
CHANGE(cntr_seterr, true, false)

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct waitable *w = WAITABLE(fid);
	LOCKED(w->domain);
	int err = rfi_wait(w, threshold, timeout);
	if (!err && w->value < threshold)
		return -FI_EAVAIL;
	return err == -FI_EAGAIN ? -FI_ETIMEDOUT : err;
}

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(struct fi_ops_cntr), .read = cntr_read, .readerr = cntr_readerr, .add = cntr_add,
	.set = cntr_set, .wait = cntr_wait, .adderr = cntr_adderr, .seterr = cntr_seterr,
};

int rfi_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context)
{
	struct waitable *w;
	if (attr && (attr->events != FI_CNTR_EVENTS_COMP || attr->flags))
		return -FI_EINVAL;
	int err = w_open(DOMAIN(domain), FI_CLASS_CNTR, attr ? attr->wait_obj : FI_WAIT_UNSPEC, context, &w);
	if (err)
		return err;
	w->cntr.ops = &cntr_ops;
	*out = &w->cntr;
	return 0;
}
