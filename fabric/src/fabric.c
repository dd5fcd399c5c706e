/* fabric.c - the provider, fabrics, domains, and memory that peers may use. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "fi.h"

enum { OPEN_TIMEOUT_MS = 60000, ADOPT_MIN = 65536, NAP_NS = 200000 };

int64_t rfi_now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

ABSENT(no_passive_ep, struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context)
ABSENT(no_wait_open, struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **set)
ABSENT(no_scalable_ep, struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
ABSENT(no_poll_open, struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **set)
ABSENT(no_stx, struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx, void *context)
ABSENT(no_srx, struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep, void *context)

int rfi_open_client(rds_client **client)
{
	char *path = NULL;
	struct rds_options options = {.timeout_ms = OPEN_TIMEOUT_MS, .params.recv_windows = 8, .params.send_windows = 4};
	if (fi_param_get_str(&rfi_provider, "socket", &path) == 0)
		options.path = path;
	int err = rds_open(&options, client);
	if (err)
		FI_INFO(&rfi_provider, FI_LOG_CORE, "no session with rdsd: %s %s\n", rds_error_text(err), rds_refusal());
	return err;
}

/* ---- Memory ---- */

static struct rfi_mr *mr_of(struct rfi_domain *d, uint64_t key)
{
	LIST_EACH(l, after, &d->mrs[rfi_hash(key, MR_HEADS)]) {
		struct rfi_mr *mr = LIST_ENTRY(l, struct rfi_mr, link);
		if (mr->fid.key == key)
			return mr;
	}
	return NULL;
}

/* rfi_mr_find returns the region of key if it has the bytes and allows the access, else NULL and an error. */
struct rfi_mr *rfi_mr_find(struct rfi_domain *d, uint64_t key, uint64_t addr, uint64_t len, uint64_t access, int *err)
{
	struct rfi_mr *mr = mr_of(d, key);
	*err = 0;
	if (!mr)
		*err = FI_ENOKEY;
	else if ((mr->access & access) != access)
		*err = FI_EACCES;
	else if (addr < mr->base || addr - mr->base > mr->len || len > mr->len - (addr - mr->base))
		*err = FI_EINVAL;
	return *err ? NULL : mr;
}

/* adopt lets the daemon use the memory, if it can (rma.c). It copies the memory, so the lock is not held. */
static rds_buffer *adopt(const struct rfi_mr *mr)
{
	int off = 0;
	rds_buffer *buffer = NULL;
	fi_param_get_bool(&rfi_provider, "progress_only", &off);
	int err = mr->len < ADOPT_MIN || off ? 0 : rds_adopt(mr->domain->client, mr->mem, mr->len, &buffer);
	if (err)
		FI_INFO(&rfi_provider, FI_LOG_MR, "memory is not adopted: %s %s\n", rds_error_text(err), rds_refusal());
	return err ? NULL : buffer;
}

/* mr_close waits until nobody uses the memory any more, however long that takes. */
static int mr_close(struct fid *fid)
{
	struct rfi_mr *mr = (struct rfi_mr *)(void *)fid;
	struct rfi_domain *d = mr->domain;
	rfi_lock(d);
	list_del(&mr->link);
	d->closing++;
	while (rfi_direct_leave(d, mr->buffer)) {
		rfi_progress_all(d);
		rfi_unlock(d);
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		rfi_lock(d);
	}
	rfi_unlock(d);
	if (mr->region)
		rds_release(mr->region, -1);
	rds_region_free(mr->region);
	if (mr->buffer)
		rds_buffer_close_wait(mr->buffer, -1);
	rfi_lock(d);
	d->closing--;
	d->refs--;
	rfi_unlock(d);
	rds_buffer_free(mr->buffer);
	free(mr);
	return 0;
}

/* mr_bind: a region belongs to all endpoints of its domain, whichever it is bound to. */
static int mr_bind(struct fid *f, struct fid *ep, uint64_t flags) { return ep->fclass == FI_CLASS_EP ? 0 : -FI_ENOSYS; }
static int mr_control(struct fid *f, int what, void *arg) { return what == FI_ENABLE || what == FI_REFRESH ? 0 : -FI_ENOSYS; }

