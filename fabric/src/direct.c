/*
 * direct.c - reads and writes as operations of librds, which need no progress of the target.
 *
 * Memory that the program registers is adopted if it can be. The first read or write of a region is
 * carried out by the target, and a question goes with it: where the region is. Once the answer has
 * come, and nothing that the target carries out is on its way to it, operations with registered
 * memory at this end go directly. One that was refused or dropped is carried out by the target.
 */
#include <errno.h>
#include <stdlib.h>

#include "fi.h"

enum { ADOPT_MIN = 65536, CLOSE_MS = 5000 };

/* rfi_mr_adopt lets the daemon use the memory, if it can. If not, it is used as this endpoint makes progress. */
void rfi_mr_adopt(struct rfi_mr *mr)
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

/* rfi_mr_end takes the memory back from everybody, without the lock. */
void rfi_mr_end(struct rfi_mr *mr, rds_region *region)
{
	if (region && rds_release(region, CLOSE_MS))
		WARN(FI_LOG_MR, "a peer has not given a region back\n");
	rds_region_free(region);
	if (mr->buffer && rds_buffer_close_wait(mr->buffer, CLOSE_MS))
		WARN(FI_LOG_MR, "operations still use memory that the program has deregistered\n");
	rds_buffer_free(mr->buffer);
}

static struct rkey *rkey(struct rfi_ep *ep, const struct peer *p, uint64_t key)
{
	uint64_t h = ((uint64_t)(uintptr_t)p >> 4 ^ key) * 0x9e3779b97f4a7c15u;
	return &ep->rkeys[h >> 55];
}

/* local finds the segments of op's memory. */
static bool local(struct rfi_ep *ep, const struct op *op, void **desc, struct rds_segment *segments)
{
	for (size_t i = 0; i < op->iovs; i++) {
		const struct rfi_mr *mr = desc ? desc[i] : NULL;
		char *at = op->iov[i].iov_base;
		if (mr && mr->buffer && at >= mr->mem && (size_t)(at - mr->mem) <= mr->len && op->iov[i].iov_len <= mr->len - (size_t)(at - mr->mem))
			segments[i] = (struct rds_segment){mr->buffer, (size_t)(at - mr->mem), op->iov[i].iov_len};
		else if (!op->iov[i].iov_len || rds_segment_at(ep->domain->client, at, op->iov[i].iov_len, &segments[i]))
			return false;
	}
	return true;
}

/* rfi_direct_try tells whether op can go directly, and else asks its peer what is missing. */
bool rfi_direct_try(struct rfi_ep *ep, struct op *op, void **desc)
{
	struct rkey *k = rkey(ep, op->peer, op->head.tag);
	struct rds_segment segments[IOV_LIMIT];
	if (op->len < ADOPT_MIN / 16 || op->len > RDS_MAX_TRANSFER || !local(ep, op, desc, segments))
		return false;
	if (k->peer != op->peer || k->key != op->head.tag) {
		struct wire w = {.magic = WIRE_MAGIC, .kind = W_LOOK, .tag = op->head.tag};
		*k = (struct rkey){.peer = op->peer, .key = op->head.tag};
		rfi_reply(ep, op->peer, &w, NULL, 0);
		return false;
	}
	uint64_t at = op->head.addr;
	if (!k->cookie || op->peer->indirect || at < k->base || at - k->base > k->len || op->len > k->len - (at - k->base))
		return false;
	for (size_t i = 0; i < op->iovs; i++)
		op->local[i] = segments[i];
	op->cookie = k->cookie;
	op->remote_off = at - k->base;
	return true;
}

