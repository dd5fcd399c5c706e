/* av.c - address vectors. An fi_addr_t is an index of the table, whatever the type. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

/* rfi_av_find returns the number of addr, the first of several, or FI_ADDR_NOTAVAIL. */
fi_addr_t rfi_av_find(struct rfi_av *av, const struct rds_addr *addr)
{
	LIST_EACH(l, after, &av->heads[rfi_addr_hash(addr, AV_HEADS)]) {
		struct av_entry *e = LIST_ENTRY(l, struct av_entry, link);
		if (e->addr.port == addr->port && !memcmp(e->addr.ip, addr->ip, 16))
			return e->n;
	}
	return FI_ADDR_NOTAVAIL;
}

/* rfi_av_addr returns the address of a number, or NULL. */
const struct rds_addr *rfi_av_addr(const struct rfi_av *av, fi_addr_t n)
{
	return n < av->count && av->entries[n] ? &av->entries[n]->addr : NULL;
}

/* av_add: each insertion has a number of its own, and ends with it. */
static int av_add(struct rfi_av *av, const struct rds_addr *addr, fi_addr_t *out)
{
	struct av_entry *e, **more = realloc(av->entries, (av->count + 1) * sizeof *more);
	if (more)
		av->entries = more;
	if (!more || !(e = malloc(sizeof *e)))
		return FI_ENOMEM;
	*e = (struct av_entry){.addr = *addr, .n = *out = av->count};
	list_add(&av->heads[rfi_addr_hash(addr, AV_HEADS)], &e->link);
	av->entries[av->count++] = e;
	return 0;
}

#define sa_len(sa) ((sa)->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in))

static int av_insert(struct fid_av *fid, const void *addrs, size_t count, fi_addr_t *out, uint64_t flags, void *context)
{
	struct rfi_av *av = AV(fid);
	const char *at = addrs;
	int good = 0;
	LOCKED(av->domain);
	for (size_t i = 0; i < count; i++) {
		const struct sockaddr *sa = (const void *)at;
		fi_addr_t n = FI_ADDR_NOTAVAIL;
		struct rds_addr addr;
		int err = rds_addr_from(sa, sa_len(sa), &addr) || !addr.port ? FI_EINVAL : av_add(av, &addr, &n);
		if (out)
			out[i] = n;
		if (flags & FI_SYNC_ERR && context)
			((int *)context)[i] = err;
		good += !err;
		at += sa_len(sa);
	}
	return good;
}

ABSENT(no_insertsvc, struct fid_av *av, const char *node, const char *svc, fi_addr_t *out, uint64_t flags, void *ctx)
ABSENT(no_insertsym, struct fid_av *av, const char *n, size_t ns, const char *s, size_t ss, fi_addr_t *a, uint64_t f, void *c)

static int av_remove(struct fid_av *fid, fi_addr_t *addrs, size_t count, uint64_t flags)
{
	struct rfi_av *av = AV(fid);
	LOCKED(av->domain);
	for (size_t i = 0; i < count && !flags; i++) {
		struct av_entry *e = rfi_av_addr(av, addrs[i]) ? av->entries[addrs[i]] : NULL;
		if (!e)
			return -FI_EINVAL;
		list_del(&e->link);
		av->entries[e->n] = NULL; /* the number is not used again */
		free(e);
	}
	return flags ? -FI_EBADFLAGS : 0;
}

static int av_lookup(struct fid_av *fid, fi_addr_t n, void *addr, size_t *len)
{
	struct rfi_av *av = AV(fid);
	struct sockaddr_storage sa;
	LOCKED(av->domain);
	const struct rds_addr *known = rfi_av_addr(av, n);
	size_t full = known ? rds_addr_to(known, &sa) : 0;
	memcpy(addr, &sa, *len < full ? *len : full);
	*len = full;
	return known ? 0 : -FI_EINVAL;
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf, size_t *len)
{
	const struct sockaddr *sa = addr;
	char text[RDS_ADDR_TEXT];
	struct rds_addr a;
	if (rds_addr_from(sa, sa_len(sa), &a))
		return NULL;
	const char *kind = sa->sa_family == AF_INET6 ? "fi_sockaddr_in6" : "fi_sockaddr_in";
	*len = (size_t)snprintf(buf, *len, "%s://%s", kind, rds_addr_format(&a, text, sizeof text)) + 1;
	return buf;
}

static int av_close(struct fid *fid)
{
	struct rfi_av *av = AV(fid);
	if (!rfi_let_go(av->domain, &av->refs))
		return -FI_EBUSY;
	for (size_t i = 0; i < av->count; i++)
		free(av->entries[i]);
	free(av->entries);
	free(av);
	return 0;
}

static struct fi_ops av_fid_ops = FID_OPS(av_close, rfi_no_bind, rfi_no_control);

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av), .insert = av_insert, .insertsvc = no_insertsvc, .insertsym = no_insertsym,
	.remove = av_remove, .lookup = av_lookup, .straddr = av_straddr,
};

int rfi_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
	if (attr && (attr->name || attr->rx_ctx_bits || attr->flags)) /* no shared tables, no insertion in the background */
		return attr->rx_ctx_bits ? -FI_EINVAL : -FI_ENOSYS;
	struct rfi_av *av = calloc(1, sizeof *av);
	if (!av)
		return -FI_ENOMEM;
	av->fid.fid = (struct fid){.fclass = FI_CLASS_AV, .context = context, .ops = &av_fid_ops};
	av->fid.ops = &av_ops;
	av->domain = DOMAIN(domain);
	lists_init(av->heads, AV_HEADS);
	if (attr && attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	rfi_hold(av->domain);
	*out = &av->fid;
	return 0;
}
