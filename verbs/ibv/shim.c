//go:build ibv && linux

#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* err_of makes a positive errno of what a driver returns: 0, an errno, a
 * negative errno, or -1 with errno set. */
static int err_of(int rc)
{
	if (rc == 0)
		return 0;
	if (rc == -1)
		return errno ? errno : EIO;
	return rc < 0 ? -rc : rc;
}

struct ibvx_batch *ibvx_new_batch(int sges)
{
	struct ibvx_batch *b = calloc(1, sizeof *b);

	if (b && !(b->sge = calloc((size_t)IBVX_BATCH * sges, sizeof *b->sge))) {
		free(b);
		b = NULL;
	}
	return b;
}

void ibvx_free_batch(struct ibvx_batch *b)
{
	if (b)
		free(b->sge);
	free(b);
}

int ibvx_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

int ibvx_open(const char *name, struct ibv_context **ctx)
{
	struct ibv_device **list;
	int n, i, err = ENODEV;

	errno = 0;
	list = ibv_get_device_list(&n);
	if (!list)
		return errno ? errno : ENOSYS;
	for (i = 0; i < n; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		errno = 0;
		*ctx = ibv_open_device(list[i]);
		err = *ctx ? 0 : errno ? errno : ENODEV;
		break;
	}
	ibv_free_device_list(list);
	return err;
}

/* probe_inline finds the largest inline size by asking for it: no attribute of
 * a device tells. */
static uint32_t probe_inline(struct ibv_context *ctx)
{
	static const uint32_t sizes[] = { 512, 400, 256, 220, 128, 96, 80, 64, 32, 0 };
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = pd ? ibv_create_cq(ctx, 1, NULL, NULL, 0) : NULL;
	uint32_t i, got = 0;

	for (i = 0; cq && sizes[i]; i++) {
		struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = sizes[i] } };
		struct ibv_qp *qp = ibv_create_qp(pd, &a);

		if (qp) {
			got = sizes[i];
			ibv_destroy_qp(qp);
			break;
		}
	}
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return got;
}

int ibvx_limits(struct ibv_context *ctx, int port, struct ibvx_limits *l)
{
	struct ibv_device_attr d;
	struct ibv_port_attr p;
	int err = err_of(ibv_query_device(ctx, &d));

	if (err)
		return err;
	if ((err = err_of(ibv_query_port(ctx, port, &p))))
		return err;
	l->vendor = d.vendor_id;
	l->transport = ctx->device->transport_type;
	l->atomic = d.atomic_cap;
	l->max_qp_wr = d.max_qp_wr;
	l->max_sge = d.max_sge;
	l->max_sge_rd = d.max_sge_rd;
	l->max_rd_atomic = d.max_qp_rd_atom;
	l->max_init_rd_atomic = d.max_qp_init_rd_atom;
	l->max_cqe = d.max_cqe;
	l->max_srq_wr = d.max_srq_wr;
	l->max_srq_sge = d.max_srq_sge;
	l->max_msg = p.max_msg_sz;
	l->port_active = p.state == IBV_PORT_ACTIVE;
	l->ethernet = p.link_layer == IBV_LINK_LAYER_ETHERNET;
	l->max_inline = probe_inline(ctx);
	return 0;
}

struct ibv_comp_channel *ibvx_channel(struct ibv_context *ctx, int *err)
{
	struct ibv_comp_channel *ch;

	errno = 0;
	ch = ibv_create_comp_channel(ctx);
	*err = ch ? ibvx_nonblock(ch->fd) : errno ? errno : ENOMEM;
	return ch;
}

/* ibvx_comp_event takes one event: EAGAIN when there is none. Which queue it was
 * for is of no matter, all armed ones are looked at. */
int ibvx_comp_event(struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(ch, &cq, &context))
		return errno ? errno : EAGAIN;
	ibv_ack_cq_events(cq, 1);
	return 0;
}

