/* cq.c - completion queues. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fi.h"

#define CQ(x) ((struct rfi_cq *)(void *)(x))
enum { CQ_SIZE = TX_SIZE + RX_SIZE };

static bool grow(struct cqe **ring, size_t *room, size_t head, size_t count)
{
	size_t more = *room ? 2 * *room : 64;
	struct cqe *to = malloc(more * sizeof *to);
	if (!to)
		return false;
	for (size_t i = 0; i < count; i++)
		to[i] = (*ring)[(head + i) & (*room - 1)];
	free(*ring);
	*ring = to;
	*room = more;
	return true;
}

/* rfi_cq_add queues a completion, or with e->err an error. The queue grows: what may complete was accepted before. */
void rfi_cq_add(struct rfi_cq *cq, const struct cqe *e)
{
	if (e->err) {
		if (cq->err_count == cq->err_room && !grow(&cq->errs, &cq->err_room, 0, cq->err_count))
			abort(); /* a completion must not be lost */
		cq->errs[cq->err_count++] = *e;
	} else {
		if (cq->count == cq->room) {
			if (!grow(&cq->ring, &cq->room, cq->head, cq->count))
				abort();
			cq->head = 0;
		}
		cq->ring[(cq->head + cq->count++) & (cq->room - 1)] = *e;
	}
	rfi_ring(cq->evfd, &cq->rung);
	rfi_changed(cq->domain);
}

