/*
 * threads.c ADDR [ADDR SOCKET] - many threads of one process use one domain. Two send at one endpoint. Two others wait at
 * the completion queue of the endpoint that receives, and post its receives. At the same time others cancel receives
 * there, open and close endpoints, and register memory and use it. The last one waits at a counter. With the second
 * address and its daemon's socket, who receives has a domain there. The program says what failed, or nothing. A thread
 * that is not woken waits for ever.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "check.h"

enum {
	SENDERS = 2, READERS = 2, OPENED = SENDERS, SOURCES = SENDERS + 1, /* OPENED: those of endpoints that come and go */
	MESSAGES = 300, ROUNDS = 60, CANCELS = 300, EXPECTED = SENDERS * MESSAGES + ROUNDS,
	SLOTS = 16, LONGEST = 200000, MEMORY = 1 << 20, PIECE = 1 << 16, NOBODY = 999
};
static const size_t lens[] = {8, 4000, 65536, 65537, LONGEST};

static struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
} sides[2], *near = &sides[0], *far = &sides[0];

struct end {
	struct fid_ep *ep;
	struct fid_cq *cq;
};

static struct fid_cntr *received;
static struct end a, b;
static fi_addr_t from, to; /* a at the far side, b at the near side */
static atomic_int seen[SOURCES][MESSAGES], messages, cancelled;
static atomic_bool finished;

/* open_end opens an endpoint, which counts its receives in cntr. */
static void open_end(struct side *s, struct end *e, enum fi_wait_obj wait, struct fid_cntr *cntr)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait};
	MUST(fi_cq_open(s->domain, &attr, &e->cq, NULL));
	MUST(fi_endpoint(s->domain, s->info, &e->ep, NULL));
	MUST(fi_ep_bind(e->ep, &s->av->fid, 0));
	MUST(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV));
	if (cntr)
		MUST(fi_ep_bind(e->ep, &cntr->fid, FI_RECV));
	MUST(fi_enable(e->ep));
}

/* seen_from returns the address of e at a side. */
static fi_addr_t seen_from(struct side *s, struct end *e)
{
	char name[64];
	size_t len = sizeof name;
	fi_addr_t addr;
	MUST(fi_getname(&e->ep->fid, name, &len));
	SHALL(fi_av_insert(s->av, name, 1, &addr, 0, NULL) == 1);
	return addr;
}

static void close_end(struct end *e)
{
	MUST(fi_close(&e->ep->fid));
	MUST(fi_close(&e->cq->fid));
}

static char *memory(size_t n)
{
	char *p = malloc(n);
	SHALL(p);
	return p;
}

/* message fills buf with message n of a source, and returns its length. */
static size_t message(char *buf, int source, int n)
{
	size_t len = lens[n % (int)(sizeof lens / sizeof *lens)];
	fill(buf, len, n + source);
	memcpy(buf, &n, sizeof n);
	return len;
}

/* reap takes a completion of a, if there is one, for whichever sender it is. */
static void reap(void)
{
	struct fi_cq_tagged_entry e;
	ssize_t n = fi_cq_read(a.cq, &e, 1);
	if (n == 1)
		atomic_store((atomic_bool *)e.op_context, false);
	else
		SHALL(n == -FI_EAGAIN);
}

static void *sender(void *arg)
{
	enum { WINDOW = 4 };
	int source = *(int *)arg;
	atomic_bool busy[WINDOW] = {false};
	char *buf = memory(WINDOW * LONGEST);
	for (int n = 0; n < MESSAGES + WINDOW; n++) {
		char *at = buf + (size_t)(n % WINDOW) * LONGEST;
		struct iovec iov = {at, 0};
		struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1, .addr = to, .tag = (uint64_t)source};
		ssize_t err;
		m.context = &busy[n % WINDOW];
		while (atomic_load(&busy[n % WINDOW]))
			reap();
		if (n >= MESSAGES)
			continue;
		iov.iov_len = message(at, source, n);
		atomic_store(&busy[n % WINDOW], true);
		while ((err = fi_tsendmsg(a.ep, &m, n % 2 ? FI_TRANSMIT_COMPLETE : FI_DELIVERY_COMPLETE)) == -FI_EAGAIN)
			reap();
		MUST(err);
	}
	free(buf);
	return NULL;
}

