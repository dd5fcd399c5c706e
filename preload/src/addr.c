/* Socket addresses, in the order of checks of net/rds. */
#include <netinet/in.h>

#include "pre.h"

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

bool pre_v4(const struct rds_addr *a) { return memcmp(a->ip, mapped, sizeof mapped) == 0; }

bool pre_same_host(const struct rds_addr *a, const struct rds_addr *b) { return memcmp(a->ip, b->ip, sizeof a->ip) == 0; }

/* pre_addr_in decodes a sockaddr_in or sockaddr_in6, whatever its family says. */
void pre_addr_in(const void *addr, bool six, struct pre_addr *a)
{
	*a = (struct pre_addr){0};
	if (six) {
		struct sockaddr_in6 in6;
		memcpy(&in6, addr, sizeof in6);
		a->family = AF_INET6;
		memcpy(a->at.ip, &in6.sin6_addr, 16);
		a->at.port = ntohs(in6.sin6_port);
		a->scope = in6.sin6_scope_id;
	} else {
		struct sockaddr_in in;
		memcpy(&in, addr, sizeof in);
		a->family = AF_INET;
		memcpy(a->at.ip, mapped, sizeof mapped);
		memcpy(a->at.ip + 12, &in.sin_addr, 4);
		a->at.port = ntohs(in.sin_port);
	}
}

/* pre_addr_parse decodes addr. -EINVAL: too short. other is the error for another family. */
int pre_addr_parse(const void *addr, socklen_t len, int other, struct pre_addr *a)
{
	uint16_t family;
	if (!addr || len < sizeof family)
		return -EINVAL;
	memcpy(&family, addr, sizeof family);
	if (family != AF_INET && family != AF_INET6)
		return other;
	if (len < (family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)))
		return -EINVAL;
	pre_addr_in(addr, family == AF_INET6, a);
	a->family = family;
	return 0;
}

/* pre_unicast reports whether a socket can have the address. */
bool pre_unicast(const struct rds_addr *a)
{
	static const uint8_t none[16];
	const uint8_t *v4 = a->ip + 12;
	if (!pre_v4(a))
		return memcmp(a->ip, none, sizeof none) != 0 && a->ip[0] != 0xff;
	bool any = !(v4[0] | v4[1] | v4[2] | v4[3]), broadcast = (v4[0] & v4[1] & v4[2] & v4[3]) == 0xff;
	return !any && !broadcast && (v4[0] & 0xf0) != 0xe0;
}

/* pre_needs_scope reports whether a is link-local and has no scope. */
bool pre_needs_scope(const struct pre_addr *a)
{
	return !pre_v4(&a->at) && a->at.ip[0] == 0xfe && (a->at.ip[1] & 0xc0) == 0x80 && !a->scope;
}

void pre_addr_put(const struct rds_addr *a, uint32_t scope, void *to, socklen_t *len)
{
	struct sockaddr_storage sa;
	socklen_t n = rds_addr_to(a, &sa), room = *len;
	if (sa.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&sa)->sin6_scope_id = scope;
	if (to)
		memcpy(to, &sa, room < n ? room : n);
	*len = n;
}
