/*
 * A program that only polls, in a loop of its own or by waits that never block: what its messages cost
 * in system calls. Nothing rings it, because it never announces that it sleeps, and it rings the
 * daemon only when the daemon sleeps.
 *
 * polling PATH ADDRESS
 * polling PATH ADDRESS gone: the end of the daemon, which is stopped behind the first line of output.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "int.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

enum { ROUNDS = 5000 };

static struct rds_addr addr[2];
static unsigned flags; /* of sends and receives */

/* An end is one client with one socket, of one thread. */
struct end {
	rds_client *c;
	rds_socket *s;
	int i;
	long writes; /* system calls that write, of the thread during the messages */
};

static struct end ends[2];

/* writes is how many system calls of this thread have written. */
static long writes(void)
{
	char line[100];
	long n = -1;
	FILE *f = fopen("/proc/thread-self/io", "r");
	CHECK(f);
	while (fgets(line, sizeof line, f))
		sscanf(line, "syscw: %ld", &n);
	fclose(f);
	CHECK(n >= 0);
	return n;
}

static void *play(void *arg)
{
	struct end *e = arg;
	uint32_t v = 0;
	long before = writes();
	for (uint32_t i = 0; i < 2 * ROUNDS; i++) {
		if ((i + (uint32_t)e->i) % 2 == 0) {
			ssize_t n;
			while ((n = rds_send(e->s, &i, sizeof i, &addr[!e->i], flags)) == -EAGAIN)
				sched_yield();
			CHECK(n == sizeof i);
			continue;
		}
		ssize_t n;
		while ((n = rds_recv(e->s, &v, sizeof v, NULL, flags)) == -EAGAIN)
			sched_yield();
		CHECK(n == sizeof v && v == i);
	}
	e->writes = writes() - before;
	return NULL;
}

/* rung is how often the daemon has rung a client that never was silenced. */
static int rung(rds_client *c)
{
	int unread = -1;
	CHECK(ioctl(c->bell, FIONREAD, &unread) == 0 && unread >= 0 && unread % 8 == 0);
	return unread / 8;
}

static void open_end(struct end *e, const char *path, const char *at, const struct rds_options *how)
{
	struct rds_options o = *how;
	o.path = path;
	o.timeout_ms = 10000;
	CHECK(rds_addr_parse(at, &addr[e->i]) == 0);
	CHECK(rds_open(&o, &e->c) == 0 && rds_bind(e->c, &addr[e->i], &e->s) == 0 && rds_local(e->s, &addr[e->i]) == 0);
}

static void close_end(struct end *e)
{
	rds_socket_free(e->s);
	rds_client_free(e->c);
}

static void exchange(const char *path, const char *at, const struct rds_options *how)
{
	pthread_t t[2];
	for (int i = 0; i < 2; i++) {
		ends[i].i = i;
		open_end(&ends[i], path, at, how);
	}
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, play, &ends[i]) == 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 2; i++) {
		printf("%d messages: rung %d times, rang %ld times\n", 2 * ROUNDS, rung(ends[i].c), ends[i].writes);
		CHECK(rung(ends[i].c) == 0 && ends[i].writes <= 2 * ROUNDS);
		close_end(&ends[i]);
	}
}

int main(int argc, char **argv)
{
	const struct rds_options none = {0}, polls[] = {{.wait = RDS_WAIT_YIELD, .spin_ns = INT64_MAX}, {.wait = RDS_WAIT_SPIN, .spin_ns = INT64_MAX}};
	CHECK(argc >= 3);
	if (argc == 3) {
		flags = RDS_DONTWAIT;
		exchange(argv[1], argv[2], &none);
		flags = 0;
		exchange(argv[1], argv[2], &polls[0]);
		return 0;
	}
	for (int i = 0; i < 2; i++)
		open_end(&ends[i], argv[1], argv[2], &polls[i]);
	char line[16];
	CHECK(fgets(line, sizeof line, stdin) != NULL); /* begin */
	puts("polls");
	fflush(stdout);
	for (int i = 0; i < 2; i++) { /* the second finds it at once */
		struct rds_until u = {.socket = ends[i].s, .kind = RDS_UNTIL_MESSAGE};
		CHECK(rds_wait(&u, 1, -1) == -ECONNRESET);
		close_end(&ends[i]);
	}
	CHECK(fgets(line, sizeof line, stdin) != NULL); /* end: the test writes it to a process that lives */
	puts("ok");
	return 0;
}
