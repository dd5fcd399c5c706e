/*
 * memory.c ADDR - what the checks of check.c leave out of remote memory, closing and attributes: two endpoints of one process.
 */
#include <sys/resource.h>

#include "ends.h"

enum { SENT = 200 };

/* left: memory that is deregistered while a write of it waits. The write goes on without the registration. */
static void left(void)
{
	char *junk = calloc(1, FEW);
	int writes = 0;
	reg();
	for (int i = 0; i < 3; i++)
		put(b.addr, 'a', FEW); /* a knows where the memory is */
	for (int i = 0; i < SENT; i++) /* more than b takes: what goes there waits */
		MUST(fi_send(a.ep, junk, FEW, NULL, b.addr, NULL));
	memset(from, 'b', LONG);
	MUST(fi_write(a.ep, from, LONG, NULL, b.addr, 0, KEY_THEIRS, from));
	MUST(fi_write(a.ep, from, LONG, NULL, b.addr, 0, KEY_THEIRS, from));
	MUST(fi_close(&mr_from->fid));
	for (int i = 0; i < SENT; i++)
		MUST(fi_recv(b.ep, junk, FEW, NULL, FI_ADDR_UNSPEC, NULL));
	for (int i = 0; i < SENT + 2; i++)
		writes += done(&a).op_context == from;
	for (int i = 0; i < SENT; i++)
		done(&b);
	SHALL(writes == 2 && !memcmp(from, to, LONG));
	MUST(fi_close(&mr_to->fid));
	free(junk);
}

/* open_counting is open_end with two counters. */
static void open_counting(struct end *e, struct fi_info *info, struct fid_cntr **x, uint64_t xs, struct fid_cntr **y, uint64_t ys)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
	char name[64];
	size_t len = sizeof name;
	MUST(fi_cntr_open(domain, NULL, x, NULL));
	MUST(fi_cntr_open(domain, NULL, y, NULL));
	MUST(fi_cq_open(domain, &attr, &e->cq, NULL));
	MUST(fi_endpoint(domain, info, &e->ep, NULL));
	MUST(fi_ep_bind(e->ep, &av->fid, 0));
	MUST(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_ep_bind(e->ep, &(*x)->fid, xs));
	MUST(fi_ep_bind(e->ep, &(*y)->fid, ys));
	MUST(fi_enable(e->ep));
	MUST(fi_getname(&e->ep->fid, name, &len));
	SHALL(fi_av_insert(av, name, 1, &e->addr, 0, NULL) == 1);
}

/* counted: an endpoint that counts accesses has all of them counted, also of a region that another endpoint uses directly. */
static void counted(struct fi_info *info)
{
	enum { BIG = 32 << 20 };
	struct end c;
	struct fid_cntr *writes, *reads;
	char *big = calloc(1, BIG), *copy = calloc(1, BIG);
	struct fid_mr *all;
	open_counting(&c, info, &writes, FI_REMOTE_WRITE, &reads, FI_REMOTE_READ);
	reg();
	for (int i = 0; i < 3; i++)
		put(b.addr, 'a', FEW);
	for (uint64_t i = 1; i <= 3; i++) {
		put(c.addr, 'c', FEW);
		SHALL(fi_cntr_read(writes) == i && fi_cntr_read(reads) == 0);
	}
	unreg();
	/* A read counts when its data has gone: then no more of it is on its way than the two hosts keep. */
	memset(big, 'd', BIG);
	MUST(fi_mr_reg(domain, big, BIG, FI_REMOTE_READ, 0, KEY_THEIRS, 0, &all, NULL));
	MUST(fi_read(a.ep, copy, BIG, NULL, c.addr, 0, KEY_THEIRS, NULL));
	while (fi_cntr_read(reads) == 0)
		;
	SHALL(!memcmp(copy, big, 1 << 20));
	done(&a);
	SHALL(fi_cntr_read(reads) == 1 && !memcmp(copy, big, BIG));
	MUST(fi_close(&all->fid));
	MUST(fi_close(&c.ep->fid));
	MUST(fi_close(&c.cq->fid));
	MUST(fi_close(&writes->fid));
	MUST(fi_close(&reads->fid));
	free(big);
	free(copy);
}

