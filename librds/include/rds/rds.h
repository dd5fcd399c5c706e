/*
 * rds/rds.h - reliable, ordered datagrams and RDMA through rdsd, the daemon of this host.
 *
 * rds_open attaches the process to the daemon. rds_bind makes a socket at an address and
 * port. A socket sends datagrams to any socket of the cluster. Each is delivered exactly
 * once and in order, or its sender gets a notice. docs/guarantees.md says what is promised,
 * librds(7) how to begin.
 *
 * Errors. A function that returns int or ssize_t returns a negative errno on failure. The
 * comment of each function names those that are its own. Any function can also return
 *   -EBADF         the socket, buffer, region or client was closed
 *   -ECONNRESET    the daemon has ended
 *   -ECONNABORTED  the daemon ended this session alone (rds_client_error has the reason)
 *   -ESTALE        the handle was made before a fork, and this is the child
 *   -ENOMEM        no memory in this process
 * After the daemon has ended, what had been delivered can still be received.
 *
 * Threads. Any number of threads may call any function with the same handle, except that
 * the functions named rds_*_free need the handle for themselves.
 *
 * Signals. The library installs no handler (but see rds_adopt) and blocks no signal of the caller's threads. A
 * wait that a signal handler interrupts ends with -EINTR, whatever SA_RESTART says. Calls to
 * the daemon that answer at once, such as rds_bind, are not interrupted.
 *
 * Fork. Handles belong to the process that made them. In the child of a fork every function
 * fails with -ESTALE for them. There rds_socket_free only closes the poll descriptor, and the
 * other rds_*_free do nothing: what the parent's threads were doing at the fork is not known,
 * so the child's copy stays until exec or exit. The parent's sockets are not affected and end
 * with the parent, and the child may open a client of its own. Buffers stay mapped in the
 * child, shared with the parent; adopted memory (rds_adopt) is copied. fork must not be called in a signal handler that interrupts
 * a function of this library, unless the child calls exec or _exit before it returns.
 */
#ifndef RDS_RDS_H
#define RDS_RDS_H

#include <rds/again.h>
#include <rds/op.h>
#include <rds/types.h>
#include <rds/wait.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Client ------------------------------------------------------------------------- */

/*
 * rds_params are the sizes of the memory that a client shares with the daemon, fixed at
 * rds_open. A zero stands for the default, which suits one busy process and is in
 * parentheses. The first four are powers of two.
 */
struct rds_params {
	uint32_t sub_entries;   /* of the submission ring (8192) */
	uint32_t event_entries; /* of the event ring (4096) */
	uint32_t max_msgs;      /* messages sent and not acknowledged (16384) */
	uint32_t max_rx;        /* messages received and not read (16384) */
	uint32_t slots;         /* destinations with messages in flight (8192) */
	uint32_t cells;         /* pairs of an open socket and an address it has sent to (8192) */
	uint32_t send_windows;  /* memory for payload to send, in 4 MiB; grows when needed (2) */
	uint32_t recv_windows;  /* memory for received payload, in 4 MiB (2) */
};

/* rds_way is how a thread waits for the daemon: whether it looks into the shared memory again
 * and again before it blocks. Of the threads of a client one looks for all.
 *
 * The daemon rings a process only when a thread of it blocks. A client with RDS_WAIT_YIELD or
 * RDS_WAIT_SPIN and spin_ns INT64_MAX only polls: it is never rung, and neither is a program that
 * calls with RDS_DONTWAIT in a loop of its own. Such a loop yields itself (sched_yield), or the
 * daemon does not get the processor. A signal interrupts only a wait that blocks: a handler that
 * wants to end one that looks calls rds_wake. */
enum rds_way {
	RDS_WAIT_AUTO,  /* as RDS_WAIT_YIELD or RDS_WAIT_BLOCK, whichever made waits shorter lately */
	RDS_WAIT_BLOCK, /* block at once: no processor time, and a wake-up for each wait */
	RDS_WAIT_YIELD, /* look for spin_ns, with sched_yield(2) after each look */
	RDS_WAIT_SPIN   /* look for spin_ns and keep the processor: where nobody else needs it */
};

