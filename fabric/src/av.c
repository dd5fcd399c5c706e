/* av.c - address vectors. An fi_addr_t is an index of the table, whatever the type. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fi.h"

#define AV(x) ((struct rfi_av *)(void *)(x))

/* rfi_av_find returns the number of addr, or FI_ADDR_NOTAVAIL. */
fi_addr_t rfi_av_find(struct rfi_av *av, const struct rds_addr *addr)
{
	for (uint32_t i = av->heads[rfi_addr_hash(addr, AV_HEADS)]; i; i = av->entries[i - 1].next) {
		const struct rds_addr *a = &av->entries[i - 1].addr;
		if (a->port == addr->port && !memcmp(a->ip, addr->ip, 16))
			return i - 1;
	}
	return FI_ADDR_NOTAVAIL;
}

static bool more_room(struct rfi_av *av)
{
	size_t room = av->room ? 2 * av->room : 64;
	struct av_entry *more = realloc(av->entries, room * sizeof *more);
	if (!more)
		return false;
	av->entries = more;
	av->room = room;
	return true;
}

static int av_add(struct rfi_av *av, const struct rds_addr *addr, fi_addr_t *out)
{
	uint32_t i = av->free - 1, *head = &av->heads[rfi_addr_hash(addr, AV_HEADS)];
	*out = rfi_av_find(av, addr);
	if (*out != FI_ADDR_NOTAVAIL)
		return 0;
	if (av->free)
		av->free = av->entries[i].next;
	else if (av->count < av->room || more_room(av))
		i = (uint32_t)av->count++;
	else
		return FI_ENOMEM;
	av->entries[i] = (struct av_entry){.addr = *addr, .used = true, .next = *head};
	*head = i + 1;
	*out = i;
	return 0;
}

/* insert adds one address, unless err says that it is none, and returns whether it did. */
static bool insert(struct rfi_av *av, const struct rds_addr *addr, int err, size_t i, fi_addr_t *out, uint64_t flags, void *context)
{
	fi_addr_t n = FI_ADDR_NOTAVAIL;
	rfi_lock(av->domain);
	if (!err)
		err = av_add(av, addr, &n);
	rfi_unlock(av->domain);
	if (out)
		out[i] = n;
	if (flags & FI_SYNC_ERR && context)
		((int *)context)[i] = err;
	return !err;
}

static socklen_t sa_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *out, uint64_t flags, void *context)
{
	const char *at = addr;
	int good = 0;
	for (size_t i = 0; i < count; i++) {
		const struct sockaddr *sa = (const void *)at;
		struct rds_addr a;
		int err = rds_addr_from(sa, sa_len(sa), &a) || !a.port ? FI_EINVAL : 0;
		good += insert(AV(fid), &a, err, i, out, flags, context);
		at += sa_len(sa);
	}
	return good;
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
	struct rds_addr a;
	int err = !node || !service || rfi_resolve(node, service, flags, AF_UNSPEC, &a) || !a.port ? FI_EINVAL : 0;
	return insert(AV(fid), &a, err, 0, out, flags, context);
}

ABSENT(no_insertsym, struct fid_av *av, const char *node, size_t nodes, const char *service, size_t services, fi_addr_t *out, uint64_t flags,
       void *context)

static int av_remove(struct fid_av *fid, fi_addr_t *addrs, size_t count, uint64_t flags)
{
	struct rfi_av *av = AV(fid);
	int err = flags ? -FI_EBADFLAGS : 0;
	rfi_lock(av->domain);
	for (size_t i = 0; i < count && !err; i++) {
		fi_addr_t n = addrs[i];
		if (n >= av->count || !av->entries[n].used) {
			err = -FI_EINVAL;
			break;
		}
		uint32_t *at = &av->heads[rfi_addr_hash(&av->entries[n].addr, AV_HEADS)];
		while (*at != n + 1)
			at = &av->entries[*at - 1].next;
		*at = av->entries[n].next;
		av->entries[n] = (struct av_entry){.next = av->free};
		av->free = (uint32_t)n + 1;
	}
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
	free(av->entries);
	free(av);
	return 0;
}

static struct fi_ops av_fid_ops = {
	.size = sizeof(struct fi_ops), .close = av_close, .bind = rfi_no_bind, .control = rfi_no_control, .ops_open = rfi_no_ops_open,
};

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av), .insert = av_insert, .insertsvc = av_insertsvc, .insertsym = no_insertsym, .remove = av_remove,
	.lookup = av_lookup, .straddr = av_straddr,
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
	if (attr && attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	rfi_hold(av->domain);
	*out = &av->fid;
	return 0;
}