/* peeked: a look at a message is no receive, and says of which kind of message it is. */
static void peeked(struct fi_info *info)
{
	struct end c;
	struct fid_cntr *receives, *sends;
	struct iovec iov = {to, FEW};
	struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	open_counting(&c, info, &receives, FI_RECV, &sends, FI_SEND);
	MUST(fi_recvmsg(c.ep, &m, FI_PEEK));
	SHALL(fi_cq_sread(c.cq, &e, 1, NULL, WAIT_MS) == -FI_EAVAIL && fi_cq_readerr(c.cq, &err, 0) == 1);
	SHALL(err.err == FI_ENOMSG && err.flags & FI_MSG && !(err.flags & FI_TAGGED));
	MUST(fi_inject(a.ep, from, 10, c.addr));
	for (ssize_t n = 0; n != 1;) {
		MUST(fi_recvmsg(c.ep, &m, FI_PEEK));
		n = fi_cq_sread(c.cq, &e, 1, NULL, WAIT_MS);
		SHALL(n == 1 || fi_cq_readerr(c.cq, &err, 0) == 1);
	}
	SHALL(fi_cntr_read(receives) == 0 && fi_cntr_readerr(receives) == 0);
	MUST(fi_recvmsg(c.ep, &m, 0));
	SHALL(done(&c).len == 10 && fi_cntr_read(receives) == 1);
	MUST(fi_close(&c.ep->fid));
	MUST(fi_close(&c.cq->fid));
	MUST(fi_close(&receives->fid));
	MUST(fi_close(&sends->fid));
}

