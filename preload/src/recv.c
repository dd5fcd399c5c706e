/* recvmsg, in the order of net/rds/recv.c. */
#include <stdlib.h>

#include "../../librds/src/cancel.h"
#include "../../librds/src/pollfd.h"
#include "pre.h"

enum { RX_HDR = 0, RX_ASSEMBLY = 1 };

/* A controls is a control buffer that is being filled. */
struct controls {
	uint8_t *buf;
	size_t size, n;
	int flags;
	bool bad; /* a part of it is not there */
};

static bool has_room(struct controls *c, size_t len)
{
	if (c->size - c->n >= CMSG_LEN(len))
		return true;
	c->flags |= MSG_CTRUNC;
	return false;
}

/* put appends one control message, and reports whether the memory was there. One that does not fit is
 * cut off, as in the kernel. */
static bool put(struct controls *c, int level, int type, const void *data, size_t len)
{
	size_t left = c->size - c->n;
	if (left < sizeof(struct cmsghdr)) {
		c->flags |= MSG_CTRUNC;
		return true;
	}
	if (!has_room(c, len))
		len = left - sizeof(struct cmsghdr);
	struct cmsghdr m = {.cmsg_len = CMSG_LEN(len), .cmsg_level = level, .cmsg_type = type};
	if (pre_store((uintptr_t)c->buf + c->n, &m, sizeof m) || pre_store((uintptr_t)c->buf + c->n + sizeof m, data, len)) {
		c->bad = true;
		return false;
	}
	c->n += CMSG_SPACE(len) < left ? CMSG_SPACE(len) : left;
	return true;
}

/* keeps makes the descriptor show what stays here for want of room. */
static void keeps(struct pre_sock *s, rds_socket *rs)
{
	if (atomic_load(&s->watched))
		rdsi_mirror_ring(rs);
}

/* statuses puts as many statuses as fit, and reports whether there were any. One that has no room
 * stays here. */
static bool statuses(struct pre_sock *s, rds_socket *rs, struct controls *c)
{
	struct rds_completion done;
	bool any = false;
	if (!atomic_load(&s->pending_ops) && !atomic_load(&s->has_status))
		return false;
	pthread_mutex_lock(&s->mu);
	for (;; any = true) {
		if (any && c->size - c->n < CMSG_LEN(sizeof s->status))
			break;
		while (!atomic_load(&s->has_status) && rds_completions(rs, &done, 1) > 0)
			pre_settled(s, &done);
		if (!atomic_load(&s->has_status))
			break;
		if (!has_room(c, sizeof s->status)) {
			any = true;
			keeps(s, rs);
			break;
		}
		if (!put(c, (int)PRE_SOL_RDS, (int)PRE_CMSG_RDMA_STATUS, &s->status, sizeof s->status)) {
			any = true;
			keeps(s, rs);
			break;
		}
		atomic_store(&s->has_status, false);
	}
	pthread_mutex_unlock(&s->mu);
	return any;
}

/* congestion puts the relief of congestion, and reports whether there was any. */
static bool congestion(struct pre_sock *s, rds_socket *rs, struct controls *c)
{
	uint64_t mask = 0;
	if (!atomic_load(&s->monitor) && !atomic_load(&s->cong))
		return false;
	if (rds_cong_updates(rs, &mask))
		mask = 0;
	mask |= atomic_exchange(&s->cong, 0);
	if (!mask)
		return false;
	if (!has_room(c, sizeof mask) || !put(c, (int)PRE_SOL_RDS, (int)PRE_CMSG_CONG_UPDATE, &mask, sizeof mask)) {
		atomic_fetch_or(&s->cong, mask);
		keeps(s, rs);
	}
	return true;
}

/* zero_copied puts the cookies of finished sends if they fit. If the memory is not there they stay here,
 * and as in the kernel this is no error. */
static bool zero_copied(struct pre_sock *s, rds_socket *rs, struct controls *c)
{
	struct pre_zcopy_cookies *z = &s->zcopied;
	bool stored = false;
	if (c->bad || !s->zerocopy || c->size - c->n < CMSG_LEN(sizeof *z))
		return false;
	pthread_mutex_lock(&s->mu);
	if (!z->num) {
		ssize_t n = rds_zero_copy_done(rs, z->cookies, PRE_ZCOPY_COOKIES);
		z->num = n > 0 ? (uint32_t)n : 0;
	}
	if (z->num && (stored = put(c, (int)PRE_SOL_RDS, (int)PRE_CMSG_ZCOPY_DONE, z, sizeof *z)))
		*z = (struct pre_zcopy_cookies){0};
	pthread_mutex_unlock(&s->mu);
	c->bad = false;
	return stored;
}

/* latencies puts RXPATH_LATENCY. */
static void latencies(struct pre_sock *s, const struct rds_msg *m, struct controls *c)
{
	struct timespec ts;
	struct pre_rx_trace t = {.n = s->trace.n};
	clock_gettime(CLOCK_REALTIME, &ts);
	int64_t since = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec - m->time_ns;
	memcpy(t.pos, s->trace.pos, sizeof t.pos);
	for (int i = 0; i < t.n; i++) {
		if (t.pos[i] == RX_ASSEMBLY)
			t.nanos[i] = m->assembly_ns;
		else if (t.pos[i] != RX_HDR)
			t.nanos[i] = since > 0 ? (uint64_t)since : 0;
	}
	put(c, (int)PRE_SOL_RDS, (int)PRE_CMSG_RXPATH, &t, sizeof t);
}

