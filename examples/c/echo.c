/* The smallest use of RDS: one socket answers every client.
 *
 *	echo -bind 10.0.0.1:4000
 *	echo -bind 10.0.0.2:0 -to 10.0.0.1:4000 hello again
 */
#include "example.h"

static char buf[RDS_MAX_MESSAGE];

static void serve(rds_socket *s)
{
	struct rds_addr from;
	for (;;) {
		long n = must(rds_recv(s, buf, sizeof buf, &from, 0), "rds_recv");
		must(rds_send(s, buf, (size_t)n, &from, 0), "rds_send");
	}
}

int main(int argc, char **argv)
{
	struct example e = example_open(argc, argv);
	if (!e.is_client)
		serve(e.socket);
	for (int i = 0; i < e.nargs; i++)
		must(rds_send(e.socket, e.args[i], strlen(e.args[i]), &e.to, 0), "rds_send");
	for (int back = 0; back < e.nargs;) {
		/* If nobody is bound at the destination, a notice comes back. */
		struct rds_until u[2] = {{.socket = e.socket, .kind = RDS_UNTIL_MESSAGE}, {.socket = e.socket, .kind = RDS_UNTIL_NOTICE}};
		struct rds_notice notice;
		must(rds_wait(u, 2, -1), "rds_wait");
		if (rds_notices(e.socket, &notice, 1) == 1 && notice.kind == RDS_NO_SOCKET)
			must(-ECONNREFUSED, "nobody is bound there");
		if (!u[0].ready)
			continue;
		long n = must(rds_recv(e.socket, buf, sizeof buf, NULL, 0), "rds_recv");
		printf("%.*s\n", (int)n, buf);
		back++;
	}
	example_close(&e);
	return 0;
}
