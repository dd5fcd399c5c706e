/*
 * Many threads use the sockets of one client at once. Senders send numbered messages, receivers
 * check that each sender's come in order and none is missing; others wait, poll, and close
 * sockets under those that wait.
 *
 * threads PATH ADDRESS
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rds/rds.h>

enum { SENDERS = 3, RECEIVERS = 2, MESSAGES = 3000, CLOSES = 30 };

static rds_client *client;
static rds_socket *sink;
static struct rds_addr base;
static _Atomic int received, failed;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* one receive at a time: the order is checked */
static uint32_t next[SENDERS];

/* A numbered message: its sender, its number, and a length that varies. */
struct body {
	uint32_t sender, number;
	char fill[3000];
};

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); atomic_fetch_add(&failed, 1); } } while (0)

static rds_socket *bound(uint16_t port)
{
	struct rds_addr a = base;
	rds_socket *s = NULL;
	a.port = port;
	CHECK(rds_bind(client, &a, &s) == 0);
	return s;
}

static void *send_all(void *arg)
{
	struct body b = {.sender = (uint32_t)(size_t)arg};
	rds_socket *s = bound(0);
	struct rds_addr to;
	rds_local(sink, &to);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		b.number = i;
		size_t len = 8 + (i * 37 + b.sender) % (i % 50 ? 200 : 2992);
		CHECK(rds_send(s, &b, len, &to, 0) == (ssize_t)len);
	}
	CHECK(rds_close_wait(s, -1) == 0);
	rds_socket_free(s);
	return NULL;
}

static void *receive_all(void *arg)
{
	struct body b;
	(void)arg;
	while (atomic_load(&received) < SENDERS * MESSAGES && !atomic_load(&failed)) {
		struct rds_until u = {.socket = sink, .kind = RDS_UNTIL_MESSAGE};
		rds_wait(&u, 1, 20);
		pthread_mutex_lock(&mu);
		while (rds_recv(sink, &b, sizeof b, NULL, RDS_DONTWAIT) >= 8) {
			CHECK(b.sender < SENDERS && b.number == next[b.sender]);
			if (b.sender < SENDERS)
				next[b.sender]++;
			atomic_fetch_add(&received, 1);
		}
		pthread_mutex_unlock(&mu);
	}
	return NULL;
}

static void *wait_in_recv(void *arg)
{
	char b[16];
	ssize_t n = rds_recv(arg, b, sizeof b, NULL, 0);
	CHECK(n == -EBADF || n == 1);
	return NULL;
}

static void *wait_in_wait(void *arg)
{
	struct rds_until u[2] = {{.socket = arg, .kind = RDS_UNTIL_NOTICE}, {.socket = arg, .kind = RDS_UNTIL_COMPLETION}};
	CHECK(rds_wait(u, 2, -1) == -EBADF);
	return NULL;
}

/* close_under closes sockets that other threads wait at. */
static void *close_under(void *arg)
{
	(void)arg;
	for (int i = 0; i < CLOSES; i++) {
		rds_socket *s = bound(0);
		struct rds_addr self;
		pthread_t t[3];
		rds_local(s, &self);
		struct pollfd p = {.fd = rds_pollfd(s), .events = POLLIN};
		CHECK(p.fd >= 0);
		pthread_create(&t[0], NULL, wait_in_recv, s);
		pthread_create(&t[1], NULL, wait_in_recv, s);
		pthread_create(&t[2], NULL, wait_in_wait, s);
		if (i % 2)
			CHECK(rds_send(s, "x", 1, &self, 0) == 1);
		poll(&p, 1, 1);
		CHECK(rds_close(s) == 0);
		for (int k = 0; k < 3; k++)
			pthread_join(t[k], NULL);
		rds_socket_free(s);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[SENDERS + RECEIVERS + 1];
	struct rds_options o = {.path = argv[1], .timeout_ms = 10000};
	if (argc != 3 || rds_addr_parse(argv[2], &base) || rds_open(&o, &client))
		return 2;
	sink = bound(4000);
	if (!sink)
		return 2;
	int n = 0;
	for (size_t i = 0; i < SENDERS; i++)
		pthread_create(&t[n++], NULL, send_all, (void *)i);
	for (size_t i = 0; i < RECEIVERS; i++)
		pthread_create(&t[n++], NULL, receive_all, NULL);
	pthread_create(&t[n++], NULL, close_under, NULL);
	while (n > 0)
		pthread_join(t[--n], NULL);
	CHECK(received == SENDERS * MESSAGES);
	rds_client_close(client);
	rds_socket_free(sink);
	rds_client_free(client);
	return failed != 0;
}