/* rds_options of rds_open. Zero it, then set what differs from the default. */
struct rds_options {
	const char *path;     /* of the control socket; NULL: see rds_open */
	const char *name;     /* under which rdsctl shows the process; NULL: its program's name */
	int64_t spin_ns;      /* how long a wait looks before it blocks; 0: as the daemon suggests, < 0: not at all,
	                         INT64_MAX: it never blocks, see rds_way */
	int timeout_ms;       /* how long rds_open may take; 0: for ever */
	int call_timeout_ms;  /* how long the daemon may take to answer; 0: for ever. Beyond it the session ends */
	struct rds_params params;
	enum rds_way wait;
	uint32_t interrupt_ms; /* for runtimes that run signal handlers between their own instructions: a wait of the
	                         process's first thread ends with -EINTR after so many ms, as if a handler had run;
	                         0: never. Waits that could not go on afterwards last: rds_transfer, rds_atomic_op,
	                         sends and receives with a time limit, calls to the daemon */
	uint64_t reserved[3]; /* 0 */
};

/*
 * rds_open attaches to the daemon and stores the client in *client. options may be NULL. If
 * no path is given it takes $RDSD_SOCKET, and without that it tries
 * $XDG_RUNTIME_DIR/rdsd.sock (unless it is root) and then /run/rdsd/rdsd.sock. "%n" in a
 * path stands for the inode number of the calling thread's network namespace.
 *
 * A client has some descriptors, all close-on-exec, and mappings of about 20 MiB of shared
 * memory. It has no thread until rds_pollfd is called.
 *
 * Errors: -ENOENT no daemon answers; -EACCES the mode of the control socket;
 * -EPROTONOSUPPORT another version; -EPROTO not this protocol; -EUSERS, -ENOBUFS the
 * daemon's limits; -EMFILE, -ENFILE; -ETIMEDOUT; -EINVAL params that no daemon grants, or
 * another way to wait than those of rds_way.
 */
RDS_API int rds_open(const struct rds_options *options, rds_client **client);

/* rds_client_error returns 0 while the client works, else why it does not: -EBADF,
 * -ECONNRESET or -ECONNABORTED. If text is not NULL it gets the reason in words, cut off at
 * size - 1 bytes. It looks at the control socket, so it finds an end that nothing else has
 * noticed yet. */
RDS_API int rds_client_error(rds_client *client, char *text, size_t size);

/* rds_addrs stores up to count addresses of the daemon, at which sockets can be bound, and
 * returns how many there are. Their ports are 0. -EOPNOTSUPP: the daemon does not tell. */
RDS_API ssize_t rds_addrs(rds_client *client, struct rds_addr *addrs, size_t count);

/* rds_client_close ends the client with its sockets and regions, and unmaps its buffers.
 * Calls that wait fail with -EBADF. The daemon withdraws what was not sent. The handles stay
 * valid until they are freed. A second close returns -EBADF. */
RDS_API int rds_client_close(rds_client *client);

/* rds_client_free closes the client if it is open, and frees it. Its memory goes when its
 * last socket, buffer and region are freed, too. NULL is ignored. */
RDS_API void rds_client_free(rds_client *client);

/* ---- Sockets ------------------------------------------------------------------------ */

/*
 * rds_bind makes a socket at addr and stores it in *socket. Port 0 takes a free port. The
 * address 0.0.0.0 stands for the one IPv4 address of the daemon, and :: for its one IPv6
 * address.
 *
 * Errors: -EINVAL an address that no socket can have, port 1, or the unspecified address
 * where the daemon has several; -EADDRINUSE; -EADDRNOTAVAIL the address is not the daemon's;
 * -EACCES its bind policy; -ENOBUFS its limits or the user's quota; -ESHUTDOWN the daemon is
 * drained; -EOPNOTSUPP the unspecified address, with a daemon that does not tell its own.
 */
