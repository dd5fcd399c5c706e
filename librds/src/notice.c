#include "notice.h"

#include <stdlib.h>

#include "pollfd.h"
#include "rx.h"
#include "tx.h"

/* The most notices that a socket has queued. Beyond it, messages are counted in one notice of
 * each kind without address, and news of peers is dropped. */
#define MAX_NOTICES 1024

/* fold adds n to a queued notice of its kind and destination. */
static bool fold(rds_socket *s, const struct rds_notice *n)
{
	for (uint32_t i = 0; i < s->notices.n; i++) {
		struct rds_notice *q = rdsi_queue_at(&s->notices, i, sizeof *q);
		if (q->kind == n->kind && rdsi_same(&q->to, &n->to)) {
			q->count += n->count;
			return true;
		}
	}
	return false;
}

bool rdsi_add_notice(rds_socket *s, struct rds_notice n)
{
	bool counts = n.kind == RDS_LOST || n.kind == RDS_NO_SOCKET || n.kind == RDS_GAVE_UP || n.kind == RDS_NOT_GRANTED;
	if (counts && fold(s, &n))
		return true;
	if (s->notices.n >= MAX_NOTICES) {
		if (!counts)
			return true;
		n.to = (struct rds_addr){0};
		if (fold(s, &n))
			return true;
	}
	return rdsi_queue_push(&s->notices, &n, sizeof n);
}

ssize_t rds_notices(rds_socket *s, struct rds_notice *notices, size_t count)
{
	if (rdsi_forked(s->c))
		return -ESTALE;
	pthread_mutex_lock(&s->c->rx.mu);
	rdsi_take_events(s->c);
	size_t n = rdsi_queue_move(&s->notices, notices, count, sizeof *notices);
	rdsi_taken(s);
	rdsi_rx_unlock(s->c);
	return (ssize_t)n;
}

int rdsi_undelivered(rds_socket *s)
{
	static const uint32_t kinds[] = {RDS_NO_SOCKET, RDS_LOST, RDS_GAVE_UP, RDS_NOT_GRANTED};
	static const uint32_t statuses[] = {RDS_REMOTE_ERROR, RDS_DROPPED, RDS_OTHER_ERROR, RDS_UNKNOWN};
	int err = 0;
	pthread_mutex_lock(&s->c->rx.mu);
	for (uint32_t k = 0; k < 4 && !err; k++) {
		for (uint32_t i = 0; i < s->notices.n && !err; i++) {
			struct rds_notice *n = rdsi_queue_at(&s->notices, i, sizeof *n);
			if (n->kind == kinds[k]) {
				err = k ? -EPIPE : -ECONNREFUSED;
				rdsi_not_delivered(n);
			}
		}
	}
	for (uint32_t k = 0; k < 4 && !err; k++) {
		for (uint32_t i = 0; i < s->comps.n && !err; i++) {
			struct rds_completion *c = rdsi_queue_at(&s->comps, i, sizeof *c);
			if (c->status == statuses[k]) {
				err = rds_status_error(statuses[k]);
				rdsi_failed(c);
			}
		}
	}
	rdsi_rx_unlock(s->c);
	return err;
}

void rdsi_zero_copied(rds_socket *s, uint32_t cookie)
{
	pthread_mutex_lock(&s->c->rx.mu);
	if (rdsi_queue_push(&s->zc_done, &cookie, sizeof cookie)) {
		rdsi_arrived(s, WANT_ZERO_COPY);
		rdsi_notify(s, WANT_ZERO_COPY, false);
	}
	rdsi_rx_unlock(s->c);
}

ssize_t rds_zero_copy_done(rds_socket *s, uint32_t *cookies, size_t count)
{
	rds_client *c = s->c;
	if (rdsi_forked(c))
		return -ESTALE;
	pthread_mutex_lock(&c->tx.mu);
	rdsi_tx_reap(c);
	pthread_mutex_lock(&c->rx.mu);
	size_t n = rdsi_queue_move(&s->zc_done, cookies, count, sizeof *cookies);
	s->zc_open -= (uint32_t)n;
	rdsi_taken(s);
	rdsi_rx_unlock(c);
	pthread_mutex_unlock(&c->tx.mu);
	return (ssize_t)n;
}

/* A destination to which a send failed, and whose relief is to come. */
struct failed {
	struct rdsi_node node;
	struct rds_addr to;
};

static struct failed *find_failed(rds_socket *s, const struct rds_addr *to)
{
	for (struct rdsi_node *n = rdsi_hash_first(&s->cong_failed, rdsi_hash_addr(to)); n; n = rdsi_hash_next(n)) {
		struct failed *f = RDSI_OF(n, struct failed, node);
		if (rdsi_same(&f->to, to))
			return f;
	}
	return NULL;
}

void rdsi_cong_forget(rds_socket *s)
{
	struct rdsi_node *n;
	uint32_t at = 0;
	while ((n = rdsi_hash_any(&s->cong_failed, &at))) {
		rdsi_hash_del(&s->cong_failed, n);
		free(RDSI_OF(n, struct failed, node));
	}
	rdsi_hash_end(&s->cong_failed);
	s->cong_update = 0;
}

void rdsi_cong_relieved(rds_socket *s, const struct rds_addr *to)
{
	struct failed *f = find_failed(s, to);
	if (!f)
		return;
	rdsi_hash_del(&s->cong_failed, &f->node);
	free(f);
	s->cong_update |= UINT64_C(1) << (to->port % 64);
	rdsi_arrived(s, WANT_CONGESTION);
	rdsi_notify(s, WANT_CONGESTION, false);
}

/* rdsi_relieved reports whether d is not congested. If it is, arm asks the daemon to announce
 * its relief. tx.mu is held. */
bool rdsi_relieved(struct rdsi_dest *d, bool arm)
{
	if (rdsi_dest_congested(d)) {
		if (arm)
			atomic_fetch_or(rdsi_want_slot(&d->sock->c->seg, d->slot), SHM_WANT_RELIEF);
		if (!arm || rdsi_dest_congested(d))
			return false;
	}
	return !d->over;
}

void rdsi_cong_failed(rds_socket *s, const struct rds_addr *to)
{
	rds_client *c = s->c;
	pthread_mutex_lock(&c->tx.mu);
	pthread_mutex_lock(&c->rx.mu);
	struct failed *f = NULL;
	if (atomic_load(&s->cong_mon) && !c->tx.dead && !atomic_load(&s->closed)) {
		if (!find_failed(s, to) && !rdsi_hash_reserve(&s->cong_failed) && (f = malloc(sizeof *f))) {
			f->to = *to;
			rdsi_hash_add(&s->cong_failed, &f->node, rdsi_hash_addr(to));
		}
		struct rdsi_dest *d = rdsi_dest_find(s, to);
		if (!d || rdsi_relieved(d, true))
			rdsi_cong_relieved(s, to); /* meanwhile */
	}
	rdsi_rx_unlock(c);
	pthread_mutex_unlock(&c->tx.mu);
}

int rds_cong_updates(rds_socket *s, uint64_t *mask)
{
	rds_client *c = s->c;
	if (rdsi_forked(c))
		return -ESTALE;
	if (atomic_load(&s->cong_mon))
		rdsi_tx_poll(c); /* destinations beyond their share may have room */
	pthread_mutex_lock(&c->rx.mu);
	rdsi_take_events(c);
	*mask = s->cong_update;
	s->cong_update = 0;
	rdsi_taken(s);
	rdsi_rx_unlock(c);
	return 0;
}
