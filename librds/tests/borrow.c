/*
 * Borrowed datagrams: they stay as they are until they are returned, in any order, and count until then.
 *
 * borrow PATH ADDRESS
 * borrow PATH ADDRESS gone: what is borrowed when the daemon ends; it is stopped between two lines of input.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rds/rds.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

enum { MOST = 200 << 10, HELD = 64, MESSAGES = 4000 };

static rds_client *client;
static struct rds_addr any;

static rds_socket *bound(struct rds_addr *at)
{
	rds_socket *s = NULL;
	CHECK(rds_bind(client, &any, &s) == 0 && rds_local(s, at) == 0);
	CHECK(rds_set_option(s, RDS_OPT_SNDTIMEO, 60000) == 0 && rds_set_option(s, RDS_OPT_RCVTIMEO, 60000) == 0);
	return s;
}

/* fill makes message i of n bytes; whole checks it. */
static void fill(uint8_t *p, size_t n, unsigned i)
{
	for (size_t k = 0; k < n; k++)
		p[k] = (uint8_t)(i * 31 + k * 7 + (k >> 8));
}

static bool whole(const struct rds_borrowed *b, size_t n, unsigned i)
{
	const uint8_t *p = b->data;
	bool same = b->len == n;
	for (size_t k = 0; same && k < n; k++)
		same = p[k] == (uint8_t)(i * 31 + k * 7 + (k >> 8));
	return same;
}

static uint8_t sent[MOST];

static void send_one(rds_socket *s, const struct rds_addr *to, size_t n, unsigned i)
{
	fill(sent, n, i);
	CHECK(rds_send(s, sent, n, to, 0) == (ssize_t)n);
}

/* size is that of message i: nothing, in a run, or by itself. */
static size_t size(unsigned i) { return i % 7 == 0 ? 0 : i % 50 == 1 ? 40000 + i % 9000 : i % 11 == 2 ? 3000 + i % 999 : i * 13 % 600; }

/* errors: what is wrong has an error of its own. */
static void errors(void)
{
	struct rds_addr at, of;
	rds_socket *a = bound(&at), *b = bound(&of);
	struct rds_borrowed x, y, none = {0};
	char p[8];
	CHECK(rds_borrow(a, &x, RDS_DONTWAIT) == -EAGAIN && rds_borrow(a, &x, RDS_PEEK) == -EINVAL);
	send_one(b, &at, 100, 1);
	send_one(b, &at, 100, 2);
	CHECK(rds_borrow(a, &x, 0) == 0 && whole(&x, 100, 1) && !memcmp(&x.addr, &of, sizeof of) && x.src_inc == rds_incarnation(b) && x.time_ns);
	CHECK(rds_borrow(a, &y, 0) == 0 && whole(&y, 100, 2));
	CHECK(rds_return(b, &x) == -EINVAL && rds_return(a, &none) == -EINVAL);
	none = x;
	none.id += 7;
	CHECK(rds_return(a, &none) == -EINVAL);
	none.id = x.id + (UINT64_C(1) << 32);
	CHECK(rds_return(a, &none) == -EINVAL);
	CHECK(rds_return(a, &x) == 0 && rds_return(a, &x) == -EALREADY && whole(&y, 100, 2));
	send_one(b, &at, 100, 3);
	CHECK(rds_borrow(a, &none, 0) == 0 && rds_return(a, &x) == -EALREADY && whole(&none, 100, 3));
	CHECK(rds_return(a, &none) == 0 && rds_return(a, &y) == 0);
	/* What has a traceparent, and what has none. */
	static char sends[RDS_TRACEPARENT_SIZE] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
	char gets[RDS_TRACEPARENT_SIZE];
	struct iovec iov = {sent, 100};
	struct rds_msg m = {.addr = at, .iov = &iov, .iovlen = 1, .traceparent = sends};
	fill(sent, 100, 4);
	CHECK(rds_sendmsg(b, &m) == 0);
	send_one(b, &at, 100, 5);
	CHECK(rds_borrow(a, &x, 0) == 0 && whole(&x, 100, 4) && rds_borrow(a, &y, 0) == 0 && whole(&y, 100, 5));
	CHECK(rds_borrowed_traceparent(a, &x, gets) == 0 && !strcmp(gets, sends));
	CHECK(rds_borrowed_traceparent(a, &y, gets) == 0 && !*gets);
	CHECK(rds_return(a, &x) == 0 && rds_return(a, &y) == 0 && rds_borrowed_traceparent(a, &x, gets) == -EALREADY);
	CHECK(rds_borrowed_traceparent(b, &y, gets) == -EINVAL);
	/* A receive and a borrow may take turns within a run. */
	for (unsigned i = 0; i < 40; i++)
		send_one(b, &at, 8, i);
	for (unsigned i = 0; i < 40; i += 2) {
		CHECK(rds_recv(a, p, sizeof p, NULL, 0) == 8 && p[0] == (char)(i * 31));
		CHECK(rds_borrow(a, &x, 0) == 0 && whole(&x, 8, i + 1) && rds_return(a, &x) == 0);
	}
	rds_socket_free(a);
	rds_socket_free(b);
}