int ibvx_async_event(struct ibv_context *ctx, int *type, uintptr_t *object)
{
	struct ibv_async_event e;

	if (ibv_get_async_event(ctx, &e))
		return errno ? errno : EAGAIN;
	*type = e.event_type;
	switch (e.event_type) {
	case IBV_EVENT_CQ_ERR:
		*object = (uintptr_t)e.element.cq;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		*object = (uintptr_t)e.element.srq;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		*object = (uintptr_t)e.element.qp;
		break;
	default:
		*object = 0;
	}
	ibv_ack_async_event(&e);
	return 0;
}

struct ibv_cq *ibvx_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *ch, int *err)
{
	struct ibv_cq *cq;

	errno = 0;
	cq = ibv_create_cq(ctx, cqe, NULL, ch, 0);
	*err = cq ? 0 : errno ? errno : ENOMEM;
	return cq;
}

int ibvx_arm(struct ibv_cq *cq, int solicited)
{
	return err_of(ibv_req_notify_cq(cq, solicited));
}

/* ibvx_poll fills b->wc and returns how many, or a negative errno. */
int ibvx_poll(struct ibv_cq *cq, struct ibvx_batch *b)
{
	struct ibv_wc wc[IBVX_BATCH];
	int i, n = ibv_poll_cq(cq, IBVX_BATCH, wc);

	if (n < 0)
		return -EIO;
	for (i = 0; i < n; i++) {
		b->wc[i].id = wc[i].wr_id;
		b->wc[i].status = wc[i].status;
		b->wc[i].op = wc[i].opcode;
		b->wc[i].len = wc[i].byte_len;
		b->wc[i].imm = wc[i].wc_flags & IBV_WC_WITH_IMM ? be32toh(wc[i].imm_data) : wc[i].invalidated_rkey;
		b->wc[i].vendor = wc[i].vendor_err;
		b->wc[i].qpn = wc[i].qp_num;
		b->wc[i].flags = wc[i].wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV);
	}
	return n;
}

struct ibv_mr *ibvx_reg(struct ibv_pd *pd, uintptr_t addr, size_t len, uint64_t iova, int access, int *err)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr_iova(pd, (void *)addr, len, iova, access);
	*err = mr ? 0 : errno ? errno : ENOMEM;
	return mr;
}

struct ibv_srq *ibvx_create_srq(struct ibv_pd *pd, int wr, int sge, int *err)
{
	struct ibv_srq_init_attr a = { .attr = { .max_wr = wr, .max_sge = sge } };
	struct ibv_srq *srq;

	errno = 0;
	srq = ibv_create_srq(pd, &a);
	*err = srq ? 0 : errno ? errno : ENOMEM;
	return srq;
}

/* ibvx_create_qp makes a queue pair in INIT. */
struct ibv_qp *ibvx_create_qp(struct ibv_pd *pd, struct ibv_cq *scq, struct ibv_cq *rcq, struct ibv_srq *srq, struct ibvx_qp_attr *a, int *err)
{
	struct ibv_qp_init_attr init = { .send_cq = scq, .recv_cq = rcq, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = a->send_wr, .max_recv_wr = srq ? 0 : a->recv_wr, .max_send_sge = a->send_sge,
			.max_recv_sge = srq ? 0 : a->recv_sge, .max_inline_data = a->max_inline } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = a->port, .qp_access_flags = a->access };
	int mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | (a->iwarp ? 0 : IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp(pd, &init);
	if (!qp) {
		*err = errno ? errno : ENOMEM;
		return NULL;
	}
	if ((*err = err_of(ibv_modify_qp(qp, &attr, mask)))) {
		ibv_destroy_qp(qp);
		return NULL;
	}
	return qp;
}

/* RETRIES of what a peer does not acknowledge, each after the time that rdma_cm
 * sets (on RoCE some two seconds). Not 7: rxe takes it for endless, as 7 is of RNR,
 * and a peer that has vanished would never be given up. */
#define RETRIES 6

