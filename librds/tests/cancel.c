/*
 * A thread that is cancelled in a call of librds goes on until the call ends: others wait with its
 * help, and it has locks.
 *
 * cancel PATH ADDRESS
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "int.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

enum { ROUNDS = 10 };

static rds_client *client;
static struct rds_addr base;

static rds_socket *bound(void)
{
	rds_socket *s = NULL;
	CHECK(rds_bind(client, &base, &s) == 0);
	return s;
}

/* receive receives at a socket until it is closed. */
static void *receive(void *arg)
{
	char b[8];
	ssize_t n;
	while ((n = rds_recv(arg, b, sizeof b, NULL, 0)) >= 0)
		;
	CHECK(n == -EBADF);
	pthread_testcancel();
	return NULL;
}

/* one receives one message. */
static void *one(void *arg)
{
	char b[8];
	CHECK(rds_recv(arg, b, sizeof b, NULL, 0) == 1);
	return NULL;
}

/* leads waits until a thread leads and sleeps. */
static void leads(void)
{
	for (bool blocked = false; !blocked; sched_yield()) {
		pthread_mutex_lock(&client->wait.mu);
		blocked = client->wait.leader && client->wait.blocked;
		pthread_mutex_unlock(&client->wait.mu);
	}
}

/* A leader that sleeps is cancelled, and another thread waits on. */
static void leader(void)
{
	rds_socket *idle = bound(), *busy = bound(), *from = bound();
	struct rds_addr to;
	pthread_t first, second;
	void *end;
	CHECK(rds_local(busy, &to) == 0);
	CHECK(pthread_create(&first, NULL, receive, idle) == 0);
	leads();
	CHECK(pthread_create(&second, NULL, one, busy) == 0);
	CHECK(pthread_cancel(first) == 0);
	CHECK(rds_send(from, "x", 1, &to, 0) >= 0);
	CHECK(pthread_join(second, NULL) == 0);
	rds_close(idle);
	CHECK(pthread_join(first, &end) == 0 && end == PTHREAD_CANCELED);
	rds_socket_free(idle);
	rds_socket_free(busy);
	rds_socket_free(from);
}

/* calls makes calls that ask the daemon, that send and receive, until it is cancelled. */
static void *calls(void *arg)
{
	char b[8];
	for (;;) {
		rds_socket *s = bound();
		struct rds_addr to;
		rds_buffer *m;
		rds_local(s, &to);
		rds_send(s, "x", 1, &to, 0);
		rds_recv(s, b, sizeof b, NULL, 0);
		if (rds_alloc(client, 4096, &m) == 0)
			rds_buffer_free(m);
		rds_socket_free(s);
		pthread_testcancel();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	const struct rds_options o = {.path = argv[1]};
	CHECK(rds_addr_parse(argv[2], &base) == 0 && rds_open(&o, &client) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t t;
		leader();
		CHECK(pthread_create(&t, NULL, calls, NULL) == 0);
		for (int k = 0; k < i; k++)
			sched_yield();
		CHECK(pthread_cancel(t) == 0 && pthread_join(t, NULL) == 0);
		rds_socket_free(bound()); /* the client can be used */
	}
	rds_client_free(client);
	return 0;
}
