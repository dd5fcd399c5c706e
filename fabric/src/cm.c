/* cm.c - addresses of endpoints. There are no connections. */
#include <string.h>

#include "fi.h"

static int cm_getname(fid_t fid, void *addr, size_t *len)
{
	struct sockaddr_storage sa;
	size_t full = rds_addr_to(&EP(fid)->addr, &sa), room = *len;
	memcpy(addr, &sa, room < full ? room : full);
	*len = full;
	return room < full ? -FI_ETOOSMALL : 0;
}

UNSUPPORTED(no_setname, fid_t fid, void *addr, size_t len)
UNSUPPORTED(no_getpeer, struct fid_ep *ep, void *addr, size_t *len)
UNSUPPORTED(no_connect, struct fid_ep *ep, const void *addr, const void *param, size_t len)
UNSUPPORTED(no_listen, struct fid_pep *pep)
UNSUPPORTED(no_accept, struct fid_ep *ep, const void *param, size_t len)
UNSUPPORTED(no_reject, struct fid_pep *pep, fid_t handle, const void *param, size_t len)
UNSUPPORTED(no_shutdown, struct fid_ep *ep, uint64_t flags)
UNSUPPORTED(no_join, struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context)

struct fi_ops_cm rfi_cm_ops = {
	.size = sizeof(struct fi_ops_cm), .setname = no_setname, .getname = cm_getname, .getpeer = no_getpeer, .connect = no_connect,
	.listen = no_listen, .accept = no_accept, .reject = no_reject, .shutdown = no_shutdown, .join = no_join,
};
