/*
 * Wakes: each ends one wait, whoever makes it and wherever the thread that waits is just then.
 *
 * wake PATH ADDRESS
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#include "int.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

enum { ROUNDS = 3000, THREADS = 3 };

static rds_client *client;
static rds_socket *a, *b;
static struct rds_addr at_a, any;

static rds_socket *bound(void)
{
	rds_socket *s = NULL;
	CHECK(rds_bind(client, &any, &s) == 0);
	return s;
}

static ssize_t receive(rds_socket *s, unsigned flags)
{
	char p[8];
	return rds_recv(s, p, sizeof p, NULL, flags);
}

static int wait_for(rds_socket *s, int timeout_ms)
{
	struct rds_until u = {.socket = s, .kind = RDS_UNTIL_MESSAGE};
	return rds_wait(&u, 1, timeout_ms);
}

/* alone: what one thread sees. */
static void alone(void)
{
	struct rds_addr nowhere = at_a;
	CHECK(rds_wake(a) == 0 && rds_wake(a) == 0); /* these are one */
	CHECK(receive(a, RDS_DONTWAIT) == -EAGAIN && wait_for(a, 0) == 0);
	CHECK(receive(b, RDS_DONTWAIT) == -EAGAIN && wait_for(b, 1) == 0); /* it is of another socket */
	CHECK(receive(a, 0) == -ECANCELED && wait_for(a, 1) == 0);
	CHECK(rds_wake(a) == 0 && wait_for(a, -1) == -ECANCELED);
	/* A message goes first. */
	CHECK(rds_wake(a) == 0 && rds_send(b, "x", 1, &at_a, 0) == 1);
	while (receive(a, RDS_DONTWAIT) == -EAGAIN)
		sched_yield();
	CHECK(receive(a, 0) == -ECANCELED);
	/* One of the client ends a wait at whichever socket, behind the socket's own. */
	CHECK(rds_client_wake(client) == 0 && rds_wake(b) == 0);
	CHECK(receive(b, 0) == -ECANCELED && receive(a, 0) == -ECANCELED && wait_for(b, 1) == 0);
	/* Sockets that are waited for together. */
	struct rds_until u[2] = {{.socket = b, .kind = RDS_UNTIL_NOTICE}, {.socket = a, .kind = RDS_UNTIL_MESSAGE}};
	CHECK(rds_wake(a) == 0 && rds_wake(b) == 0);
	CHECK(rds_wait(u, 2, -1) == -ECANCELED && rds_wait(u, 2, -1) == -ECANCELED && rds_wait(u, 2, 1) == 0);
	errno = 77;
	CHECK(rds_wake(b) == 0 && errno == 77 && receive(b, 0) == -ECANCELED);
	/* What has an outcome to report goes on. */
	rds_socket *s = bound();
	nowhere.port = 9;
	CHECK(rds_send(s, "x", 1, &nowhere, 0) == 1 && rds_wake(s) == 0 && rds_close_wait(s, -1) == -ECONNREFUSED);
	CHECK(rds_wake(s) == -EBADF);
	rds_socket_free(s);
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, timeout_ms) == 1;
}

/* descriptor: a wake makes it readable, until it is taken. */
static void descriptor(void)
{
	struct rds_until u;
	rds_socket *s = bound();
	CHECK(rds_wake(s) == 0); /* ahead of the descriptor */
	int fd = rds_pollfd(s);
	for (int i = 0; i < 100; i++) {
		CHECK(readable(fd, -1) && readable(fd, -1));
		CHECK(receive(s, RDS_DONTWAIT) == -EAGAIN && readable(fd, 0));
		CHECK(rds_polled(s, &u, 1) == -ECANCELED && rds_polled(s, &u, 1) == 0);
		CHECK((i % 2 ? rds_wake(s) : rds_client_wake(client)) == 0);
	}
	rds_socket_free(s);
}

static sem_t taken;

/* waits takes wakes of the socket, or of the client, until the socket is closed. */
static void *waits(void *arg)
{
	ssize_t n = 0;
	for (int i = 0; n != -EBADF; i++) {
		n = i % 2 ? wait_for(arg, -1) : receive(arg, 0);
		CHECK(n == -ECANCELED || n == -EBADF);
		if (n == -ECANCELED)
			sem_post(&taken);
	}
	return NULL;
}

/* each: with a leader and followers, each wake ends one wait, at once and not at the next event. */
static void each(bool of_client)
{
	pthread_t t[THREADS];
	rds_socket *s[THREADS];
	sem_init(&taken, 0, 0);
	for (int i = 0; i < THREADS; i++) {
		s[i] = i < 2 ? bound() : s[1]; /* two threads at one socket */
		CHECK(pthread_create(&t[i], NULL, waits, s[i]) == 0);
	}
	for (int i = 0; i < ROUNDS; i++) {
		CHECK((of_client ? rds_client_wake(client) : rds_wake(s[i % THREADS])) == 0);
		CHECK(sem_wait(&taken) == 0);
	}
	CHECK(rds_close(s[0]) == 0 && rds_close(s[1]) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK(sem_trywait(&taken) != 0);
	rds_socket_free(s[0]);
	rds_socket_free(s[1]);
}

static _Atomic int handled;

static void on_signal(int sig)
{
	(void)sig;
	CHECK(rds_wake(b) == 0);
	atomic_fetch_add(&handled, 1);
}

/* from_handler: a handler that runs within the library at any place wakes it. */
static void from_handler(void)
{
	struct itimerval every = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct rds_addr to;
	int woken = 0;
	CHECK(rds_local(b, &to) == 0);
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (uint32_t i = 0, v; i < 500; i++) {
		ssize_t n;
		while ((n = rds_send(b, &i, sizeof i, &to, 0)) == -EINTR)
			;
		CHECK(n == sizeof i);
		while ((n = rds_recv(b, &v, sizeof v, NULL, 0)) == -EINTR || n == -ECANCELED)
			woken += n == -ECANCELED;
		CHECK(n == sizeof v && v == i);
	}
	while (woken == 0) /* nothing else ends this one */
		woken += receive(b, 0) == -ECANCELED;
	setitimer(ITIMER_REAL, &never, NULL);
	CHECK(atomic_load(&handled) >= woken);
	while (wait_for(b, 1) == -ECANCELED)
		;
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	CHECK(rds_addr_parse(argv[2], &any) == 0);
	for (int way = RDS_WAIT_AUTO; way <= RDS_WAIT_YIELD; way++) {
		struct rds_options o = {.path = argv[1], .timeout_ms = 10000, .wait = (enum rds_way)way};
		CHECK(rds_open(&o, &client) == 0);
		a = bound();
		b = bound();
		CHECK(rds_local(a, &at_a) == 0);
		alone();
		descriptor();
		each(false);
		each(true);
		from_handler();
		CHECK(rds_client_close(client) == 0 && rds_wake(a) == -EBADF && rds_client_wake(client) == -EBADF);
		rds_socket_free(a);
		rds_socket_free(b);
		rds_client_free(client);
	}
	return 0;
}
