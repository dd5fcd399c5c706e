/* av.c - address vectors. An fi_addr_t is an index of the table, whatever the type. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

#define AV(x) ((struct rfi_av *)(void *)(x))

static uint32_t av_hash(const struct rds_addr *a)
{
	uint64_t x, y;
	memcpy(&x, a->ip, 8);
	memcpy(&y, a->ip + 8, 8);
	return (uint32_t)(((x ^ y ^ a->port) * 0x9e3779b97f4a7c15u) >> 54);
}

static bool same(const struct rds_addr *a, const struct rds_addr *b)
{
	return a->port == b->port && !memcmp(a->ip, b->ip, 16);
}

/* rfi_av_find returns the number of addr, or FI_ADDR_NOTAVAIL. */
fi_addr_t rfi_av_find(struct rfi_av *av, const struct rds_addr *addr)
{
	for (uint32_t i = av->heads[av_hash(addr)]; i; i = av->entries[i - 1].next)
		if (same(&av->entries[i - 1].addr, addr))
			return i - 1;
	return FI_ADDR_NOTAVAIL;
}

static int av_add(struct rfi_av *av, const struct rds_addr *addr, fi_addr_t *out)
{
	fi_addr_t known = rfi_av_find(av, addr);
	uint32_t i;
	if (known != FI_ADDR_NOTAVAIL) {
		*out = known;
		return 0;
	}
	if (av->free) {
		i = av->free - 1;
		av->free = av->entries[i].next;
	} else {
		if (av->count == av->room) {
			size_t room = av->room ? 2 * av->room : 64;
			struct av_entry *more = realloc(av->entries, room * sizeof *more);
			if (!more)
				return -FI_ENOMEM;
			av->entries = more;
			av->room = room;
		}
		i = (uint32_t)av->count++;
	}
	uint32_t *head = &av->heads[av_hash(addr)];
	av->entries[i] = (struct av_entry){.addr = *addr, .used = true, .next = *head};
	*head = i + 1;
	*out = i;
	return 0;
}

static void av_del(struct rfi_av *av, uint32_t i)
{
	uint32_t *at = &av->heads[av_hash(&av->entries[i].addr)];
	while (*at != i + 1)
		at = &av->entries[*at - 1].next;
	*at = av->entries[i].next;
	av->entries[i] = (struct av_entry){.next = av->free};
	av->free = i + 1;
}

/* insert adds one address, and returns whether it did. With FI_SYNC_ERR its error goes to *result, else to the event queue. */
static bool insert(struct rfi_av *av, const struct rds_addr *addr, int err, size_t i, fi_addr_t *out, uint64_t flags, void *context)
{
	fi_addr_t n = FI_ADDR_NOTAVAIL;
	if (!err)
		err = -av_add(av, addr, &n);
	if (out)
		out[i] = n;
	if (flags & FI_SYNC_ERR && context)
		((int *)context)[i] = err;
	else if (err && av->eq)
		rfi_eq_add(av->eq, FI_AV_COMPLETE, &av->fid.fid, context, i, err);
	return !err;
}

static int inserted(struct rfi_av *av, size_t count, void *context)
{
	if (!av->eq)
		return (int)count;
	rfi_eq_add(av->eq, FI_AV_COMPLETE, &av->fid.fid, context, count, 0);
	return 0;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *out, uint64_t flags, void *context)
{
	struct rfi_av *av = AV(fid);
	const char *at = addr;
	size_t good = 0;
	if (av->flags & FI_EVENT && !av->eq)
		return -FI_ENOEQ;
	rfi_lock(av->domain);
	for (size_t i = 0; i < count; i++) {
		const struct sockaddr *sa = (const void *)at;
		socklen_t len = sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
		struct rds_addr a;
		int err = rds_addr_from(sa, len, &a) || !a.port ? FI_EINVAL : 0;
		good += insert(av, &a, err, i, out, flags, context);
		at += len;
	}
	rfi_unlock(av->domain);
	return inserted(av, good, context);
}

int rfi_resolve(const char *node, const char *service, uint64_t flags, int family, struct rds_addr *addr)
{
	struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_DGRAM}, *found;
	hints.ai_flags = (flags & FI_NUMERICHOST ? AI_NUMERICHOST : 0) | (flags & FI_SOURCE ? AI_PASSIVE : 0);
	if (getaddrinfo(node, service, &hints, &found))
		return -FI_ENODATA;
	int err = rds_addr_from(found->ai_addr, found->ai_addrlen, addr);
	freeaddrinfo(found);
	return err;
}