static struct rds_addr sink_at;

static void *send_all(void *arg)
{
	struct rds_addr at;
	rds_socket *s = bound(&at);
	(void)arg;
	for (unsigned i = 0; i < MESSAGES; i++)
		send_one(s, &sink_at, size(i), i);
	CHECK(rds_close_wait(s, 60000) == 0);
	rds_socket_free(s);
	return NULL;
}

/* out_of_order: many times the memory of the client passes through, and HELD datagrams are held. */
static void out_of_order(void)
{
	static struct { struct rds_borrowed b; unsigned i; bool held; } held[HELD];
	rds_socket *s = bound(&sink_at);
	unsigned r = 1;
	pthread_t t;
	CHECK(pthread_create(&t, NULL, send_all, NULL) == 0);
	for (unsigned i = 0; i < MESSAGES; i++) {
		r = r * 1103515245u + 12345u;
		unsigned k = (r >> 16) % HELD;
		if (held[k].held) {
			CHECK(whole(&held[k].b, size(held[k].i), held[k].i));
			CHECK(rds_return(s, &held[k].b) == 0);
		}
		int err;
		while ((err = rds_borrow(s, &held[k].b, RDS_DONTWAIT)) == -EAGAIN) {
			/* What is held may be all that the receive buffer has room for. */
			for (unsigned n = 0; n < HELD; n++) {
				if (held[n].held && n != k) {
					CHECK(whole(&held[n].b, size(held[n].i), held[n].i) && rds_return(s, &held[n].b) == 0);
					held[n].held = false;
					break;
				}
			}
			sched_yield();
		}
		CHECK(err == 0);
		held[k].i = i;
		held[k].held = true;
		CHECK(whole(&held[k].b, size(i), i));
	}
	pthread_join(t, NULL);
	rds_socket_free(s); /* returns the rest */
	memset(held, 0, sizeof held);
}

/* counts: what is borrowed fills the receive buffer, and the sender finds the socket congested. */
static void counts(void)
{
	static struct rds_borrowed all[8192];
	struct rds_addr at, of;
	rds_socket *a = bound(&at), *b = bound(&of);
	struct rds_until relief = {.socket = b, .kind = RDS_UNTIL_RELIEF, .addr = at};
	CHECK(rds_set_option(b, RDS_OPT_SNDBUF, 32 << 10) == 0);
	for (size_t len = 100; len <= 20000; len += 19900) { /* in runs, and by themselves */
		size_t n = 0;
		ssize_t err = 0;
		CHECK(rds_set_option(a, RDS_OPT_RCVBUF, 64 << 10) == 0);
		while (err != -ENOBUFS) {
			err = rds_send(b, sent, len, &at, RDS_DONTWAIT);
			while (n < 8192 && rds_borrow(a, &all[n], RDS_DONTWAIT) == 0)
				n++;
			CHECK(n < 8192);
			if (err == -EAGAIN)
				sched_yield();
		}
		CHECK(rds_wait(&relief, 1, 20) == 0);
		while (rds_borrow(a, &all[n], RDS_DONTWAIT) == 0)
			n++;
		CHECK(rds_wait(&relief, 1, 20) == 0 && n * len <= 128 << 10);
		while (n > 0)
			CHECK(rds_return(a, &all[--n]) == 0);
		CHECK(rds_wait(&relief, 1, 60000) == 1);
		while (rds_borrow(a, &all[0], RDS_DONTWAIT) == 0)
			CHECK(rds_return(a, &all[0]) == 0);
	}
	rds_socket_free(a);
	rds_socket_free(b);
}

