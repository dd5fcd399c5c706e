/* Waiting for the high-water mark and for statuses, with deadlines. */
#ifndef RDSI_BARRIER_H
#define RDSI_BARRIER_H

#include "int.h"

/* rdsi_barrier_try returns 1 if the mark has reached id, else 0. With arm it asks the daemon to
 * announce that. */
int rdsi_barrier_try(rds_socket *s, const struct rds_addr *to, uint64_t id, bool arm);
int rdsi_barrier(rds_socket *s, const struct rds_addr *to, uint64_t id, int64_t deadline);
/* rdsi_barrier_reach is rdsi_barrier, but also ends when the host of to is not reached. *why is then
 * what rds_reach returns, else 0. */
int rdsi_barrier_reach(rds_socket *s, const struct rds_addr *to, uint64_t id, int64_t deadline, int *why);
int rdsi_wait_op(rds_socket *s, const struct rds_addr *to, uint64_t id, struct rds_completion *comp, int64_t deadline);

#endif
