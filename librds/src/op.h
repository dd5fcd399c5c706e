/* Statuses of operations and messages on their way to the application. rx.mu guards all of it. */
#ifndef RDSI_OP_H
#define RDSI_OP_H

#include "int.h"

/* rdsi_promise notes that the status of an operation of message msg may come, and with notify that it
 * will come. tx.mu is held, rx.mu is taken. */
void rdsi_promise(rds_socket *s, struct rdsi_cell *ce, uint64_t id, uint32_t msg, bool notify);

/* rdsi_promise_outcome does the same for the status of a message, which will come, with its token. */
void rdsi_promise_outcome(rds_socket *s, struct rdsi_cell *ce, uint32_t id, uint64_t token);

/* rdsi_outcome_due queues RDS_UNKNOWN for a message that is back, if its status has not come. The
 * daemon tells the status first. But a planned restart may have put an older daemon in its place,
 * which does not know that the message has asked. tx.mu is held, rx.mu is taken. */
void rdsi_outcome_due(rds_socket *s, const struct rdsi_cell *ce, uint32_t id);

/* rdsi_settle queues the status of an event. */
void rdsi_settle(rds_socket *s, const struct shm_event_status *e);

/* rdsi_find_status finds the completion of an operation: its place in the queue, -1 if it is to
 * come, or -EINVAL if none will come. */
int rdsi_find_status(rds_socket *s, const struct rds_addr *to, uint64_t id);

/* rdsi_message_of stores the id of the message of an operation and returns 1 if the completion is to
 * come, 0 if it has come, or -EINVAL if none will come. tx.mu is held: until it is released, no other
 * message gets the id. rx.mu is taken. */
int rdsi_message_of(rds_socket *s, const struct rds_addr *to, uint64_t id, uint32_t *msg);

/* rdsi_withdraw is rds_withdraw that waits for room in the ring until the deadline: -ETIMEDOUT. */
int rdsi_withdraw(rds_socket *s, const struct rds_addr *to, uint64_t id, int64_t deadline);

/* rdsi_disown drops the completion of an operation, now or when it comes. It takes rx.mu. */
void rdsi_disown(rds_socket *s, const struct rds_addr *to, uint64_t id);

/* rdsi_statuses_end forgets what is awaited. */
void rdsi_statuses_end(rds_socket *s);

#endif
