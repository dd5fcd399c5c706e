/* Options of sockets. */
#include "buffer.h"
#include "notice.h"
#include "pollfd.h"
#include "rx.h"
#include "tx.h"

/* set_rcvbuf is a call to the daemon. */
static int set_rcvbuf(rds_socket *s, int64_t n)
{
	if (n < 1 || n > INT32_MAX)
		return -EINVAL;
	struct rdsi_call *call = rdsi_call_new(IPC_SET_RCV_BUF, IPC_OK);
	if (!call)
		return -ENOMEM;
	call->len = (uint32_t)(rdsi_put32(rdsi_put32(call->body, s->handle), (uint32_t)n) - call->body);
	int err = rdsi_overtaken(s, rdsi_call_run(s->c, call, RDSI_NEVER));
	rdsi_call_end(call);
	if (!err) {
		pthread_mutex_lock(&s->c->rx.mu);
		s->rcvbuf = (size_t)n;
		rdsi_rx_unlock(s->c);
	}
	return err;
}

/* set_sending sets the options that tx.mu guards. */
static int set_sending(rds_socket *s, enum rds_option option, int64_t v)
{
	int err = 0;
	pthread_mutex_lock(&s->c->tx.mu);
	if (option == RDS_OPT_LANE) {
		if (v < 0 || v > 255 || s->lane || s->opened || s->exposed)
			err = -EINVAL;
		else
			s->lane = (uint8_t)v;
	} else if (option == RDS_OPT_ANYBODY) {
		if (s->opened)
			err = -EINVAL;
		else if (v && !s->c->tx.anybody)
			err = -EOPNOTSUPP;
		else
			s->anybody = v != 0;
	} else if (v < (option == RDS_OPT_SNDBUF ? 1 : 0)) {
		err = -EINVAL;
	} else if (option == RDS_OPT_SNDBUF) {
		s->sndbuf = (size_t)v;
	} else {
		s->linger = v;
	}
	pthread_mutex_unlock(&s->c->tx.mu);
	if (!err && option == RDS_OPT_SNDBUF)
		rdsi_notify(s, WANT_SPACE, false);
	return err;
}

static void set_cong_monitor(rds_socket *s, bool on)
{
	pthread_mutex_lock(&s->c->rx.mu);
	atomic_store(&s->cong_mon, on);
	if (!on) {
		rdsi_cong_forget(s);
		rdsi_taken(s);
	}
	rdsi_rx_unlock(s->c);
}

int rds_set_option(rds_socket *s, enum rds_option option, int64_t v)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	if (atomic_load(&s->closed))
		return -EBADF;
	switch (option) {
	case RDS_OPT_NONBLOCK:
		atomic_store(&s->nonblock, v != 0);
		return 0;
	case RDS_OPT_SNDTIMEO:
	case RDS_OPT_RCVTIMEO:
		if (v < 0 || v > INT32_MAX)
			return -EINVAL;
		atomic_store(option == RDS_OPT_SNDTIMEO ? &s->snd_timeo : &s->rcv_timeo, v);
		return 0;
	case RDS_OPT_FAIL_UNREACHABLE:
		atomic_store(&s->fail_unreachable, v != 0);
		return 0;
	case RDS_OPT_CONG_MONITOR:
		set_cong_monitor(s, v != 0);
		return 0;
	case RDS_OPT_NOTICES:
		pthread_mutex_lock(&s->c->rx.mu);
		s->wanted_notices = (uint32_t)v;
		rdsi_rx_unlock(s->c);
		return 0;
	case RDS_OPT_RCVBUF:
		return set_rcvbuf(s, v);
	case RDS_OPT_SNDBUF:
	case RDS_OPT_LANE:
	case RDS_OPT_LINGER:
	case RDS_OPT_ANYBODY:
		return set_sending(s, option, v);
	}
	return -ENOPROTOOPT;
}

int rds_get_option(rds_socket *s, enum rds_option option, int64_t *v)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	int err = 0;
	pthread_mutex_lock(&s->c->tx.mu);
	pthread_mutex_lock(&s->c->rx.mu);
	switch (option) {
	case RDS_OPT_NONBLOCK: *v = atomic_load(&s->nonblock); break;
	case RDS_OPT_SNDBUF: *v = (int64_t)s->sndbuf; break;
	case RDS_OPT_RCVBUF: *v = (int64_t)s->rcvbuf; break;
	case RDS_OPT_SNDTIMEO: *v = atomic_load(&s->snd_timeo); break;
	case RDS_OPT_RCVTIMEO: *v = atomic_load(&s->rcv_timeo); break;
	case RDS_OPT_LANE: *v = s->lane; break;
	case RDS_OPT_FAIL_UNREACHABLE: *v = atomic_load(&s->fail_unreachable); break;
	case RDS_OPT_CONG_MONITOR: *v = atomic_load(&s->cong_mon); break;
	case RDS_OPT_NOTICES: *v = s->wanted_notices; break;
	case RDS_OPT_LINGER: *v = s->linger; break;
	case RDS_OPT_ANYBODY: *v = s->anybody; break;
	default: err = -ENOPROTOOPT;
	}
	rdsi_rx_unlock(s->c);
	pthread_mutex_unlock(&s->c->tx.mu);
	return err;
}