/* several: FI_MULTI_RECV as the endpoint's choice is for receives that can have it. */
static void several(struct fi_info *info)
{
	struct end c;
	struct iovec two[2] = {{to, 100}, {to + 100, 100}};
	uint64_t flags = info->rx_attr->op_flags;
	info->rx_attr->op_flags = FI_MULTI_RECV;
	open_end(&c, info);
	info->rx_attr->op_flags = flags;
	MUST(fi_trecv(c.ep, to, 100, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	MUST(fi_tsend(a.ep, from, 100, NULL, c.addr, 1, NULL));
	SHALL(!(done(&c).flags & FI_MULTI_RECV));
	MUST(fi_recvv(c.ep, two, NULL, 2, FI_ADDR_UNSPEC, NULL));
	MUST(fi_send(a.ep, from, 200, NULL, c.addr, NULL));
	SHALL(done(&c).len == 200);
	MUST(fi_recv(c.ep, to, LONG, NULL, FI_ADDR_UNSPEC, NULL));
	for (int i = 0; i < 2; i++) {
		MUST(fi_send(a.ep, from, 200, NULL, c.addr, NULL));
		SHALL(done(&c).buf == to + (size_t)i * 200);
	}
	for (int i = 0; i < 4; i++)
		done(&a);
	MUST(fi_close(&c.ep->fid));
	MUST(fi_close(&c.cq->fid));
}

/* told: the data of an atomic comes with its length in bytes. */
static void told(void)
{
	int64_t one = 1;
	struct fi_ioc ioc = {&one, 1};
	struct fi_rma_ioc at = {0, 1, KEY_THEIRS};
	struct fi_msg_atomic m = {
		.msg_iov = &ioc, .iov_count = 1, .addr = b.addr, .rma_iov = &at, .rma_iov_count = 1, .datatype = FI_INT64, .op = FI_SUM, .data = 5,
	};
	reg();
	MUST(fi_atomicmsg(a.ep, &m, FI_REMOTE_CQ_DATA));
	struct fi_cq_tagged_entry got = done(&b);
	SHALL(got.data == 5 && got.len == sizeof one && got.flags & FI_ATOMIC);
	done(&a);
	unreg();
}

/* refused: what cannot be. */
static void refused(struct fi_info *info)
{
	struct fid_domain *other;
	struct fid_av *other_av;
	struct fid_ep *ep;
	struct fi_av_attr attr = {.type = FI_AV_TABLE};
	struct iovec iov[2] = {{from, (size_t)1 << 40}, {from, 1}};
	SHALL(fi_close(&fabric->fid) == -FI_EBUSY);
	MUST(fi_domain(fabric, info, &other, NULL));
	MUST(fi_av_open(other, &attr, &other_av, NULL));
	MUST(fi_endpoint(domain, info, &ep, NULL));
	SHALL(fi_ep_bind(ep, &other_av->fid, 0) == -FI_EINVAL);
	MUST(fi_close(&ep->fid));
	MUST(fi_close(&other_av->fid));
	MUST(fi_close(&other->fid));
	SHALL(fi_sendv(a.ep, iov, NULL, 2, b.addr, NULL) == -FI_EMSGSIZE);
	iov[0].iov_len = SIZE_MAX;
	SHALL(fi_sendv(a.ep, iov, NULL, 2, b.addr, NULL) == -FI_EMSGSIZE);
	SHALL(fi_writev(a.ep, iov, NULL, 2, b.addr, 0, KEY_THEIRS, NULL) == -FI_EMSGSIZE);
	SHALL(fi_inject(a.ep, from, 4097, b.addr) == -FI_EMSGSIZE);
}

/* named: an address that was inserted twice, and a name with addresses of both kinds. */
static void named(struct fi_info *info)
{
	struct sockaddr_storage sa;
	size_t len = sizeof sa;
	fi_addr_t again;
	struct fi_info *hints = fi_allocinfo(), *found;
	MUST(fi_av_lookup(av, b.addr, &sa, &len));
	SHALL(fi_av_insert(av, &sa, 1, &again, 0, NULL) == 1);
	MUST(fi_av_remove(av, &again, 1, 0));
	MUST(fi_trecv(b.ep, to, 10, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	MUST(fi_tsend(a.ep, from, 10, NULL, b.addr, 1, NULL));
	done(&a);
	done(&b);
	hints->fabric_attr->prov_name = strdup("rdsd");
	MUST(fi_getinfo(FI_VERSION(1, 17), "localhost", "5", 0, hints, &found));
	SHALL(found->addr_format == info->addr_format && found->dest_addr);
	fi_freeinfo(found);
	fi_freeinfo(hints);
}

/* crowded: an event queue that there is no memory for refuses what does not fit, and keeps the rest. */
static void crowded(void)
{
	enum { MANY = 1 << 22, SPARE = 64 << 20 };
	struct fid_eq *eq;
	struct rlimit was, now;
	uint32_t kind, i, n;
	unsigned long pages;
	FILE *f = fopen("/proc/self/statm", "r");
	SHALL(f && fscanf(f, "%lu", &pages) == 1);
	fclose(f);
	if (pages >> 28) /* address sanitizer: a limit of the address space would end it */
		return;
	MUST(fi_eq_open(fabric, &(struct fi_eq_attr){.wait_obj = FI_WAIT_NONE}, &eq, NULL));
	getrlimit(RLIMIT_AS, &was);
	now = was;
	now.rlim_cur = pages * 4096 + SPARE;
	setrlimit(RLIMIT_AS, &now);
	for (n = 0; n < MANY && fi_eq_write(eq, n, &n, sizeof n, 0) == sizeof n; n++)
		;
	setrlimit(RLIMIT_AS, &was);
	SHALL(n > 1000 && n < MANY);
	for (uint32_t want = 0; want < n; want++)
		SHALL(fi_eq_read(eq, &kind, &i, sizeof i, 0) == sizeof i && kind == want && i == want);
	SHALL(fi_eq_read(eq, &kind, &i, sizeof i, 0) == -FI_EAGAIN);
	MUST(fi_close(&eq->fid));
}

static void everything(struct fi_info *info)
{
	left();
	counted(info);
	peeked(info);
	several(info);
	told();
	refused(info);
	named(info);
	crowded();
}

int main(int argc, char **argv)
{
	struct fi_info *info = offer(argc > 1 ? argv[1] : NULL);
	open_all(info);
	everything(info);
	leave(info);
	return 0;
}
