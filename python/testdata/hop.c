/* Sends one message on, with the trace that it belongs to: hop ADDRESS NEXT. */
#include <stdio.h>
#include <sys/uio.h>

#include <rds/rds.h>

int main(int argc, char **argv)
{
	char payload[64], trace[RDS_TRACEPARENT_SIZE];
	struct iovec iov = {payload, sizeof payload};
	struct rds_msg m = {.iov = &iov, .iovlen = 1, .traceparent = trace};
	struct rds_addr here, next;
	rds_client *c;
	rds_socket *s;
	if (argc != 3 || rds_addr_parse(argv[1], &here) || rds_addr_parse(argv[2], &next) || rds_open(NULL, &c) || rds_bind(c, &here, &s))
		return 1;
	printf("bound\n");
	fflush(stdout);
	if (rds_recvmsg(s, &m))
		return 2;
	iov.iov_len = m.n;
	m = (struct rds_msg){.iov = &iov, .iovlen = 1, .addr = next, .traceparent = trace};
	return rds_sendmsg(s, &m) || rds_close_wait(s, 10000) ? 3 : 0;
}
