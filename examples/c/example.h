/* What the examples share: the command line, and how they end. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <errno.h>
#include <rds/rds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An example is a program with one socket: -bind ADDR:PORT [-to ADDR:PORT] [ARGUMENTS]. */
struct example {
	rds_client *client;
	rds_socket *socket;
	struct rds_addr to; /* the server */
	int is_client;      /* -to was given */
	char **args;
	int nargs;
};

/* must ends the program if a call has failed. */
static inline long must(long result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror((int)-result));
		exit(1);
	}
	return result;
}

/* example_open reads the command line, attaches to the daemon and binds the socket. A server
 * prints where it serves. */
static inline struct example example_open(int argc, char **argv)
{
	struct example e = {0};
	struct rds_addr at;
	char text[RDS_ADDR_TEXT];
	must(rds_addr_parse("127.0.0.1:0", &at), "parse");
	for (argv++, argc--; argc >= 2 && argv[0][0] == '-'; argv += 2, argc -= 2) {
		e.is_client |= !strcmp(argv[0], "-to");
		must(rds_addr_parse(argv[1], !strcmp(argv[0], "-to") ? &e.to : &at), argv[1]);
	}
	e.args = argv;
	e.nargs = argc;
	must(rds_open(NULL, &e.client), "rds_open");
	must(rds_bind(e.client, &at, &e.socket), "rds_bind");
	if (!e.is_client) {
		rds_local(e.socket, &at);
		printf("serving %s\n", rds_addr_format(&at, text, sizeof text));
		fflush(stdout);
	}
	return e;
}

/* example_close ends the socket when everything that was sent is acknowledged. */
static inline void example_close(struct example *e)
{
	must(rds_close_wait(e->socket, 10000), "rds_close_wait");
	rds_socket_free(e->socket);
	rds_client_free(e->client);
}

#endif
