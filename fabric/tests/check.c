/*
 * check.c ADDR [end] - two endpoints of one process, through libfabric and the provider. It says what failed, or nothing.
 * end: it says "ready", waits for the end of its daemon, says "ended", and goes on with the next daemon after a line of input.
 */
#include <sys/resource.h>

#include "ends.h"

static void tagged(size_t len, uint64_t flags)
{
	struct iovec iov = {from, len};
	struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1, .addr = b.addr, .tag = 7, .context = &iov, .data = 99};
	fill(from, len, (int)len);
	memset(to, 0, len);
	MUST(fi_trecv(b.ep, to, LONG, NULL, a.addr, 3, 0xff0, &b)); /* not this one */
	MUST(fi_trecv(b.ep, to, LONG, NULL, a.addr, 7, 0, &b));
	MUST(fi_tsendmsg(a.ep, &m, flags | FI_REMOTE_CQ_DATA));
	struct fi_cq_tagged_entry got = done(&b);
	SHALL(got.len == len && got.tag == 7 && got.data == 99 && got.flags & FI_REMOTE_CQ_DATA && !memcmp(from, to, len));
	got = done(&a);
	SHALL(got.op_context == &iov && got.flags & FI_SEND);
	MUST(fi_cancel(&b.ep->fid, &b));
	SHALL(failure(&b) == FI_ECANCELED);
}

/* delivered: with FI_DELIVERY_COMPLETE a message that no receive takes is not complete, although a later one is. */
static void delivered(void)
{
	static const size_t both[] = {100, 70000};
	for (int i = 0; i < 2; i++) {
		struct iovec iov = {from, both[i]};
		struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1, .addr = b.addr, .tag = 8, .context = &iov};
		MUST(fi_tsendmsg(a.ep, &m, FI_DELIVERY_COMPLETE));
		MUST(fi_tsend(a.ep, from, 10, NULL, b.addr, 9, from));
		SHALL(done(&a).op_context == from);
		MUST(fi_trecv(b.ep, to, LONG, NULL, a.addr, 8, 0, NULL));
		SHALL(done(&b).len == both[i]);
		SHALL(done(&a).op_context == &iov);
		MUST(fi_trecv(b.ep, to, LONG, NULL, a.addr, 9, 0, NULL));
		done(&b);
	}
}

