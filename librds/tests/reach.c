/*
 * Operations to a host at which no daemon listens, whichever way they are waited for.
 *
 * reach PATH ADDRESS NOWHERE FORBIDDEN
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "int.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

static rds_client *client;
static rds_socket *s;
static struct rds_addr at, nowhere, forbidden;
static struct rds_segment local = {.len = 8};

/* waited: the calls that wait end, and tell why. The next one tries again. */
static void waited(void)
{
	struct rds_rdma op = {.kind = RDS_OP_READ, .cookie = UINT64_C(1) << 40, .local = &local, .segments = 1};
	struct rds_atomic add = {.kind = RDS_OP_FETCH_ADD, .cookie = op.cookie, .add = 1};
	uint64_t old;
	for (int i = 0; i < 3; i++) {
		CHECK(rds_transfer(s, &nowhere, &op, NULL, -1) == -ECONNREFUSED);
		CHECK(rds_atomic_op(s, &nowhere, &add, &old, NULL, 60000) == -ECONNREFUSED);
		op.kind = RDS_OP_WRITE;
	}
	CHECK(rds_transfer(s, &forbidden, &op, NULL, -1) == -EACCES);
	CHECK(rds_atomic_op(s, &forbidden, &add, &old, NULL, -1) == -EACCES);
	CHECK(rds_barrier_all(s, 60000) == 0);
	struct rds_completion left;
	CHECK(rds_completions(s, &left, 1) == 0);
}

/* withdrawn: the parts that the calls are made of. Another operation goes on waiting. */
static void withdrawn(void)
{
	struct rds_rdma op = {.kind = RDS_OP_READ, .flags = RDS_OP_NOTIFY, .cookie = UINT64_C(1) << 40, .local = &local, .segments = 1};
	struct rds_msg one = {.addr = nowhere, .op = &op}, two = one;
	struct rds_completion done;
	CHECK(rds_reach(s, &at) == 0);
	while (rds_reach(s, &nowhere)) /* until the daemon has ceased to try for the calls before */
		CHECK(rds_barrier_all(s, 0) == 0);
	CHECK(rds_sendmsg(s, &one) == 0 && rds_sendmsg(s, &two) == 0);
	struct rds_until u[2] = {{.socket = s, .kind = RDS_UNTIL_UNREACHABLE, .addr = nowhere}, {.socket = s, .kind = RDS_UNTIL_OP, .addr = nowhere, .id = two.op_id}};
	CHECK(rds_wait(u, 2, -1) == 1 && u[0].ready && !u[1].ready && rds_reach(s, &nowhere) == -ECONNREFUSED);
	CHECK(rds_transfer(s, &nowhere, &op, NULL, -1) == -ECONNREFUSED);
	CHECK(rds_withdraw(s, &nowhere, two.op_id) == 0 && rds_withdraw(s, &nowhere, two.op_id) == 0);
	CHECK(rds_wait_op(s, &nowhere, two.op_id, &done, -1) == 0 && done.status == RDS_DROPPED);
	CHECK(rds_withdraw(s, &nowhere, two.op_id) == -EINVAL && rds_withdraw(s, &at, 1) == -EINVAL);
	CHECK(rds_completions(s, &done, 1) == 0 && rds_barrier(s, &nowhere, one.op_id, 0) == -ETIMEDOUT);
	CHECK(rds_withdraw(s, &nowhere, one.op_id) == 0 && rds_wait_op(s, &nowhere, one.op_id, &done, -1) == 0 && done.status == RDS_DROPPED);
}

int main(int argc, char **argv)
{
	CHECK(argc == 5 && rds_open(&(struct rds_options){.path = argv[1]}, &client) == 0);
	CHECK(rds_addr_parse(argv[2], &at) == 0 && rds_addr_parse(argv[3], &nowhere) == 0 && rds_addr_parse(argv[4], &forbidden) == 0);
	struct rds_addr any = at;
	any.port = 0;
	CHECK(rds_bind(client, &any, &s) == 0 && rds_alloc(client, 4096, &local.buffer) == 0);
	waited();
	withdrawn();
	rds_close(s);
	CHECK(rds_reach(s, &nowhere) == -EBADF && rds_withdraw(s, &nowhere, 1) == -EBADF);
	rds_socket_free(s);
	rds_buffer_free(local.buffer);
	rds_client_close(client);
	rds_client_free(client);
	return 0;
}
