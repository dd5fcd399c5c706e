/* What the files of librds share: client, sending side, receiving side, socket. Package rds
 * has the same parts under the same names. */
#ifndef RDSI_INT_H
#define RDSI_INT_H

#include <errno.h>
#include <pthread.h>
#include <rds/rds.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "ctl.h"
#include "frames.h"
#include "hash.h"
#include "queue.h"
#include "segment.h"
#include "util.h"
#include "waiters.h"
#include "patience.h"

#define RDSI_NO_ID UINT32_MAX
/* Payloads up to this are copied under the lock. */
#define RDSI_INLINE_COPY (8u << 10)

/* rdsi_sum is what some datagrams hold. */
struct rdsi_sum {
	size_t datagrams, non_empty, bytes;
};

/* rdsi_mapping is shared memory that the client has mapped. */
struct rdsi_mapping {
	uint8_t *mem;
	size_t size;
};

/* rdsi_out_run is the run of a destination that may still be appended to. */
struct rdsi_out_run {
	uint8_t *mem;       /* its chunk, NULL: there is none */
	size_t cap;         /* bytes of the chunk */
	uint32_t id;        /* message id */
	uint64_t state;     /* as the daemon sees it */
	uint64_t next;      /* with the uncommitted frames */
	size_t fresh;       /* uncommitted datagrams that have a payload */
	size_t size;        /* of the chunk of the next run */
	uint64_t opened;    /* tx.published when it was opened */
	uint32_t notices;   /* socket.noticed when it was opened */
};

/* An rdsi_dest is a destination slot of a socket. Guarded by tx.mu. It lives while it is open
 * or has messages pending. */
struct rdsi_dest {
	struct rdsi_node node; /* in socket.dests, while open */
	rds_socket *sock;
	struct rds_addr to;
	uint32_t slot, gen;
	struct rdsi_cell *cell;
	struct rdsi_out_run run;
	uint32_t pending;    /* message ids submitted and not returned */
	size_t datagrams;    /* submitted with them */
	size_t queued;       /* their payload bytes */
	size_t counted;      /* those that have any */
	size_t mem;          /* send memory of those pending */
	bool open;           /* in tx.slots and socket.dests */
	bool parked;         /* its bytes are in socket.parked */
	bool used;           /* since the hand passed */
	bool known;          /* was seen to be open at the daemon */
	bool over;           /* in tx.over */
	struct rdsi_link on_busy; /* of the socket, while messages are pending */
	struct rdsi_link on_over;
};

/* An rdsi_cell is a barrier cell: the operation ids of one socket and address. It lives as
 * long as its socket. Guarded by tx.mu. */
struct rdsi_cell {
	struct rdsi_node node; /* in socket.cells */
	uint8_t ip[16];
	uint32_t idx;
	struct rdsi_dest *first; /* NULL once the daemon has taken the cell in */
	uint64_t last;           /* id of the last operation issued */
	bool frozen;             /* the socket is closed, final is the mark */
	uint64_t final;
};

/* An rdsi_tx_msg is a message between submission and return. */
struct rdsi_tx_msg {
	struct rdsi_dest *dest; /* NULL: the id is free */
	uint32_t chunk, size;   /* size 0: none */
	uint32_t op_mem, op_size;
	uint32_t mem; /* arena memory of both, rounding included */
	uint32_t zc_cookie;
	bool zc;         /* zc_cookie is to be returned */
	bool sent;       /* in the ring, so the daemon may return it */
	bool notify;     /* it has asked for its status */
	uint8_t settles; /* places held in the completion queue */
	struct rdsi_sum sum;
};

/* rdsi_tx is the sending side of a client. */
struct rdsi_tx {
	pthread_mutex_t mu;
	struct rdsi_arena arena;
	struct rdsi_tx_msg *msgs; /* by message id */
	uint32_t *free;           /* message ids, the last returned at the end */
	uint32_t nfree, max_msgs;
	uint32_t sends;           /* since the last look at the return ring */
	struct rdsi_dest **slots; /* by slot index */
	uint32_t hand;            /* where the search for an idle slot goes on */
	uint32_t nslots;          /* slots below which all have been used once */
	uint32_t gen;
	struct rdsi_cell **cells; /* by cell index */
	uint32_t *cell_free;
	uint32_t ncell_free;
	struct rdsi_dest *cur;    /* its run has uncommitted frames */
	uint64_t published;       /* calls of rdsi_tx_unlock with entries */
	_Atomic int grow;         /* RDSI_NO_GROWTH or what becomes of the request for a window */
	struct rdsi_mapping grown; /* RDSI_ANSWERED: that window, without memory if there is no more */
	bool full;                /* the daemon gives no more windows */
	bool dead;                /* the memory is about to be unmapped */
	bool asks;                /* the daemon may refuse a destination */
	bool tells;               /* the daemon tells the statuses of messages */
	bool anybody;             /* the daemon knows SHM_DEST_ANYBODY */
	bool starved;             /* ids or memory ran out since messages came back */
	struct rdsi_link over;    /* destinations refused for holding their share */
};

