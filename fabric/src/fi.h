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
#include <stdatomic.h>
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

#include "list.h"
#include "wire.h"

enum {
	IOV_LIMIT = 4,
	INJECT_SIZE = 4096,
	TX_SIZE = 1024,          /* operations of an endpoint that are not complete */
	RX_SIZE = 4096,          /* posted receives of an endpoint */
	REPLIES_MAX = 4 * TX_SIZE, /* replies that wait for a peer's room */
	PEER_UNEXPECTED = 8 << 20,   /* bytes of unexpected messages after which a peer is asked to stop */
	UNEXPECTED_MAX = 256 << 20,  /* bytes after which the endpoint receives nothing more */
	PROBE_MS = 1000,         /* how long a peer may owe an answer before it is probed */
	ATOMIC_BYTES = 8192
};

extern struct fi_provider rfi_provider;
#define WARN(sub, ...) FI_WARN(&rfi_provider, sub, __VA_ARGS__)

struct rfi_domain {
	struct fid_domain fid;
	struct fid_fabric *fabric;
	rds_client *client;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* of a completion, or of the thread that waits at the daemon */
	int waiters;
	bool led;       /* a thread waits at the daemon, */
	uint64_t leads; /* and how often one has */
	struct link eps;
	struct link *mrs; /* MR_HEADS lists by key */
	uint64_t next_key;
	int mr_mode;
	int refs;
	struct rds_until *until; /* for wait.c */
	size_t untils;
};
enum { MR_HEADS = 256 };

struct rfi_mr {
	struct fid_mr fid;
	struct rfi_domain *domain;
	struct link link;
	char *mem;
	size_t len;
	uint64_t base; /* remote address of mem */
	uint64_t access;
	struct rfi_cntr *cntr;
	rds_buffer *buffer; /* the memory, adopted, or NULL */
	rds_region *region; /* of the endpoint that was asked for it first */
	struct rfi_ep *owner;
};

struct av_entry {
	struct rds_addr addr;
	bool used;
	uint32_t next; /* index + 1 of the next in the hash list, or of the next free one */
};
enum { AV_HEADS = 1024 };

struct rfi_av {
	struct fid_av fid;
	struct rfi_domain *domain;
	struct rfi_eq *eq;
	uint64_t flags;
	struct av_entry *entries;
	size_t count, room;
	uint32_t free; /* index + 1 */
	uint32_t heads[AV_HEADS];
	int refs;
};

struct rfi_eq {
	struct fid_eq fid;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct link events, errors;
	int fd; /* eventfd, or -1 */
};

struct cqe {
	void *context;
	uint64_t flags;
	size_t len;
	void *buf;
	uint64_t data, tag;
	fi_addr_t src;
	size_t olen;
	int err; /* positive */
};

struct rfi_cq {
	struct fid_cq fid;
	struct rfi_domain *domain;
	enum fi_cq_format format;
	enum fi_wait_obj wait;
	enum fi_cq_wait_cond cond;
	struct cqe *ring; /* of room entries, of which count are used from head on */
	size_t size, room, head, count;
	struct cqe *errs;
	size_t err_count, err_room;
	int epfd, evfd; /* of FI_WAIT_FD, else -1 */
	bool rung, signaled;
	int refs;
};

struct rfi_cntr {
	struct fid_cntr fid;
	struct rfi_domain *domain;
	enum fi_wait_obj wait;
	uint64_t value, errs;
	int epfd, evfd;
	bool rung;
	int refs;
};

/* A table of numbers for what a peer's answers name. A number is not used again soon. */
struct ids {
	void **slots;
	uint32_t *gens;
	uint32_t room, free_count, *free;
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
	int indirect;      /* reads, writes and atomics that it carries out itself */
	int owed;          /* operations that wait for its answer */
	int64_t heard_ms;
	bool probed, congested;
	bool off;          /* it has asked to stop */
	bool stopped;      /* we have asked it to stop */
	size_t unexpected; /* bytes */
};
enum { PEER_HEADS = 1024 };

enum op_kind { OP_MSG, OP_RTS, OP_DATA, OP_WRITE, OP_READ, OP_ATOMIC, OP_REPLY, OP_SERVE };

/* An op is an operation of the program that is not complete, or a reply that waits. */
struct op {
	struct link out; /* in a queue of peer */
	struct link all; /* in ep->ops, but for replies */
	enum op_kind kind;
	struct peer *peer;
	uint64_t id;
	uint64_t flags; /* of its completion, and of the operation */
	void *context;
	struct wire head;
	struct iovec iov[IOV_LIMIT], result[IOV_LIMIT];
	size_t iovs, results;
	size_t len, off, got;
	bool owed, indirect, direct;
	struct rds_segment local[IOV_LIMIT]; /* direct: the memory at this end, and where the peer's is */
	uint64_t cookie, remote_off;
	char copy[]; /* of an injected payload, or of a reply's */
};

