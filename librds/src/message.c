/* The calls that send: one message, several, and what withdraws them. */
#include <time.h>

#include "tx.h"

/* send_one queues m as the socket's mode and its timeout say. */
static int send_one(rds_socket *s, struct rdsi_out *m, unsigned flags)
{
	int64_t timeout = atomic_load(&s->snd_timeo);
	bool dont_wait = flags & RDS_DONTWAIT || atomic_load(&s->nonblock);
	return rdsi_send(s, m, dont_wait, timeout ? rdsi_deadline(timeout) : RDSI_NEVER);
}

int rds_sendmsg(rds_socket *s, struct rds_msg *msg)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	struct rdsi_out m = {.iov = msg->iov, .iovlen = msg->iovlen, .to = msg->addr, .x = rdsi_plain(msg) ? NULL : msg};
	msg->op_id = msg->atomic_id = 0;
	int err = rdsi_iov_len(msg->iov, msg->iovlen, &m.len);
	return err ? err : send_one(s, &m, msg->flags);
}

ssize_t rds_send(rds_socket *s, const void *data, size_t len, const struct rds_addr *to, unsigned flags)
{
	struct iovec iov = {(void *)data, len};
	struct rdsi_out m = {.iov = &iov, .iovlen = 1, .len = len};
	if (rdsi_forked(s->c))
		return -ESTALE;
	if (len > RDS_MAX_MESSAGE)
		return -EMSGSIZE;
	if (to)
		m.to = *to;
	int err = send_one(s, &m, flags);
	return err ? err : (ssize_t)len;
}

/* commit_batch commits the datagrams of a batch from done on, of which n have been submitted. It
 * returns how many are now. */
static size_t commit_batch(rds_client *c, size_t n, size_t done)
{
	return rdsi_commit_run(c) ? n : done; /* else the daemon has taken their run: again, into another */
}

/* send_batch submits small messages. It stops at the first that fails or has to wait, and returns
 * how many are submitted and visible to the daemon. */
static size_t send_batch(rds_socket *s, struct rds_msg *msgs, size_t count)
{
	rds_client *c = s->c;
	size_t n = 0, done = 0; /* of those n so many are no part of a run, or committed */
	pthread_mutex_lock(&c->tx.mu);
	while (n < count) {
		struct rds_msg *msg = &msgs[n];
		struct rdsi_out m = {.iov = msg->iov, .iovlen = msg->iovlen, .to = msg->addr, .id = RDSI_NO_ID, .x = rdsi_plain(msg) ? NULL : msg};
		if (rdsi_iov_len(msg->iov, msg->iovlen, &m.len) || m.len > RDSI_INLINE_COPY)
			break;
		msg->op_id = msg->atomic_id = 0;
		int err = rdsi_submit(s, &m, false);
		if (err == RDSI_OTHER_RUN) {
			n = done = commit_batch(c, n, done);
			continue;
		}
		if (err) {
			rdsi_drop(c, &m);
			break;
		}
		n++;
		if (c->tx.cur)
			n += rdsi_append_more(c, msgs + n, count - n);
		else
			done = n;
	}
	n = commit_batch(c, n, done);
	rdsi_tx_unlock(c);
	return n;
}

ssize_t rds_sendmsgs(rds_socket *s, struct rds_msg *msgs, size_t count)
{
	size_t n = 0;
	if (rdsi_forked(s->c))
		return -ESTALE;
	while (n < count) {
		n += send_batch(s, msgs + n, count - n);
		if (n == count)
			break;
		/* One that does not go through at once: the long way. */
		int err = rds_sendmsg(s, &msgs[n]);
		if (err)
			return n ? (ssize_t)n : err;
		n++;
	}
	return (ssize_t)n;
}

int rds_cancel(rds_socket *s, const struct rds_addr *to)
{
	rds_client *c = s->c;
	if (rdsi_forked(c))
		return -ESTALE;
	for (;;) {
		pthread_mutex_lock(&c->tx.mu);
		int err = atomic_load(&s->closed) || c->tx.dead ? -EBADF : rdsi_client_err(c);
		struct rdsi_dest *d = err ? NULL : rdsi_dest_find(s, to);
		bool full = d && !rdsi_free_at_least(&c->seg.sub, 1);
		if (d && !full) {
			struct shm_sub sub = {.kind = SHM_KIND_CANCEL, .sock = s->handle, .slot = d->slot};
			rdsi_end_run(d);
			memcpy(rdsi_reserve(&c->seg.sub), &sub, sizeof sub);
		}
		rdsi_tx_unlock(c);
		if (!full)
			return err;
		if ((err = rdsi_ring_wait(c, false)))
			return err;
	}
}

/* close_dest closes the destination to. *again: it has to be tried again. */
static int close_dest(rds_socket *s, const struct rds_addr *to, bool *again)
{
	rds_client *c = s->c;
	struct rdsi_dest *d;
	int err = 0;
	*again = false;
	pthread_mutex_lock(&c->tx.mu);
	if (atomic_load(&s->closed) || c->tx.dead) {
		err = -EBADF;
	} else if (!(err = rdsi_client_err(c))) {
		rdsi_tx_reap(c);
		d = rdsi_dest_find(s, to);
		if (d && d->pending) {
			err = -EBUSY;
		} else if (d && (!rdsi_dest_is_open(d) || !rdsi_free_at_least(&c->seg.sub, 1))) {
			*again = true;
		} else if (d) {
			rdsi_dest_close(d);
		}
	}
	rdsi_tx_unlock(c);
	return err;
}

int rds_close_dest(rds_socket *s, const struct rds_addr *to)
{
	bool again;
	if (rdsi_forked(s->c))
		return -ESTALE;
	int limit = s->c->ctl.call_timeout_ms;
	int64_t deadline = limit > 0 ? rdsi_deadline(limit) : RDSI_NEVER;
	for (;;) {
		int err = close_dest(s, to, &again);
		if (err || !again)
			return err;
		if (rdsi_now() >= deadline)
			return -ETIMEDOUT;
		rdsi_ctl_look(s->c);
		/* For room in the ring, or for the daemon to have opened it. */
		struct timespec ts = {0, 50000};
		if (nanosleep(&ts, NULL) && errno == EINTR)
			return -EINTR;
	}
}
