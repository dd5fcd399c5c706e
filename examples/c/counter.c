/* Counters in memory of the server, which clients add to with atomics. The server's program has
 * nothing to do for that.
 *
 *	counter -bind 10.0.0.1:4004
 *	counter -bind 10.0.0.2:0 -to 10.0.0.1:4004 1000
 */
#include "example.h"

static void serve(struct example *e)
{
	rds_buffer *mem;
	rds_region *region;
	struct rds_addr from;
	must(rds_alloc(e->client, 8, &mem), "rds_alloc");
	must(rds_register(e->socket, mem, 0, 8, RDS_ALLOW_ATOMIC, &region), "rds_register");
	for (;;) {
		must(rds_recv(e->socket, NULL, 0, &from, 0), "rds_recv");
		struct rds_msg m = {.addr = from, .cookie = rds_region_cookie(region)};
		must(rds_sendmsg(e->socket, &m), "rds_sendmsg");
	}
}

int main(int argc, char **argv)
{
	struct example e = example_open(argc, argv);
	int n = e.nargs ? atoi(e.args[0]) : 100;
	uint64_t old = 0;
	struct rds_msg m = {0};
	if (!e.is_client)
		serve(&e);
	must(rds_send(e.socket, NULL, 0, &e.to, 0), "rds_send");
	must(rds_recvmsg(e.socket, &m), "rds_recvmsg"); /* it carries the cookie */
	struct rds_atomic add = {.kind = RDS_OP_FETCH_ADD, .cookie = m.cookie, .add = 1};
	for (int i = 0; i < n; i++)
		must(rds_atomic_op(e.socket, &e.to, &add, &old, NULL, 5000), "rds_atomic_op");
	printf("added %d, the counter is %llu\n", n, (unsigned long long)old + 1);
	example_close(&e);
	return 0;
}