static const size_t sizes[] = {
	[FI_CQ_FORMAT_UNSPEC] = 0, [FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry), [FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
	[FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry), [FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
};

/* take stores up to n completions in the queue's format: each format is the beginning of the longest. */
static ssize_t take(struct rfi_cq *cq, void *buf, size_t n, fi_addr_t *src)
{
	size_t size = sizes[cq->format];
	char *to = buf;
	if (cq->err_count)
		return -FI_EAVAIL;
	if (!cq->count)
		return -FI_EAGAIN;
	if (n > cq->count)
		n = cq->count;
	for (size_t i = 0; i < n; i++) {
		const struct cqe *e = &cq->ring[(cq->head + i) & (cq->room - 1)];
		struct fi_cq_tagged_entry full = {e->context, e->flags, e->len, e->buf, e->data, e->tag};
		memcpy(to + i * size, &full, size);
		if (src)
			src[i] = e->src;
	}
	cq->head = (cq->head + n) & (cq->room - 1);
	cq->count -= n;
	return (ssize_t)n;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t n, fi_addr_t *src)
{
	struct rfi_cq *cq = CQ(fid);
	rfi_lock(cq->domain);
	if (cq->count < n || !n)
		rfi_progress_all(cq->domain);
	ssize_t got = !n && cq->count ? 0 : take(cq, buf, n, src);
	rfi_unlock(cq->domain);
	if (got == -FI_EAGAIN)
		sched_yield(); /* a program that only polls leaves the processor to the daemon */
	return got;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t n)
{
	return cq_readfrom(fid, buf, n, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
	struct rfi_cq *cq = CQ(fid);
	ssize_t got = -FI_EAGAIN;
	rfi_lock(cq->domain);
	if (cq->err_count) {
		const struct cqe *e = cq->errs;
		buf->op_context = e->context;
		buf->flags = e->flags;
		buf->len = e->len;
		buf->buf = e->buf;
		buf->data = e->data;
		buf->tag = e->tag;
		buf->olen = e->olen;
		buf->err = e->err;
		buf->prov_errno = e->err;
		buf->err_data_size = 0;
		got = 1;
		if (!(flags & FI_PEEK))
			memmove(cq->errs, cq->errs + 1, --cq->err_count * sizeof *cq->errs);
	}
	rfi_unlock(cq->domain);
	return got;
}

struct wanted {
	struct rfi_cq *cq;
	size_t count;
};

static int cq_ready(void *arg)
{
	struct wanted *w = arg;
	return w->cq->err_count || w->cq->count >= w->count || w->cq->signaled;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t n, fi_addr_t *src, const void *cond, int timeout)
{
	struct rfi_cq *cq = CQ(fid);
	struct wanted want = {cq, cq->cond == FI_CQ_COND_THRESHOLD && cond ? (size_t)cond : 1};
	if (cq->wait == FI_WAIT_NONE)
		return -FI_EINVAL;
	rfi_lock(cq->domain);
	rfi_wait(cq->domain, cq_ready, &want, timeout);
	cq->signaled = false;
	ssize_t got = take(cq, buf, n, src);
	rfi_unlock(cq->domain);
	return got;
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t n, const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, n, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	struct rfi_cq *cq = CQ(fid);
	rfi_lock(cq->domain);
	cq->signaled = true;
	rfi_ring(cq->evfd, &cq->rung);
	rfi_changed(cq->domain);
	rfi_unlock(cq->domain);
	return 0;
}

static const char *cq_strerror(struct fid_cq *cq, int prov_errno, const void *data, char *buf, size_t len)
{
	const char *text = fi_strerror(prov_errno < 0 ? -prov_errno : prov_errno);
	if (buf && len)
		strncpy(buf, text, len - 1)[len - 1] = 0;
	return text;
}

static int cq_close(struct fid *fid)
{
	struct rfi_cq *cq = CQ(fid);
	struct rfi_domain *d = cq->domain;
	rfi_lock(d);
	int refs = cq->refs;
	d->refs -= !refs;
	rfi_unlock(d);
	if (refs)
		return -FI_EBUSY;
	if (cq->epfd >= 0) {
		close(cq->epfd);
		close(cq->evfd);
	}
	free(cq->ring);
	free(cq->errs);
	free(cq);
	return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct rfi_cq *cq = CQ(fid);
	if (command == FI_GETWAITOBJ) {
		*(enum fi_wait_obj *)arg = cq->wait;
		return 0;
	}
	if (command != FI_GETWAIT)
		return -FI_ENOSYS;
	if (cq->epfd < 0)
		return -FI_ENODATA;
	*(int *)arg = cq->epfd;
	return 0;
}

static struct fi_ops cq_fid_ops = {
	.size = sizeof(struct fi_ops), .close = cq_close, .bind = rfi_no_bind, .control = cq_control, .ops_open = rfi_no_ops_open,
};

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq), .read = cq_read, .readfrom = cq_readfrom, .readerr = cq_readerr, .sread = cq_sread,
	.sreadfrom = cq_sreadfrom, .signal = cq_signal, .strerror = cq_strerror,
};

int rfi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	enum fi_wait_obj wait = attr->wait_obj;
	if (wait != FI_WAIT_NONE && wait != FI_WAIT_UNSPEC && wait != FI_WAIT_FD && wait != FI_WAIT_YIELD)
		return -FI_ENOSYS;
	if ((unsigned)attr->format > FI_CQ_FORMAT_TAGGED || attr->flags & ~(uint64_t)FI_AFFINITY)
		return -FI_EINVAL;
	struct rfi_cq *cq = calloc(1, sizeof *cq);
	if (!cq)
		return -FI_ENOMEM;
	cq->domain = DOMAIN(domain);
	cq->format = attr->format ? attr->format : FI_CQ_FORMAT_CONTEXT;
	cq->wait = wait;
	cq->cond = attr->wait_cond;
	cq->size = attr->size ? attr->size : CQ_SIZE;
	cq->epfd = cq->evfd = -1;
	int err = wait == FI_WAIT_FD ? rfi_fds_open(&cq->epfd, &cq->evfd) : 0;
	if (err) {
		free(cq);
		return err;
	}
	attr->format = cq->format;
	attr->size = cq->size;
	cq->fid.fid = (struct fid){.fclass = FI_CLASS_CQ, .context = context, .ops = &cq_fid_ops};
	cq->fid.ops = &cq_ops;
	rfi_lock(cq->domain);
	cq->domain->refs++;
	rfi_unlock(cq->domain);
	*out = &cq->fid;
	return 0;
}
