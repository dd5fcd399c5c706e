#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "int.h"

static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

bool rdsi_is_v4(const struct rds_addr *a) { return memcmp(a->ip, v4_prefix, sizeof v4_prefix) == 0; }

bool rdsi_no_addr(const struct rds_addr *a)
{
	static const uint8_t none[16];
	return memcmp(a->ip, none, sizeof none) == 0;
}

/* rdsi_unspecified reports whether a is 0.0.0.0 or ::. */
bool rdsi_unspecified(const struct rds_addr *a)
{
	static const uint8_t any4[4];
	return rdsi_no_addr(a) || (rdsi_is_v4(a) && memcmp(a->ip + 12, any4, sizeof any4) == 0);
}

bool rdsi_same(const struct rds_addr *a, const struct rds_addr *b)
{
	return a->port == b->port && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

uint64_t rdsi_hash_ip(const uint8_t ip[16]) { return rdsi_mix(rdsi_get64(ip), rdsi_get64(ip + 8)); }

uint64_t rdsi_hash_addr(const struct rds_addr *a) { return rdsi_mix(rdsi_hash_ip(a->ip), a->port); }

/* rdsi_check_addr returns -EINVAL for what cannot be the address of a host. */
int rdsi_check_addr(const struct rds_addr *a)
{
	static const uint8_t broadcast4[4] = {255, 255, 255, 255};
	const uint8_t *p = a->ip + 12;
	bool bad = rdsi_is_v4(a) ? memcmp(p, broadcast4, 4) == 0 || (p[0] & 0xf0) == 0xe0 : a->ip[0] == 0xff;
	return bad || rdsi_unspecified(a) ? -EINVAL : 0;
}

/* parse_ip reads an address without a port. */
static int parse_ip(const char *text, struct rds_addr *addr)
{
	if (inet_pton(AF_INET, text, addr->ip + 12) == 1) {
		memcpy(addr->ip, v4_prefix, sizeof v4_prefix);
		return 0;
	}
	return inet_pton(AF_INET6, text, addr->ip) == 1 ? 0 : -EINVAL;
}

static int parse_port(const char *text, uint16_t *port)
{
	unsigned long v = 0;
	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || (v = v * 10 + (unsigned long)(*text - '0')) > 65535)
			return -EINVAL;
	}
	*port = (uint16_t)v;
	return 0;
}

int rds_addr_parse(const char *text, struct rds_addr *addr)
{
	char ip[RDS_ADDR_TEXT];
	const char *port = NULL, *end;
	memset(addr, 0, sizeof *addr);
	if (*text == '[') {
		if (!(end = strchr(++text, ']')) || (end[1] && end[1] != ':'))
			return -EINVAL;
		port = end[1] ? end + 2 : NULL;
	} else if ((end = strrchr(text, ':')) && strchr(text, ':') == end) {
		port = end + 1;
	} else {
		end = text + strlen(text);
	}
	if ((size_t)(end - text) >= sizeof ip)
		return -EINVAL;
	memcpy(ip, text, (size_t)(end - text));
	ip[end - text] = 0;
	int err = parse_ip(ip, addr);
	if (!err && port)
		err = parse_port(port, &addr->port);
	return err;
}

const char *rds_addr_format(const struct rds_addr *addr, char *text, size_t size)
{
	char ip[INET6_ADDRSTRLEN];
	bool v4 = rdsi_is_v4(addr);
	if (!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? addr->ip + 12 : addr->ip, ip, sizeof ip))
		ip[0] = 0;
	if (size)
		snprintf(text, size, v4 ? "%s:%u" : "[%s]:%u", ip, addr->port);
	return text;
}

int rds_addr_from(const struct sockaddr *sa, socklen_t len, struct rds_addr *addr)
{
	memset(addr, 0, sizeof *addr);
	if (len >= sizeof(struct sockaddr_in) && sa->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, sa, sizeof in);
		memcpy(addr->ip, v4_prefix, sizeof v4_prefix);
		memcpy(addr->ip + 12, &in.sin_addr, 4);
		addr->port = ntohs(in.sin_port);
		return 0;
	}
	if (len >= sizeof(struct sockaddr_in6) && sa->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;
		memcpy(&in6, sa, sizeof in6);
		memcpy(addr->ip, &in6.sin6_addr, 16);
		addr->port = ntohs(in6.sin6_port);
		return in6.sin6_scope_id ? -EINVAL : 0;
	}
	return -EINVAL;
}

socklen_t rds_addr_to(const struct rds_addr *addr, struct sockaddr_storage *sa)
{
	memset(sa, 0, sizeof *sa);
	if (rdsi_is_v4(addr)) {
		struct sockaddr_in *in = (struct sockaddr_in *)sa;
		in->sin_family = AF_INET;
		in->sin_port = htons(addr->port);
		memcpy(&in->sin_addr, addr->ip + 12, 4);
		return sizeof *in;
	}
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)sa;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(addr->port);
	memcpy(&in6->sin6_addr, addr->ip, 16);
	return sizeof *in6;
}
