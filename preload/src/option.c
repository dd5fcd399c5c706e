/* Options at level SOL_SOCKET, ioctl. Options that RDS has nothing to do with are those of the
 * descriptor, a socket of the kernel. */
#include <limits.h>
#include <sys/time.h>

#include "pre.h"

/* The kernel's least buffer sizes, which count twice what the program set. */
enum { MIN_SNDBUF = 4608, MIN_RCVBUF = 2304, SO_TIMESTAMP_2 = 63, SO_RCVTIMEO_2 = 66, SO_SNDTIMEO_2 = 67 };

/* pre_apply_options sets the options at a socket that is being bound. s->mu is held. */
int pre_apply_options(struct pre_sock *s, rds_socket *rs)
{
	int err = rds_set_option(rs, RDS_OPT_SNDBUF, s->sndbuf / 2);
	if (!err)
		err = rds_set_option(rs, RDS_OPT_RCVBUF, s->rcvbuf / 2);
	if (!err)
		err = rds_set_option(rs, RDS_OPT_NOTICES, pre_notices(s));
	if (!err)
		err = rds_set_option(rs, RDS_OPT_CONG_MONITOR, atomic_load(&s->monitor));
	/* As in the kernel, a message is for whoever is bound when it arrives. An older daemon cannot do that: there a
	 * destination meets a socket. */
	if (!err && (err = rds_set_option(rs, RDS_OPT_ANYBODY, 1)) == -EOPNOTSUPP)
		err = 0;
	if (!err && s->sndtimeo.us)
		err = rds_set_option(rs, RDS_OPT_SNDTIMEO, (s->sndtimeo.us + 999) / 1000);
	return err;
}

/* doubled is what the kernel keeps for a buffer size. */
static int doubled(int v, int least)
{
	int64_t n = (uint32_t)v;
	n = (n < INT_MAX / 2 ? n : INT_MAX / 2) * 2;
	return n > least ? (int)n : least;
}

static int set_buf(struct pre_sock *s, enum rds_option option, int n)
{
	rds_socket *rs;
	int err = pre_live(s, &rs);
	if (!err && rs)
		err = rds_set_option(rs, option, n / 2);
	if (err)
		return err;
	if (option == RDS_OPT_SNDBUF) {
		s->sndbuf = n;
		atomic_store(&s->sndlimit, n / 2);
	} else {
		s->rcvbuf = n;
	}
	return 0;
}

static int set_timeout(struct pre_sock *s, bool send, const void *val, socklen_t len)
{
	int64_t tv[2];
	struct pre_timeout t = {0};
	rds_socket *rs;
	int err = len < sizeof tv ? -EINVAL : pre_load(tv, (uintptr_t)val, sizeof tv);
	if (err)
		return err;
	if (tv[1] < 0 || tv[1] >= 1000000)
		return -EDOM;
	if (tv[0] < 0)
		t.poll = true;
	else if (tv[0] <= INT_MAX / 1000)
		t.us = tv[0] * 1000000 + tv[1];
	if (!send) {
		s->rcvtimeo = t;
		return 0;
	}
	s->sndtimeo = t;
	err = pre_live(s, &rs);
	return !err && rs ? rds_set_option(rs, RDS_OPT_SNDTIMEO, (t.us + 999) / 1000) : err;
}

int pre_set_timestamp(struct pre_sock *s, int opt, int on)
{
	s->timestamp = on ? opt : 0;
	return 0;
}

/* set_socket sets an option of SOL_SOCKET. mu is held. */
static int set_socket(struct pre_sock *s, int opt, const void *val, socklen_t len)
{
	int v, err = len < sizeof v ? -EINVAL : pre_load(&v, (uintptr_t)val, sizeof v);
	if (err)
		return err;
	switch (opt) {
	case SO_REUSEADDR: /* kept, without effect: a port has one socket */
		s->reuse = v != 0;
		return 0;
	case SO_SNDBUF:
	case SO_SNDBUFFORCE:
		return set_buf(s, RDS_OPT_SNDBUF, doubled(v, MIN_SNDBUF));
	case SO_RCVBUF:
	case SO_RCVBUFFORCE:
		return set_buf(s, RDS_OPT_RCVBUF, doubled(v, MIN_RCVBUF));
	case SO_ZEROCOPY:
		if (v != 0 && v != 1)
			return -EINVAL;
		s->zerocopy = v;
		return 0;
	case SO_TIMESTAMP:
	case SO_TIMESTAMP_2:
		return pre_set_timestamp(s, opt, v);
	case SO_SNDTIMEO:
	case SO_SNDTIMEO_2:
		return set_timeout(s, true, val, len);
	case SO_RCVTIMEO:
	case SO_RCVTIMEO_2:
		return set_timeout(s, false, val, len);
	case SO_TYPE:
	case SO_DOMAIN:
	case SO_PROTOCOL:
	case SO_ERROR:
		return -ENOPROTOOPT;
	}
	return real_setsockopt(s->own, SOL_SOCKET, opt, val, len) ? -errno : 0;
}