static int av_insertsvc(struct fid_av *fid, const char *node, const char *service, fi_addr_t *out, uint64_t flags, void *context)
{
	struct rfi_av *av = AV(fid);
	struct rds_addr a;
	if (av->flags & FI_EVENT && !av->eq)
		return -FI_ENOEQ;
	int err = !node || !service || rfi_resolve(node, service, flags, AF_UNSPEC, &a) || !a.port ? FI_EINVAL : 0;
	rfi_lock(av->domain);
	bool good = insert(av, &a, err, 0, out, flags, context);
	rfi_unlock(av->domain);
	return inserted(av, good, context);
}

UNSUPPORTED(no_insertsym, struct fid_av *av, const char *node, size_t nodes, const char *service, size_t services, fi_addr_t *out, uint64_t flags,
	    void *context)

static int av_remove(struct fid_av *fid, fi_addr_t *addrs, size_t count, uint64_t flags)
{
	struct rfi_av *av = AV(fid);
	int err = 0;
	if (flags)
		return -FI_EBADFLAGS;
	rfi_lock(av->domain);
	for (size_t i = 0; i < count; i++)
		if (addrs[i] < av->count && av->entries[addrs[i]].used)
			av_del(av, (uint32_t)addrs[i]);
		else
			err = -FI_EINVAL;
	rfi_unlock(av->domain);
	return err;
}

static int av_lookup(struct fid_av *fid, fi_addr_t n, void *addr, size_t *len)
{
	struct rfi_av *av = AV(fid);
	struct sockaddr_storage sa;
	rfi_lock(av->domain);
	bool known = n < av->count && av->entries[n].used;
	size_t full = known ? rds_addr_to(&av->entries[n].addr, &sa) : 0;
	rfi_unlock(av->domain);
	if (!known)
		return -FI_EINVAL;
	memcpy(addr, &sa, *len < full ? *len : full);
	*len = full;
	return 0;
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf, size_t *len)
{
	const struct sockaddr *sa = addr;
	char text[RDS_ADDR_TEXT], all[RDS_ADDR_TEXT + 32];
	struct rds_addr a;
	bool v6 = sa->sa_family == AF_INET6;
	if (rds_addr_from(sa, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), &a))
		return NULL;
	int n = snprintf(all, sizeof all, "%s://%s", v6 ? "fi_sockaddr_in6" : "fi_sockaddr_in", rds_addr_format(&a, text, sizeof text));
	snprintf(buf, *len, "%s", all);
	*len = (size_t)n + 1;
	return buf;
}

static int av_close(struct fid *fid)
{
	struct rfi_av *av = AV(fid);
	struct rfi_domain *d = av->domain;
	rfi_lock(d);
	int refs = av->refs;
	d->refs -= !refs;
	rfi_unlock(d);
	if (refs)
		return -FI_EBUSY;
	free(av->entries);
	free(av);
	return 0;
}

static int av_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	if (other->fclass != FI_CLASS_EQ || flags)
		return -FI_EINVAL;
	AV(fid)->eq = (struct rfi_eq *)(void *)other;
	return 0;
}

static struct fi_ops av_fid_ops = {
	.size = sizeof(struct fi_ops), .close = av_close, .bind = av_bind, .control = rfi_no_control, .ops_open = rfi_no_ops_open,
};

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av), .insert = av_insert, .insertsvc = av_insertsvc, .insertsym = no_insertsym, .remove = av_remove,
	.lookup = av_lookup, .straddr = av_straddr,
};

int rfi_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
	if (attr && (attr->name || attr->rx_ctx_bits || attr->flags & ~(uint64_t)FI_EVENT))
		return attr->name ? -FI_ENOSYS : -FI_EINVAL;
	struct rfi_av *av = calloc(1, sizeof *av);
	if (!av)
		return -FI_ENOMEM;
	av->fid.fid = (struct fid){.fclass = FI_CLASS_AV, .context = context, .ops = &av_fid_ops};
	av->fid.ops = &av_ops;
	av->domain = DOMAIN(domain);
	av->flags = attr ? attr->flags : 0;
	if (attr && attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	rfi_lock(av->domain);
	av->domain->refs++;
	rfi_unlock(av->domain);
	*out = &av->fid;
	return 0;
}