static void post(char *buf)
{
	MUST(fi_trecv(b.ep, buf, LONGEST, NULL, FI_ADDR_UNSPEC, 0, 0xff, buf));
}

/* took checks a message, and posts its memory again. */
static void took(const struct fi_cq_tagged_entry *e, char *want)
{
	int n;
	char *buf = e->op_context;
	memcpy(&n, buf, sizeof n);
	SHALL(e->tag < SOURCES && n >= 0 && n < MESSAGES);
	SHALL(e->len == message(want, (int)e->tag, n) && !memcmp(buf, want, e->len));
	SHALL(!atomic_exchange(&seen[e->tag][n], 1));
	post(buf);
	atomic_fetch_add(&messages, 1);
}

static bool complete(void)
{
	return atomic_load(&finished) && atomic_load(&messages) == EXPECTED && atomic_load(&cancelled) == CANCELS;
}

/* reader waits at b until all is there, and then has the next one look. */
static void *reader(void *arg)
{
	char *want = memory(LONGEST);
	while (!complete()) {
		struct fi_cq_tagged_entry e;
		struct fi_cq_err_entry err = {0};
		ssize_t n = fi_cq_sread(b.cq, &e, 1, NULL, -1);
		if (n == 1)
			took(&e, want);
		else if (n == -FI_EAVAIL && fi_cq_readerr(b.cq, &err, 0) == 1) { /* or another one took it */
			SHALL(err.err == FI_ECANCELED);
			atomic_fetch_add(&cancelled, 1);
		} else
			SHALL(n == -FI_EAVAIL || n == -FI_EAGAIN);
	}
	MUST(fi_cq_signal(b.cq));
	free(want);
	return NULL;
}

static void *canceler(void *arg)
{
	char buf[8];
	for (int i = 0; i < CANCELS; i++) {
		ssize_t err;
		while ((err = fi_trecv(b.ep, buf, sizeof buf, NULL, from, NOBODY, 0, buf)) == -FI_EAGAIN)
			;
		MUST(err);
		MUST(fi_cancel(&b.ep->fid, buf));
	}
	return NULL;
}

/* one waits for a completion of e, at its descriptor or in a call. */
static void one(struct end *e, bool fd)
{
	struct fi_cq_tagged_entry got;
	struct fid *fids[] = {&e->cq->fid};
	struct pollfd p = {.events = POLLIN};
	ssize_t n;
	if (fd)
		MUST(fi_control(&e->cq->fid, FI_GETWAIT, &p.fd));
	while ((n = fd ? fi_cq_read(e->cq, &got, 1) : fi_cq_sread(e->cq, &got, 1, NULL, -1)) == -FI_EAGAIN)
		if (fi_trywait(near->fabric, fids, 1) == 0)
			poll(&p, 1, -1);
	MUST(n);
}

/* opener opens endpoints, each of which sends a message and is closed. */
static void *opener(void *arg)
{
	char *buf = memory(LONGEST);
	for (int n = 0; n < ROUNDS; n++) {
		struct end c;
		bool fd = n % 2;
		open_end(near, &c, fd ? FI_WAIT_FD : FI_WAIT_UNSPEC, NULL);
		seen_from(far, &c);
		MUST(fi_tsend(c.ep, buf, message(buf, OPENED, n), NULL, to, OPENED, NULL));
		one(&c, fd);
		close_end(&c);
	}
	free(buf);
	return NULL;
}

