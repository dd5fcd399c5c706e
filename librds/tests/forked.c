/*
 * What a fork does: inherited handles fail with -ESTALE in the child, the child attaches by
 * itself, the parent goes on, and the daemon notices the end of the parent although the child
 * lives.
 *
 * forked PATH ADDRESS
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rds/rds.h>

static rds_client *client;
static rds_socket *sock;
static rds_buffer *buffer;
static struct rds_addr base, other;

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%d %s:%d: %s\n", (int)getpid(), __FILE__, __LINE__, #x); _exit(1); } } while (0)

static rds_client *open_client(const char *path)
{
	struct rds_options o = {.path = path, .timeout_ms = 10000};
	rds_client *c = NULL;
	CHECK(rds_open(&o, &c) == 0);
	return c;
}

/* stale checks that inherited handles are refused. */
static void stale(void)
{
	struct rds_until u = {.socket = sock, .kind = RDS_UNTIL_MESSAGE};
	struct rds_borrowed lent = {0};
	struct rds_segment g;
	struct rds_notice n;
	struct rds_addr a;
	rds_socket *s;
	rds_buffer *b;
	char text[100];
	uint64_t v;
	CHECK(rds_send(sock, "x", 1, &base, 0) == -ESTALE);
	CHECK(rds_recv(sock, text, 1, &a, 0) == -ESTALE);
	CHECK(rds_borrow(sock, &lent, 0) == -ESTALE && rds_return(sock, &lent) == -ESTALE);
	CHECK(rds_wait(&u, 1, -1) == -ESTALE);
	CHECK(rds_wake(sock) == -ESTALE && rds_client_wake(client) == -ESTALE);
	CHECK(rds_segment_at(client, &u, 1, &g) == -ESTALE);
	CHECK(rds_pollfd(sock) == -ESTALE);
	CHECK(rds_notices(sock, &n, 1) == -ESTALE);
	CHECK(rds_hwm(sock, &base, &v) == -ESTALE);
	CHECK(rds_close(sock) == -ESTALE);
	CHECK(rds_bind(client, &base, &s) == -ESTALE);
	CHECK(rds_alloc(client, 10, &b) == -ESTALE);
	CHECK(rds_client_error(client, text, sizeof text) == -ESTALE && strstr(text, "fork"));
	CHECK(rds_client_close(client) == -ESTALE);
}

/* in_child is what the child does. It ends with its parent's buffer, which both share. */
static void in_child(const char *path)
{
	char text[10];
	stale();
	CHECK(!strcmp(rds_buffer_mem(buffer), "parent"));
	strcpy(rds_buffer_mem(buffer), "child");
	rds_buffer_free(buffer);
	rds_socket_free(sock);
	rds_client_free(client);
	rds_client *mine = open_client(path);
	rds_socket *s;
	CHECK(rds_bind(mine, &other, &s) == 0);
	CHECK(rds_send(s, "hello", 5, &base, 0) == 5);
	CHECK(rds_recv(s, text, sizeof text, NULL, 0) == 6 && !memcmp(text, "answer", 6));
	rds_socket_free(s);
	rds_client_free(mine);
}

/* outlive checks that the port of a process is free when it has ended, although a child that
 * it forked lives. */
static void outlive(const char *path)
{
	int hold[2];
	CHECK(pipe2(hold, 0) == 0);
	struct rds_addr a = other;
	a.port++;
	pid_t middle = fork();
	if (middle == 0) {
		rds_client *c = open_client(path);
		rds_socket *s;
		char b;
		CHECK(rds_bind(c, &a, &s) == 0);
		if (fork() == 0) {
			close(hold[1]);
			_exit(read(hold[0], &b, 1) != 0); /* until the first process closes its end */
		}
		_exit(0);
	}
	int status;
	CHECK(waitpid(middle, &status, 0) == middle && status == 0);
	rds_socket *s = NULL;
	int err = -EADDRINUSE;
	for (int i = 0; err == -EADDRINUSE && i < 1000; i++, poll(NULL, 0, 10))
		err = rds_bind(client, &a, &s);
	CHECK(err == 0);
	rds_socket_free(s);
	close(hold[0]);
	close(hold[1]);
}

int main(int argc, char **argv)
{
	struct rds_addr from;
	char text[10];
	int status;
	if (argc != 3 || rds_addr_parse(argv[2], &base))
		return 2;
	base.port = 4000;
	other = base;
	other.port = 4001;
	client = open_client(argv[1]);
	CHECK(rds_bind(client, &base, &sock) == 0);
	CHECK(rds_alloc(client, 4096, &buffer) == 0);
	strcpy(rds_buffer_mem(buffer), "parent");
	CHECK(rds_pollfd(sock) >= 0); /* so that there is a thread */
	pid_t child = fork();
	if (child == 0) {
		in_child(argv[1]);
		return 0; /* the exit of a program runs nothing of the library */
	}
	CHECK(rds_recv(sock, text, sizeof text, &from, 0) == 5 && from.port == other.port);
	CHECK(rds_send(sock, "answer", 6, &from, 0) == 6);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!strcmp(rds_buffer_mem(buffer), "child"));
	outlive(argv[1]);
	rds_buffer_free(buffer);
	rds_socket_free(sock);
	rds_client_free(client);
	return 0;
}
