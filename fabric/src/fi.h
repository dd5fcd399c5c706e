/*
 * fi.h - the objects of the provider, and what its files call of each other.
 *
 * A domain is a client of the daemon, an endpoint a socket. One lock, the domain's, protects all
 * that belongs to the domain. Functions of this header expect it to be held, unless they say
 * otherwise. The provider has no sequence numbers, retransmission or connections: a datagram of
 * librds arrives once and in order, or a notice or status says that it does not.
 */
#ifndef RFI_FI_H
#define RFI_FI_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <rds/rds.h>

#include "../../librds/src/list.h"
#include "wire.h"

/* The lists of librds. A body of LIST_EACH may take l out of the list. */
#define link rdsi_link
#define LIST_ENTRY RDSI_OF
#define LIST_EACH(l, after, head) \
	for (struct link *l = (head)->next, *after = l->next; l != (head); l = after, after = l->next)
#define list_init rdsi_list_init
#define list_empty rdsi_list_empty
#define list_add(head, l) rdsi_list_add((head)->prev, l)
#define list_del rdsi_list_del
#define lists_init(heads, n)            \
	for (int i_ = 0; i_ < (n); i_++) \
		list_init(&(heads)[i_])

enum {
	IOV_LIMIT = 4,
	INJECT_SIZE = 4096,
	TX_SIZE = 16384,         /* operations of an endpoint that are not complete */
	RX_SIZE = 4096,          /* posted receives of an endpoint */
	REPLIES_MAX = 1 << 17,   /* replies that wait for a peer's room: more than it can have operations */
	PEER_UNEXPECTED = 8 << 20, /* bytes of unexpected messages after which a peer is asked to announce further ones */
	KEPT_MAX = 256 << 20,    /* bytes that are kept of one peer, and of all that are in no address vector */
	PROBE_MS = 1000,         /* how long a peer may owe an answer before it is probed */
	ATOMIC_BYTES = 8192,
	MR_HEADS = 256, AV_HEADS = 1024, PEER_HEADS = 1024, MATCH_HEADS = 512, RKEYS = 512, IDS = 1024 /* powers of 2 */
};

#define LONGEST ((size_t)1 << 40) /* bytes of a message or operation */
extern struct fi_provider rfi_provider;
#define WARN(sub, ...) FI_WARN(&rfi_provider, sub, __VA_ARGS__)

struct rfi_domain {
	struct fid_domain fid;
	rds_client *client;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* of a completion, or of the thread that waits at the daemon */
	unsigned idle; /* reads of queues in a row that have found nothing */
	int waiters, closing; /* closing: memory that is being deregistered */
	bool led;       /* a thread waits at the daemon, */
	uint64_t leads; /* and how often one has */
	bool armed;     /* a descriptor may be polled, and nothing has woken it since */
	struct link eps, mrs[MR_HEADS]; /* memory by key */
	int refs;
	struct rfi_domain *events; /* of the fabric */
	struct rds_until *until; /* for wait.c */
	size_t untils;
};

struct rfi_fabric {
	struct fid_fabric fid;
	struct rfi_domain events; /* of no daemon: event queues and domains belong to it */
};

struct rfi_mr {
	struct fid_mr fid;
	struct rfi_domain *domain;
	struct link link;
	char *mem;
	size_t len;
	uint64_t base, access; /* base: remote address of mem */
	rds_buffer *buffer; /* the memory, adopted, or NULL */
	rds_region *region; /* of owner, the endpoint that was asked for it first, or NULL */
	struct rfi_ep *owner;
};

struct rfi_av {
	struct fid_av fid;
	struct rfi_domain *domain;
	struct av_entry {
		struct link link;
		struct rds_addr addr;
		fi_addr_t n;
	} **entries; /* by number */
	size_t count;
	struct link heads[AV_HEADS]; /* by address */
	int refs;
};

struct cqe { /* begins as struct fi_cq_err_entry does, and that as those of all formats */
	void *context;
	uint64_t flags;
	size_t len;
	void *buf;
	uint64_t data, tag;
	size_t olen;
	int err, prov_errno; /* positive */
	fi_addr_t src;
};