RDS_API int rds_bind(rds_client *client, const struct rds_addr *addr, rds_socket **socket);

/* rds_local stores the address and port of the socket in *addr. It works on closed sockets. */
RDS_API int rds_local(rds_socket *socket, struct rds_addr *addr);

/* rds_incarnation returns the number of this bind of the port, which peers see as
 * rds_msg.src_inc. It works on closed sockets, and is 0 in the child of a fork. */
RDS_API uint32_t rds_incarnation(rds_socket *socket);

/* rds_connect sets the destination of sends that name none. Errors: -EDESTADDRREQ the
 * unspecified address; -EOPNOTSUPP the other address family; -EINVAL not a host's address. */
RDS_API int rds_connect(rds_socket *socket, const struct rds_addr *addr);

/* rds_remote stores the connected destination in *addr, or no address. */
RDS_API int rds_remote(rds_socket *socket, struct rds_addr *addr);

/* rds_close closes the socket and frees its port. Calls that wait fail with -EBADF. Messages
 * that were not sent are withdrawn, those on their way may arrive. rds_completions,
 * rds_notices, rds_zero_copy_done and rds_hwm still return what the socket had been told. It
 * returns 0 also if the daemon is gone. */
RDS_API int rds_close(rds_socket *socket);

/* rds_close_wait is rds_close that first waits until every message sent is acknowledged,
 * withdrawn or came back as a notice. Other calls fail with -EBADF from its start. The socket
 * is closed in any case but -EINTR, after which a call of it or of rds_close goes on. A negative
 * timeout waits without limit.
 *
 * Errors: -EINTR; -ETIMEDOUT messages were still on their way after timeout_ms; -ECONNRESET or
 * -ECONNABORTED as in every call. Messages were not delivered, and nobody has taken the news:
 * -ECONNREFUSED of a notice RDS_NO_SOCKET; -EPIPE of another notice that counts messages; that
 * of rds_status_error of a completion, but of RDS_CANCELED. rds_notices and rds_completions
 * still return them, and rds_refusal has the first in words. A notice for which the daemon finds no room in the client's queue until
 * the close is missed. */
RDS_API int rds_close_wait(rds_socket *socket, int timeout_ms);

/* rds_socket_free closes the socket if it is open, and frees it. NULL is ignored. */
RDS_API void rds_socket_free(rds_socket *socket);

/* ---- Options of sockets -------------------------------------------------------------- */

enum rds_option {
	RDS_OPT_NONBLOCK = 1,         /* sends and receives do not wait (0) */
	RDS_OPT_SNDBUF = 2,           /* send buffer, bytes of payload not acknowledged (524288) */
	RDS_OPT_RCVBUF = 3,           /* receive buffer, bytes of payload not received (524288); a call to the daemon */
	RDS_OPT_SNDTIMEO = 4,         /* ms after which a send that waits fails with -ETIMEDOUT, 0: none (0) */
	RDS_OPT_RCVTIMEO = 5,         /* the same for a receive (0) */
	RDS_OPT_LANE = 6,             /* 0 to 255; can be set once, before the first send (0) */
	RDS_OPT_FAIL_UNREACHABLE = 7, /* sends to a host that is not reached fail while others wait for it (0) */
	RDS_OPT_CONG_MONITOR = 8,     /* collect reports for rds_cong_updates (0) */
	RDS_OPT_NOTICES = 9,          /* bit 1 << kind: queue notices of this kind (all) */
	RDS_OPT_LINGER = 10,          /* ms that rds_close waits as rds_close_wait does, 0: not (0) */
	RDS_OPT_ANYBODY = 11          /* messages that name no socket go to whichever is bound when they arrive; before the first send (0) */
};

