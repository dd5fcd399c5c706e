/* Many sockets send to one that is slower than all of them. No send blocks: while the destination
 * is congested a program can do other work. Nothing is lost.
 *
 *	fanin -bind 10.0.0.1:4002 8000
 *	fanin -bind 10.0.0.2:0 -to 10.0.0.1:4002 8000
 */
#include "example.h"

enum { SENDERS = 8 };

static void collect(struct example *e, int messages)
{
	char buf[64];
	must(rds_set_option(e->socket, RDS_OPT_RCVBUF, 4096), "rds_set_option");
	for (int i = 0; i < messages; i++)
		must(rds_recv(e->socket, buf, sizeof buf, NULL, 0), "rds_recv");
	printf("%d messages\n", messages);
}

/* try_all sends from each socket as long as there is room, and returns how many. */
static int try_all(rds_socket **socks, int *todo, const struct rds_addr *to)
{
	char buf[64] = "fan in";
	int sent = 0;
	for (int i = 0; i < SENDERS; i++) {
		for (; todo[i] > 0; todo[i]--, sent++) {
			long n = rds_send(socks[i], buf, sizeof buf, to, RDS_DONTWAIT);
			if (n == -ENOBUFS || n == -EAGAIN)
				break;
			must(n, "rds_send");
		}
	}
	return sent;
}

int main(int argc, char **argv)
{
	struct example e = example_open(argc, argv);
	int messages = e.nargs ? atoi(e.args[0]) : 8000, todo[SENDERS], left = messages / SENDERS * SENDERS;
	rds_socket *socks[SENDERS];
	struct rds_addr at;
	if (!e.is_client) {
		collect(&e, left);
		example_close(&e);
		return 0;
	}
	rds_local(e.socket, &at);
	at.port = 0;
	for (int i = 0; i < SENDERS; i++) {
		todo[i] = left / SENDERS;
		must(rds_bind(e.client, &at, &socks[i]), "rds_bind");
	}
	while (left > 0) {
		struct rds_until u[SENDERS];
		size_t n = 0;
		left -= try_all(socks, todo, &e.to);
		for (int i = 0; i < SENDERS; i++)
			if (todo[i] > 0)
				u[n++] = (struct rds_until){.socket = socks[i], .kind = RDS_UNTIL_SEND_TO, .addr = e.to};
		if (n)
			must(rds_wait(u, n, -1), "rds_wait");
	}
	for (int i = 0; i < SENDERS; i++) {
		must(rds_close_wait(socks[i], -1), "rds_close_wait");
		rds_socket_free(socks[i]);
	}
	printf("sent\n");
	example_close(&e);
	return 0;
}
