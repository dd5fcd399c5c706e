/* cntr.c - counters of completions. */
#include <stdlib.h>
#include <unistd.h>

#include "fi.h"

#define CNTR(x) ((struct rfi_cntr *)(void *)(x))

static void changed(struct rfi_cntr *c)
{
	rfi_ring(c->evfd, &c->rung);
	rfi_changed(c->domain);
}

void rfi_cntr_count(struct rfi_cntr *c, bool failed)
{
	if (failed)
		c->errs++;
	else
		c->value++;
	changed(c);
}

static uint64_t cntr_get(struct fid_cntr *fid, bool errs)
{
	struct rfi_cntr *c = CNTR(fid);
	rfi_lock(c->domain);
	rfi_progress_all(c->domain);
	uint64_t v = errs ? c->errs : c->value;
	rfi_unlock(c->domain);
	return v;
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	return cntr_get(fid, false);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	return cntr_get(fid, true);
}

static int cntr_change(struct fid_cntr *fid, bool errs, bool add, uint64_t n)
{
	struct rfi_cntr *c = CNTR(fid);
	rfi_lock(c->domain);
	uint64_t *v = errs ? &c->errs : &c->value;
	*v = add ? *v + n : n;
	changed(c);
	rfi_unlock(c->domain);
	return 0;
}

static int cntr_add(struct fid_cntr *fid, uint64_t n)
{
	return cntr_change(fid, false, true, n);
}

static int cntr_set(struct fid_cntr *fid, uint64_t n)
{
	return cntr_change(fid, false, false, n);
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t n)
{
	return cntr_change(fid, true, true, n);
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t n)
{
	return cntr_change(fid, true, false, n);
}

struct wanted {
	struct rfi_cntr *c;
	uint64_t threshold, errs;
};

static int reached(void *arg)
{
	struct wanted *w = arg;
	return w->c->value >= w->threshold || w->c->errs != w->errs;
}

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct rfi_cntr *c = CNTR(fid);
	rfi_lock(c->domain);
	struct wanted w = {c, threshold, c->errs};
	int err = rfi_wait(c->domain, reached, &w, timeout);
	if (!err && c->value < threshold)
		err = -FI_EAVAIL;
	rfi_unlock(c->domain);
	return err == -FI_EAGAIN ? -FI_ETIMEDOUT : err;
}

static int cntr_close(struct fid *fid)
{
	struct rfi_cntr *c = CNTR(fid);
	struct rfi_domain *d = c->domain;
	rfi_lock(d);
	int refs = c->refs;
	d->refs -= !refs;
	rfi_unlock(d);
	if (refs)
		return -FI_EBUSY;
	if (c->epfd >= 0) {
		close(c->epfd);
		close(c->evfd);
	}
	free(c);
	return 0;
}

static int cntr_control(struct fid *fid, int command, void *arg)
{
	struct rfi_cntr *c = CNTR(fid);
	if (command != FI_GETWAIT || c->epfd < 0)
		return -FI_ENOSYS;
	*(int *)arg = c->epfd;
	return 0;
}

static struct fi_ops cntr_fid_ops = {
	.size = sizeof(struct fi_ops), .close = cntr_close, .bind = rfi_no_bind, .control = cntr_control, .ops_open = rfi_no_ops_open,
};

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(struct fi_ops_cntr), .read = cntr_read, .readerr = cntr_readerr, .add = cntr_add, .set = cntr_set, .wait = cntr_wait,
	.adderr = cntr_adderr, .seterr = cntr_seterr,
};

int rfi_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context)
{
	enum fi_wait_obj wait = attr ? attr->wait_obj : FI_WAIT_UNSPEC;
	if (attr && (attr->events != FI_CNTR_EVENTS_COMP || attr->flags))
		return -FI_EINVAL;
	if (wait != FI_WAIT_NONE && wait != FI_WAIT_UNSPEC && wait != FI_WAIT_FD && wait != FI_WAIT_YIELD)
		return -FI_ENOSYS;
	struct rfi_cntr *c = calloc(1, sizeof *c);
	if (!c)
		return -FI_ENOMEM;
	c->domain = DOMAIN(domain);
	c->wait = wait;
	c->epfd = c->evfd = -1;
	int err = wait == FI_WAIT_FD ? rfi_fds_open(&c->epfd, &c->evfd) : 0;
	if (err) {
		free(c);
		return err;
	}
	c->fid.fid = (struct fid){.fclass = FI_CLASS_CNTR, .context = context, .ops = &cntr_fid_ops};
	c->fid.ops = &cntr_ops;
	rfi_lock(c->domain);
	c->domain->refs++;
	rfi_unlock(c->domain);
	*out = &c->fid;
	return 0;
}