/* rfi_direct_xmit sends op. It returns 1, or an error. */
int rfi_direct_xmit(struct rfi_ep *ep, struct op *op)
{
	struct wire w = {.magic = WIRE_MAGIC, .kind = W_WROTE, .len = op->len, .data = op->head.data};
	struct iovec iov = {&w, sizeof w};
	bool tells = op->head.flags & W_CQ_DATA;
	struct rds_rdma rdma = {
		.kind = op->kind == OP_WRITE ? RDS_OP_WRITE : RDS_OP_READ, .flags = RDS_OP_NOTIFY | (tells ? 0 : RDS_OP_SILENT), .cookie = op->cookie,
		.remote_off = op->remote_off, .local = op->local, .segments = op->iovs, .token = op->id,
	};
	struct rds_msg msg = {.addr = op->peer->addr, .flags = RDS_DONTWAIT, .op = &rdma, .iov = &iov, .iovlen = tells ? 1 : 0};
	if (ep->failed)
		return -ep->failed;
	int err = rds_sendmsg(ep->socket, &msg);
	if (err == -ENOBUFS)
		op->peer->congested = true;
	else if (err == -EAGAIN || err == -ENOSPC || err == -EMLINK)
		ep->full = true;
	else
		return err ? err : 1;
	return -EAGAIN;
}

/* rfi_direct_end takes the status of op. If it has not run, and the peer is there, the peer carries it out. */
void rfi_direct_end(struct rfi_ep *ep, struct op *op, const struct rds_completion *c)
{
	struct rkey *k = rkey(ep, op->peer, op->head.tag);
	bool dropped = c->status == RDS_DROPPED && c->err != ECONNREFUSED, refused = c->status == RDS_REMOTE_ERROR;
	if (dropped || refused) {
		if (refused)
			*k = (struct rkey){0};
		op->direct = false;
		op->peer->owed -= op->owed;
		op->owed = false;
		rfi_op_start(ep, op, Q_RMA);
		return;
	}
	rfi_op_end(ep, op, c->status == RDS_SUCCESS ? 0 : c->err ? c->err : c->status == RDS_CANCELED ? FI_ECANCELED : FI_ECONNRESET);
}

/* rfi_on_look answers where a region is. One whose accesses are counted is used by its owner alone. */
void rfi_on_look(struct rfi_ep *ep, struct peer *p, const struct wire *w)
{
	struct wire answer = {.magic = WIRE_MAGIC, .kind = W_KEY, .tag = w->tag};
	int err;
	struct rfi_mr *mr = rfi_mr_find(ep->domain, w->tag, 0, 0, 0, &err);
	if (mr && mr->buffer && !mr->region && !mr->cntr && !ep->cntrs[C_REMOTE_READ] && !ep->cntrs[C_REMOTE_WRITE]) {
		unsigned rights = RDS_OPEN | (mr->access & FI_REMOTE_READ ? RDS_ALLOW_READ : 0) | (mr->access & FI_REMOTE_WRITE ? RDS_ALLOW_WRITE : 0);
		if (rds_register(ep->socket, mr->buffer, 0, mr->len, rights, &mr->region))
			mr->region = NULL;
		mr->owner = ep;
	}
	if (mr && mr->region) {
		answer.data = rds_region_cookie(mr->region);
		answer.addr = mr->base;
		answer.len = mr->len;
	}
	rfi_reply(ep, p, &answer, NULL, 0);
}

void rfi_on_key(struct rfi_ep *ep, struct peer *p, const struct wire *w)
{
	struct rkey *k = rkey(ep, p, w->tag);
	if (k->peer != p || k->key != w->tag)
		return;
	k->cookie = w->data;
	k->base = w->addr;
	k->len = w->len;
}

/* rfi_direct_close gives up the regions of an endpoint that is being closed. */
void rfi_direct_close(struct rfi_ep *ep)
{
	for (int i = 0; i < MR_HEADS; i++)
		LIST_EACH(l, after, &ep->domain->mrs[i]) {
			struct rfi_mr *mr = LIST_ENTRY(l, struct rfi_mr, link);
			if (mr->owner != ep)
				continue;
			rds_region_free(mr->region);
			mr->region = NULL;
			mr->owner = NULL;
		}
}
