/* The C side of package ibv: everything that is a macro or an inline function in
 * libibverbs, or that is worth one call for many work requests. Functions that
 * return int return 0 or a positive errno. Nothing here keeps Go memory. */
#ifndef RDSD_IBV_SHIM_H
#define RDSD_IBV_SHIM_H

#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

enum { IBVX_BATCH = 64, IBVX_PRIVATE = 256 };

/* One send request; its SGEs are sge[first..first+nsge-1] of the batch. */
struct ibvx_send {
	uint64_t id, raddr, compare, swap;
	uint32_t op, flags, imm, rkey, nsge, first;
};

struct ibvx_recv {
	uint64_t id;
	uint32_t nsge, first;
};

/* The memory through which requests and completions cross; the device's owner
 * is the only user. */
struct ibvx_wc {
	uint64_t id;
	uint32_t status, op, len, imm, vendor, flags, qpn, pad;
};

struct ibvx_batch {
	struct ibvx_send send[IBVX_BATCH];
	struct ibvx_recv recv[IBVX_BATCH];
	struct ibvx_wc wc[IBVX_BATCH];
	struct ibv_sge *sge;
};

struct ibvx_limits {
	uint32_t vendor, transport, atomic, max_qp_wr, max_sge, max_sge_rd, max_rd_atomic, max_init_rd_atomic, max_cqe, max_srq_wr, max_srq_sge;
	uint32_t max_msg, port_active, ethernet, max_inline;
};

struct ibvx_cm {
	struct rdma_cm_id *id, *listen;
	uint64_t token;
	int type, status;
	uint32_t private_len, depth, resources;
	unsigned char private_data[IBVX_PRIVATE];
	struct sockaddr_storage local, remote;
};

struct ibvx_qp_attr {
	uint32_t send_wr, recv_wr, send_sge, recv_sge, max_inline, access, port;
	int iwarp;
};

struct ibvx_batch *ibvx_new_batch(int sges);
void ibvx_free_batch(struct ibvx_batch *b);

int ibvx_open(const char *name, struct ibv_context **ctx);
int ibvx_limits(struct ibv_context *ctx, int port, struct ibvx_limits *l);
struct ibv_comp_channel *ibvx_channel(struct ibv_context *ctx, int *err);
int ibvx_comp_event(struct ibv_comp_channel *ch);
int ibvx_async_event(struct ibv_context *ctx, int *type, uintptr_t *object);
int ibvx_nonblock(int fd);

struct ibv_cq *ibvx_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *ch, int *err);
int ibvx_arm(struct ibv_cq *cq, int solicited);
int ibvx_poll(struct ibv_cq *cq, struct ibvx_batch *b);

struct ibv_mr *ibvx_reg(struct ibv_pd *pd, uintptr_t addr, size_t len, uint64_t iova, int access, int *err);
struct ibv_srq *ibvx_create_srq(struct ibv_pd *pd, int wr, int sge, int *err);
struct ibv_qp *ibvx_create_qp(struct ibv_pd *pd, struct ibv_cq *scq, struct ibv_cq *rcq, struct ibv_srq *srq, struct ibvx_qp_attr *a, int *err);
int ibvx_to_err(struct ibv_qp *qp);
int ibvx_to_rts(struct rdma_cm_id *id, struct ibv_qp *qp, uint32_t access, int dest_rd, int init_rd, int rnr_timer, int rnr_retry);
int ibvx_post_send(struct ibv_qp *qp, struct ibvx_batch *b, int n, int *posted);
int ibvx_post_recv(struct ibv_qp *qp, struct ibv_srq *srq, struct ibvx_batch *b, int n, int *posted);

struct rdma_cm_id *ibvx_new_id(struct rdma_event_channel *ch, uint64_t token, int *err);
void ibvx_set_token(struct rdma_cm_id *id, uint64_t token);
int ibvx_next_cm(struct rdma_event_channel *ch, struct ibvx_cm *e);
int ibvx_bind(struct rdma_cm_id *id, void *addr);
int ibvx_resolve(struct rdma_cm_id *id, void *src, void *dst, int ms);
int ibvx_resolve_route(struct rdma_cm_id *id, int ms);
int ibvx_listen(struct rdma_cm_id *id, int backlog);
int ibvx_connect(struct rdma_cm_id *id, void *private_data, int len, int dest_rd, int init_rd, int rnr, uint32_t qpn, int srq);
int ibvx_accept(struct rdma_cm_id *id, void *private_data, int len, int dest_rd, int init_rd, int rnr, uint32_t qpn, int srq);
int ibvx_reject(struct rdma_cm_id *id, void *private_data, int len);
int ibvx_establish(struct rdma_cm_id *id);
int ibvx_notify(struct rdma_cm_id *id);
int ibvx_src_port(struct rdma_cm_id *id);
const char *ibvx_id_device(struct rdma_cm_id *id);

#endif
