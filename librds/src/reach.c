/* Hosts that are not reached. */
#include "op.h"
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

/* reason returns why the host of d is not reached, or 0. tx.mu is held. */
static int reason(rds_socket *s, struct rdsi_dest *d)
{
	uint32_t why = rdsi_slot_field(&s->c->seg, d->slot, offsetof(struct shm_slot, unreachable));
	return why == 0 || !rdsi_dest_is_open(d) ? 0 : errno_of(why);
}

/* rdsi_unreachable returns why nothing may be sent to d now, or 0. */
int rdsi_unreachable(rds_socket *s, struct rdsi_dest *d)
{
	int why = reason(s, d);
	if (why == 0 || why == -EACCES)
		return why;
	if (atomic_load(&s->fail_unreachable) && d->pending > 0) {
		rdsi_tx_reap(s->c);
		if (d->pending > 0)
			return why;
	}
	return 0;
}

int rdsi_reason(rds_socket *s, const struct rds_addr *to)
{
	struct rdsi_dest *d = rdsi_dest_find(s, to);
	return d ? reason(s, d) : 0;
}

int rds_reach(rds_socket *s, const struct rds_addr *to)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	pthread_mutex_lock(&s->c->tx.mu);
	int why = s->c->tx.dead || atomic_load(&s->closed) ? -EBADF : rdsi_reason(s, to);
	pthread_mutex_unlock(&s->c->tx.mu);
	return why;
}

int rds_withdraw(rds_socket *s, const struct rds_addr *to, uint64_t id) { return rdsi_withdraw(s, to, id, RDSI_NEVER); }

int rdsi_withdraw(rds_socket *s, const struct rds_addr *to, uint64_t id, int64_t deadline)
{
	rds_client *c = s->c;
	if (rdsi_forked(c))
		return -ESTALE;
	for (;;) {
		uint32_t msg;
		pthread_mutex_lock(&c->tx.mu);
		int err = atomic_load(&s->closed) || c->tx.dead ? -EBADF : rdsi_client_err(c);
		bool awaited = !err && (err = rdsi_message_of(s, to, id, &msg)) > 0;
		bool full = awaited && !rdsi_free_at_least(&c->seg.sub, 1);
		if (awaited && !full) {
			struct shm_sub sub = {.kind = SHM_KIND_CANCEL, .sock = s->handle, .slot = SHM_NO_SLOT, .msg_id = msg};
			memcpy(rdsi_reserve(&c->seg.sub), &sub, sizeof sub);
		}
		rdsi_tx_unlock(c);
		if (!full)
			return err < 0 ? err : 0;
		if ((err = rdsi_ring_wait(c, false)))
			return err;
		if (rdsi_now() >= deadline)
			return -ETIMEDOUT;
	}
}
