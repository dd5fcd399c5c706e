/* The sending side: submission ring, message ids, send arena, slots and cells. One lock,
 * tx.mu, guards all of it; the functions below need it unless they say otherwise. */
#ifndef RDSI_TX_H
#define RDSI_TX_H

#include "int.h"

enum {
	/* The most submission entries of one message: with two operations. */
	RDSI_MSG_ENTRIES = 3,
	/* Close a destination, open one, and the message to it. */
	RDSI_OPEN_ENTRIES = 2 + RDSI_MSG_ENTRIES,
	/* Sends that go by before a sender takes in returned messages. */
	RDSI_REAP_EVERY = 64,
};

/* rdsi_tx.grow */
enum { RDSI_NO_GROWTH, RDSI_ASKED, RDSI_ANSWERED };

/* Why a message was not submitted just now. None of these leaves the library. */
enum {
	RDSI_FULL = -10001,      /* send buffer */
	RDSI_NO_MEMORY = -10002, /* no message id or send memory free */
	RDSI_RING_FULL = -10003,
	RDSI_OPENING = -10004,   /* the destination is not open yet */
	RDSI_COPY = -10005,      /* memory set aside: copy the payload */
	RDSI_OTHER_RUN = -10006, /* frames of another run are to be committed first */
	RDSI_CONGESTED = -10007,
};

/* An rdsi_out is a message on its way into the ring. */
struct rdsi_out {
	const struct iovec *iov;
	size_t iovlen;
	size_t len; /* of the payload */
	struct rds_addr to;
	struct rds_msg *x; /* what is more than payload, NULL: nothing */
	uint32_t id;       /* RDSI_NO_ID before one was set aside */
	struct rdsi_dest *dest;
	uint8_t *dst;
	bool copied;
	bool through; /* see rdsi_waiter */
	int windows; /* arena windows when it was found exhausted, -1: more would not help */
};

/* tx.c. Init, free, close, poll, empty and grow take the lock themselves. */
int rdsi_tx_init(rds_client *c);
void rdsi_tx_free(rds_client *c);
void rdsi_tx_close(rds_client *c);
bool rdsi_tx_poll(rds_client *c);
bool rdsi_tx_empty(rds_client *c);
/* rdsi_tx_grow asks for one more window, unless it is asked for or there are more than seen, and does
 * not wait for the answer, which wakes those who wait for memory. */
void rdsi_tx_grow(rds_client *c, int seen);
bool rdsi_tx_reap(rds_client *c);
void rdsi_tx_retire(rds_client *c, uint32_t id);
uint32_t rdsi_tx_take_id(rds_client *c, struct rdsi_dest *d);
void rdsi_tx_gained(rds_client *c);
/* rdsi_tx_unlock makes the entries visible, releases tx.mu, and rings the daemon if it sleeps. */
void rdsi_tx_unlock(rds_client *c);

/* dest.c */
int rdsi_dest_get(rds_socket *s, const struct rds_addr *to, struct rdsi_dest **d);
struct rdsi_dest *rdsi_dest_find(rds_socket *s, const struct rds_addr *to);
struct rdsi_cell *rdsi_cell_find(rds_socket *s, const struct rds_addr *a);
bool rdsi_dest_is_open(const struct rdsi_dest *d);
bool rdsi_dest_unknown(struct rdsi_dest *d);
bool rdsi_dest_congested(const struct rdsi_dest *d);
void rdsi_dest_close(struct rdsi_dest *d);
void rdsi_dest_end(struct rdsi_dest *d); /* frees d if it is closed and has nothing pending */
uint64_t rdsi_cell_mark(rds_client *c, struct rdsi_cell *ce);
static inline bool rdsi_reached(uint64_t hwm, uint64_t id) { return (int64_t)(hwm - id) >= 0; }
/* rdsi_forget_socket takes the lock itself. */
void rdsi_forget_socket(rds_socket *s, bool answered);

/* share.c: shares of destinations, and the send buffer. */
bool rdsi_ids_over(struct rdsi_dest *d);
bool rdsi_mem_over(struct rdsi_dest *d);
int rdsi_refuse(struct rdsi_dest *d);
void rdsi_relieve_shares(rds_client *c);
void rdsi_relieve(struct rdsi_dest *d);
bool rdsi_full(rds_socket *s, bool arm);
bool rdsi_room(rds_socket *s);
bool rdsi_half_full(rds_socket *s);
bool rdsi_look(struct rdsi_dest *d);
void rdsi_charge(struct rdsi_dest *d, const struct rdsi_sum *sum);
void rdsi_uncharge(struct rdsi_dest *d, const struct rdsi_sum *sum);
static inline size_t rdsi_max_msgs(size_t buf) { return buf / 64 > 2048 ? buf / 64 : 2048; }
static inline size_t rdsi_charged(const rds_socket *s) { return s->queued - s->parked; }

/* reach.c */
int rdsi_unreachable(rds_socket *s, struct rdsi_dest *d);
/* rdsi_reason is rds_reach with tx.mu held. */
int rdsi_reason(rds_socket *s, const struct rds_addr *to);

/* send.c */
int rdsi_submit(rds_socket *s, struct rdsi_out *m, bool arm);
int rdsi_toward(rds_socket *s, struct rdsi_out *m, bool arm, struct rdsi_dest **d);
void rdsi_drop(rds_client *c, struct rdsi_out *m);
int rdsi_starve(rds_client *c, struct rdsi_out *m);
bool rdsi_arena_take(rds_client *c, size_t n, size_t *used, uint32_t *chunk);
/* rdsi_gather copies the payload together. -EFAULT: see RDSI_USER_COPY. */
int rdsi_gather(uint8_t *dst, const struct iovec *iov, size_t iovlen);
int rdsi_iov_len(const struct iovec *iov, size_t iovlen, size_t *len);
int rdsi_send(rds_socket *s, struct rdsi_out *m, bool dont_wait, int64_t deadline);

/* sendwait.c. They take the lock themselves. */
int rdsi_send_wait(rds_socket *s, struct rdsi_out *m, int why, struct rdsi_waiter *w, bool *entered, bool dont_wait, int64_t deadline);
/* rdsi_ring_wait waits until the daemon has taken something from the submission ring. It
 * returns 0, or -EAGAIN without having slept if dont_wait. */
int rdsi_ring_wait(rds_client *c, bool dont_wait);

/* run.c */
bool rdsi_in_run(rds_socket *s, const struct rdsi_out *m);
bool rdsi_run_takes(struct rdsi_dest *d, size_t n);
int rdsi_append(rds_socket *s, struct rdsi_out *m, bool arm);
size_t rdsi_append_more(rds_client *c, struct rds_msg *msgs, size_t count);
bool rdsi_commit_run(rds_client *c);
static inline void rdsi_end_run(struct rdsi_dest *d) { d->run.mem = NULL; }
bool rdsi_plain(const struct rds_msg *m);

/* op.c: what a message has besides a payload. */
int rdsi_check_extras(rds_socket *s, struct rds_msg *m);
size_t rdsi_op_memory(const struct rds_msg *m);
void rdsi_put_op_memory(const struct rds_msg *m, uint8_t *b);
void rdsi_commit_extras(rds_socket *s, struct rdsi_out *m, struct rdsi_tx_msg *x, struct shm_sub *sub);
bool rdsi_names_freed(const struct rds_msg *m);

#endif
