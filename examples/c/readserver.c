/* A file that is served from memory by RDMA. A client asks once, gets a cookie, and reads.
 *
 *	readserver -bind 10.0.0.1:4003 FILE
 *	readserver -bind 10.0.0.2:0 -to 10.0.0.1:4003 >COPY
 */
#include "example.h"

enum { PIECE = 256 << 10 };

static void serve(struct example *e)
{
	rds_buffer *mem;
	rds_region *region;
	FILE *f = fopen(e->nargs == 1 ? e->args[0] : "", "rb");
	if (!f || fseek(f, 0, SEEK_END))
		must(-errno, "name the file to serve");
	uint64_t size = (uint64_t)ftell(f);
	rewind(f);
	must(rds_alloc(e->client, size ? size : 1, &mem), "rds_alloc");
	if (fread(rds_buffer_mem(mem), 1, size, f) != size)
		must(-EIO, "read");
	must(rds_register(e->socket, mem, 0, rds_buffer_size(mem), RDS_ALLOW_READ, &region), "rds_register");
	struct iovec v = {&size, sizeof size};
	for (;;) {
		struct rds_msg m = {.iov = &v, .iovlen = 1, .cookie = rds_region_cookie(region)};
		must(rds_recv(e->socket, NULL, 0, &m.addr, 0), "rds_recv");
		must(rds_sendmsg(e->socket, &m), "rds_sendmsg");
	}
}

int main(int argc, char **argv)
{
	struct example e = example_open(argc, argv);
	uint64_t size = 0;
	rds_buffer *mem;
	if (!e.is_client)
		serve(&e);
	struct iovec v = {&size, sizeof size};
	struct rds_msg m = {.iov = &v, .iovlen = 1};
	must(rds_send(e.socket, NULL, 0, &e.to, 0), "rds_send");
	must(rds_recvmsg(e.socket, &m), "rds_recvmsg");
	must(rds_alloc(e.client, PIECE, &mem), "rds_alloc");
	for (uint64_t off = 0; off < size; off += PIECE) {
		struct rds_segment here = {mem, 0, size - off < PIECE ? size - off : PIECE};
		struct rds_rdma read = {.kind = RDS_OP_READ, .cookie = m.cookie, .remote_off = off, .local = &here, .segments = 1};
		must(rds_transfer(e.socket, &e.to, &read, NULL, 5000), "rds_transfer");
		fwrite(rds_buffer_mem(mem), 1, here.len, stdout);
	}
	example_close(&e);
	return 0;
}
