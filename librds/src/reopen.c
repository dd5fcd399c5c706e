/* After the end of a daemon: attaching again, and binding again. */
#include <poll.h>
#include <stdlib.h>

#include "int.h"
#include "rx.h"
#include "tx.h"

enum { FIRST = 5, MOST = 500 }; /* ms between two attempts, doubling */

int rdsi_keep_options(rds_client *c, const struct rds_options *o)
{
	c->opts = *o;
	c->opts.path = o->path ? strdup(o->path) : NULL;
	c->opts.name = o->name ? strdup(o->name) : NULL;
	return (o->path && !c->opts.path) || (o->name && !c->opts.name) ? -ENOMEM : 0;
}

void rdsi_free_options(rds_client *c)
{
	free((char *)c->opts.path);
	free((char *)c->opts.name);
}

/* ms_left is how long an attempt may take, 0: no limit, as rds_open has it. */
static int ms_left(int64_t deadline)
{
	if (deadline == RDSI_NEVER)
		return 0;
	int64_t left = (deadline - rdsi_now()) / RDSI_MS;
	return left < 1 ? 1 : (int)left;
}

int rds_reopen(rds_client *old, int timeout_ms, rds_client **client)
{
	*client = NULL;
	if (rdsi_forked(old))
		return -ESTALE;
	int ended = rds_client_error(old, NULL, 0), pause = FIRST;
	if (ended == 0 || ended == -EBADF)
		return -EINVAL;
	int64_t deadline = timeout_ms < 0 ? RDSI_NEVER : rdsi_deadline(timeout_ms);
	for (;; pause = 2 * pause < MOST ? 2 * pause : MOST) {
		struct rds_options o = old->opts;
		o.timeout_ms = ms_left(deadline);
		int err = rds_open(&o, client);
		if (!err)
			(*client)->opts.timeout_ms = old->opts.timeout_ms;
		if (err != -ENOENT && err != -ECONNRESET) /* gone: it ended while this process attached */
			return err;
		if (rdsi_now() >= deadline)
			return -ETIMEDOUT;
		if (deadline != RDSI_NEVER && ms_left(deadline) < pause)
			pause = ms_left(deadline);
		if (poll(NULL, 0, pause) < 0 && errno == EINTR)
			return -EINTR;
	}
}

/* copy_options gives s the options of old that need no call to the daemon. */
static void copy_options(rds_socket *s, rds_socket *old)
{
	pthread_mutex_lock(&old->c->tx.mu);
	struct rds_addr remote = old->remote;
	uint8_t lane = old->lane;
	bool anybody = old->anybody;
	int64_t linger = old->linger;
	size_t sndbuf = old->sndbuf;
	pthread_mutex_unlock(&old->c->tx.mu);
	pthread_mutex_lock(&old->c->rx.mu);
	uint32_t notices = old->wanted_notices;
	rdsi_rx_unlock(old->c);
	atomic_store(&s->nonblock, atomic_load(&old->nonblock));
	atomic_store(&s->fail_unreachable, atomic_load(&old->fail_unreachable));
	atomic_store(&s->snd_timeo, atomic_load(&old->snd_timeo));
	atomic_store(&s->rcv_timeo, atomic_load(&old->rcv_timeo));
	pthread_mutex_lock(&s->c->tx.mu);
	s->remote = remote;
	s->lane = lane;
	s->anybody = anybody;
	s->linger = linger;
	s->sndbuf = sndbuf;
	pthread_mutex_unlock(&s->c->tx.mu);
	pthread_mutex_lock(&s->c->rx.mu);
	s->wanted_notices = notices;
	atomic_store(&s->cong_mon, atomic_load(&old->cong_mon));
	rdsi_rx_unlock(s->c);
}

int rds_rebind(rds_client *c, rds_socket *old, rds_socket **socket)
{
	*socket = NULL;
	if (rdsi_forked(c) || rdsi_forked(old->c))
		return -ESTALE;
	if (rds_client_error(old->c, NULL, 0) == 0)
		return -EINVAL;
	rds_socket *s;
	int err = rds_bind(c, &old->local, &s);
	if (err)
		return err;
	pthread_mutex_lock(&old->c->rx.mu);
	size_t rcvbuf = old->rcvbuf;
	rdsi_rx_unlock(old->c);
	if (rcvbuf != SHM_DEFAULT_BUF && (err = rds_set_option(s, RDS_OPT_RCVBUF, (int64_t)rcvbuf))) {
		rds_socket_free(s);
		return err;
	}
	copy_options(s, old);
	*socket = s;
	return 0;
}
