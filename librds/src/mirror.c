/*
 * Descriptors of the preload library. The program has one end of a socket pair, so that poll,
 * select, epoll, dup and fork work on it as on any socket. A byte in its receive queue makes it
 * readable. A datagram that fills its send buffer makes it not writable.
 */
#include <sys/socket.h>

#include "pollfd.h"
#include "rx.h"
#include "tx.h"

enum { FILL = 3000 }; /* more than a quarter of the smallest send buffer, which takes away POLLOUT */

void rdsi_mirror_set(struct rdsi_pollfd *p)
{
	if (!p->set)
		p->set = send(p->peer, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno != EINTR;
}

void rdsi_mirror_clear(struct rdsi_pollfd *p)
{
	char byte[8];
	if (!p->set)
		return;
	while (recv(p->fd, byte, sizeof byte, MSG_DONTWAIT) > 0)
		;
	p->set = false;
}

void rdsi_mirror_end(struct rdsi_pollfd *p) { shutdown(p->peer, SHUT_RDWR); }

void rdsi_mirror_room(struct rdsi_pollfd *p, const struct rds_until *until, size_t count, int got)
{
	static const char fill[FILL];
	char byte[8];
	bool readable = got < 0, room = true;
	for (size_t i = 0; got >= 0 && i < count; i++) {
		if (until[i].kind == RDS_UNTIL_SEND_SPACE)
			room = until[i].ready;
		else
			readable = readable || until[i].ready;
	}
	pthread_mutex_lock(&p->mu);
	if (p->fd >= 0 && readable)
		rdsi_mirror_set(p);
	if (p->fd >= 0 && !room && !p->full)
		p->full = send(p->fd, fill, sizeof fill, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
	if (p->fd >= 0 && room && p->full) {
		while (recv(p->peer, byte, sizeof byte, MSG_DONTWAIT) > 0)
			;
		p->full = false;
	}
	pthread_mutex_unlock(&p->mu);
}

int rdsi_mirror(rds_socket *s, int fd, int peer)
{
	pthread_mutex_lock(&s->c->rx.mu);
	int err = atomic_load(&s->closed) ? -EBADF : 0;
	if (!err && !s->poll)
		err = rdsi_pollfd_new(s, fd, peer);
	rdsi_rx_unlock(s->c);
	if (!err)
		rdsi_poll_look(s, NULL, 0);
	return err;
}

bool rdsi_mirror_full(rds_socket *s)
{
	struct rdsi_tx *t = &s->c->tx;
	pthread_mutex_lock(&t->mu);
	bool full = !t->dead && (rdsi_full(s, false) || t->nfree == 0 || t->starved);
	pthread_mutex_unlock(&t->mu);
	return full;
}

bool rdsi_mirror_shows_full(rds_socket *s)
{
	pthread_mutex_lock(&s->c->rx.mu);
	bool full = false;
	if (s->poll) {
		pthread_mutex_lock(&s->poll->mu);
		full = s->poll->full;
		pthread_mutex_unlock(&s->poll->mu);
	}
	rdsi_rx_unlock(s->c);
	return full;
}

void rdsi_mirror_ring(rds_socket *s)
{
	pthread_mutex_lock(&s->c->rx.mu);
	if (s->poll) {
		pthread_mutex_lock(&s->poll->mu);
		if (s->poll->fd >= 0)
			rdsi_mirror_set(s->poll);
		pthread_mutex_unlock(&s->poll->mu);
	}
	rdsi_rx_unlock(s->c);
}