/* describe puts the control messages of a message, in the order of the kernel. */
static void describe(struct pre_sock *s, rds_socket *rs, const struct rds_msg *m, struct controls *c)
{
	if (m->cookie)
		put(c, (int)PRE_SOL_RDS, (int)PRE_CMSG_RDMA_DEST, &m->cookie, sizeof m->cookie);
	if (s->timestamp) {
		int64_t tv[2] = {m->time_ns / 1000000000, m->time_ns % 1000000000 / 1000};
		put(c, SOL_SOCKET, s->timestamp, tv, sizeof tv);
	}
	if (s->trace.n)
		latencies(s, m, c);
	zero_copied(s, rs, c);
}

/* finish sets what recvmsg returns besides the data. */
static void finish(struct msghdr *h, const struct controls *c, int flags)
{
	h->msg_controllen = c->n;
	h->msg_flags = c->flags | flags;
}

/* take takes what is there: 1, or 0 for nothing. *n is the result of recvmsg. */
static int take(struct pre_sock *s, rds_socket *rs, struct msghdr *h, int flags, bool dont_wait, ssize_t *n)
{
	struct controls c = {h->msg_control, h->msg_control ? h->msg_controllen : 0, 0, 0, false};
	*n = 0;
	if (statuses(s, rs, &c) || congestion(s, rs, &c)) {
		if (c.bad)
			return -EFAULT; /* what had no place stays here, as in the kernel */
		h->msg_namelen = 0;
		finish(h, &c, 0);
		return 1;
	}
	struct rds_msg m;
	memset(&m, 0, sizeof m);
	m.flags = RDS_DONTWAIT | (flags & MSG_PEEK ? RDS_PEEK : 0);
	m.iov = h->msg_iov;
	m.iovlen = h->msg_iovlen;
	int err = rds_recvmsg(rs, &m);
	if (err == -EAGAIN) {
		/* A call that does not wait may return with zero-copy cookies alone. */
		if (!dont_wait || !zero_copied(s, rs, &c))
			return 0;
		h->msg_namelen = 0;
		finish(h, &c, 0);
		return 1;
	}
	if (err)
		return err;
	describe(s, rs, &m, &c);
	if (c.bad)
		return -EFAULT; /* the message is lost, as in the kernel */
	finish(h, &c, m.flags & RDS_TRUNC ? MSG_TRUNC : 0);
	*n = (ssize_t)(m.flags & RDS_TRUNC && flags & MSG_TRUNC ? m.len : m.n);
	if (h->msg_name)
		pre_addr_put(&m.addr, pre_v4(&m.addr) ? 0 : s->bound.scope, h->msg_name, &h->msg_namelen);
	return 1;
}

/* wait_bound waits on a socket that is not bound for another thread to bind it. */
static int wait_bound(struct pre_sock *s, int ms)
{
	int err = pre_watch(s);
	struct pollfd p = {.fd = s->own, .events = POLLIN};
	if (err)
		return err;
	int n = RDSI_UNCANCELLED(real_poll(&p, 1, ms));
	return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
}

static int wait_readable(struct pre_sock *s, rds_socket *rs, int64_t deadline)
{
	int ms = -1;
	if (deadline != RDSI_NEVER) {
		int64_t left = (deadline - rdsi_now() + RDSI_MS - 1) / RDSI_MS;
		if (left <= 0)
			return -ETIMEDOUT;
		ms = left > INT32_MAX ? INT32_MAX : (int)left;
	}
	if (!rs)
		return wait_bound(s, ms);
	struct rds_until u[4] = {{.socket = rs, .kind = RDS_UNTIL_MESSAGE}, {.socket = rs, .kind = RDS_UNTIL_COMPLETION}, {.socket = rs, .kind = RDS_UNTIL_CONGESTION},
		{.socket = rs, .kind = RDS_UNTIL_NOTICE}};
	int n = rds_wait(u, s->errors ? 4 : 3, ms);
	return n > 0 ? 0 : n == 0 ? -ETIMEDOUT : n;
}

ssize_t pre_recvmsg(struct pre_sock *s, struct msghdr *h, int flags)
{
	int64_t deadline = 0;
	rds_socket *rs;
	ssize_t n;
	if (flags & (MSG_OOB | MSG_ERRQUEUE)) {
		h->msg_namelen = 0;
		h->msg_controllen = 0;
		h->msg_flags = 0;
		return flags & MSG_OOB ? 0 : -EAGAIN;
	}
	struct pre_timeout t = s->rcvtimeo;
	bool dont_wait = flags & MSG_DONTWAIT || atomic_load_explicit(&s->nonblock, memory_order_relaxed) || t.poll;
	for (;;) {
		int got = pre_live(s, &rs);
		if (!got)
			got = pre_error(s, rs);
		if (!got && rs)
			got = take(s, rs, h, flags, dont_wait, &n);
		if (got)
			return got > 0 ? n : got;
		if (dont_wait) {
			if (rs && atomic_load(&s->watched) && atomic_load(&s->ncongested))
				pre_tell_relief(s, rs);
			return -EAGAIN;
		}
		if (!deadline)
			deadline = t.us ? rdsi_now() + t.us * 1000 : RDSI_NEVER;
		int err = wait_readable(s, rs, deadline);
		if (err == -EINTR && !t.us && pre_restarts())
			continue;
		if (err)
			return err;
	}
}
