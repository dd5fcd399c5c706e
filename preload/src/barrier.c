/* RDS_BARRIER, which Linux does not have any more. */
#include "pre.h"

/* dest_of is the destination of a. */
static struct rds_addr dest_of(const struct pre_barrier_args *a)
{
	struct rds_addr to = {.ip = {[10] = 0xff, [11] = 0xff}};
	memcpy(to.ip + 12, a->dest, 4);
	return to;
}

/* arm makes poll wait for the barrier, or with on false no longer, because the program has asked. */
static void arm(struct pre_sock *s, const struct rds_addr *to, uint64_t id, bool on)
{
	size_t i = 0, n;
	pthread_mutex_lock(&s->mu);
	n = atomic_load(&s->narmed);
	while (i < n && !pre_same_host(&s->armed[i].to, to))
		i++;
	if (on && i < PRE_ARMED) {
		s->armed[i] = (struct pre_armed){*to, id};
		atomic_store(&s->narmed, i == n ? n + 1 : n);
	} else if (!on && i < n && (int64_t)(id - s->armed[i].id) >= 0) {
		s->armed[i] = s->armed[n - 1];
		atomic_store(&s->narmed, n - 1);
	} else {
		on = false;
		n = 0;
	}
	pthread_mutex_unlock(&s->mu);
	if (on || n)
		pre_rewatch(s);
}

int pre_barrier(struct pre_sock *s, const void *val, socklen_t len)
{
	struct pre_barrier_args a;
	rds_socket *rs;
	uint64_t mark = 0;
	if (len != sizeof a)
		return -EINVAL;
	memcpy(&a, val, sizeof a);
	int err = pre_live(s, &rs);
	if (err)
		return err;
	if (!rs)
		return -ENOTCONN;
	struct rds_addr to = dest_of(&a);
	bool dont_wait = a.flags & MSG_DONTWAIT || atomic_load(&s->nonblock);
	err = rds_barrier(rs, &to, a.wait_rdma_id, dont_wait ? 0 : -1);
	if (a.rdma_id_addr && err != -EINVAL) {
		rds_hwm(rs, &to, &mark);
		int stored = pre_store(a.rdma_id_addr, &mark, sizeof mark);
		if (stored)
			return stored;
	}
	if (!err)
		arm(s, &to, a.wait_rdma_id, false);
	if (err == -ETIMEDOUT) {
		arm(s, &to, a.wait_rdma_id, true);
		return -EAGAIN;
	}
	return err;
}