int ibvx_to_err(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return err_of(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* ibvx_to_rts takes a queue pair from INIT to RTS with the attributes of a
 * connection. Over iWARP the driver does that itself. */
int ibvx_to_rts(struct rdma_cm_id *id, struct ibv_qp *qp, uint32_t access, int dest_rd, int init_rd, int rnr_timer, int rnr_retry)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	int i, mask, err;

	for (i = 0; i < 3; i++) {
		struct ibv_qp_attr attr = { .qp_state = states[i] };

		if ((err = err_of(rdma_init_qp_attr(id, &attr, &mask))))
			return err;
		switch (states[i]) {
		case IBV_QPS_INIT:
			attr.qp_access_flags = access;
			mask |= IBV_QP_ACCESS_FLAGS;
			break;
		case IBV_QPS_RTR:
			attr.max_dest_rd_atomic = dest_rd;
			attr.min_rnr_timer = rnr_timer;
			mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
			/* rdma_cm sets access flags of its own here. */
			attr.qp_access_flags = access;
			break;
		default:
			attr.max_rd_atomic = init_rd;
			attr.rnr_retry = rnr_retry;
			attr.retry_cnt = RETRIES; /* whatever the peer proposed */
			mask |= IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RNR_RETRY | IBV_QP_RETRY_CNT;
		}
		attr.qp_state = states[i];
		if ((err = err_of(ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE))))
			return err;
	}
	return 0;
}

int ibvx_post_send(struct ibv_qp *qp, struct ibvx_batch *b, int n, int *posted)
{
	struct ibv_send_wr wr[IBVX_BATCH], *bad = NULL;
	int i, err;

	for (i = 0; i < n; i++) {
		struct ibvx_send *s = &b->send[i];

		memset(&wr[i], 0, sizeof wr[i]);
		wr[i].wr_id = s->id;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = &b->sge[s->first];
		wr[i].num_sge = s->nsge;
		wr[i].opcode = s->op;
		wr[i].send_flags = s->flags;
		if (s->op == IBV_WR_SEND_WITH_IMM || s->op == IBV_WR_RDMA_WRITE_WITH_IMM)
			wr[i].imm_data = htobe32(s->imm);
		if (s->op == IBV_WR_ATOMIC_CMP_AND_SWP || s->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr[i].wr.atomic.remote_addr = s->raddr;
			wr[i].wr.atomic.rkey = s->rkey;
			wr[i].wr.atomic.compare_add = s->compare;
			wr[i].wr.atomic.swap = s->swap;
		} else {
			wr[i].wr.rdma.remote_addr = s->raddr;
			wr[i].wr.rdma.rkey = s->rkey;
		}
	}
	errno = 0;
	err = err_of(ibv_post_send(qp, wr, &bad));
	*posted = !err ? n : bad >= wr && bad < wr + n ? (int)(bad - wr) : 0;
	return err;
}

int ibvx_post_recv(struct ibv_qp *qp, struct ibv_srq *srq, struct ibvx_batch *b, int n, int *posted)
{
	struct ibv_recv_wr wr[IBVX_BATCH], *bad = NULL;
	int i, err;

	for (i = 0; i < n; i++) {
		wr[i].wr_id = b->recv[i].id;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = &b->sge[b->recv[i].first];
		wr[i].num_sge = b->recv[i].nsge;
	}
	errno = 0;
	err = err_of(srq ? ibv_post_srq_recv(srq, wr, &bad) : ibv_post_recv(qp, wr, &bad));
	*posted = !err ? n : bad >= wr && bad < wr + n ? (int)(bad - wr) : 0;
	return err;
}

struct rdma_cm_id *ibvx_new_id(struct rdma_event_channel *ch, uint64_t token, int *err)
{
	struct rdma_cm_id *id = NULL;

	errno = 0;
	*err = err_of(rdma_create_id(ch, &id, (void *)(uintptr_t)token, RDMA_PS_TCP));
	return *err ? NULL : id;
}

