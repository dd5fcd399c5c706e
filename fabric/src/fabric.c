/* fabric.c - the provider, fabrics and domains. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "fi.h"

enum { OPEN_TIMEOUT_MS = 5000 };

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

/* ---- Domain ---- */

void rfi_hold(struct rfi_domain *d)
{
	rfi_lock(d);
	d->refs++;
	rfi_unlock(d);
}

/* rfi_let_go undoes rfi_hold for something that is being closed, unless something refers to that. */
bool rfi_let_go(struct rfi_domain *d, const int *refs)
{
	rfi_lock(d);
	bool unused = !*refs;
	d->refs -= unused;
	rfi_unlock(d);
	return unused;
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
	for (int i = 0; i < MR_HEADS; i++)
		list_init(&d->mrs[i]);
	d->next_key = 1;
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
	if (!domain_end(DOMAIN(fid)))
		return -FI_EBUSY;
	free(fid);
	return 0;
}

static struct fi_ops domain_fid_ops = {
	.size = sizeof(struct fi_ops), .close = domain_close, .bind = rfi_no_bind, .control = rfi_no_control, .ops_open = rfi_no_ops_open,
};

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain), .av_open = rfi_av_open, .cq_open = rfi_cq_open, .endpoint = rfi_ep_open,
	.scalable_ep = no_scalable_ep, .cntr_open = rfi_cntr_open, .poll_open = no_poll_open, .stx_ctx = no_stx, .srx_ctx = no_srx,
	.query_atomic = rfi_query_atomic,
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
	d->fid.mr = &rfi_mr_ops;
	d->mr_mode = info->domain_attr ? info->domain_attr->mr_mode : 0;
	if (d->mr_mode == 1) /* what FI_MR_BASIC stands for */
		d->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	else if (d->mr_mode == 2) /* FI_MR_SCALABLE */
		d->mr_mode = 0;
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

static struct fi_ops fabric_fid_ops = {
	.size = sizeof(struct fi_ops), .close = fabric_close, .bind = rfi_no_bind, .control = rfi_no_control, .ops_open = rfi_no_ops_open,
};

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

static void cleanup(void)
{
}

struct fi_provider rfi_provider = {
	.name = "rdsd", .version = FI_VERSION(1, 0), .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
	.getinfo = rfi_getinfo, .fabric = fabric_open, .cleanup = cleanup,
};

struct fi_provider *fi_prov_ini(void); /* 2.x declares it nowhere */

FI_EXT_INI
{
	fi_param_define(&rfi_provider, "socket", FI_PARAM_STRING, "control socket of rdsd (default: that of rds_open)");
	fi_param_define(&rfi_provider, "progress_only", FI_PARAM_BOOL, "the target carries out all reads and writes (default: no)");
	return &rfi_provider;
}
