/* The receiving side: the event ring, which whoever has rx.mu empties into the sockets' private
 * queues, and the return of receive ids. The functions below need rx.mu unless they say
 * otherwise. */
#ifndef RDSI_RX_H
#define RDSI_RX_H

#include "int.h"

int rdsi_rx_init(rds_client *c);
void rdsi_rx_free(rds_client *c);
/* These take the lock themselves. */
void rdsi_rx_close(rds_client *c);
bool rdsi_rx_poll(rds_client *c);
bool rdsi_rx_empty(rds_client *c);
void rdsi_rx_start_bind(rds_client *c);
/* rdsi_rx_end_bind makes s, NULL if the bind failed, known and hands it the events that came for
 * it. It returns 0, or the error if s must not be used. */
int rdsi_rx_end_bind(rds_client *c, rds_socket *s);
void rdsi_rx_remove(rds_socket *s);
void rdsi_rx_discard(rds_socket *s);

/* rdsi_take_events moves the events of the ring into the sockets' queues. It returns how many. */
uint32_t rdsi_take_events(rds_client *c);

/* rdsi_rx_next finds the next message for s: in its queue, else in the ring. */
bool rdsi_rx_next(rds_socket *s, struct shm_event *e);

/* rdsi_give_back returns a receive id, or a step; its memory is the daemon's behind
 * rdsi_rx_unlock, which also releases rx.mu and rings the daemon if it sleeps. */
void rdsi_give_back(rds_client *c, uint32_t id);
void rdsi_rx_unlock(rds_client *c);

/* rdsi_forget drops what s has in the memory. Completions, notices and zero-copy cookies stay. */
void rdsi_forget(rds_socket *s);

/* rdsi_unread reports whether a message waits that has been taken from the event ring. */
static inline bool rdsi_unread(const rds_socket *s) { return s->rxq.n > 0 || s->in.rest; }

/* recv.c. rdsi_payload finds the payload of an event. It returns 0 or ends the session. */
int rdsi_payload(rds_client *c, const struct shm_event *e, const uint8_t **p);

/* inrun.c */
int rdsi_run_begin(rds_socket *s, const struct shm_event *e);
/* rdsi_run_first finds the next datagram of the run: *p, *n bytes. It returns the length of the
 * frame, or 0 after it has ended the session. */
size_t rdsi_run_first(rds_socket *s, const uint8_t **p, size_t *n);
/* rdsi_run_pass takes the frame of size bytes, and gives back what was received of the run. */
void rdsi_run_pass(rds_socket *s, size_t size);

/* lend.c. rdsi_run_end ends the receiving from the run of s. rdsi_lend_next lends the next message
 * of s: 1 if there was one, 0 if not. rdsi_lent_end takes all back, and takes the lock itself. */
void rdsi_run_end(rds_socket *s);
int rdsi_lend_next(rds_socket *s, struct rds_borrowed *b);
void rdsi_lent_end(rds_socket *s);

#endif
