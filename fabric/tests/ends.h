/* ends.h - what the programs of this folder share: two endpoints of one process, and what they wait for. */
#ifndef ENDS_H
#define ENDS_H

#include <netinet/in.h>
#include <string.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "check.h"

enum { LONG = 3 << 20, FEW = 65536, WAIT_MS = 300000, KEY_MINE = 1, KEY_THEIRS = 2 };

static char *from, *to; /* LONG bytes each */
static struct fid_mr *mr_from, *mr_to; /* from and to, while they are registered */
static uint64_t order; /* of remote memory, that is asked for */
static enum fi_wait_obj way = FI_WAIT_UNSPEC; /* of the completion queues */
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct end {
	struct fid_ep *ep;
	struct fid_cq *cq;
	fi_addr_t addr;
	size_t size; /* of cq */
} a, b;

/* done waits for one completion of e, while the other end makes progress. */
static inline struct fi_cq_tagged_entry done(struct end *e)
{
	struct fi_cq_tagged_entry got;
	for (int i = 0;; i++) {
		ssize_t n = fi_cq_sread(e->cq, &got, 1, NULL, WAIT_MS);
		if (n == 1)
			return got;
		struct fi_cq_err_entry err = {0};
		if (n == -FI_EAVAIL)
			fi_cq_readerr(e->cq, &err, 0);
		fprintf(stderr, "no completion: %s\n", fi_strerror(err.err ? err.err : (int)-n));
		exit(1);
	}
}

/* failure waits for an error of e and returns it. */
static inline int failure_at(struct end *e, int line)
{
	struct fi_cq_tagged_entry got;
	struct fi_cq_err_entry err = {0};
	ssize_t n = fi_cq_sread(e->cq, &got, 1, NULL, WAIT_MS);
	if (n != -FI_EAVAIL) {
		fprintf(stderr, "line %d: %zd and no error\n", line, n);
		exit(1);
	}
	SHALL(fi_cq_readerr(e->cq, &err, 0) == 1);
	return err.err;
}

#define failure(e) failure_at(e, __LINE__)

static void open_end(struct end *e, struct fi_info *info)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = way};
	char name[64];
	size_t len = sizeof name;
	MUST(fi_cq_open(domain, &attr, &e->cq, NULL));
	e->size = attr.size;
	MUST(fi_endpoint(domain, info, &e->ep, NULL));
	MUST(fi_ep_bind(e->ep, &av->fid, 0));
	MUST(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_enable(e->ep));
	MUST(fi_getname(&e->ep->fid, name, &len));
	SHALL(fi_av_insert(av, name, 1, &e->addr, 0, NULL) == 1);
}

/* offer finds the provider at ADDR and opens its fabric. */
static struct fi_info *offer(const char *addr)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->msg_order = order;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->fabric_attr->prov_name = strdup("rdsd");
	MUST(fi_getinfo(FI_VERSION(1, 17), addr, NULL, FI_SOURCE, hints, &info));
	SHALL(info->domain_attr->threading == FI_THREAD_DOMAIN); /* what the program asks for, as MPICH wants it */
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
	fi_freeinfo(hints);
	from = malloc(LONG);
	to = malloc(LONG);
	return info;
}

static void open_all(struct fi_info *info)
{
	struct fi_av_attr attr = {.type = FI_AV_TABLE};
	MUST(fi_domain(fabric, info, &domain, NULL));
	MUST(fi_av_open(domain, &attr, &av, NULL));
	open_end(&a, info);
	open_end(&b, info);
}

static void close_all(void)
{
	SHALL(fi_close(&domain->fid) == -FI_EBUSY);
	MUST(fi_close(&a.ep->fid));
	MUST(fi_close(&b.ep->fid));
	MUST(fi_close(&a.cq->fid));
	MUST(fi_close(&b.cq->fid));
	MUST(fi_close(&av->fid));
	MUST(fi_close(&domain->fid));
}

static inline void reg(void)
{
	MUST(fi_mr_reg(domain, from, LONG, FI_READ | FI_WRITE, 0, KEY_MINE, 0, &mr_from, NULL));
	MUST(fi_mr_reg(domain, to, LONG, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY_THEIRS, 0, &mr_to, NULL));
}

static inline void unreg(void)
{
	MUST(fi_close(&mr_from->fid));
	MUST(fi_close(&mr_to->fid));
}

/* put writes len bytes at addr, and waits. */
static inline void put(fi_addr_t addr, char what, size_t len)
{
	memset(from, what, len);
	MUST(fi_write(a.ep, from, len, NULL, addr, 0, KEY_THEIRS, NULL));
	done(&a);
}

static inline void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

static inline void leave(struct fi_info *info)
{
	close_all();
	MUST(fi_close(&fabric->fid));
	fi_freeinfo(info);
	free(from);
	free(to);
}

#endif