struct matcher {
	struct link *posted; /* MATCH_HEADS lists by tag */
	struct link wild;    /* posted with bits to ignore */
	struct link *hashed; /* unexpected, by tag */
	struct link all;     /* unexpected, in the order of arrival */
	uint64_t seq;
};
enum { MATCH_HEADS = 512 };

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
	struct link link;
	struct rx *rx;
	struct peer *peer;
	uint64_t id;
	struct wire head;
	size_t at, want, got;
};

/* An unexp is a message that no posted receive was for. */
struct unexp {
	struct link link, hashed;
	struct peer *peer;
	struct wire head;
	void *claimed;
	size_t len;
	char data[];
};

/* An rkey is what is known of a peer's region. A cookie of 0: nothing, or not yet. */
struct rkey {
	const struct peer *peer;
	uint64_t key, cookie, base, len;
};
enum { RKEYS = 512 };

enum { C_SEND, C_RECV, C_READ, C_WRITE, C_REMOTE_READ, C_REMOTE_WRITE, C_COUNT };

struct rfi_ep {
	struct fid_ep fid;
	struct rfi_domain *domain;
	struct link link;
	struct rfi_av *av;
	struct rfi_cq *tx_cq, *rx_cq;
	struct rfi_cntr *cntrs[C_COUNT];
	rds_socket *socket;
	struct rds_addr addr;
	uint64_t caps, tx_flags, rx_flags;
	bool tx_selective, rx_selective, enabled;
	int failed; /* why the client works no more, positive */
	size_t min_multi, tx_size, rx_size, tx_used, rx_used;
	struct matcher match[2]; /* messages, tagged messages */
	struct link *peers;
	struct link busy, ops, transfers, claimed;
	struct ids op_ids, rx_ids;
	struct rkey *rkeys; /* RKEYS of them, by hash: a collision forgets the older one */
	size_t unexpected;
	bool full; /* the send buffer */
	int64_t probe_ms;
	unsigned turns;
};