static void multi(void)
{
	struct iovec iov = {to, 4096};
	struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
	size_t at = 0, least = 1000;
	MUST(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
	MUST(fi_inject(a.ep, from, 900, b.addr)); /* unexpected */
	MUST(fi_recvmsg(b.ep, &m, FI_MULTI_RECV));
	for (int i = 0; i < 4; i++) {
		if (i)
			MUST(fi_inject(a.ep, from, 900, b.addr));
		struct fi_cq_tagged_entry got = done(&b);
		SHALL(got.buf == to + at && got.len == 900 && !(got.flags & FI_MULTI_RECV) == (i < 3));
		at += 900;
	}
}

static void truncated(void)
{
	MUST(fi_recv(b.ep, to, 10, NULL, FI_ADDR_UNSPEC, NULL));
	MUST(fi_send(a.ep, from, 100, NULL, b.addr, NULL));
	SHALL(failure(&b) == FI_ETRUNC);
	done(&a);
	MUST(fi_recv(b.ep, to, 10, NULL, FI_ADDR_UNSPEC, NULL));
	MUST(fi_send(a.ep, from, LONG, NULL, b.addr, NULL));
	SHALL(failure(&b) == FI_ETRUNC);
	done(&a);
}

/* serve makes progress at b, which carries out what a wants, until a has a completion. */
static void serve(void)
{
	struct fi_cq_tagged_entry got;
	SHALL(fi_cq_read(b.cq, &got, 1) == -FI_EAGAIN);
	done(&a);
}

static void remote(void)
{
	struct fid_mr *mine, *theirs;
	MUST(fi_mr_reg(domain, from, LONG, FI_READ | FI_WRITE, 0, 1, 0, &mine, NULL));
	MUST(fi_mr_reg(domain, to, LONG, FI_REMOTE_READ | FI_REMOTE_WRITE, 0x1000, 2, 0, &theirs, NULL));
	uint64_t key = fi_mr_key(theirs), at = 0x1000; /* no virtual addresses: from the region's offset on */
	for (int i = 0; i < 4; i++) { /* the first by the target, the others directly */
		fill(from, LONG, i);
		MUST(fi_write(a.ep, from, LONG, fi_mr_desc(mine), b.addr, at, key, NULL));
		serve();
		SHALL(!memcmp(from, to, LONG));
		fill(to, LONG, i + 100);
		MUST(fi_read(a.ep, from, LONG, fi_mr_desc(mine), b.addr, at, key, NULL));
		serve();
		SHALL(!memcmp(from, to, LONG));
		MUST(fi_writedata(a.ep, from, 70000, fi_mr_desc(mine), 5, b.addr, at, key, NULL));
		SHALL(done(&b).data == 5);
		done(&a);
	}
	int64_t one = 1, old = 0, want = 42;
	*(int64_t *)(void *)to = 41;
	MUST(fi_fetch_atomic(a.ep, &one, 1, NULL, &old, NULL, b.addr, at, key, FI_INT64, FI_SUM, NULL));
	serve();
	SHALL(old == 41 && *(int64_t *)(void *)to == 42);
	MUST(fi_compare_atomic(a.ep, &one, 1, NULL, &want, NULL, &old, NULL, b.addr, at, key, FI_INT64, FI_CSWAP, NULL));
	serve();
	SHALL(old == 42 && *(int64_t *)(void *)to == 1);
	*(int64_t *)(void *)to = INT64_MAX;
	MUST(fi_fetch_atomic(a.ep, &one, 1, NULL, &old, NULL, b.addr, at, key, FI_INT64, FI_SUM, NULL));
	serve();
	SHALL(old == INT64_MAX && *(int64_t *)(void *)to == INT64_MIN);
	MUST(fi_write(a.ep, from, 8, NULL, b.addr, at + LONG - 7, key, NULL));
	SHALL(failure(&a) == FI_EINVAL);
	MUST(fi_close(&theirs->fid));
	MUST(fi_write(a.ep, from, LONG, fi_mr_desc(mine), b.addr, at, key, NULL));
	SHALL(failure(&a) == FI_ENOKEY);
	MUST(fi_close(&mine->fid));
}

/* flood: more unexpected messages than a receiver keeps. They wait at the sender, and all arrive in order. */
static void flood(void)
{
	enum { COUNT = 500, LEN = 65536 };
	struct fi_cq_tagged_entry e;
	for (uint64_t i = 0; i < COUNT; i++) {
		MUST(fi_tsend(a.ep, from, LEN, NULL, b.addr, 1000 + i, NULL));
		SHALL(fi_cq_read(b.cq, &e, 1) == -FI_EAGAIN); /* takes what has come */
	}
	for (uint64_t i = 0; i < COUNT; i++) {
		MUST(fi_trecv(b.ep, to, LEN, NULL, a.addr, i % 2 ? 1000 + i : 0, i % 2 ? 0 : ~0ULL, NULL));
		SHALL(done(&b).tag == 1000 + i);
		done(&a);
	}
}

/* ahead: a receive of the last of more messages than a receiver keeps, ahead of the others. */
static void ahead(void)
{
	enum { COUNT = 300, LEN = 65536 };
	MUST(fi_trecv(b.ep, to, LEN, NULL, a.addr, COUNT, 0, NULL));
	for (uint64_t i = 0; i <= COUNT; i++) {
		struct fi_cq_tagged_entry e;
		MUST(fi_tsend(a.ep, from, i % 3 ? LEN : i % 2, NULL, b.addr, i, NULL));
		fi_cq_read(b.cq, &e, 0); /* takes what has come */
	}
	for (uint64_t i = 0; i <= COUNT; i++) {
		struct fi_cq_tagged_entry got = done(&b);
		SHALL(got.tag == (i ? i - 1 : COUNT));
		if (i < COUNT)
			MUST(fi_trecv(b.ep, to, LEN, NULL, a.addr, i, 0, NULL));
		done(&a);
	}
}

/* held: messages that a peer holds back end when it does. */
static void held(struct fi_info *info)
{
	enum { COUNT = 300, LEN = 65536 };
	struct end c;
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	int refused = 0;
	open_end(&c, info);
	for (int i = 0; i < COUNT; i++) {
		MUST(fi_send(a.ep, from, LEN, NULL, c.addr, NULL));
		SHALL(fi_cq_read(c.cq, &e, 1) == -FI_EAGAIN);
	}
	MUST(fi_close(&c.ep->fid));
	MUST(fi_close(&c.cq->fid));
	for (int i = 0; i < COUNT; i++)
		if (fi_cq_sread(a.cq, &e, 1, NULL, WAIT_MS) != 1) {
			SHALL(fi_cq_readerr(a.cq, &err, 0) == 1 && err.err == FI_ECONNREFUSED);
			refused++;
		}
	SHALL(refused > 0);
}

/* idle: who reads in vain for long sleeps, so that the daemon runs beside many of them. */
static void idle(void)
{
	enum { LONG_IDLE = 2000, COUNT = 50 };
	struct fi_cq_tagged_entry e;
	struct rusage before, after;
	for (int i = 0; i < LONG_IDLE; i++)
		SHALL(fi_cq_read(a.cq, &e, 1) == -FI_EAGAIN);
	getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < COUNT; i++)
		SHALL(fi_cq_read(a.cq, &e, 1) == -FI_EAGAIN);
	getrusage(RUSAGE_SELF, &after);
	SHALL(after.ru_nvcsw - before.ru_nvcsw >= COUNT);
}