/* writer registers memory, writes all pieces of it through b at once, and reads them back. */
static void *writer(void *arg)
{
	struct end c;
	char *mine = memory(MEMORY), *theirs = memory(MEMORY);
	open_end(near, &c, FI_WAIT_UNSPEC, NULL);
	for (int n = 0; n < ROUNDS; n++) {
		struct fid_mr *here, *there;
		MUST(fi_mr_reg(near->domain, mine, MEMORY, FI_READ | FI_WRITE, 0, 1, 0, &here, NULL));
		MUST(fi_mr_reg(far->domain, theirs, MEMORY, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 2, 0, &there, NULL));
		uint64_t key = fi_mr_key(there);
		for (int reads = 0; reads < 2; reads++) {
			if (reads)
				memset(mine, 0, MEMORY);
			else
				fill(mine, MEMORY, n);
			for (size_t at = 0; at < MEMORY; at += PIECE)
				MUST(reads ? fi_read(c.ep, mine + at, PIECE, fi_mr_desc(here), to, at, key, NULL)
					   : fi_write(c.ep, mine + at, PIECE, fi_mr_desc(here), to, at, key, NULL));
			for (size_t at = 0; at < MEMORY; at += PIECE)
				one(&c, false);
			SHALL(!memcmp(mine, theirs, MEMORY));
		}
		MUST(fi_close(&there->fid));
		MUST(fi_close(&here->fid));
	}
	close_end(&c);
	free(mine);
	free(theirs);
	return NULL;
}

static void everything(void)
{
	static void *(*const works[])(void *) = {sender, sender, canceler, opener, writer};
	enum { WORKS = sizeof works / sizeof *works };
	pthread_t t[WORKS], r[READERS];
	int source[WORKS];
	char *slots = memory(SLOTS * LONGEST);
	int err;
	for (size_t i = 0; i < SLOTS; i++)
		post(slots + i * LONGEST);
	for (int i = 0; i < READERS; i++)
		SHALL(!pthread_create(&r[i], NULL, reader, NULL));
	for (int i = 0; i < WORKS; i++) {
		source[i] = i;
		SHALL(!pthread_create(&t[i], NULL, works[i], &source[i]));
	}
	while ((err = fi_cntr_wait(received, EXPECTED, -1)) == -FI_EAVAIL) /* a cancelled receive */
		;
	MUST(err);
	for (int i = 0; i < WORKS; i++)
		SHALL(!pthread_join(t[i], NULL));
	atomic_store(&finished, true);
	MUST(fi_cq_signal(b.cq));
	for (int i = 0; i < READERS; i++)
		SHALL(!pthread_join(r[i], NULL));
	close_end(&a);
	close_end(&b);
	free(slots);
}

static void open_side(struct side *s, const char *addr)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_av_attr attr = {.type = FI_AV_TABLE};
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->fabric_attr->prov_name = strdup("rdsd");
	int err;
	while ((err = fi_getinfo(FI_VERSION(1, 17), addr, NULL, FI_SOURCE, hints, &s->info)) == -FI_ENODATA && s != near)
		poll(NULL, 0, 100); /* the provider keeps the addresses of the last daemon for two seconds */
	MUST(err);
	MUST(fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	MUST(fi_domain(s->fabric, s->info, &s->domain, NULL));
	MUST(fi_av_open(s->domain, &attr, &s->av, NULL));
	fi_freeinfo(hints);
}

static void close_side(struct side *s)
{
	MUST(fi_close(&s->av->fid));
	MUST(fi_close(&s->domain->fid));
	MUST(fi_close(&s->fabric->fid));
	fi_freeinfo(s->info);
}

int main(int argc, char **argv)
{
	struct fi_cntr_attr counts = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
	SHALL(argc == 2 || argc == 4);
	open_side(near, argv[1]);
	if (argc == 4) {
		setenv("RDSD_SOCKET", argv[3], 1);
		far = &sides[1];
		open_side(far, argv[2]);
	}
	MUST(fi_cntr_open(far->domain, &counts, &received, NULL));
	open_end(near, &a, FI_WAIT_UNSPEC, NULL);
	open_end(far, &b, FI_WAIT_UNSPEC, received);
	from = seen_from(far, &a);
	to = seen_from(near, &b);
	everything();
	MUST(fi_close(&received->fid));
	if (far != near)
		close_side(far);
	close_side(near);
	return 0;
}