/* rds_set_option sets an option. Errors: -EINVAL a value that it cannot have, a lane or
 * RDS_OPT_ANYBODY after the first send; -EOPNOTSUPP RDS_OPT_ANYBODY with a daemon of an older
 * version; -ENOPROTOOPT no such option.
 *
 * Without RDS_OPT_ANYBODY a destination meets the socket that takes its first message. The later
 * ones go to that socket or come back (RDS_NO_SOCKET), also when another one is bound at the port by
 * then. With it a message comes back only if no socket is bound, so the first messages to a port
 * that was bound anew do not. A message with an operation on memory of a socket at its port is for that
 * socket in any case. */
RDS_API int rds_set_option(rds_socket *socket, enum rds_option option, int64_t value);

/* rds_get_option stores the value of an option in *value. */
RDS_API int rds_get_option(rds_socket *socket, enum rds_option option, int64_t *value);

/* ---- Messages ----------------------------------------------------------------------- */

/* Flags of messages. */
#define RDS_DONTWAIT 1u  /* this call does not wait: -EAGAIN, -ENOBUFS */
#define RDS_PEEK 2u      /* a receive leaves the message in the queue */
#define RDS_ZERO_COPY 4u /* rds_zero_copy_done returns zero_copy_cookie when the message has ended */
#define RDS_TRUNC 8u     /* set by a receive: the message was longer than the memory given */
#define RDS_NOTIFY 16u   /* a message without operations gets a completion with its token, see enum rds_status */

/*
 * An rds_msg is one datagram for rds_sendmsg and rds_recvmsg. Zero it before the first use.
 */
struct rds_msg {
	struct rds_addr addr;    /* destination, or source */
	uint32_t flags;          /* RDS_... above */
	const struct iovec *iov; /* payload to send, or memory to receive into; always copied */
	size_t iovlen;
	struct rds_segment from; /* send: instead of iov, payload that is sent from where it lies */
	uint64_t cookie;         /* send: of a region of this client; receive: what came along, 0: none */
	const struct rds_rdma *op;       /* send: runs ahead of the message */
	const struct rds_atomic *atomic; /* send: runs behind op, ahead of the message */
	uint32_t give_up_ms;       /* send: limit of the wait for an acknowledgement, 0: none */
	uint32_t dst_inc;          /* send: incarnation that the message is for, 0: see docs/guarantees.md */
	uint32_t zero_copy_cookie; /* send: with RDS_ZERO_COPY */
	uint32_t src_inc;    /* set by a receive: incarnation of the sender, 0: a Linux kernel */
	uint64_t op_id;      /* set by a send: barrier id of op, or 0 */
	uint64_t atomic_id;  /* set by a send: barrier id of atomic, or 0 */
	size_t n;            /* set by a receive: bytes stored */
	size_t len;          /* set by a receive: length of the message */
	int64_t time_ns;     /* set by a receive: Unix time at which the daemon had the message */
	uint32_t assembly_ns; /* set by a receive: from the message's header to time_ns */
	uint32_t reserved0;
	uint64_t token;       /* send: with RDS_NOTIFY, comes back in the completion */
	/* The trace that the message belongs to: the text of a traceparent header of W3C Trace Context,
	 * 55 characters. send: NULL or "" is none; the message arrives without if one of the daemons
	 * does not know it, at a Linux kernel, over RDS/TCP and with more than 1 MiB less 26 bytes
	 * in iov. receive: unless NULL, RDS_TRACEPARENT_SIZE bytes for what came, "" if nothing did. */
	char *traceparent;
};
#define RDS_TRACEPARENT_SIZE 56

