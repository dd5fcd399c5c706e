/* Receiving messages. */
#include "notice.h"
#include "pollfd.h"
#include "rx.h"
#include "trace.h"

int rdsi_payload(rds_client *c, const struct shm_event *e, const uint8_t **p)
{
	const uint32_t units = SHM_WINDOW_SIZE / SHM_UNIT;
	*p = NULL;
	if (e->rx_id >= c->rx.max_rx || (e->len && !rdsi_chunk_valid(c->rx.nwindows, e->chunk, e->len)))
		return rdsi_broken(c, "message %u of %u bytes at chunk %u is outside the receive arena", e->rx_id, e->len, e->chunk);
	if (e->len)
		*p = c->rx.windows[e->chunk / units] + (size_t)(e->chunk % units) * SHM_UNIT;
	return 0;
}

/* scatter stores up to n bytes of p. *stored is how many found room. -EFAULT: see RDSI_USER_COPY. */
static int scatter(const struct iovec *iov, size_t iovlen, const uint8_t *p, size_t n, size_t *stored)
{
	size_t done = 0;
	for (size_t i = 0; i < iovlen && done < n; i++) {
		size_t k = iov[i].iov_len < n - done ? iov[i].iov_len : n - done;
		if (k && RDSI_USER_COPY(iov[i].iov_base, p + done, k))
			return -EFAULT;
		done += k;
	}
	*stored = done;
	return 0;
}

/* describe sets the fields of m that a receive sets. */
static void describe(struct rds_msg *m, const struct shm_event *e, const uint8_t *parent, size_t len, size_t n)
{
	if (m->traceparent)
		rdsi_trace_text(m->traceparent, parent);
	m->n = n;
	m->len = len;
	m->flags = n < len ? m->flags | RDS_TRUNC : m->flags & ~RDS_TRUNC;
	memcpy(m->addr.ip, e->src_addr, sizeof m->addr.ip);
	m->addr.port = e->src_port;
	m->src_inc = e->src_inc;
	m->cookie = e->flags & SHM_EVENT_RUN ? 0 : e->cookie;
	m->time_ns = e->recv_time;
	m->assembly_ns = e->assembly;
}

/* copy_out copies the payload of a message that is no run; a large one without the lock, if it
 * may. rx.mu is held. */
static int copy_out(rds_client *c, struct rds_msg *m, const struct shm_event *e, bool may)
{
	const uint8_t *p, *parent;
	size_t n = 0;
	int err = rdsi_payload(c, e, &p);
	if (!err)
		err = rdsi_trace_find(c, e, &parent);
	if (err)
		return err;
	may = may && e->len > RDSI_INLINE_COPY;
	if (may) {
		rdsi_pin(c);
		rdsi_rx_unlock(c);
	}
	err = scatter(m->iov, m->iovlen, p, e->len, &n);
	if (may) {
		rdsi_unpin(c);
		pthread_mutex_lock(&c->rx.mu);
	}
	if (!err)
		describe(m, e, parent, e->len, n);
	return err;
}

/* take_datagram takes the next datagram of the run of s, or with peek only looks at it. */
static int take_datagram(rds_socket *s, struct rds_msg *m, bool peek)
{
	const uint8_t *p;
	size_t n, stored = 0, size = rdsi_run_first(s, &p, &n);
	if (!size)
		return rdsi_client_err(s->c);
	int err = scatter(m->iov, m->iovlen, p, n, &stored);
	if (err)
		return err;
	describe(m, &s->in.ev, NULL, n, stored);
	if (!peek)
		rdsi_run_pass(s, size);
	return 0;
}

/* put_back makes e, whose copy has failed, the first message again, as net/rds leaves it in the queue.
 * If it is large, another receiver may have taken later ones since. rx.mu is held. */
static void put_back(rds_socket *s, const struct shm_event *e)
{
	rds_client *c = s->c;
	if (atomic_load(&s->closed))
		rdsi_give_back(c, e->rx_id);
	else if (rdsi_queue_return(&s->rxq, e, sizeof *e))
		c->rx.waiting++;
	else
		rdsi_fail(c, -ECONNABORTED, "no memory for a message");
}

/* take_next takes the next message of s. It returns 1 if there was one, 0 if not. rx.mu is held;
 * for a large payload it is released inside. */
static int take_next(rds_socket *s, struct rds_msg *m)
{
	struct shm_event e;
	int err;
	if (!s->in.rest) {
		if (!rdsi_rx_next(s, &e))
			return 0;
		if (!(e.flags & SHM_EVENT_RUN)) {
			if ((err = copy_out(s->c, m, &e, true))) {
				if (err == -EFAULT)
					put_back(s, &e);
				return err;
			}
			rdsi_give_back(s->c, e.rx_id);
			return 1;
		}
		if ((err = rdsi_run_begin(s, &e)))
			return err;
	}
	err = take_datagram(s, m, false);
	return err ? err : 1;
}