/* A waitable is what a program waits for: a completion queue, an event queue or a counter. */
struct waitable {
	union {
		struct fid fid;
		struct fid_cq cq;
		struct fid_eq eq;
		struct fid_cntr cntr;
	};
	struct rfi_domain *domain;
	enum fi_wait_obj wait;
	int epfd, evfd; /* of FI_WAIT_FD, else -1 */
	int rung;       /* evfd is readable: 0 no, 1 when an answer is late, 2 now */
	bool signaled, threshold, overrun; /* overrun: a completion was lost */
	int refs;
	enum fi_cq_format format;
	struct cqe *ring; /* of room entries, of which count are used from head on */
	size_t size, room, head, count;
	uint64_t value, errs; /* of a counter; errs of a queue: errors in the ring */
};

/* A named is what a peer's answer names by a number, at the begin of an op or a transfer. */
struct named {
	struct link link; /* in a table of IDS lists */
	uint64_t id;
};

enum { Q_RMA, Q_MSG, Q_REPLY, Q_COUNT };

/* A peer is a socket at the other side: what waits to go there, and what came from there. */
struct peer {
	struct link link;  /* in its hash list */
	struct link busy;  /* in ep->busy while a queue has something that may go */
	struct rds_addr addr;
	uint32_t inc;
	struct link queue[Q_COUNT];
	int turn, replies;
	int owed;          /* operations that wait for its answer */
	int64_t heard_ms;
	bool met;          /* something has come from there or arrived there, and nothing was lost since */
	bool congested;
	bool off;          /* it has asked that messages be announced */
	bool stopped;      /* we have asked it to announce its messages */
	size_t unexpected; /* bytes */
};

enum op_kind { OP_MSG, OP_RTS, OP_DATA, OP_WRITE, OP_READ, OP_ATOMIC, OP_REPLY, OP_SERVE };

/* An op is an operation of the program that is not complete, or a reply that waits. */
struct op {
	struct named name;
	struct link out; /* in a queue of peer */
	struct link all; /* in ep->ops, but for replies */
	enum op_kind kind;
	struct peer *peer;
	uint64_t flags; /* of its completion, and of the operation */
	void *context;
	struct wire head;
	struct iovec iov[IOV_LIMIT]; /* the memory that it is about; of an atomic: for the result */
	size_t iovs;
	size_t len, off;
	bool owed, direct;
	struct rds_segment local[IOV_LIMIT]; /* direct: the memory at this end, and where the peer's is */
	uint64_t cookie, remote_off;
	char copy[]; /* of an injected payload, an atomic's or a reply's */
};

struct matcher {
	struct link posted[MATCH_HEADS + 1]; /* by tag; in the last list those with bits to ignore */
	struct link hashed[MATCH_HEADS];     /* unexpected, by tag */
	struct link all;                     /* unexpected, in the order of arrival */
	uint64_t seq;
};

/* An rx is a posted receive. */
struct rx {
	struct link link;
	struct peer *peer; /* the only one it is for, or NULL */
	uint64_t tag, ignore, seq, flags;
	void *context;
	struct iovec iov[IOV_LIMIT];
	size_t iovs, len;
	size_t used;       /* FI_MULTI_RECV: bytes handed out */
	int pending;       /* FI_MULTI_RECV: long messages on their way */
	bool retired;
};

/* A transfer is a long message on its way into a receive. */
struct transfer {
	struct named name;
	struct link link;
	struct rx *rx;
	struct peer *peer;
	struct wire head;
	size_t at, want, got;
};

/* An unexp is a message that no posted receive was for. */
struct unexp {
	struct link link, hashed;
	struct peer *peer;
	struct wire head;
	void *claimed; /* NULL, or the context of the call that has */
	size_t len;
	char data[];
};

/* An rkey is where a peer's region is. */
struct rkey {
	const struct peer *peer; /* NULL: nothing is known */
	uint64_t key, cookie, base;
};

/* What an endpoint is bound to. */
enum { TX_CQ, RX_CQ, C_SEND, C_RECV, C_READ, C_WRITE, C_REMOTE_READ, C_REMOTE_WRITE, BOUND };

struct rfi_ep {
	struct fid_ep fid;
	struct rfi_domain *domain;
	struct link link;
	struct rfi_av *av;
	struct waitable *bound[BOUND];
	rds_socket *socket;
	struct rds_addr addr;
	uint64_t caps, tx_flags, rx_flags;
	bool selective[2], enabled, ordered; /* selective: of TX_CQ, RX_CQ; ordered: see rma.c */
	int failed; /* why the client works no more, positive */
	size_t min_multi, tx_size, rx_size, tx_used, rx_used;
	struct matcher match[2]; /* messages, tagged messages */
	struct link peers[PEER_HEADS], busy, ops, transfers;
	struct link op_ids[IDS], rx_ids[IDS]; /* of operations and transfers, by number */
	uint64_t last_id;
	struct rkey rkeys[RKEYS]; /* by hash: a collision forgets the older one */
	size_t kept; /* bytes of unexpected messages, and of replies that wait */
	bool full; /* the send buffer */
	int64_t probe_ms;
	unsigned turns;
};

