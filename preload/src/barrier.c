/* RDS_BARRIER, which Linux does not have any more. */
#include <stdlib.h>

#include "pre.h"

/* dest_of is the destination of a. */
static struct rds_addr dest_of(const struct pre_barrier_args *a)
{
	struct rds_addr to = {.ip = {[10] = 0xff, [11] = 0xff}};
	memcpy(to.ip + 12, a->dest, 4);
	return to;
}

/* armed_at is the place of the barrier to a host, the end of the list for none. mu is held. */
static size_t armed_at(struct pre_sock *s, const struct rds_addr *to)
{
	size_t i = 0;
	while (i < atomic_load(&s->narmed) && !pre_same_host(&s->armed[i].to, to))
		i++;
	return i;
}

/* arm makes poll wait for the barrier. */
static int arm(struct pre_sock *s, const struct rds_addr *to, uint64_t id)
{
	int err = 0;
	pthread_mutex_lock(&s->mu);
	size_t n = atomic_load(&s->narmed), i = armed_at(s, to);
	if (i == n) {
		struct pre_armed *more = realloc(s->armed, (n + 1) * sizeof *more);
		if (more)
			s->armed = more;
		else
			err = -ENOMEM;
	}
	if (!err) {
		s->armed[i] = (struct pre_armed){*to, id};
		atomic_store(&s->narmed, i == n ? n + 1 : n);
	}
	pthread_mutex_unlock(&s->mu);
	if (!err)
		pre_rewatch(s);
	return err;
}

/* disarm ends the wait of poll for the barrier, because the program has asked for it. */
static void disarm(struct pre_sock *s, const struct rds_addr *to, uint64_t id)
{
	pthread_mutex_lock(&s->mu);
	size_t n = atomic_load(&s->narmed), i = armed_at(s, to);
	bool was = i < n && (int64_t)(id - s->armed[i].id) >= 0;
	if (was) {
		s->armed[i] = s->armed[n - 1];
		atomic_store(&s->narmed, n - 1);
	}
	pthread_mutex_unlock(&s->mu);
	if (was)
		pre_rewatch(s);
}

int pre_barrier(struct pre_sock *s, const void *val, socklen_t len)
{
	struct pre_barrier_args a;
	rds_socket *rs;
	uint64_t mark = 0;
	if (len != sizeof a)
		return -EINVAL;
	int err = pre_load(&a, (uintptr_t)val, sizeof a);
	if (!err)
		err = pre_live(s, &rs);
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
		disarm(s, &to, a.wait_rdma_id);
	if (err == -ETIMEDOUT && !(err = arm(s, &to, a.wait_rdma_id)))
		err = -EAGAIN;
	return err;
}
