/* Traceparents, see trace.c. */
#ifndef RDSI_TRACE_H
#define RDSI_TRACE_H

#include "arena.h"
#include "int.h"

/* rdsi_traced reports whether m is sent with a traceparent. */
static inline bool rdsi_traced(const struct rds_msg *m) { return m->traceparent && *m->traceparent; }

/* rdsi_trace_parse writes what text says to p, SHM_TRACEPARENT_LEN bytes. -EINVAL: it is none. */
int rdsi_trace_parse(const char *text, uint8_t *p);

/* rdsi_trace_text writes the text of p, "" if p is NULL, to RDS_TRACEPARENT_SIZE bytes. */
void rdsi_trace_text(char *text, const uint8_t *p);

/* rdsi_trace_tail is how many bytes the traceparent of m takes behind len bytes of payload. One that
 * leaves it no room in the largest chunk goes without. */
size_t rdsi_trace_tail(const struct rds_msg *m, size_t len);

/* rdsi_trace_find finds the traceparent of e: *p, NULL if it has none. It returns 0 or ends the
 * session. rx.mu is held. */
int rdsi_trace_find(rds_client *c, const struct shm_event *e, const uint8_t **p);

#endif
