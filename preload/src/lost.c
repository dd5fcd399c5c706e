/* Errors for messages that were lost. net/rds has none: a program that asks for them, by
 * RDSD_PRELOAD_ERRORS in its environment, gets them as from a UDP socket, once each. */
#include <stdlib.h>

#include "pre.h"

#define BIT(kind) (1u << (kind))

uint32_t pre_notices(struct pre_sock *s)
{
	const char *asked = getenv("RDSD_PRELOAD_ERRORS");
	s->errors = asked && *asked && strcmp(asked, "0") != 0;
	return s->errors ? BIT(RDS_LOST) | BIT(RDS_NO_SOCKET) : 0;
}

int pre_error(struct pre_sock *s, rds_socket *rs)
{
	struct rds_notice n;
	if (!rs || !s->errors || rds_notices(rs, &n, 1) <= 0)
		return 0;
	return n.kind == RDS_LOST ? -ECONNRESET : -ECONNREFUSED;
}