/* rdsi_rx is the receiving side of a client. */
struct rdsi_rx {
	pthread_mutex_t mu;
	uint8_t **windows;
	uint32_t nwindows, max_rx;
	uint32_t waiting;      /* messages in the sockets' queues */
	uint32_t *lent;        /* by receive id: how much of it is borrowed; NULL: nothing ever was. See lend.c */
	uint32_t max_statuses; /* that a socket can have */
	rds_socket **socks;    /* by index of their handles */
	uint32_t nsocks;
	bool dead;
	bool returned;         /* receive ids put and not published */
	bool binding;          /* events for unknown handles may be the new socket's */
	struct rdsi_queue early;
};

/* rdsi_polls are the poll descriptors of a client and the thread that serves them. */
struct rdsi_polls {
	pthread_mutex_t mu;
	struct rdsi_link fds;
	enum { KEEPER_NONE, KEEPER_RUNS, KEEPER_ENDED } keeper;
	pthread_t thread;
};

/* rdsi_words is the local memory of synchronous atomics. */
struct rdsi_words {
	pthread_mutex_t mu;
	struct rdsi_queue free; /* struct rds_segment */
	struct rdsi_queue lent; /* struct rdsi_lent, see sync.c */
};

struct rds_client {
	_Atomic int refs;                /* the handle, and those of sockets, buffers, regions */
	const _Atomic uint32_t *process; /* 1; 0 in the child of a fork */
	struct rdsi_link link;           /* in the list of fork.c */
	struct rdsi_ctl ctl;
	struct rdsi_segment seg;
	struct rdsi_tx tx;
	struct rdsi_rx rx;
	struct rdsi_waiters wait;
	struct rdsi_patience patience; /* the leader's */
	struct rdsi_polls polls;
	struct rdsi_words words;
	pthread_mutex_t binds; /* one bind or close of a socket at a time */
	_Atomic int pins;      /* uses of the memory outside the locks */

	int daemon_bell; /* rings the daemon */
	int bell;        /* the daemon rings */
	int self;        /* eventfd: a thread of this process rings */
	bool bell_dead;  /* nothing but an end can come from bell; the leader's */

	bool tells_addrs; /* the daemon answers Addrs */
	bool imports;     /* the daemon answers Import */
	struct rdsi_mapping segment, table;
	pthread_mutex_t maps_mu;  /* guards what follows */
	struct rdsi_mapping *windows;
	uint32_t nwindows;
	struct rdsi_link buffers; /* mapped ones */
	bool unmapped;

	pthread_mutex_t regions_mu;
	struct rdsi_hash regions; /* live ones, by the low half of their cookies */

	_Atomic int err; /* 0 while the client works */
	pthread_mutex_t err_mu;
	char reason[IPC_MAX_TEXT + 64];
	struct rds_options opts; /* of rds_open, for rds_reopen */
	_Atomic bool shut;
	_Atomic bool woken; /* see wake.c */
};

/* rdsi_in_run is the run of which a socket has not yet received all datagrams. */
struct rdsi_in_run {
	const uint8_t *rest; /* frames of those, NULL: there is no run */
	size_t left;         /* bytes at rest */
	size_t told;         /* when no more is left, another quarter is given back */
	bool lent;           /* a datagram of it was lent, and rx.lent counts the receiving, too */
	struct shm_event ev;
};

struct rdsi_lent;
struct rdsi_pollfd;
struct rdsi_pollset;

struct rds_socket {
	_Atomic int refs; /* the handle, and open destinations */
	rds_client *c;
	uint32_t handle;
	uint32_t incarnation;
	struct rds_addr local;
	_Atomic bool nonblock, fail_unreachable, closed, overrun, cong_mon;
	_Atomic bool finished; /* closed at the daemon, too */
	_Atomic bool interrupted; /* rds_close_wait returned -EINTR: a close goes on with it */
	_Atomic bool woken;    /* a wake that nobody has taken, see wake.c */
	_Atomic int64_t snd_timeo, rcv_timeo; /* ms, 0: none */
	struct rdsi_link waiters; /* interests; guarded by wait.mu */
	_Atomic int counts[WANTS];

	/* Guarded by tx.mu. */
	struct rds_addr remote;
	uint8_t lane;
	bool exposed, opened; /* the lane is fixed */
	bool anybody;         /* RDS_OPT_ANYBODY */
	int64_t linger;
	size_t sndbuf;
	size_t queued, parked; /* payload submitted and not returned; to congested destinations */
	size_t msgs;           /* with payload, but those parked */
	struct rdsi_link busy; /* destinations with messages pending */
	struct rdsi_hash dests, cells;
	struct rdsi_dest *last_dest;
	uint32_t zc_open; /* zero-copy cookies promised and not taken */

