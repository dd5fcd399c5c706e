/* Traceparents, see trace.c. */
#ifndef RDSI_TRACE_H
#define RDSI_TRACE_H

#include "arena.h"
#include "int.h"

/* rdsi_traced reports whether m is sent with a traceparent. */
static inline bool rdsi_traced(const struct rds_msg *m) { return m->traceparent && *m->traceparent; }

/* rdsi_trace_parse writes the traceparent in text to the SHM_TRACEPARENT_LEN bytes at p. It returns 0,
 * or -EINVAL if text is malformed. */
int rdsi_trace_parse(const char *text, uint8_t *p);

/* rdsi_trace_text writes the text of p, "" if p is NULL, to RDS_TRACEPARENT_SIZE bytes. */
void rdsi_trace_text(char *text, const uint8_t *p);

/* rdsi_trace_tail returns how many bytes the traceparent of m takes behind len bytes of payload: 0 if
 * the payload leaves it no room in the largest chunk. */
size_t rdsi_trace_tail(const struct rds_msg *m, size_t len);

/* rdsi_trace_find sets *p to the traceparent of e, NULL if it has none. It returns 0. If the daemon
 * broke the layout, it ends the session and returns its error. rx.mu is held. */
int rdsi_trace_find(rds_client *c, const struct shm_event *e, const uint8_t **p);

#endif