/*
 * rds_send queues len bytes for delivery to the socket at to, or to the connected
 * destination if to is NULL. It returns len. Success means queued, not delivered.
 *
 * It waits while the send buffer is full or the destination congested. A non-blocking
 * socket, or RDS_DONTWAIT in flags, fails instead.
 *
 * Errors: -EAGAIN the send buffer, message ids or send memory are full; -ENOBUFS the
 * destination is congested; -EMLINK too many destinations are in use; -EMSGSIZE more than the
 * send buffer or 1 MiB; -ENOTCONN no destination; -EOPNOTSUPP the other address family;
 * -EINVAL not a host's address; -EACCES peers.allow of this host forbids the destination;
 * -ETIMEDOUT; -EINTR. With RDS_OPT_FAIL_UNREACHABLE also -EHOSTUNREACH, -ECONNREFUSED,
 * -EHOSTDOWN and -EPERM.
 */
RDS_API ssize_t rds_send(rds_socket *socket, const void *data, size_t len, const struct rds_addr *to, unsigned flags);

/*
 * rds_sendmsg queues one message and returns 0. It sets msg->op_id and msg->atomic_id.
 * Errors: those of rds_send; -EINVAL a malformed operation or segment, a cookie that is not
 * of this client, RDS_NOTIFY with operations, a malformed traceparent; -EFAULT an atomic whose local memory is not 8 bytes at a multiple of 8;
 * -ENOSPC no room for one more completion or zero-copy cookie, also on a blocking socket;
 * -EOPNOTSUPP a cookie for a host without RDMA, RDS_NOTIFY or a socket with RDS_OPT_ANYBODY at a daemon of an older version. What only the daemon can check becomes the
 * status of the operation.
 */
RDS_API int rds_sendmsg(rds_socket *socket, struct rds_msg *msg);

/* rds_sendmsgs queues messages in order and hands them to the daemon together. It returns
 * how many it queued, or the error of the first if it queued none. The flags of each count. */
RDS_API ssize_t rds_sendmsgs(rds_socket *socket, struct rds_msg *msgs, size_t count);

/*
 * rds_recv receives one message into at most len bytes of data, and its source into *from
 * unless from is NULL. It returns how many bytes it stored; the rest of a longer message is
 * lost. flags: RDS_DONTWAIT, RDS_PEEK.
 *
 * Errors: -EAGAIN nothing to receive; -ETIMEDOUT; -EINTR; -ECANCELED rds_wake; -ENOBUFS a Linux kernel has sent
 * more than the daemon keeps and the socket lost its port, once everything delivered has
 * been received.
 */
RDS_API ssize_t rds_recv(rds_socket *socket, void *data, size_t len, struct rds_addr *from, unsigned flags);

/* rds_recvmsg receives one message into msg and returns 0. Errors: those of rds_recv. */
RDS_API int rds_recvmsg(rds_socket *socket, struct rds_msg *msg);

/* rds_recvmsgs receives what is there into msgs, at least one message, and returns how many.
 * Only the wait for the first one blocks. RDS_PEEK is ignored, and RDS_DONTWAIT counts in
 * the first. */
RDS_API ssize_t rds_recvmsgs(rds_socket *socket, struct rds_msg *msgs, size_t count);

/* An rds_borrowed is a received datagram where it lies. */
struct rds_borrowed {
	const void *data;     /* payload, in memory that cannot be written; may be NULL if len is 0 */
	size_t len;           /* its length, all of it */
	struct rds_addr addr; /* source */
	uint32_t src_inc;     /* as in rds_msg, as are the next three */
	uint64_t cookie;
	int64_t time_ns;
	uint32_t assembly_ns;
	uint32_t lender;      /* this and id are for rds_return */
	uint64_t id;
};

/*
 * rds_borrow receives one datagram as rds_recvmsg does, but without a copy: *borrowed says where it
 * lies in the memory that the client shares with the daemon, until rds_return gives it back. flags:
 * RDS_DONTWAIT.
 *
 * Borrowed datagrams may be returned in any order, by any thread. Until then they count against the
 * receive buffer (RDS_OPT_RCVBUF), and senders find the socket congested when that is full. Small
 * datagrams that came together lie in one piece of up to 64 KiB, which counts as long as one of
 * them is borrowed or is still to be received. A program that keeps some for long copies them.
 *
 * A borrowed datagram stays as it is through planned restarts of the daemon, after the daemon has
 * ended, and after rds_close, which rds_return may follow. rds_socket_free returns all that the
 * socket has lent. rds_client_close unmaps them. In the child of a fork they are not mapped.
 *
 * Errors: those of rds_recv; -EINVAL another flag.
 */
