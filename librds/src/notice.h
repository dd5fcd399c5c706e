/* What a socket is told besides messages: notices, zero-copy cookies, relief of congestion. */
#ifndef RDSI_NOTICE_H
#define RDSI_NOTICE_H

#include "int.h"

/* rdsi_add_notice queues n. If one of its kind and destination is queued, n is added to it.
 * rx.mu is held. It returns false without memory. */
bool rdsi_add_notice(rds_socket *s, struct rds_notice n);

/* rdsi_undelivered returns the error of messages that were not delivered, as rds_close_wait
 * does, and its words for rds_refusal: of the notices and completions that nobody has taken. */
int rdsi_undelivered(rds_socket *s);

/* rdsi_cong_relieved reports the relief of a destination for which a send had failed. rx.mu is
 * held. */
void rdsi_cong_relieved(rds_socket *s, const struct rds_addr *to);

/* rdsi_cong_failed notes that a send failed because the destination is congested, and asks the
 * daemon to announce its relief. It takes the locks itself. */
void rdsi_cong_failed(rds_socket *s, const struct rds_addr *to);

/* rdsi_cong_forget drops all reports. rx.mu is held. */
void rdsi_cong_forget(rds_socket *s);

/* rdsi_zero_copied queues the cookie of a message that ended. tx.mu is held. */
void rdsi_zero_copied(rds_socket *s, uint32_t cookie);

/* rdsi_relieved reports whether d is not congested; with arm it asks for news. tx.mu is held. */
bool rdsi_relieved(struct rdsi_dest *d, bool arm);

#endif
