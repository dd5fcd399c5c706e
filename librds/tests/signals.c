/*
 * Signals arrive in every call. Waits end with -EINTR and nothing is lost or sent twice; calls to
 * the daemon go on. A write to the doorbell of a daemon that has ended sends no SIGPIPE.
 *
 * signals PATH ADDRESS
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <rds/rds.h>

#include "int.h"

enum { ROUNDS = 2000 };

static rds_socket *a, *b;
static struct rds_addr addr[2];
static _Atomic int interrupted;

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

static void on_alarm(int sig) { (void)sig; }

/* again counts an interrupted call, which is to be made again. */
static bool again(ssize_t n)
{
	if (n != -EINTR)
		return false;
	atomic_fetch_add(&interrupted, 1);
	return true;
}

static void *echo(void *arg)
{
	uint32_t v;
	(void)arg;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		ssize_t n;
		while (again(n = rds_recv(b, &v, sizeof v, NULL, 0)))
			;
		CHECK(n == sizeof v && v == i);
		while (again(n = rds_send(b, &v, sizeof v, &addr[0], 0)))
			;
		CHECK(n == sizeof v);
	}
	return NULL;
}

static void ping(void)
{
	struct rds_until u = {.socket = a, .kind = RDS_UNTIL_MESSAGE};
	uint32_t v;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		int n;
		while (again(rds_send(a, &i, sizeof i, &addr[1], 0)))
			;
		while (again(n = rds_wait(&u, 1, -1)))
			;
		CHECK(n == 1 && rds_recv(a, &v, sizeof v, NULL, RDS_DONTWAIT) == sizeof v && v == i);
	}
}

/* test_pipe rings a doorbell that nobody reads, in both ways. SIGPIPE would end the process. */
static void test_pipe(void)
{
	int p[2];
	CHECK(pipe(p) == 0);
	close(p[0]);
	rdsi_ring_pipe(p[1]);
	rdsi_ring_pipe_blocked(p[1]);
	close(p[1]);
}

/* sends sends a message that is not waited for. The first one to a destination waits for the daemon. */
static bool sends(rds_socket *s, const struct rds_addr *to)
{
	ssize_t n;
	while (again(n = rds_send(s, "x", 1, to, RDS_DONTWAIT)))
		;
	return n == 1;
}

/* test_close_wait: a close that waits for a host that is not there goes on, and ends with rds_close. */
static void test_close_wait(rds_client *c)
{
	struct rds_addr any = addr[0], nowhere = addr[0];
	rds_socket *s;
	int n;
	any.port = 0;
	nowhere.ip[15] = 250;
	CHECK(rds_bind(c, &any, &s) == 0 && sends(s, &nowhere));
	CHECK(rds_close_wait(s, -1) == -EINTR && rds_send(s, "x", 1, &nowhere, RDS_DONTWAIT) == -EBADF);
	while (again(n = rds_close_wait(s, 0)))
		;
	CHECK(n == -ETIMEDOUT && rds_close(s) == -EBADF);
	rds_socket_free(s);
	CHECK(rds_bind(c, &any, &s) == 0 && sends(s, &nowhere));
	CHECK(rds_close_wait(s, -1) == -EINTR && rds_close(s) == 0 && rds_close_wait(s, 0) == -EBADF);
	rds_socket_free(s);
}

static void *receive(void *arg)
{
	char x;
	CHECK(rds_recv(arg, &x, 1, NULL, 0) == 1); /* not the first thread: nothing interrupts it */
	return NULL;
}

/* test_interrupt_ms: without a signal the waits of the first thread come back, but for those whose time
 * limit would begin again and those of operations. */
static void test_interrupt_ms(struct rds_options o)
{
	struct rds_addr any = addr[0], nowhere = addr[0], at;
	struct rds_until u = {.kind = RDS_UNTIL_MESSAGE};
	struct rds_msg big = {.addr = nowhere};
	struct iovec iov = {calloc(1, 1 << 16), 1 << 16};
	rds_client *c;
	rds_socket *s;
	pthread_t t;
	char x;
	any.port = 0;
	nowhere.ip[15] = 250;
	big.addr = nowhere;
	o.interrupt_ms = 1;
	CHECK(rds_open(&o, &c) == 0 && rds_bind(c, &any, &s) == 0 && rds_local(s, &at) == 0);
	u.socket = s;
	CHECK(rds_wait(&u, 1, -1) == -EINTR && rds_wait(&u, 1, 10000) == -EINTR && rds_wait(&u, 1, 0) == 0);
	pthread_create(&t, NULL, receive, s);
	for (int i = 0; i < 20; i++)
		CHECK(rds_recv(s, &x, 1, NULL, 0) == -EINTR);
	CHECK(rds_send(s, "x", 1, &at, 0) == 1);
	pthread_join(t, NULL);
	CHECK(rds_set_option(s, RDS_OPT_RCVTIMEO, 20) == 0 && rds_recv(s, &x, 1, NULL, 0) == -ETIMEDOUT);

	rds_buffer *buf;
	CHECK(rds_alloc(c, 4096, &buf) == 0);
	struct rds_segment seg = {buf, 0, 8};
	struct rds_rdma op = {.local = &seg, .segments = 1, .kind = RDS_OP_WRITE, .cookie = 1};
	int n;
	for (int i = 0; i < 50; i++) { /* never that the operation was dropped, which it is by the limit */
		n = rds_transfer(s, &nowhere, &op, NULL, 5);
		CHECK(n == -ETIMEDOUT || n == -ECONNREFUSED);
	}
	big.iov = &iov;
	big.iovlen = 1;
	while ((n = rds_sendmsg(s, &big)) == 0)
		;
	CHECK(n == -EINTR);
	CHECK(rds_set_option(s, RDS_OPT_SNDTIMEO, 20) == 0 && rds_sendmsg(s, &big) == -ETIMEDOUT);
	CHECK(rds_close_wait(s, -1) == -EINTR && rds_close(s) == 0);
	rds_buffer_close(buf);
	rds_buffer_free(buf);
	rds_socket_free(s);
	rds_client_free(c);
	free(iov.iov_base);
}

int main(int argc, char **argv)
{
	struct itimerval every = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
	struct sigaction sa = {.sa_handler = on_alarm};
	struct rds_options o = {.path = argv[1], .timeout_ms = 10000, .spin_ns = -1};
	rds_client *c;
	rds_socket *s;
	pthread_t t;
	test_pipe();
	if (argc != 3 || rds_addr_parse(argv[2], &addr[0]))
		return 2;
	addr[1] = addr[0];
	addr[0].port = 4000;
	addr[1].port = 4001;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	CHECK(rds_open(&o, &c) == 0);
	CHECK(rds_bind(c, &addr[0], &a) == 0 && rds_bind(c, &addr[1], &b) == 0);
	for (int i = 0; i < 100; i++) {
		struct rds_addr any = addr[0];
		any.port = 0;
		CHECK(rds_bind(c, &any, &s) == 0 && rds_close(s) == 0);
		rds_socket_free(s);
	}
	pthread_create(&t, NULL, echo, NULL);
	ping();
	pthread_join(t, NULL);
	CHECK(rds_set_option(a, RDS_OPT_RCVTIMEO, 5000) == 0);
	CHECK(rds_recv(a, &o, 1, NULL, 0) == -EINTR); /* long before the timeout */
	test_close_wait(c);
	setitimer(ITIMER_REAL, &never, NULL);
	CHECK(interrupted > 0);
	test_interrupt_ms(o);
	rds_socket_free(a);
	rds_socket_free(b);
	rds_client_free(c);
	return 0;
}
