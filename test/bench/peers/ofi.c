//go:build ofi

#include "ways.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 256, PIECE = 8192, BATCH = 64 };

struct ofi {
	struct fid_ep *ep;
	struct fid_av *av;
	struct fid_cq *cq;
	fi_addr_t peer;
	uint8_t *ring; // RING receives of PIECE bytes
};

static const char *text(int error) { return fi_strerror(-error); }

static int meet(way *w, const void *name, size_t len) {
	struct ofi *o = w->of;
	(void)len;
	return fi_av_insert(o->av, name, 1, &o->peer, 0, NULL) == 1 ? 0 : -FI_EADDRNOTAVAIL;
}

static int post(struct ofi *o, void *buf) { return (int)fi_recv(o->ep, buf, PIECE, NULL, FI_ADDR_UNSPEC, buf); }

// take reads what has come, and posts its receives again.
static int take(way *w) {
	struct ofi *o = w->of;
	struct fi_cq_msg_entry e[BATCH];
	ssize_t n = fi_cq_read(o->cq, e, BATCH);
	if (n == -FI_EAGAIN) {
		sched_yield();
		return 0;
	}
	for (ssize_t i = 0; i < n; i++) {
		w->got = e[i].op_context;
		w->got_len = e[i].len;
		int rc = post(o, e[i].op_context);
		if (rc < 0)
			return rc;
	}
	return (int)n;
}

static int receive(way *w) {
	int n;
	while (!(n = take(w)))
		;
	return n;
}

// transmit injects: a sender that has room for nothing more makes progress, and nothing comes to a sender that does not ask.
static int transmit(way *w, const void *buf, size_t size) {
	struct ofi *o = w->of;
	ssize_t rc;
	while ((rc = fi_inject(o->ep, buf, size, o->peer)) == -FI_EAGAIN) {
		fi_cq_read(o->cq, NULL, 0);
		sched_yield();
	}
	return (int)rc;
}

// want fills what is asked of libfabric: reliable datagrams over TCP, by the provider that its users take for that.
static struct fi_info *want(void) {
	struct fi_info *h = fi_allocinfo();
	if (!h)
		return NULL;
	h->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
	h->ep_attr->type = FI_EP_RDM;
	h->caps = FI_MSG;
	h->domain_attr->threading = FI_THREAD_DOMAIN;
	return h;
}

static int enable(way *w, struct ofi *o, struct fi_info *info) {
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_MSG, .size = 2 * RING};
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	int rc;
	if ((rc = fi_fabric(info->fabric_attr, &fabric, NULL)) || (rc = fi_domain(fabric, info, &domain, NULL)) ||
		(rc = fi_endpoint(domain, info, &o->ep, NULL)) || (rc = fi_cq_open(domain, &cq, &o->cq, NULL)) ||
		(rc = fi_av_open(domain, &av, &o->av, NULL)) || (rc = fi_ep_bind(o->ep, &o->cq->fid, FI_RECV)) ||
		(rc = fi_ep_bind(o->ep, &o->cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION)) || (rc = fi_ep_bind(o->ep, &o->av->fid, 0)) ||
		(rc = fi_enable(o->ep)))
		return rc;
	for (int i = 0; i < RING && !rc; i++)
		rc = post(o, o->ring + (size_t)i * PIECE);
	w->name_len = sizeof w->name;
	return rc ? rc : fi_getname(&o->ep->fid, w->name, &w->name_len);
}

int ofi_open(way *w) {
	struct ofi *o = calloc(1, sizeof *o);
	struct fi_info *hints = want(), *info;
	w->of = o;
	w->meet = meet;
	w->send = transmit;
	w->recv = receive;
	w->text = text;
	if (!o || !hints || !(o->ring = calloc(RING, PIECE)))
		return -FI_ENOMEM;
	int rc = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info);
	if (rc)
		return rc;
	if (w->size > PIECE || w->size > info->tx_attr->inject_size)
		return -FI_EMSGSIZE;
	return enable(w, o, info);
}