static struct fi_ops mr_fid_ops = FID_OPS(mr_close, mr_bind, mr_control);

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key,
		  uint64_t flags, struct fid_mr **out, void *context)
{
	struct rfi_domain *d = DOMAIN(fid);
	if (fid->fclass != FI_CLASS_DOMAIN || (flags & ~(uint64_t)FI_RMA_EVENT))
		return flags ? -FI_EBADFLAGS : -FI_EINVAL;
	struct rfi_mr *mr = malloc(sizeof *mr);
	if (!mr)
		return -FI_ENOMEM;
	*mr = (struct rfi_mr){
		.fid = {.fid = {.fclass = FI_CLASS_MR, .context = context, .ops = &mr_fid_ops}, .mem_desc = mr, .key = key},
		.domain = d, .mem = (char *)(uintptr_t)buf, .len = len, .base = offset,
	};
	rfi_lock(d);
	if (mr_of(d, key)) {
		rfi_unlock(d);
		free(mr);
		return -FI_ENOKEY;
	}
	list_add(&d->mrs[rfi_hash(key, MR_HEADS)], &mr->link); /* permits nothing yet */
	d->refs++;
	rfi_unlock(d);
	rds_buffer *buffer = adopt(mr);
	rfi_lock(d);
	mr->buffer = buffer;
	mr->access = access;
	rfi_unlock(d);
	*out = &mr->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
		   uint64_t key, uint64_t flags, struct fid_mr **mr, void *context)
{
	if (count != 1)
		return -FI_EINVAL;
	return mr_reg(fid, iov->iov_base, iov->iov_len, access, offset, key, flags, mr, context);
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *a, uint64_t flags, struct fid_mr **mr)
{
	if (a->iface != FI_HMEM_SYSTEM)
		return -FI_EOPNOTSUPP;
	return mr_regv(fid, a->mr_iov, a->iov_count, a->access, a->offset, a->requested_key, flags, mr, a->context);
}

static struct fi_ops_mr mr_ops = {
	.size = sizeof(struct fi_ops_mr), .reg = mr_reg, .regv = mr_regv, .regattr = mr_regattr,
};

/* ---- Domain ---- */

void rfi_hold(struct rfi_domain *d)
{
	LOCKED(d);
	d->refs++;
}

/* rfi_let_go undoes rfi_hold for something that is being closed, unless something refers to that. */
bool rfi_let_go(struct rfi_domain *d, const int *refs)
{
	LOCKED(d);
	d->refs -= !*refs;
	return !*refs;
}

static void domain_init(struct rfi_domain *d)
{
	pthread_condattr_t monotonic;
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&d->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	list_init(&d->eps);
	lists_init(d->mrs, MR_HEADS);
}

/* domain_end returns whether nothing belongs to d any more. */
static bool domain_end(struct rfi_domain *d)
{
	rfi_lock(d);
	int refs = d->refs;
	rfi_unlock(d);
	if (refs)
		return false;
	rds_client_free(d->client);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->changed);
	free(d->until);
	return true;
}

static int domain_close(struct fid *fid)
{
	struct rfi_domain *events = DOMAIN(fid)->events;
	if (!domain_end(DOMAIN(fid)))
		return -FI_EBUSY;
	free(fid);
	rfi_let_go(events, &(int){0});
	return 0;
}

static struct fi_ops domain_fid_ops = FID_OPS(domain_close, rfi_no_bind, rfi_no_control);

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain), .av_open = rfi_av_open, .cq_open = rfi_cq_open, .endpoint = rfi_ep_open,
	.scalable_ep = no_scalable_ep, .cntr_open = rfi_cntr_open, .poll_open = no_poll_open, .stx_ctx = no_stx,
	.srx_ctx = no_srx, .query_atomic = rfi_query_atomic,
};

static int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
	struct rfi_domain *d = calloc(1, sizeof *d);
	if (!d)
		return -FI_ENOMEM;
	int err = rfi_open_client(&d->client);
	if (err) {
		free(d);
		return err;
	}
	domain_init(d);
	d->fid.fid = (struct fid){.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &domain_fid_ops};
	d->fid.ops = &domain_ops;
	d->fid.mr = &mr_ops;
	d->events = &((struct rfi_fabric *)(void *)fabric)->events;
	rfi_hold(d->events);
	*domain = &d->fid;
	return 0;
}

/* ---- Fabric ---- */

static int fabric_close(struct fid *fid)
{
	struct rfi_fabric *f = (struct rfi_fabric *)(void *)fid;
	if (!domain_end(&f->events))
		return -FI_EBUSY;
	free(f);
	return 0;
}

static struct fi_ops fabric_fid_ops = FID_OPS(fabric_close, rfi_no_bind, rfi_no_control);

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric), .domain = domain_open, .passive_ep = no_passive_ep, .eq_open = rfi_eq_open,
	.wait_open = no_wait_open, .trywait = rfi_trywait,
};

static int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	struct rfi_fabric *f = calloc(1, sizeof *f);
	if (!f)
		return -FI_ENOMEM;
	domain_init(&f->events);
	f->fid.fid = (struct fid){.fclass = FI_CLASS_FABRIC, .context = context, .ops = &fabric_fid_ops};
	f->fid.ops = &fabric_ops;
	f->fid.api_version = attr->api_version;
	*fabric = &f->fid;
	return 0;
}

/* ---- Provider ---- */

struct fi_provider rfi_provider = {
	.name = "rdsd", .version = FI_VERSION(1, 0), .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
	.getinfo = rfi_getinfo, .fabric = fabric_open,
};

struct fi_provider *fi_prov_ini(void); /* 2.x declares it nowhere */

FI_EXT_INI
{
	fi_param_define(&rfi_provider, "socket", FI_PARAM_STRING, "control socket of rdsd (default: that of rds_open)");
	fi_param_define(&rfi_provider, "progress_only", FI_PARAM_BOOL, "reads and writes are the target's (default: no)");
	return &rfi_provider;
}
