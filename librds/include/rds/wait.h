/* rds/wait.h - waiting for sockets. Include rds/rds.h. */
#ifndef RDS_WAIT_H
#define RDS_WAIT_H

#include <rds/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rds_until_kind {
	RDS_UNTIL_MESSAGE = 1,    /* a message can be received */
	RDS_UNTIL_SEND_SPACE = 2, /* the send buffer has room */
	RDS_UNTIL_SEND_TO = 3,    /* a message can be sent to addr */
	RDS_UNTIL_COMPLETION = 4, /* a completion of any operation is queued */
	RDS_UNTIL_NOTICE = 5,     /* a notice is queued */
	RDS_UNTIL_ZERO_COPY = 6,  /* a zero-copy cookie came back */
	RDS_UNTIL_CONGESTION = 7, /* rds_cong_updates has something to report */
	RDS_UNTIL_OP = 8,         /* the operation id to the host of addr is locally complete */
	RDS_UNTIL_STATUS = 9,     /* the completion of that operation is queued */
	RDS_UNTIL_RELIEF = 10,    /* the destination addr is not congested */
	RDS_UNTIL_UNREACHABLE = 11 /* the host of the destination addr is not reached (rds_reach) */
};

/* An rds_until is a condition of a socket. */
struct rds_until {
	rds_socket *socket;
	uint32_t kind;  /* enum rds_until_kind */
	uint32_t ready; /* set to 1 if the condition holds, else to 0 */
	struct rds_addr addr;
	uint64_t id;
};

/*
 * rds_wait waits until at least one of count conditions holds, and returns how many hold. It
 * takes nothing. It returns 0 when timeout_ms has passed; a negative timeout waits without
 * limit, and 0 does not wait. All sockets must be of one client, and of rds_poll_set of one
 * socket.
 *
 * Errors: -EINVAL no condition, or sockets of several clients; an operation that was not
 * issued, or whose completion will not come; -EINTR; -ECANCELED (rds_wake); -ENOBUFS if no
 * condition holds and one of a socket that a kernel has overrun is about messages.
 */
RDS_API int rds_wait(struct rds_until *until, size_t count, int timeout_ms);

/*
 * rds_pollfd returns a descriptor for poll(2), epoll(7) and the like. It is readable while a
 * condition of the socket's poll set holds, and once the client has ended. The poll set of a
 * new socket is everything that can be taken: messages, completions, notices, zero-copy
 * cookies and congestion updates.
 *
 * The descriptor belongs to the socket: do not read, write or close it. It may be readable
 * without a cause. A loop that calls rds_polled, or takes until nothing is left, leaves it
 * unreadable. While a client has such descriptors, one thread of the library serves them.
 * rds_close makes it readable a last time and closes it. Errors: -EMFILE, -ENFILE.
 */
RDS_API int rds_pollfd(rds_socket *socket);

/* rds_poll_set chooses the poll set. The socket of each condition must be socket. Errors:
 * -EINVAL as in rds_wait. */
RDS_API int rds_poll_set(rds_socket *socket, const struct rds_until *until, size_t count);

/* rds_polled returns how many conditions of the poll set hold, and stores up to count of
 * them in until. It does not wait. If none holds, the descriptor is unreadable until one
 * does. Errors: those of rds_wait. */
RDS_API int rds_polled(rds_socket *socket, struct rds_until *until, size_t count);

/*
 * rds_wake ends a wait at the socket: a call of rds_recv, rds_recvmsg, rds_recvmsgs, rds_borrow,
 * rds_wait, rds_wait_op, rds_barrier or rds_barrier_all returns -ECANCELED, having taken nothing.
 * Any thread and any signal handler may call it. It takes no lock, keeps errno, and returns before
 * the wait has ended.
 *
 * A wake is a flag, as an eventfd that one reads to 0. If nobody waits it stays for the next call that
 * has to wait. Of several calls that wait one takes it. Wakes that nobody has taken yet are one. A
 * call that finds what it is for returns that and leaves the wake, and so does one that does not
 * wait (RDS_DONTWAIT, a timeout of 0). Until it is taken the poll descriptor is readable, and
 * rds_polled takes it if no condition holds. Sends, rds_transfer, rds_atomic_op, rds_close_wait and
 * calls to the daemon go on and leave it.
 *
 * -ECANCELED is neither the end of the socket nor that of a time limit, and no signal handler need
 * have run, which -EINTR says: the socket works, and the call can be made again. Errors: -EBADF;
 * -ESTALE.
 */
RDS_API int rds_wake(rds_socket *socket);

/* rds_client_wake wakes as rds_wake does, at whichever socket of the client: one wait takes it. A
 * wait for a socket with a wake of its own takes that one first. All poll descriptors of the
 * client become readable. */
RDS_API int rds_client_wake(rds_client *client);

#ifdef __cplusplus
}
#endif

#endif
