/* What the files of the preload library share. docs/preload.md explains the whole. */
#ifndef PRE_H
#define PRE_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rds/rds.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>

#include "kernel.h"

/* A pre_addr is a decoded sockaddr. */
struct pre_addr {
	uint16_t family; /* 0: none */
	struct rds_addr at;
	uint32_t scope;
};

/* A pre_buffer is memory of the program that the daemon can reach. */
struct pre_buffer {
	struct pre_buffer *next;
	rds_buffer *buffer;
	uint64_t start, end;
	size_t pins; /* segments of calls in progress */
};

/* A pre_client is a session with the daemon of one network namespace. It lives until its last socket is gone. */
struct pre_client {
	rds_client *c;
	struct pre_client *next; /* client.c */
	uint64_t net;
	_Atomic int refs;
	pthread_mutex_t mu; /* guards what follows */
	struct pre_buffer *buffers;
};

/* A pre_timeout is SO_SNDTIMEO or SO_RCVTIMEO. */
struct pre_timeout {
	int64_t us; /* 0: none */
	bool poll;  /* a negative one: do not wait */
};

/* A pre_op is an operation whose status is still to come. Its place is its token minus 1. */
struct pre_op {
	uint64_t token; /* the program's */
	bool used;
	bool notify;    /* RDS_RDMA_NOTIFY_ME; else RDS_RECVERR */
};

/* A pre_mr is a region that the program has registered. */
struct pre_mr {
	struct pre_mr *next;
	rds_region *region;
	uint32_t key;
	bool once;
	bool granted;       /* its cookie went to the host of to */
	struct rds_addr to;
};

/* A pre_armed is a barrier that poll waits for. */
struct pre_armed {
	struct rds_addr to;
	uint64_t id;
};

enum { PRE_CONGESTED = 1024 }; /* the most that poll remembers */

/*
 * A pre_sock is an open AF_RDS socket. Descriptors and calls in progress hold references, as in
 * the kernel, so the last of them releases it. Its memory is never given back, because a thread
 * may just be looking it up.
 */
struct pre_sock {
	_Atomic uint32_t refs; /* 0: not in use */
	struct pre_sock *next_free, *next_all;
	_Atomic bool nonblock;
	_Atomic(rds_socket *) rs;     /* NULL before bind */
	_Atomic bool lost;            /* another process has bound it, for example the parent of a fork */
	_Atomic bool watched;         /* its descriptor shows its state */
	_Atomic bool full_shown;      /* ... also that the send buffer is full */
	_Atomic uint32_t pending_ops; /* in ops */
	int own, end;                 /* a second descriptor of the program's end, and the other end */
	uint64_t net;                 /* its network namespace: pre_net */
	int travelled;                /* what another process has made, and own stands for, or -1 */
	pthread_mutex_t watching;     /* taken before mu, by whoever sets what the descriptor shows */

	pthread_mutex_t mu; /* guards what follows */
	struct pre_client *client;
	struct pre_addr bound, peer;
	int sndbuf, rcvbuf; /* as getsockopt returns them: twice the limit */
	_Atomic int sndlimit;
	struct pre_timeout sndtimeo, rcvtimeo;
	int reuse, zerocopy, timestamp, transport;
	_Atomic bool recverr, monitor;
	bool errors; /* for lost messages; it does not change once the socket is bound */
	struct { uint8_t n, pos[PRE_TRACES]; } trace;
	struct pre_op *ops;
	size_t nops;
	struct pre_mr *mrs;
	/* Taken over from librds and not received yet. */
	struct pre_notify status;
	_Atomic bool has_status;
	_Atomic uint64_t cong;
	struct pre_zcopy_cookies zcopied;
	/* What poll waits for besides. */
	struct rds_addr *congested;
	_Atomic size_t ncongested;
	struct pre_armed *armed; /* one a destination, which librds limits */
	_Atomic size_t narmed;
};

/* ---- real.c: the C library's own functions ---- */
#define PRE_REAL(result, name, ...) extern result (*real_##name)(__VA_ARGS__);
#include "real.h"
#undef PRE_REAL
/* pre_init finds them. Every hook calls it before anything else, unless pre_ready. */
extern _Atomic bool pre_ready;
void pre_init(void);
static inline void pre_start(void)
{
	if (__builtin_expect(!atomic_load_explicit(&pre_ready, memory_order_acquire), 0))
		pre_init();
}

/* ---- table.c ---- */
/* pre_get returns the RDS socket of a descriptor with a reference, or NULL. */
struct pre_sock *pre_get(int fd);
/* pre_is reports whether fd is an RDS socket. */
bool pre_is(int fd);
void pre_put(struct pre_sock *s);
/* pre_set makes fd a descriptor of s (NULL: of something else), after the C library did. It takes
 * a reference. -EMFILE: fd is beyond the table. */
