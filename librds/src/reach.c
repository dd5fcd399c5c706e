/* Hosts that are not reached. */
#include "tx.h"

_Static_assert(RDS_REASON_FORBIDDEN == SHM_REACH_FORBIDDEN && RDS_REASON_NO_ROUTE == SHM_REACH_NO_ROUTE && RDS_REASON_REFUSED == SHM_REACH_REFUSED, "reasons");
_Static_assert(RDS_REASON_TIMEOUT == SHM_REACH_TIMEOUT && RDS_REASON_REJECTED == SHM_REACH_REJECTED && RDS_REASON_OTHER == SHM_REACH_OTHER, "reasons");

static int errno_of(uint32_t reason)
{
	switch (reason) {
	case SHM_REACH_FORBIDDEN:
		return -EACCES;
	case SHM_REACH_REFUSED:
		return -ECONNREFUSED;
	case SHM_REACH_TIMEOUT:
		return -EHOSTDOWN;
	case SHM_REACH_REJECTED:
		return -EPERM;
	default:
		return -EHOSTUNREACH;
	}
}

/* rdsi_unreachable returns why nothing may be sent to d now, or 0. */
int rdsi_unreachable(rds_socket *s, struct rdsi_dest *d)
{
	uint32_t why = rdsi_slot_field(&s->c->seg, d->slot, offsetof(struct shm_slot, unreachable));
	if (why == 0 || !rdsi_dest_is_open(d))
		return 0;
	if (why == SHM_REACH_FORBIDDEN)
		return errno_of(why);
	if (atomic_load(&s->fail_unreachable) && d->pending > 0) {
		rdsi_tx_reap(s->c);
		if (d->pending > 0)
			return errno_of(why);
	}
	return 0;
}