/* closed: a datagram outlives its socket, and one that nobody returned goes with the handle. */
static void closed(void)
{
	struct rds_addr at, of;
	struct rds_borrowed x, y;
	for (unsigned i = 0; i < 200; i++) {
		rds_socket *a = bound(&at), *b = bound(&of); /* the port of a former socket would be another incarnation to b */
		send_one(b, &at, MOST, i);
		send_one(b, &at, 50, i);
		CHECK(rds_borrow(a, &x, 0) == 0 && rds_borrow(a, &y, 0) == 0);
		if (i % 4 == 0)
			CHECK(rds_return(a, &y) == 0);
		CHECK(rds_close(a) == 0 && rds_borrow(a, &y, 0) == -EBADF);
		for (unsigned k = 0; k < 5; k++) {
			struct rds_borrowed z;
			send_one(b, &of, MOST, i + k + 1);
			CHECK(rds_borrow(b, &z, 0) == 0 && whole(&z, MOST, i + k + 1) && rds_return(b, &z) == 0);
		}
		CHECK(whole(&x, MOST, i));
		if (i % 2 == 0)
			CHECK(rds_return(a, &x) == 0 && rds_return(a, &x) == -EALREADY);
		rds_socket_free(a);
		rds_socket_free(b);
	}
}

static _Atomic int left = MESSAGES;

static void *take(void *arg)
{
	struct rds_borrowed b;
	int err;
	while ((err = rds_borrow(arg, &b, 0)) == 0) {
		CHECK(rds_return(arg, &b) == 0);
		if (--left == 0)
			CHECK(rds_close(arg) == 0);
	}
	CHECK(err == -EBADF);
	return NULL;
}

/* together: several threads borrow from one socket, and wait for what comes. */
static void together(void)
{
	pthread_t t[4];
	rds_socket *s = bound(&sink_at);
	left = MESSAGES;
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&t[i], NULL, take, s) == 0);
	CHECK(pthread_create(&t[3], NULL, send_all, NULL) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	rds_socket_free(s);
}

/* gone: the daemon ends while two datagrams are borrowed. */
static void gone(void)
{
	struct rds_addr at;
	rds_socket *s = bound(&at);
	struct rds_borrowed x, y;
	char line[10];
	send_one(s, &at, MOST, 1);
	send_one(s, &at, 10, 2);
	CHECK(rds_borrow(s, &x, 0) == 0 && rds_borrow(s, &y, 0) == 0);
	puts("borrowed");
	fflush(stdout);
	CHECK(fgets(line, sizeof line, stdin));
	CHECK(fgets(line, sizeof line, stdin));
	CHECK(rds_borrow(s, &(struct rds_borrowed){0}, 0) == -ECONNRESET);
	CHECK(whole(&x, MOST, 1) && whole(&y, 10, 2) && rds_return(s, &x) == 0 && whole(&y, 10, 2));
	CHECK(rds_return(s, &x) == -EALREADY && rds_client_close(client) == 0 && rds_return(s, &y) == -EBADF);
	puts("ok");
	rds_socket_free(s);
}

int main(int argc, char **argv)
{
	struct rds_options o = {.path = argv[1], .timeout_ms = 10000};
	CHECK(argc >= 3 && rds_addr_parse(argv[2], &any) == 0 && rds_open(&o, &client) == 0);
	if (argc > 3) {
		gone();
	} else {
		errors();
		out_of_order();
		counts();
		closed();
		together();
	}
	rds_client_free(client);
	return 0;
}