int pre_set(int fd, struct pre_sock *s);
struct pre_sock *pre_sock_new(void);
/* pre_socks calls f for every socket that is in use. f must not end one. */
void pre_socks(void (*f)(struct pre_sock *s, void *arg), void *arg);
/* pre_lift moves a descriptor of this library out of the program's way and marks it as hidden:
 * the program cannot close it. */
int pre_lift(int fd);
bool pre_hidden(int fd);
/* pre_fits reports whether the table has a place for fd. */
bool pre_fits(int fd);
int pre_close_hidden(int fd);
int pre_close_range(unsigned first, unsigned last, int flags);
/* pre_same_process is false in the child of a vfork, which shares the parent's tables. */
bool pre_same_process(void);

/* ---- travel.c: descriptors that come from another process ---- */
/* pre_mark names the other end of a pair, so that every process knows the pair and its network namespace. */
void pre_mark(int end, uint64_t net);
/* pre_claim makes this process the one that binds s. -EINVAL: another one has. */
int pre_claim(struct pre_sock *s);
/* pre_adopt makes a socket of fd, with a reference, if fd is one of another process, or was before an exec.
 * Else it returns NULL. errno stays. */
struct pre_sock *pre_adopt(int fd);
void pre_adopt_in_child(void);
/* pre_adopt_received does so with the descriptors that came with a message. */
void pre_adopt_received(const struct msghdr *h);

/* ---- life.c: sockets ---- */
/* pre_sock_fresh is pre_sock_new with the options of a new socket. */
struct pre_sock *pre_sock_fresh(void);
/* pre_ends makes the descriptors of s: the program's, which it returns, and two hidden ones. */
int pre_ends(struct pre_sock *s, int flags);
int pre_socket(int type, int protocol);
/* pre_bind, pre_connect and pre_name have names in memory of this library. */
int pre_bind(struct pre_sock *s, const void *addr, socklen_t len);
int pre_connect(struct pre_sock *s, const void *addr, socklen_t len);
int pre_name(struct pre_sock *s, bool peer, struct sockaddr_storage *name, socklen_t *len);
void pre_release(struct pre_sock *s);
/* pre_live stores the bound socket in *rs, NULL before bind. */
int pre_live(struct pre_sock *s, rds_socket **rs);
/* pre_restarts reports whether a call that a signal has interrupted goes on. */
bool pre_restarts(void);

/* ---- client.c ---- */
/* pre_net is the inode number of the thread's network namespace if RDSD_SOCKET has a place for it, else 0.
 * pre_path writes the control socket's path there. It returns NULL if the path is not said. */
uint64_t pre_net(void);
const char *pre_path(char *to, size_t size, uint64_t net);
int pre_client_get(uint64_t net, struct pre_client **client);
void pre_client_put(struct pre_client *client);

/* ---- addr.c ---- */
int pre_addr_parse(const void *addr, socklen_t len, int other, struct pre_addr *a);
void pre_addr_in(const void *addr, bool six, struct pre_addr *a);
bool pre_unicast(const struct rds_addr *a);
bool pre_v4(const struct rds_addr *a);
bool pre_needs_scope(const struct pre_addr *a);
bool pre_same_host(const struct rds_addr *a, const struct rds_addr *b);
/* pre_addr_put writes at most *len bytes of the sockaddr and stores its whole length. */
void pre_addr_put(const struct rds_addr *a, uint32_t scope, void *to, socklen_t *len);

/* ---- send.c, control.c, recv.c ---- */
/* A pre_out is a message that is being sent. Behind flags is what only messages with control messages
 * have. */
struct pre_out {
	struct rds_msg m;
	size_t len;
	int flags;
	struct rds_rdma op;
	struct rds_atomic atomic;
	struct rds_segment *vec; /* of op */
	size_t nvec;
	struct pre_iovec *local; /* a copy of the program's, of which vec is made */
	size_t nlocal;
	struct pre_mr *mapped;
	uint64_t tokens[2];
	uint8_t *control, few[256]; /* a copy of the program's: few, or for more memory of its own */
	size_t ncontrol;
};
/* The name and the vector of h are memory of this library. */
ssize_t pre_sendmsg(struct pre_sock *s, const struct msghdr *h, int flags);
ssize_t pre_recvmsg(struct pre_sock *s, struct msghdr *h, int flags);
/* pre_controls_load copies the control messages of h into o, and pre_controls puts what they ask for
 * there. */
int pre_controls_load(struct pre_out *o, const struct msghdr *h);
int pre_controls(struct pre_sock *s, rds_socket *rs, struct pre_out *o);
void pre_undo(struct pre_sock *s, struct pre_out *o);
/* pre_settled keeps the status of an operation for the program. */
void pre_settled(struct pre_sock *s, const struct rds_completion *c);

/* ---- lost.c ---- */
/* pre_notices are those that a socket which is being bound queues. */
uint32_t pre_notices(struct pre_sock *s);
/* pre_error takes an error for messages that were lost: -ECONNRESET by a restart of the peer,
 * -ECONNREFUSED for want of a socket there, 0 for none. */