/* fabric.c, domain.c, info.c */
int rfi_getinfo(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
int rfi_fabric(struct fi_fabric_attr *, struct fid_fabric **, void *);
int rfi_domain_open(struct fid_fabric *, struct fi_info *, struct fid_domain **, void *);
int rfi_open_client(rds_client **);
extern struct fi_ops_mr rfi_mr_ops;
struct rfi_mr *rfi_mr_find(struct rfi_domain *, uint64_t key, uint64_t addr, uint64_t len, uint64_t access, int *err);
int64_t rfi_now_ms(void);
int rfi_no_bind(struct fid *, struct fid *, uint64_t);
int rfi_no_control(struct fid *, int, void *);
int rfi_no_ops_open(struct fid *, const char *, uint64_t, void **, void *);

/* av.c */
int rfi_av_open(struct fid_domain *, struct fi_av_attr *, struct fid_av **, void *);
fi_addr_t rfi_av_find(struct rfi_av *, const struct rds_addr *);
int rfi_resolve(const char *node, const char *service, uint64_t flags, int family, struct rds_addr *);

/* eq.c */
int rfi_eq_open(struct fid_fabric *, struct fi_eq_attr *, struct fid_eq **, void *);
void rfi_eq_add(struct rfi_eq *, uint32_t event, struct fid *, void *context, uint64_t data, int err);
bool rfi_eq_ready(struct rfi_eq *);

/* cq.c, cntr.c */
int rfi_cq_open(struct fid_domain *, struct fi_cq_attr *, struct fid_cq **, void *);
int rfi_cntr_open(struct fid_domain *, struct fi_cntr_attr *, struct fid_cntr **, void *);
void rfi_cq_add(struct rfi_cq *, const struct cqe *);
void rfi_cntr_count(struct rfi_cntr *, bool failed);

/* wait.c. rfi_wait ends with 0 when done says so, else with -FI_EAGAIN after timeout_ms, or -FI_ECANCELED. */
typedef int rfi_done(void *);
int rfi_wait(struct rfi_domain *, rfi_done *, void *, int timeout_ms);
void rfi_changed(struct rfi_domain *);
void rfi_ring(int fd, bool *rung);
void rfi_unring(int fd, bool *rung);
int rfi_fds_open(int *epfd, int *evfd);
int rfi_fds_watch(int epfd, struct rfi_ep *);
void rfi_fds_forget(int epfd, struct rfi_ep *);
int rfi_trywait(struct fid_fabric *, struct fid **, int);
void rfi_progress_all(struct rfi_domain *);

/* ep.c */
int rfi_ep_open(struct fid_domain *, struct fi_info *, struct fid_ep **, void *);
ssize_t rfi_cancel(fid_t, void *);
extern struct fi_ops_msg rfi_msg_ops;
extern struct fi_ops_tagged rfi_tagged_ops;
extern struct fi_ops_rma rfi_rma_ops;
extern struct fi_ops_atomic rfi_atomic_ops;
extern struct fi_ops_cm rfi_cm_ops;

/* ids.c */
int ids_add(struct ids *, void *, uint64_t *id);
void *ids_get(const struct ids *, uint64_t id);
void ids_del(struct ids *, uint64_t id);
void ids_end(struct ids *);

/* peer.c */
struct peer *rfi_peer(struct rfi_ep *, const struct rds_addr *);
struct peer *rfi_peer_of(struct rfi_ep *, fi_addr_t);
void rfi_peers_end(struct rfi_ep *);
void rfi_peer_lost(struct rfi_ep *, const struct rds_addr *, int err);
void rfi_probe(struct rfi_ep *);

/* out.c. rfi_out sends what waits. */
int rfi_xmit(struct rfi_ep *, struct peer *, const struct wire *, const struct iovec *, size_t iovs, uint64_t token);
int rfi_queue(struct rfi_ep *, struct op *, int queue);
void rfi_out(struct rfi_ep *);
void rfi_reply(struct rfi_ep *, struct peer *, const struct wire *, const void *data, size_t len);
void rfi_answer(struct rfi_ep *, struct peer *, uint8_t kind, uint64_t id, uint32_t err);

/* op.c */
struct op *rfi_op(struct rfi_ep *, enum op_kind, fi_addr_t, uint64_t flags, void *context, size_t copy, int *err);
int rfi_op_iov(struct op *, const struct iovec *, size_t count, bool copy);
ssize_t rfi_op_start(struct rfi_ep *, struct op *, int queue);
void rfi_op_owe(struct op *);
void rfi_op_end(struct rfi_ep *, struct op *, int err);
void rfi_op_free(struct rfi_ep *, struct op *);
void rfi_complete(struct rfi_ep *, const struct op *, int err);

/* progress.c */
int rfi_progress(struct rfi_ep *);
size_t rfi_scatter(const struct iovec *, size_t iovs, size_t off, const void *data, size_t len);
size_t rfi_slice(const struct iovec *, size_t iovs, size_t off, size_t len, struct iovec *to, size_t *n);

/* match.c, recv.c */
int match_init(struct matcher *);
void match_end(struct matcher *);
void match_post(struct matcher *, struct rx *);
struct rx *match_posted(struct matcher *, const struct peer *, uint64_t tag);
void match_keep(struct matcher *, struct unexp *);
struct unexp *match_unexpected(struct matcher *, const struct peer *, uint64_t tag, uint64_t ignore);
void match_take(struct unexp *);
ssize_t rfi_post(struct rfi_ep *, const struct fi_msg_tagged *, bool tagged, uint64_t flags);
void rfi_on_message(struct rfi_ep *, struct peer *, const struct wire *, const char *, size_t);
void rfi_on_data(struct rfi_ep *, struct peer *, const struct wire *, const char *, size_t);
void rfi_transfer_end(struct rfi_ep *, struct transfer *, int err);
void rfi_rx_lost(struct rfi_ep *, const struct peer *, int err);
void rfi_rx_end(struct rfi_ep *);

/* direct.c */
void rfi_mr_adopt(struct rfi_mr *);
void rfi_mr_end(struct rfi_mr *, rds_region *);
bool rfi_direct_try(struct rfi_ep *, struct op *, void **desc);
int rfi_direct_xmit(struct rfi_ep *, struct op *);
void rfi_direct_end(struct rfi_ep *, struct op *, const struct rds_completion *);
void rfi_on_look(struct rfi_ep *, struct peer *, const struct wire *);
void rfi_on_key(struct rfi_ep *, struct peer *, const struct wire *);
void rfi_direct_close(struct rfi_ep *);

/* rma.c, atomic.c */
void rfi_on_wrote(struct rfi_ep *, struct peer *, const struct wire *);
void rfi_on_write(struct rfi_ep *, struct peer *, const struct wire *, const char *, size_t);
void rfi_on_read(struct rfi_ep *, struct peer *, const struct wire *);
void rfi_on_part(struct rfi_ep *, struct peer *, const struct wire *, const char *, size_t);
void rfi_on_atomic(struct rfi_ep *, struct peer *, const struct wire *, const char *, size_t);
int rfi_query_atomic(struct fid_domain *, enum fi_datatype, enum fi_op, struct fi_atomic_attr *, uint64_t);

static inline void rfi_lock(struct rfi_domain *d)
{
	pthread_mutex_lock(&d->lock);
}

static inline void rfi_unlock(struct rfi_domain *d)
{
	pthread_mutex_unlock(&d->lock);
}

/* UNSUPPORTED makes a call that the provider does not have. */
#define UNSUPPORTED(name, ...)          \
	static int name(__VA_ARGS__)    \
	{                               \
		return -FI_ENOSYS;      \
	}

/* A flag of operations: no completion but of an error. */
#define QUIET (1ULL << 60)

#define EP(x) ((struct rfi_ep *)(void *)(x))
#define DOMAIN(x) ((struct rfi_domain *)(void *)(x))

#endif