void ibvx_set_token(struct rdma_cm_id *id, uint64_t token)
{
	id->context = (void *)(uintptr_t)token;
}

static void copy_addr(struct sockaddr_storage *to, struct sockaddr *from)
{
	if (from->sa_family == AF_INET6)
		memcpy(to, from, sizeof(struct sockaddr_in6));
	else
		memcpy(to, from, sizeof(struct sockaddr_in));
}

/* ibvx_next_cm takes one event and acknowledges it: EAGAIN when there is none. */
int ibvx_next_cm(struct rdma_event_channel *ch, struct ibvx_cm *e)
{
	struct rdma_cm_event *ev;

	errno = 0;
	if (rdma_get_cm_event(ch, &ev))
		return errno ? errno : EAGAIN;
	memset(e, 0, sizeof *e);
	e->id = ev->id;
	e->listen = ev->listen_id;
	e->token = (uintptr_t)ev->id->context;
	e->type = ev->event;
	e->status = ev->status;
	if (ev->param.conn.private_data) {
		e->private_len = ev->param.conn.private_data_len;
		memcpy(e->private_data, ev->param.conn.private_data, e->private_len);
	}
	e->depth = ev->param.conn.initiator_depth;
	e->resources = ev->param.conn.responder_resources;
	copy_addr(&e->local, rdma_get_local_addr(ev->id));
	copy_addr(&e->remote, rdma_get_peer_addr(ev->id));
	rdma_ack_cm_event(ev);
	return 0;
}

int ibvx_bind(struct rdma_cm_id *id, void *addr)
{
	return err_of(rdma_bind_addr(id, addr));
}

int ibvx_resolve(struct rdma_cm_id *id, void *src, void *dst, int ms)
{
	return err_of(rdma_resolve_addr(id, src, dst, ms));
}

int ibvx_resolve_route(struct rdma_cm_id *id, int ms)
{
	return err_of(rdma_resolve_route(id, ms));
}

int ibvx_listen(struct rdma_cm_id *id, int backlog)
{
	return err_of(rdma_listen(id, backlog));
}

static struct rdma_conn_param param(void *private_data, int len, int dest_rd, int init_rd, int rnr, uint32_t qpn, int srq)
{
	return (struct rdma_conn_param){ .private_data = private_data, .private_data_len = len, .responder_resources = dest_rd,
		.initiator_depth = init_rd, .flow_control = 1, .retry_count = RETRIES, .rnr_retry_count = rnr, .srq = srq, .qp_num = qpn };
}

int ibvx_connect(struct rdma_cm_id *id, void *private_data, int len, int dest_rd, int init_rd, int rnr, uint32_t qpn, int srq)
{
	struct rdma_conn_param p = param(private_data, len, dest_rd, init_rd, rnr, qpn, srq);

	errno = 0;
	return err_of(rdma_connect(id, &p));
}

int ibvx_accept(struct rdma_cm_id *id, void *private_data, int len, int dest_rd, int init_rd, int rnr, uint32_t qpn, int srq)
{
	struct rdma_conn_param p = param(private_data, len, dest_rd, init_rd, rnr, qpn, srq);

	errno = 0;
	return err_of(rdma_accept(id, &p));
}

int ibvx_reject(struct rdma_cm_id *id, void *private_data, int len)
{
	errno = 0;
	return err_of(rdma_reject(id, private_data, len));
}

int ibvx_establish(struct rdma_cm_id *id)
{
	errno = 0;
	return err_of(rdma_establish(id));
}

int ibvx_notify(struct rdma_cm_id *id)
{
	errno = 0;
	return err_of(rdma_notify(id, IBV_EVENT_COMM_EST));
}

int ibvx_src_port(struct rdma_cm_id *id)
{
	return be16toh(rdma_get_src_port(id));
}

const char *ibvx_id_device(struct rdma_cm_id *id)
{
	return id->verbs ? ibv_get_device_name(id->verbs->device) : "";
}