/* absent: what cannot succeed fails. */
static void absent(void)
{
	struct sockaddr_storage sa;
	size_t len = sizeof sa;
	fi_addr_t nobody;
	struct iovec iov = {from, 10};
	struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};
	MUST(fi_av_lookup(av, a.addr, &sa, &len));
	((struct sockaddr_in *)(void *)&sa)->sin_port = htons(2);
	SHALL(fi_av_insert(av, &sa, 1, &nobody, 0, NULL) == 1);
	m.addr = nobody;
	MUST(fi_inject(a.ep, from, 10, nobody)); /* nothing is known of the peer */
	SHALL(failure(&a) == FI_ECONNREFUSED);
	MUST(fi_send(a.ep, from, 10, NULL, nobody, NULL));
	SHALL(failure(&a) == FI_ECONNREFUSED);
	MUST(fi_sendmsg(a.ep, &m, FI_TRANSMIT_COMPLETE));
	SHALL(failure(&a) == FI_ECONNREFUSED);
	MUST(fi_sendmsg(a.ep, &m, FI_DELIVERY_COMPLETE));
	SHALL(failure(&a) == FI_ECONNREFUSED);
	MUST(fi_sendmsg(a.ep, &m, FI_INJECT_COMPLETE)); /* all that it says is that the memory is free */
	done(&a);
	MUST(fi_send(a.ep, from, LONG, NULL, nobody, NULL));
	SHALL(failure(&a) == FI_ECONNREFUSED);
	MUST(fi_write(a.ep, from, 10, NULL, nobody, 0, 1, NULL));
	SHALL(failure(&a) == FI_ECONNREFUSED);
}

/* gone: a long message that a peer has announced, and that has then ended, is an error of the receive that takes it. */
static void gone(struct fi_info *info)
{
	struct end c;
	struct iovec iov = {to, LONG};
	struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	open_end(&c, info);
	MUST(fi_send(c.ep, from, 70000, NULL, b.addr, NULL));
	for (ssize_t n = 0; n != 1;) { /* until the announcement is there */
		MUST(fi_recvmsg(b.ep, &m, FI_PEEK));
		while ((n = fi_cq_read(b.cq, &e, 1)) == -FI_EAGAIN)
			;
		SHALL(n == 1 || (fi_cq_readerr(b.cq, &err, 0) == 1 && err.err == FI_ENOMSG));
	}
	MUST(fi_close(&c.ep->fid));
	MUST(fi_close(&c.cq->fid));
	MUST(fi_send(b.ep, from, 10, NULL, c.addr, NULL));
	SHALL(failure(&b) == FI_ECONNREFUSED);
	MUST(fi_recvmsg(b.ep, &m, FI_MULTI_RECV));
	SHALL(failure(&b) == FI_ECONNREFUSED);
	multi();
}

/* ends: what waits has an error when the daemon ends, what is asked for then fails, and the next daemon serves. */
static void ends(struct fi_info *info)
{
	struct fi_cq_tagged_entry got;
	MUST(fi_recv(b.ep, to, 10, NULL, FI_ADDR_UNSPEC, NULL));
	MUST(fi_trecv(a.ep, to, 10, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	say("ready");
	SHALL(failure(&b) == FI_ECONNRESET);
	SHALL(failure(&a) == FI_ECONNRESET);
	SHALL(fi_send(a.ep, from, 10, NULL, b.addr, NULL) == -FI_ECONNRESET);
	SHALL(fi_recv(b.ep, to, 10, NULL, FI_ADDR_UNSPEC, NULL) == -FI_ECONNRESET);
	SHALL(fi_cq_sread(a.cq, &got, 1, NULL, -1) == -FI_ECONNRESET); /* nothing comes any more */
	close_all();
	say("ended");
	getchar();
	open_all(info);
	tagged(100, 0);
}

static void everything(struct fi_info *info)
{
	static const size_t lens[] = {0, 1, 100, 65536, 65537, 1000000, LONG};
	for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
		tagged(lens[i], 0);
		tagged(lens[i], FI_INJECT_COMPLETE);
		tagged(lens[i], FI_TRANSMIT_COMPLETE);
		tagged(lens[i], FI_DELIVERY_COMPLETE);
	}
	delivered();
	multi();
	gone(info);
	truncated();
	remote();
	flood();
	ahead();
	held(info);
	idle();
	absent();
}

int main(int argc, char **argv)
{
	struct fi_info *info = offer(argc > 1 ? argv[1] : NULL);
	open_all(info);
	if (argc > 2)
		ends(info);
	else
		everything(info);
	leave(info);
	return 0;
}
