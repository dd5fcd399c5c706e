/* Options at level SOL_RDS. */
#include <netinet/in.h>

#include "pre.h"

/* integer reads an option of at least four bytes. */
static int integer(const void *val, socklen_t len, int *v)
{
	return len < sizeof *v ? -EINVAL : pre_load(v, (uintptr_t)val, sizeof *v);
}

/* cancel is RDS_CANCEL_SENT_TO. The length tells the form of the address. */
static int cancel(struct pre_sock *s, const void *val, socklen_t len)
{
	struct sockaddr_in6 name;
	struct pre_addr a;
	rds_socket *rs;
	int err = pre_live(s, &rs);
	if (err)
		return err;
	if (!rs)
		return -ENOTCONN;
	if (len < 16)
		return -EINVAL;
	if ((err = pre_load(&name, (uintptr_t)val, len >= sizeof name ? sizeof name : sizeof(struct sockaddr_in))))
		return err;
	pre_addr_in(&name, len >= sizeof name, &a);
	if (!pre_unicast(&a.at) || pre_v4(&a.at) != pre_v4(&s->bound.at))
		return 0; /* nothing can have been sent there */
	return rds_cancel(rs, &a.at);
}

static int set_transport(struct pre_sock *s, const void *val, socklen_t len)
{
	int v, err = 0;
	pthread_mutex_lock(&s->mu);
	if (s->transport >= 0)
		err = -EOPNOTSUPP;
	else if (len != sizeof v)
		err = -EINVAL;
	if (!err && !(err = pre_load(&v, (uintptr_t)val, sizeof v))) {
		if (v == 1)
			err = -ENOPROTOOPT;
		else if (v != (int)PRE_TRANS_IB && v != (int)PRE_TRANS_TCP)
			err = -EINVAL;
		else
			s->transport = v;
	}
	pthread_mutex_unlock(&s->mu);
	return err;
}

/* set_trace is SO_RDS_MSG_RXPATH_LATENCY. As in the kernel every mistake is EFAULT. */
static int set_trace(struct pre_sock *s, const void *val, socklen_t len)
{
	uint8_t a[1 + PRE_TRACES];
	if (len != sizeof a || pre_load(a, (uintptr_t)val, sizeof a))
		return -EFAULT;
	if (a[0] > PRE_TRACES)
		return -EFAULT;
	for (int i = 0; i < a[0]; i++)
		if (a[1 + i] >= PRE_TRACES)
			return -EFAULT;
	pthread_mutex_lock(&s->mu);
	s->trace.n = a[0];
	memcpy(s->trace.pos, a + 1, sizeof s->trace.pos);
	pthread_mutex_unlock(&s->mu);
	return 0;
}

static int set_monitor(struct pre_sock *s, const void *val, socklen_t len)
{
	rds_socket *rs;
	int v, err = integer(val, len, &v);
	if (err || (err = pre_live(s, &rs)))
		return err;
	pthread_mutex_lock(&s->mu);
	atomic_store(&s->monitor, v != 0);
	atomic_store(&s->ncongested, 0);
	if (!v)
		atomic_store(&s->cong, 0);
	if (rs)
		err = rds_set_option(rs, RDS_OPT_CONG_MONITOR, v != 0);
	pthread_mutex_unlock(&s->mu);
	pre_rewatch(s);
	return err;
}

int pre_set_rds(struct pre_sock *s, int opt, const void *val, socklen_t len)
{
	int v, err;
	switch (opt) {
	case PRE_CANCEL_SENT_TO:
		return cancel(s, val, len);
	case PRE_GET_MR:
	case PRE_GET_MR_FOR_DEST:
		return pre_get_mr(s, val, len, opt == (int)PRE_GET_MR_FOR_DEST);
	case PRE_FREE_MR:
		return pre_free_mr(s, val, len);
	case PRE_BARRIER:
		return pre_barrier(s, val, len);
	case PRE_RECVERR:
		if (!(err = integer(val, len, &v)))
			atomic_store(&s->recverr, v != 0);
		return err;
	case PRE_CONG_MONITOR:
		return set_monitor(s, val, len);
	case PRE_TRANSPORT:
		return set_transport(s, val, len);
	case PRE_RXPATH_LATENCY:
		return set_trace(s, val, len);
	case SO_TIMESTAMP:
	case 63:
		if (len != sizeof v || pre_load(&v, (uintptr_t)val, sizeof v))
			return -EFAULT;
		pthread_mutex_lock(&s->mu);
		pre_set_timestamp(s, opt, v);
		pthread_mutex_unlock(&s->mu);
		return 0;
	}
	return -ENOPROTOOPT;
}

int pre_get_rds(struct pre_sock *s, int opt, void *val, socklen_t *len)
{
	int v;
	if (opt >= (int)PRE_INFO_COUNTERS && opt <= (int)PRE_INFO6_IB)
		return pre_info(s, opt, val, len);
	if (opt == (int)PRE_RECVERR)
		v = atomic_load(&s->recverr);
	else if (opt == (int)PRE_TRANSPORT)
		v = s->transport;
	else
		return -ENOPROTOOPT;
	if (*len < sizeof v)
		return -EINVAL;
	*len = sizeof v;
	return pre_store((uintptr_t)val, &v, sizeof v);
}