int pre_setsockopt(struct pre_sock *s, int level, int opt, const void *val, socklen_t len)
{
	if ((int)len < 0)
		return -EINVAL;
	if (level == (int)PRE_SOL_RDS)
		return pre_set_rds(s, opt, val, len);
	if (level != SOL_SOCKET)
		return -ENOPROTOOPT;
	pthread_mutex_lock(&s->mu);
	int err = set_socket(s, opt, val, len);
	pthread_mutex_unlock(&s->mu);
	return err;
}

/* store copies the value of an option as far as there is room. */
static int store(void *val, socklen_t *len, const void *from, socklen_t n)
{
	socklen_t room = *len;
	*len = n < room ? n : room;
	return pre_store((uintptr_t)val, from, *len);
}

static int get_timeout(const struct pre_timeout *t, void *val, socklen_t *len)
{
	int64_t tv[2] = {t->us / 1000000, t->us % 1000000};
	return store(val, len, tv, sizeof tv);
}

/* get_socket gets an option of SOL_SOCKET. mu is held. */
static int get_socket(struct pre_sock *s, int opt, void *val, socklen_t *len)
{
	int v = 0;
	switch (opt) {
	case SO_REUSEADDR:
		v = s->reuse;
		break;
	case SO_TYPE:
		v = SOCK_SEQPACKET;
		break;
	case SO_DOMAIN:
		v = (int)PRE_AF_RDS;
		break;
	case SO_PROTOCOL:
	case SO_ACCEPTCONN:
		break;
	case SO_ERROR:
		v = -pre_error(s, atomic_load(&s->lost) ? NULL : atomic_load(&s->rs));
		break;
	case SO_SNDBUF:
		v = s->sndbuf;
		break;
	case SO_RCVBUF:
		v = s->rcvbuf;
		break;
	case SO_ZEROCOPY:
		v = s->zerocopy;
		break;
	case SO_TIMESTAMP:
	case SO_TIMESTAMP_2:
		v = s->timestamp != 0;
		break;
	case SO_SNDTIMEO:
	case SO_SNDTIMEO_2:
		return get_timeout(&s->sndtimeo, val, len);
	case SO_RCVTIMEO:
	case SO_RCVTIMEO_2:
		return get_timeout(&s->rcvtimeo, val, len);
	default:
		return real_getsockopt(s->own, SOL_SOCKET, opt, val, len) ? -errno : 0;
	}
	return store(val, len, &v, sizeof v);
}

int pre_getsockopt(struct pre_sock *s, int level, int opt, void *val, socklen_t *len)
{
	socklen_t n;
	int got = pre_load(&n, (uintptr_t)len, sizeof n);
	if (got)
		return got;
	if ((int)n < 0)
		return -EINVAL;
	if (level == (int)PRE_SOL_RDS) {
		got = pre_get_rds(s, opt, val, &n);
	} else if (level == SOL_SOCKET) {
		pthread_mutex_lock(&s->mu);
		got = get_socket(s, opt, val, &n);
		pthread_mutex_unlock(&s->mu);
	} else {
		return -ENOPROTOOPT;
	}
	int err = got >= 0 || got == -ENOSPC ? pre_store((uintptr_t)len, &n, sizeof n) : 0;
	return err ? err : got;
}

/* pre_ioctl carries out the requests of RDS. *handled is false for others. */
int pre_ioctl(struct pre_sock *s, unsigned long request, void *arg, bool *handled)
{
	rds_socket *rs;
	uint8_t tos = 0;
	int64_t lane = 0;
	*handled = request == PRE_SET_TOS || request == PRE_GET_TOS;
	int err = *handled ? pre_live(s, &rs) : 0;
	if (!*handled || err)
		return err;
	if (request == PRE_GET_TOS) {
		if (rs && (err = rds_get_option(rs, RDS_OPT_LANE, &lane)))
			return err;
		tos = (uint8_t)lane;
		return pre_store((uintptr_t)arg, &tos, 1);
	}
	if ((err = pre_load(&tos, (uintptr_t)arg, 1)))
		return err;
	if (!rs)
		return -ENOTTY;
	return rds_set_option(rs, RDS_OPT_LANE, s->transport == (int)PRE_TRANS_TCP ? 0 : tos);
}