int pre_error(struct pre_sock *s, rds_socket *rs);

/* ---- option.c, rdsoption.c, info.c, barrier.c ---- */
int pre_setsockopt(struct pre_sock *s, int level, int opt, const void *val, socklen_t len);
int pre_getsockopt(struct pre_sock *s, int level, int opt, void *val, socklen_t *len);
int pre_set_rds(struct pre_sock *s, int opt, const void *val, socklen_t len);
/* val is the program's, len is not. */
int pre_get_rds(struct pre_sock *s, int opt, void *val, socklen_t *len);
int pre_apply_options(struct pre_sock *s, rds_socket *rs);
int pre_set_timestamp(struct pre_sock *s, int opt, int on);
int pre_info(struct pre_sock *s, int opt, void *val, socklen_t *len);
int pre_barrier(struct pre_sock *s, const void *val, socklen_t len);
int pre_ioctl(struct pre_sock *s, unsigned long request, void *arg, bool *handled);

/* ---- copy.c: the program's memory ---- */
/* pre_copy copies from or to an address of the program that may be wrong: -EFAULT. It may have copied a
 * part then. pre_store and pre_load do it with structures. Each is read once, so that what was checked is
 * what is used. */
int pre_copy(void *to, const void *from, size_t n);
int pre_store(uint64_t at, const void *from, size_t n);
int pre_load(void *to, uint64_t at, size_t n);

/* ---- message.c: the program's msghdr and names ---- */
/* A pre_msg is a copy of the program's msghdr, with its vector, and its name if it is sent. What it says of
 * control messages and payload are the program's addresses. */
struct pre_msg {
	struct msghdr h;
	struct sockaddr_storage name;
	void *to; /* where the program wants the name */
	struct iovec *v, few[8];
};
/* pre_msg_load makes m, and pre_msg_vector makes it of a vector alone. pre_msg_end is due after an error, too. */
int pre_msg_load(struct pre_msg *m, const struct msghdr *from, bool send);
int pre_msg_vector(struct pre_msg *m, const struct iovec *v, int n);
/* pre_msg_store stores what a receive has set. */
int pre_msg_store(const struct pre_msg *m, struct msghdr *to);
void pre_msg_end(struct pre_msg *m);
int pre_name_load(struct sockaddr_storage *to, const void *addr, socklen_t len);
/* pre_name_store stores as much of the n bytes of a name as *len has room for, and n in *len. */
int pre_name_store(const struct sockaddr_storage *from, socklen_t n, void *addr, socklen_t *len);

/* ---- memory.c: regions of the program's memory ---- */
int pre_get_mr(struct pre_sock *s, const void *val, socklen_t len, bool for_dest);
int pre_free_mr(struct pre_sock *s, const void *val, socklen_t len);
int pre_register(struct pre_sock *s, rds_socket *rs, const struct pre_mr_args *a, unsigned open, struct pre_mr **mr);
void pre_mr_add(struct pre_sock *s, struct pre_mr *mr);
int pre_mr_offer(struct pre_sock *s, uint64_t cookie, const struct rds_addr *to);
void pre_mr_drop(struct pre_mr *mr);
/* pre_segment makes n bytes of the program's memory a part of a buffer. The buffer stays until
 * pre_segments_done, which ends any of n segments that has a buffer. -EFAULT: the memory is not
 * there, or is a file's, shared, or the stack; others of rds_adopt. */
int pre_segment(struct pre_sock *s, uint64_t at, uint64_t n, struct rds_segment *seg);
void pre_segments_done(struct pre_sock *s, const struct rds_segment *seg, size_t n);
/* pre_buffers_end forgets the buffers of a session that has ended. */
void pre_buffers_end(struct pre_client *c);

/* ---- poll.c, mirror.c ---- */
/* pre_poll is ppoll for descriptors of which some are RDS sockets. */
int pre_ppoll_some(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask);
/* pre_has_rds reports whether one of fds is an RDS socket. */
bool pre_has_rds(const struct pollfd *fds, nfds_t n);
/* pre_conditions are those that make one of events true. It returns how many, at most max. */
size_t pre_conditions(struct pre_sock *s, rds_socket *rs, int events, struct rds_until *until, size_t max);
/* pre_room returns how many conditions s has at most. */
size_t pre_room(struct pre_sock *s);
/* pre_watch makes the descriptor show the state from now on. */
int pre_watch(struct pre_sock *s);
/* pre_rewatch makes it show what has changed in the conditions. */
void pre_rewatch(struct pre_sock *s);
/* pre_sent looks after a send whether the send buffer is full. */
void pre_sent(struct pre_sock *s, rds_socket *rs);
void pre_met_congestion(struct pre_sock *s, const struct rds_addr *to);
/* pre_tell_relief drops the destinations that are free again: the descriptor has reported them. */
void pre_tell_relief(struct pre_sock *s, rds_socket *rs);

#endif