enum form { F_WRITE, F_FETCH, F_COMPARE };

/* A call is what the program asks for: a message, a receive, a read, a write or an atomic. */
struct call {
	bool tagged, write;
	const struct iovec *iov;
	size_t iovs;
	fi_addr_t peer;
	uint64_t tag, ignore; /* tag: also a key */
	uint64_t at, data, flags;
	size_t remotes, remote; /* of calls that describe the remote memory: how many pieces, and how long the first is */
	void *context;
	enum form form; /* of atomics, as is what follows */
	enum fi_datatype type;
	enum fi_op op;
	size_t size; /* of an element */
	const struct fi_ioc *operand, *compare, *result;
	size_t operands, compares, results;
};

/* fabric.c, info.c. rfi_hold counts what belongs to d; it and rfi_now_ms need no lock. */
int rfi_getinfo(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
int rfi_open_client(rds_client **);
int64_t rfi_now_ms(void);
void rfi_hold(struct rfi_domain *);
bool rfi_let_go(struct rfi_domain *, const int *refs);
struct rfi_mr *rfi_mr_find(struct rfi_domain *, uint64_t key, uint64_t addr, uint64_t len, uint64_t access, int *err);
/* av.c */
int rfi_av_open(struct fid_domain *, struct fi_av_attr *, struct fid_av **, void *);
fi_addr_t rfi_av_find(struct rfi_av *, const struct rds_addr *);
const struct rds_addr *rfi_av_addr(const struct rfi_av *, fi_addr_t);
/* cq.c */
int rfi_eq_open(struct fid_fabric *, struct fi_eq_attr *, struct fid_eq **, void *);
int rfi_cq_open(struct fid_domain *, struct fi_cq_attr *, struct fid_cq **, void *);
int rfi_cntr_open(struct fid_domain *, struct fi_cntr_attr *, struct fid_cntr **, void *);
bool rfi_cq_add(struct waitable *, const struct cqe *);
void rfi_count(struct rfi_ep *, int counter, bool failed);
/* wait.c. rfi_wait returns 0 when w has n entries or counts to n, or has an error, -FI_EAGAIN after timeout_ms, or why an endpoint has failed. */
int rfi_wait(struct waitable *w, uint64_t n, int timeout_ms);
void rfi_changed(struct waitable *);
void rfi_wake(struct rfi_domain *);
int rfi_fds_open(struct waitable *);
int rfi_fds_watch(struct waitable *, struct rfi_ep *);
int rfi_trywait(struct fid_fabric *, struct fid **, int);
void rfi_progress_all(struct rfi_domain *);
/* ep.c, calls.c */
int rfi_ep_open(struct fid_domain *, struct fi_info *, struct fid_ep **, void *);
extern struct fi_ops_msg rfi_msg_ops;
extern struct fi_ops_tagged rfi_tagged_ops;
extern struct fi_ops_rma rfi_rma_ops;
extern struct fi_ops_atomic rfi_atomic_ops;
/* op.c */
void rfi_name(struct rfi_ep *, struct link *table, struct named *);
void *rfi_named(struct link *table, uint64_t id);
struct op *rfi_op(struct rfi_ep *, enum op_kind, const struct call *, uint64_t flags, size_t copy, ssize_t *err);
struct op *rfi_reply_op(struct rfi_ep *, struct peer *, enum op_kind, const struct wire *, size_t copy);
void rfi_op_iov(struct op *, const struct iovec *, size_t count, bool copy);
void rfi_op_owe(struct op *);
void rfi_op_end(struct rfi_ep *, struct op *, int err);
void rfi_op_free(struct rfi_ep *, struct op *);
struct peer *rfi_peer(struct rfi_ep *, const struct rds_addr *);
void rfi_peers_end(struct rfi_ep *);
void rfi_peer_lost(struct rfi_ep *, struct peer *, int err);
bool rfi_room(struct rfi_ep *, const struct peer *);
void rfi_probe(struct rfi_ep *);
/* progress.c */
int rfi_push(struct rfi_ep *, struct peer *, struct rds_msg *);
int rfi_xmit(struct rfi_ep *, struct peer *, const struct wire *, const struct iovec *, size_t iovs, uint64_t token);
void rfi_queue(struct rfi_ep *, struct op *, int queue);
void rfi_reply(struct rfi_ep *, struct peer *, struct wire, const void *data, size_t len);
void rfi_answer(struct rfi_ep *, struct peer *, uint8_t kind, uint64_t id, int err);
void rfi_progress(struct rfi_ep *);
size_t rfi_scatter(const struct iovec *, size_t iovs, size_t off, const void *data, size_t len);
/* What takes a datagram of a kind. */
typedef void handler(struct rfi_ep *, struct peer *, const struct wire *, const char *data, size_t len);
/* recv.c */
ssize_t rfi_post(struct rfi_ep *, const struct call *);
ssize_t rfi_cancel(fid_t, void *);
handler rfi_on_message, rfi_on_data;
void rfi_transfer_end(struct rfi_ep *, struct transfer *, int err);
void rfi_rx_end(struct rfi_ep *, int err);
/* rma.c, atomic.c */
handler rfi_on_write, rfi_on_read, rfi_on_part, rfi_on_atomic, rfi_on_wrote;
int rfi_wrote(struct rfi_ep *, const struct peer *, const struct wire *, size_t len);
void rfi_rma_start(struct rfi_ep *, struct op *, bool copied);
int rfi_direct_xmit(struct rfi_ep *, struct op *);
void rfi_direct_end(struct rfi_ep *, struct op *, const struct rds_completion *, int err);
void rfi_learn(struct rfi_ep *, const struct op *, const struct wire *);
bool rfi_direct_leave(struct rfi_domain *, const rds_buffer *);
void rfi_direct_close(struct rfi_ep *);
ssize_t rfi_atomic(struct rfi_ep *, const struct call *);
ssize_t rfi_issue(struct rfi_ep *, const struct call *, enum op_kind, uint64_t flags, size_t len, const struct wire *);
int rfi_atomic_valid(enum form, enum fi_datatype, enum fi_op, size_t *count);
int rfi_query_atomic(struct fid_domain *, enum fi_datatype, enum fi_op, struct fi_atomic_attr *, uint64_t);

#define rfi_lock(d) pthread_mutex_lock(&(d)->lock)
#define rfi_unlock(d) pthread_mutex_unlock(&(d)->lock)
/* LOCKED holds the lock of d to the end of the block. */
#define LOCKED(d) __attribute__((cleanup(rfi_end_locked))) struct rfi_domain *locked_ = rfi_lock(d) ? NULL : (d)
static inline void rfi_end_locked(struct rfi_domain **d) { rfi_unlock(*d); }

/* rfi_hash spreads x over n, a power of 2. */
static inline uint32_t rfi_hash(uint64_t x, uint32_t n) { return (uint32_t)((x * 0x9e3779b97f4a7c15u) >> 32) & (n - 1); }

static inline uint32_t rfi_addr_hash(const struct rds_addr *a, uint32_t n)
{
	uint64_t x = a->port;
	for (int i = 0; i < 16; i++)
		x = x * 31 + a->ip[i];
	return rfi_hash(x, n);
}

/* ABSENT makes a call that the provider does not have. */
#define ABSENT(name, ...) static inline int name(__VA_ARGS__) { return -FI_ENOSYS; }

ABSENT(rfi_no_bind, struct fid *fid, struct fid *other, uint64_t flags)
ABSENT(rfi_no_control, struct fid *fid, int command, void *arg)
ABSENT(rfi_no_ops_open, struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)

#define FID_OPS(close_, bind_, control_) \
	{.size = sizeof(struct fi_ops), .close = close_, .bind = bind_, .control = control_, .ops_open = rfi_no_ops_open}

/* A flag of operations: no completion but of an error. */
/* The orders that direct operations do not keep. */
#define RMA_ORDERS (FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW)
#define QUIET (1ULL << 60)

#define EP(x) ((struct rfi_ep *)(void *)(x))
#define AV(x) ((struct rfi_av *)(void *)(x))
#define DOMAIN(x) ((struct rfi_domain *)(void *)(x))
#define WAITABLE(x) ((struct waitable *)(void *)(x))

#endif
