/* The addresses of the daemon. */
#include <stdlib.h>

#include "int.h"

/* ask asks the daemon. The caller ends *call. */
static int ask(rds_client *c, struct rdsi_call **call)
{
	*call = NULL;
	int err = atomic_load(&c->shut) ? -EBADF : rdsi_client_err(c);
	if (err)
		return err;
	if (!c->tells_addrs)
		return -EOPNOTSUPP;
	*call = rdsi_call_new(IPC_ADDRS, IPC_ADDRS_OK);
	return *call ? rdsi_call_run(c, *call, RDSI_NEVER) : -ENOMEM;
}

/* at is address i of the answer. */
static struct rds_addr at(const struct rdsi_call *call, uint32_t i)
{
	struct rds_addr a = {.port = 0};
	memcpy(a.ip, (call->big ? call->big : call->body) + 4 + (size_t)20 * i, sizeof a.ip);
	return a;
}

static uint32_t count_of(const struct rdsi_call *call) { return rdsi_get32(call->big ? call->big : call->body); }

ssize_t rds_addrs(rds_client *c, struct rds_addr *addrs, size_t count)
{
	struct rdsi_call *call;
	if (rdsi_forked(c))
		return -ESTALE;
	ssize_t n = ask(c, &call);
	if (!n) {
		n = count_of(call);
		for (uint32_t i = 0; i < count && i < (size_t)n; i++)
			addrs[i] = at(call, i);
	}
	rdsi_call_end(call);
	return n;
}

int rdsi_only_addr(rds_client *c, struct rds_addr *addr)
{
	struct rdsi_call *call;
	uint32_t found = 0;
	bool v4 = rdsi_is_v4(addr);
	int err = ask(c, &call);
	for (uint32_t i = 0; !err && i < count_of(call); i++) {
		struct rds_addr a = at(call, i);
		if (rdsi_is_v4(&a) == v4 && found++ == 0)
			memcpy(addr->ip, a.ip, sizeof a.ip);
	}
	rdsi_call_end(call);
	return err ? err : found == 0 ? -EADDRNOTAVAIL : found > 1 ? -EINVAL : 0;
}