	/* Guarded by rx.mu. */
	size_t rcvbuf;
	struct rdsi_queue rxq;     /* struct shm_event */
	struct rdsi_in_run in;     /* goes before rxq */
	struct rdsi_lent *lent;    /* what it has lent, see lend.c */
	uint32_t nlent, lent_free;
	uint32_t lender;           /* a number of its own in the process, 0: it never lent anything */
	struct rdsi_queue comps;   /* struct rds_completion */
	struct rdsi_queue notices; /* struct rds_notice */
	struct rdsi_queue zc_done; /* uint32_t */
	uint32_t wanted_notices;
	struct rdsi_hash awaited;  /* statuses that will come, see op.c */
	struct rdsi_hash rx_cells; /* addresses of cells, see op.c */
	struct rdsi_hash cong_failed;
	uint64_t cong_update;
	struct rdsi_pollfd *poll;
	struct rdsi_pollset *poll_for; /* NULL: takeables */
	_Atomic bool poll_looks;

	_Atomic uint32_t noticed; /* notices that came */
	_Atomic int promised;     /* operations whose status may still come */
	_Atomic int queued_comps;
};

/* ---- fork.c ---- */
const _Atomic uint32_t *rdsi_process(void);
int rdsi_process_add(rds_client *c);
/* rdsi_fork_handlers registers what a fork does to clients, once. In the child adopted memory is
 * shared with the parent until these handlers run, which is before those registered later. */
int rdsi_fork_handlers(void);
void rdsi_process_del(rds_client *c);
static inline bool rdsi_forked(const rds_client *c) { return atomic_load_explicit(c->process, memory_order_relaxed) == 0; }

/* ---- client.c ---- */
void rdsi_fail(rds_client *c, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* rdsi_broken ends the client because the daemon broke the contract, and returns the error. If
 * the daemon has ended the session before, that is the error. */
int rdsi_broken(rds_client *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rdsi_client_put(rds_client *c);
void rdsi_pin(rds_client *c);
void rdsi_unpin(rds_client *c);
/* bell.c. rdsi_ring is for an eventfd, rdsi_ring_pipe for the daemon's doorbell. */
void rdsi_ring(int fd);
void rdsi_ring_pipe(int fd);
void rdsi_ring_pipe_blocked(int fd); /* as on kernels without RWF_NOSIGNAL */
/* rdsi_ring_daemon ends a rdsi_pin that rdsi_daemon_sleeps made, after ringing. */
void rdsi_ring_daemon(rds_client *c);
/* rdsi_daemon_sleeps reports whether the caller has to call rdsi_ring_daemon. tx.mu or rx.mu is held. */
bool rdsi_daemon_sleeps(rds_client *c);
static inline int rdsi_client_err(rds_client *c) { return atomic_load(&c->err); }
static inline int rdsi_sock_err(rds_socket *s) { return atomic_load(&s->overrun) ? -ENOBUFS : rdsi_client_err(s->c); }

/* reopen.c: copies of the texts of options, for rds_reopen. */
int rdsi_keep_options(rds_client *c, const struct rds_options *o);
void rdsi_free_options(rds_client *c);

/* error.c: what rds_refusal returns: the daemon's words, the paths where none was, or what a close has found. */
void rdsi_refused(const char *text, size_t len);
void rdsi_not_delivered(const struct rds_notice *n);
void rdsi_failed(const struct rds_completion *c);

/* rdsi_client_new makes a client that is not attached. */
int rdsi_client_new(rds_client **client);

/* ---- wake.c ---- */
/* rdsi_woken reports whether a wait at s would take a wake. rdsi_take_wake_of takes it. */
bool rdsi_woken(rds_socket *s);
bool rdsi_take_wake_of(rds_socket *s);

/* ---- sync.c ---- */
void rdsi_words_end(rds_client *c);

/* ---- memory.c ---- */
int rdsi_map(int fd, size_t size, bool writable, bool child, struct rdsi_mapping *m);
int rdsi_add_window(rds_client *c, struct rdsi_mapping m);

/* ---- socket.c ---- */
void rdsi_socket_put(rds_socket *s);
int rdsi_check_addr(const struct rds_addr *a);
int rdsi_check_dest(rds_socket *s, const struct rds_addr *to);

/* ---- addrs.c ---- */
/* rdsi_only_addr finds the one address that the daemon has of the family of addr, an unspecified
 * address, and stores it there. */
int rdsi_only_addr(rds_client *c, struct rds_addr *addr);

/* ---- addr.c ---- */
bool rdsi_unspecified(const struct rds_addr *a);
bool rdsi_is_v4(const struct rds_addr *a);
bool rdsi_no_addr(const struct rds_addr *a);
bool rdsi_same(const struct rds_addr *a, const struct rds_addr *b);
uint64_t rdsi_hash_ip(const uint8_t ip[16]);
uint64_t rdsi_hash_addr(const struct rds_addr *a);

#endif
