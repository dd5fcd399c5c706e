/* rds/again.h - after the end of a daemon, and errors in words. Include rds/rds.h. */
#ifndef RDS_AGAIN_H
#define RDS_AGAIN_H

#include <rds/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * rds_reopen attaches again, with the options of old, after the daemon of old has gone or has
 * ended the session, and stores the new client in *client. It tries until a daemon answers,
 * at most for timeout_ms; a negative timeout has no limit. rds_rebind then makes the sockets
 * again. What was delivered to the sockets of old can still be received there, and old has to
 * be closed or freed.
 *
 * Nothing else survives. Messages that were sent and not acknowledged may have arrived, none
 * twice. Operations without a status are to be treated as RDS_UNKNOWN, and the memory of those
 * above the high-water mark as in use until old is closed. Barrier ids start again at 1.
 * Regions, their cookies and buffers have ended with old. Peers treat the sockets as those of
 * a restarted host.
 *
 * Errors: -EINVAL old works, or was closed while it worked; -ETIMEDOUT no daemon answered;
 * -EINTR; those of rds_open, but for -ENOENT.
 */
RDS_API int rds_reopen(rds_client *old, int timeout_ms, rds_client **client);

/* rds_rebind binds a socket of client at the address and port of old, a socket of a client that
 * has ended, and stores it in *socket. It has the options and the connected destination of old.
 * What is queued and the poll descriptor stay with old. Errors: -EINVAL the client of old works;
 * those of rds_bind, and of rds_set_option with RDS_OPT_RCVBUF. */
RDS_API int rds_rebind(rds_client *client, rds_socket *old, rds_socket **socket);

/* rds_error_text returns what the error err of a function of this library means: what can have
 * failed, and what to do. A negative errno and its absolute value have the same text, which is
 * never NULL and never freed. */
RDS_API const char *rds_error_text(int err);

/* rds_refusal returns the words in which the daemon refused the last request of this thread,
 * such as a bind or a registration, with the rule or quota that it broke; after -ENOENT of rds_open, the
 * control sockets that were tried; after rds_close_wait, or rds_close with RDS_OPT_LINGER, which
 * messages were not delivered. It is empty if there is no such thing, and valid until the next request or close. */
RDS_API const char *rds_refusal(void);

#ifdef __cplusplus
}
#endif

#endif