RDS_API int rds_borrow(rds_socket *socket, struct rds_borrowed *borrowed, unsigned flags);

/* rds_return gives a borrowed datagram back. Its memory must not be used any more. Errors:
 * -EALREADY it was returned before; -EINVAL it was not borrowed from this socket; -EBADF the
 * client was closed. */
RDS_API int rds_return(rds_socket *socket, const struct rds_borrowed *borrowed);

/* rds_borrowed_traceparent stores the traceparent of a borrowed datagram at text, which has
 * RDS_TRACEPARENT_SIZE bytes; "" if it has none. Errors: those of rds_return. */
RDS_API int rds_borrowed_traceparent(rds_socket *socket, const struct rds_borrowed *borrowed, char *text);

/* rds_cancel withdraws everything that the socket has queued or sent to the socket at to.
 * Messages already sent may still be delivered. Operations end with RDS_CANCELED. */
RDS_API int rds_cancel(rds_socket *socket, const struct rds_addr *to);

/* rds_close_dest gives back what the socket keeps for the destination to. A later send opens
 * it again. -EBUSY: messages to it are not acknowledged. */
RDS_API int rds_close_dest(rds_socket *socket, const struct rds_addr *to);

/* rds_zero_copy_done stores cookies of messages sent with RDS_ZERO_COPY that were
 * acknowledged or withdrawn. It returns how many. */
RDS_API ssize_t rds_zero_copy_done(rds_socket *socket, uint32_t *cookies, size_t count);

/* ---- Notices and congestion ---------------------------------------------------------- */

enum rds_notice_kind {
	RDS_LOST = 1,        /* count messages were lost: the peer's daemon restarted */
	RDS_NO_SOCKET = 2,   /* count messages found no socket at to */
	RDS_PEER_DOWN = 3,   /* the connection to the host of to broke */
	RDS_PEER_UP = 4,     /* it is there again */
	RDS_GAVE_UP = 5,     /* count messages reached their give_up_ms */
	RDS_UNREACHABLE = 6, /* the host of to is not reached, for reason; messages wait */
	RDS_NOT_GRANTED = 7  /* count cookies, or rds_expose calls, did not make their region usable */
};

enum rds_reason {
	RDS_REASON_FORBIDDEN = 1, /* peers.allow of this host: EACCES */
	RDS_REASON_NO_ROUTE = 2,  /* EHOSTUNREACH */
	RDS_REASON_REFUSED = 3,   /* no daemon listens there: ECONNREFUSED */
	RDS_REASON_TIMEOUT = 4,   /* nothing answers: EHOSTDOWN */
	RDS_REASON_REJECTED = 5,  /* its daemon rejects this host: EPERM */
	RDS_REASON_OTHER = 6      /* EHOSTUNREACH */
};

/* An rds_notice says what happened at a destination. */
struct rds_notice {
	uint32_t kind;      /* enum rds_notice_kind */
	uint32_t reason;    /* enum rds_reason, of RDS_UNREACHABLE */
	struct rds_addr to; /* no address: several destinations */
	uint64_t count;
};

/* rds_notices takes up to count notices and returns how many. It does not wait. */
RDS_API ssize_t rds_notices(rds_socket *socket, struct rds_notice *notices, size_t count);

/* rds_cong_updates stores in *mask which destinations are no longer congested, a bit for each
 * (port modulo 64), and clears the report. It reports destinations to which a send failed
 * with -ENOBUFS while RDS_OPT_CONG_MONITOR was on. */
RDS_API int rds_cong_updates(rds_socket *socket, uint64_t *mask);

#ifdef __cplusplus
}
#endif

#endif