/* pass_on wakes another receiver if there is something left for it. rx.mu is held. */
static void pass_on(rds_socket *s)
{
	if (rdsi_unread(s)) {
		rdsi_notify(s, WANT_MESSAGE, true);
		rdsi_left_over(s);
	}
	rdsi_taken(s);
}

/* peek_next copies the first message and leaves it in the queue. rx.mu is held. */
static int peek_next(rds_socket *s, struct rds_msg *m)
{
	struct shm_event *first, e;
	int err;
	rdsi_take_events(s->c);
	if (!rdsi_unread(s))
		return 0;
	first = s->in.rest ? NULL : rdsi_queue_at(&s->rxq, 0, sizeof *first);
	if (first && first->flags & SHM_EVENT_RUN) {
		rdsi_rx_next(s, &e);
		if ((err = rdsi_run_begin(s, &e)))
			return err;
		first = NULL;
	}
	err = first ? copy_out(s->c, m, first, false) : take_datagram(s, m, true);
	pass_on(s);
	return err ? err : 1;
}

/* A receive goes to one of these. */
struct receive {
	struct rds_msg *m;
	struct rds_borrowed *b; /* instead of m: see lend.c */
};

/* try_recv takes one message if there is one: 1, else 0. */
static int try_recv(rds_socket *s, struct receive to)
{
	rds_client *c = s->c;
	pthread_mutex_lock(&c->rx.mu);
	int got = atomic_load(&s->closed) ? -EBADF : to.b ? rdsi_lend_next(s, to.b) : to.m->flags & RDS_PEEK ? peek_next(s, to.m) : take_next(s, to.m);
	if (got > 0 || got == -EFAULT)
		pass_on(s);
	rdsi_rx_unlock(c);
	return got ? got : rdsi_sock_err(s); /* what was delivered before the end is read by now */
}

/* end_recv ends the waiting of a receiver. If it was woken although it has a message or an
 * error, it wakes another one for whatever it was woken for. */
static void end_recv(rds_socket *s, struct rdsi_waiter *w, bool entered)
{
	if (!entered || !rdsi_leave(w))
		return;
	pthread_mutex_lock(&s->c->rx.mu);
	pass_on(s);
	rdsi_rx_unlock(s->c);
}

/* receive receives one message, and waits for it as flags and the socket say. */
static int receive(rds_socket *s, struct receive to, unsigned flags)
{
	struct rdsi_waiter w;
	bool entered = false;
	if (rdsi_forked(s->c))
		return -ESTALE;
	bool dont_wait = flags & RDS_DONTWAIT || atomic_load(&s->nonblock);
	int64_t timeout = atomic_load(&s->rcv_timeo), deadline = 0;
	for (;;) {
		int got = try_recv(s, to);
		if (got) {
			end_recv(s, &w, entered);
			return got > 0 ? 0 : got;
		}
		if (dont_wait) {
			rdsi_ctl_look(s->c);
			return -EAGAIN;
		}
		if (!entered) {
			rdsi_enter(s, &w, WANT_MESSAGE, false); /* and look again */
			w.wakes = entered = true;
			w.through = timeout;
			continue;
		}
		if (!deadline)
			deadline = timeout ? rdsi_deadline(timeout) : RDSI_NEVER;
		int err = rdsi_park(&w, deadline);
		if (err) {
			end_recv(s, &w, true);
			return err;
		}
		rdsi_leave(&w);
		entered = false;
	}
}

int rds_recvmsg(rds_socket *s, struct rds_msg *m) { return receive(s, (struct receive){.m = m}, m->flags); }

int rds_borrow(rds_socket *s, struct rds_borrowed *b, unsigned flags)
{
	return flags & ~RDS_DONTWAIT ? -EINVAL : receive(s, (struct receive){.b = b}, flags);
}

ssize_t rds_recv(rds_socket *s, void *data, size_t len, struct rds_addr *from, unsigned flags)
{
	struct iovec iov = {data, len};
	struct rds_msg m = {.flags = flags & (RDS_DONTWAIT | RDS_PEEK), .iov = &iov, .iovlen = 1};
	int err = rds_recvmsg(s, &m);
	if (err)
		return err;
	if (from)
		*from = m.addr;
	return (ssize_t)m.n;
}

ssize_t rds_recvmsgs(rds_socket *s, struct rds_msg *msgs, size_t count)
{
	rds_client *c = s->c;
	size_t n = 1;
	if (count == 0)
		return 0;
	msgs[0].flags &= ~RDS_PEEK;
	int err = rds_recvmsg(s, &msgs[0]);
	if (err)
		return err;
	pthread_mutex_lock(&c->rx.mu);
	while (n < count && !atomic_load(&s->closed) && take_next(s, &msgs[n]) > 0)
		n++;
	pass_on(s);
	rdsi_rx_unlock(c);
	return (ssize_t)n;
}
