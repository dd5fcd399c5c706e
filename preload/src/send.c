/* sendmsg, in the order of checks of net/rds/send.c. */
#include <stdlib.h>

#include "../../librds/src/pollfd.h"
#include "pre.h"

/* destination finds where a message goes. */
static int destination(struct pre_sock *s, const struct msghdr *h, rds_socket **rs, struct rds_addr *to)
{
	struct pre_addr a = {0};
	bool named = h->msg_name && h->msg_namelen;
	if (named) {
		int err = h->msg_namelen < 16 ? -EINVAL : pre_addr_parse(h->msg_name, h->msg_namelen, -EINVAL, &a);
		if (err || !pre_unicast(&a.at) || pre_needs_scope(&a))
			return -EINVAL;
	}
	int err = pre_live(s, rs);
	if (err)
		return err;
	if (!named) {
		pthread_mutex_lock(&s->mu);
		a = s->peer;
		pthread_mutex_unlock(&s->mu);
	}
	if (!*rs || !a.family)
		return -ENOTCONN;
	if (pre_v4(&a.at) != pre_v4(&s->bound.at)) /* bound does not change any more */
		return -EOPNOTSUPP;
	if (named && a.scope && s->bound.scope && a.scope != s->bound.scope)
		return -EINVAL;
	*to = a.at;
	return 0;
}

/* payload_len is the length of the payload. */
static int payload_len(const struct msghdr *h, size_t *len)
{
	*len = 0;
	if (h->msg_iovlen > PRE_MAX_SEGMENTS)
		return -EMSGSIZE;
	for (size_t i = 0; i < h->msg_iovlen; i++) {
		if (h->msg_iov[i].iov_len > PRE_MAX_MESSAGE - *len)
			return -EMSGSIZE;
		*len += h->msg_iov[i].iov_len;
	}
	return 0;
}

/* zero_copy applies MSG_ZEROCOPY: memory that the daemon reaches stays where it is. */
static void zero_copy(struct pre_sock *s, struct pre_out *o, const struct msghdr *h)
{
	struct rds_segment seg;
	if (!(o->m.flags & RDS_ZERO_COPY) || h->msg_iovlen != 1 || !o->len)
		return;
	if (!pre_segment(s, (uintptr_t)h->msg_iov[0].iov_base, o->len, &seg)) {
		o->m.from = seg;
		o->m.iovlen = 0;
	}
}

/* submit queues the message. A call that a signal interrupts is restarted as the kernel does. */
static int submit(struct pre_sock *s, rds_socket *rs, struct pre_out *o)
{
	int err;
	bool limited = s->sndtimeo.us || s->sndtimeo.poll;
	if (o->flags & MSG_DONTWAIT || atomic_load_explicit(&s->nonblock, memory_order_relaxed) || s->sndtimeo.poll)
		o->m.flags |= RDS_DONTWAIT;
	do {
		err = rds_sendmsg(rs, &o->m);
		if (err == -ENOBUFS)
			pre_met_congestion(s, &o->m.addr);
	} while (err == -EINTR && !limited && pre_restarts());
	if (atomic_load_explicit(&s->watched, memory_order_relaxed))
		pre_sent(s, rs);
	return err == -EMLINK ? -ENOBUFS : err == -ENOSPC ? -EAGAIN : err; /* as the kernel has them */
}

/* send_with sends a message that has control messages. */
static ssize_t send_with(struct pre_sock *s, rds_socket *rs, struct pre_out *o, const struct msghdr *h)
{
	o->vec = NULL;
	o->local = NULL;
	o->nvec = o->nlocal = 0;
	o->atomic.local.buffer = NULL;
	o->mapped = NULL;
	o->tokens[0] = o->tokens[1] = 0;
	int err = pre_controls(s, rs, o);
	if (!err) {
		zero_copy(s, o, h);
		err = submit(s, rs, o);
	}
	if (o->nvec)
		pre_segments_done(s, o->vec, o->nvec);
	if (o->atomic.local.buffer)
		pre_segments_done(s, &o->atomic.local, 1);
	if (o->m.from.buffer)
		pre_segments_done(s, &o->m.from, 1);
	if (err)
		pre_undo(s, o);
	else if (o->mapped)
		pre_mr_add(s, o->mapped);
	free(o->vec);
	free(o->local);
	return err ? err : (ssize_t)o->len;
}

ssize_t pre_sendmsg(struct pre_sock *s, const struct msghdr *h, int flags)
{
	struct pre_out o;
	rds_socket *rs;
	size_t len;
	if (flags & ~(MSG_DONTWAIT | MSG_ZEROCOPY))
		return -EOPNOTSUPP;
	memset(&o.m, 0, sizeof o.m);
	o.control = o.few;
	o.ncontrol = 0;
	int err = destination(s, h, &rs, &o.m.addr);
	if (!err)
		err = pre_error(s, rs);
	if (!err && h->msg_controllen)
		err = pre_controls_load(&o, h);
	if (!err)
		err = payload_len(h, &len);
	if (!err && len > (size_t)atomic_load_explicit(&s->sndlimit, memory_order_relaxed))
		err = -EMSGSIZE;
	if (!err && flags & MSG_ZEROCOPY && s->zerocopy && s->transport == (int)PRE_TRANS_IB)
		err = -EOPNOTSUPP;
	ssize_t sent = err;
	if (!err) {
		o.len = len;
		o.flags = flags;
		o.m.iov = h->msg_iov;
		o.m.iovlen = h->msg_iovlen;
		if (o.ncontrol || flags & MSG_ZEROCOPY)
			sent = send_with(s, rs, &o, h);
		else if (!(sent = submit(s, rs, &o)))
			sent = (ssize_t)len;
	}
	if (o.control != o.few)
		free(o.control);
	return sent;
}
