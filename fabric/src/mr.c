/*
 * mr.c - memory that peers may use. The daemon gets to use it, too, if it can: then reads and writes
 * need no progress of this endpoint (rma.c).
 */
#include <stdlib.h>

#include "fi.h"

enum { ADOPT_MIN = 65536, CLOSE_MS = 5000 };

static struct rfi_mr *mr_of(struct rfi_domain *d, uint64_t key)
{
	LIST_EACH(l, after, &d->mrs[rfi_hash(key, MR_HEADS)]) {
		struct rfi_mr *mr = LIST_ENTRY(l, struct rfi_mr, link);
		if (mr->fid.key == key)
			return mr;
	}
	return NULL;
}

/* rfi_mr_find returns the region of key if it has the bytes and allows the access, else NULL and the error for the peer. */
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

static void adopt(struct rfi_mr *mr)
{
	int off = 0;
	fi_param_get_bool(&rfi_provider, "progress_only", &off);
	if (mr->len < ADOPT_MIN || off)
		return;
	int err = rds_adopt(mr->domain->client, mr->mem, mr->len, &mr->buffer);
	if (err) {
		mr->buffer = NULL;
		FI_INFO(&rfi_provider, FI_LOG_MR, "memory is not adopted: %s %s\n", rds_error_text(err), rds_refusal());
	}
}

static int mr_close(struct fid *fid)
{
	struct rfi_mr *mr = (struct rfi_mr *)(void *)fid;
	struct rfi_domain *d = mr->domain;
	rfi_lock(d);
	list_del(&mr->link);
	d->refs--;
	rds_region *region = mr->region;
	rfi_unlock(d);
	if (region && rds_release(region, CLOSE_MS))
		WARN(FI_LOG_MR, "a peer has not given a region back\n");
	rds_region_free(region);
	if (mr->buffer && rds_buffer_close_wait(mr->buffer, CLOSE_MS))
		WARN(FI_LOG_MR, "operations still use memory that the program has deregistered\n");
	rds_buffer_free(mr->buffer);
	free(mr);
	return 0;
}

/* mr_bind: a region belongs to all endpoints of its domain, whichever it is bound to. */
static int mr_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	return other->fclass == FI_CLASS_EP ? 0 : -FI_ENOSYS;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	return command == FI_ENABLE || command == FI_REFRESH ? 0 : -FI_ENOSYS;
}

static struct fi_ops mr_fid_ops = {
	.size = sizeof(struct fi_ops), .close = mr_close, .bind = mr_bind, .control = mr_control, .ops_open = rfi_no_ops_open,
};

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t requested, uint64_t flags,
		  struct fid_mr **out, void *context)
{
	struct rfi_domain *d = DOMAIN(fid);
	if (fid->fclass != FI_CLASS_DOMAIN || (flags & ~(uint64_t)FI_RMA_EVENT))
		return flags ? -FI_EBADFLAGS : -FI_EINVAL;
	struct rfi_mr *mr = calloc(1, sizeof *mr);
	if (!mr)
		return -FI_ENOMEM;
	rfi_lock(d);
	if (d->mr_mode & FI_MR_PROV_KEY)
		requested = d->next_key++;
	else if (mr_of(d, requested)) {
		rfi_unlock(d);
		free(mr);
		return -FI_ENOKEY;
	}
	mr->fid = (struct fid_mr){.fid = {.fclass = FI_CLASS_MR, .context = context, .ops = &mr_fid_ops}, .mem_desc = mr, .key = requested};
	mr->domain = d;
	mr->mem = (char *)(uintptr_t)buf;
	mr->len = len;
	mr->base = d->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)buf : offset;
	mr->access = access;
	adopt(mr);
	list_add(&d->mrs[rfi_hash(requested, MR_HEADS)], &mr->link);
	d->refs++;
	rfi_unlock(d);
	*out = &mr->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset, uint64_t requested,
		   uint64_t flags, struct fid_mr **mr, void *context)
{
	return count != 1 ? -FI_EINVAL : mr_reg(fid, iov->iov_base, iov->iov_len, access, offset, requested, flags, mr, context);
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr)
{
	if (attr->iface != FI_HMEM_SYSTEM)
		return -FI_EOPNOTSUPP;
	return mr_regv(fid, attr->mr_iov, attr->iov_count, attr->access, attr->offset, attr->requested_key, flags, mr, attr->context);
}

struct fi_ops_mr rfi_mr_ops = {.size = sizeof(struct fi_ops_mr), .reg = mr_reg, .regv = mr_regv, .regattr = mr_regattr};
