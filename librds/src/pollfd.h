/* Poll descriptors, see pollfd.c. */
#ifndef RDSI_POLLFD_H
#define RDSI_POLLFD_H

#include "int.h"

/* An rdsi_pollfd is one socket's descriptor: an eventfd or, for the preload library, one end of
 * a socket pair. Lock order: mu is behind rx.mu. */
struct rdsi_pollfd {
	pthread_mutex_t mu;
	int fd;   /* -1: closed */
	int peer; /* the other end of the socket pair, -1: fd is an eventfd */
	bool set;
	bool full; /* fd of a socket pair is not writable */
	pthread_mutex_t look;      /* one look at a time; ahead of rx.mu */
	struct rdsi_waiter watch;  /* for what has to be looked at, if watched */
	bool watched;              /* guarded by rx.mu */
	_Atomic int refs;          /* the socket's, and looks in progress */
	struct rdsi_link link;     /* in client.polls.fds */
};

/* An rdsi_pollset is the conditions of a descriptor. It does not change. */
struct rdsi_pollset {
	_Atomic int refs;
	size_t count;
	struct rds_until until[];
};

/* These need rx.mu. rdsi_arrived makes the descriptor readable if the poll set has one of want,
 * which was queued. rdsi_left_over does so for what a receiver leaves of a run. rdsi_taken, after
 * everything that was taken, makes it unreadable if nothing is left. */
void rdsi_arrived(rds_socket *s, unsigned want);
void rdsi_left_over(rds_socket *s);
void rdsi_taken(rds_socket *s);
/* rdsi_poll_woken makes it readable for a wake. */
void rdsi_poll_woken(rds_socket *s);
void rdsi_pollfd_close(rds_socket *s);
/* rdsi_pollfd_abandon closes the descriptor in the child of a fork. */
void rdsi_pollfd_abandon(rds_socket *s);
void rdsi_pollset_put(struct rdsi_pollset *p);

/* mirror.c. rdsi_mirror makes fd, an end of a socket pair whose other end is peer, show the poll
 * set of s: it is readable while a condition other than RDS_UNTIL_SEND_SPACE holds, and not
 * writable while that condition is in the poll set and does not hold. The caller keeps both
 * ends open until rds_close has returned. Errors: those of rds_pollfd. */
int rdsi_mirror(rds_socket *s, int fd, int peer);
/* rdsi_mirror_full reports that the send buffer has no room.
 * rdsi_mirror_shows_full reports that fd is not writable. */
bool rdsi_mirror_full(rds_socket *s);
bool rdsi_mirror_shows_full(rds_socket *s);
/* rdsi_mirror_ring makes fd readable for something that the poll set does not know. */
void rdsi_mirror_ring(rds_socket *s);
/* These are for pollfd.c, p.mu is held. rdsi_mirror_end shows the end of the client. */
void rdsi_mirror_set(struct rdsi_pollfd *p);
void rdsi_mirror_clear(struct rdsi_pollfd *p);
void rdsi_mirror_end(struct rdsi_pollfd *p);
/* rdsi_mirror_room makes fd writable or not. p.mu is not held. */
void rdsi_mirror_room(struct rdsi_pollfd *p, const struct rds_until *until, size_t count, int got);
/* rdsi_pollfd_new gives s a descriptor; peer -1 stands for an eventfd. rx.mu is held. */
int rdsi_pollfd_new(rds_socket *s, int fd, int peer);

/* rdsi_poll_look finds the conditions of the poll set that hold, and makes the descriptor
 * readable or unreadable. It returns how many hold, or an error. No lock is held. */
int rdsi_poll_look(rds_socket *s, struct rds_until *until, size_t count);

/* keeper.c. rdsi_polls_add starts the thread if need be. */
int rdsi_polls_add(rds_client *c, struct rdsi_pollfd *p);
void rdsi_polls_remove(rds_client *c, struct rdsi_pollfd *p);
void rdsi_pollfd_ring(struct rdsi_pollfd *p);
void rdsi_polls_ring_all(rds_client *c);
/* rdsi_polls_join waits for the end of the thread. */
void rdsi_polls_join(rds_client *c);

/* wait.c. rdsi_ready sets ready of the conditions of one socket, and returns how many hold. With
 * arm it asks the daemon to announce the others. */
int rdsi_ready(rds_socket *s, struct rds_until *until, size_t count, bool arm);
unsigned rdsi_wants(const struct rds_until *u);

#endif
