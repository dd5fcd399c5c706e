/*
 * Segments by address: of made, imported and adopted memory, at every edge, and never of what is freed.
 *
 * segments PATH ADDRESS
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rds/rds.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

enum { PAGE = 4096, SIZE = 10000 };

static rds_client *client;

/* is_at reports whether len bytes at off of b are found there. */
static int is_at(rds_buffer *b, size_t off, size_t len)
{
	struct rds_segment g = {0};
	char *mem = rds_buffer_mem(b);
	return rds_segment_at(client, mem + off, len, &g) == 0 && g.buffer == b && g.off == off && g.len == len;
}

static int nowhere(const void *p, size_t len)
{
	struct rds_segment g = {(rds_buffer *)&g, 7, 7};
	int err = rds_segment_at(client, p, len, &g);
	CHECK(err == 0 || (g.buffer == (rds_buffer *)&g && g.off == 7 && g.len == 7)); /* unchanged */
	return err == -EFAULT;
}

/* edges of a buffer of SIZE bytes, whose last page is mapped beyond them. */
static void edges(rds_buffer *b)
{
	char *mem = rds_buffer_mem(b);
	CHECK(is_at(b, 0, 1) && is_at(b, 0, SIZE) && is_at(b, 77, 100) && is_at(b, SIZE - 1, 1));
	CHECK(nowhere(mem - 1, 1) && nowhere(mem - 1, 2) && nowhere(mem + SIZE, 1) && nowhere(mem + 1, SIZE));
	CHECK(nowhere(mem, SIZE_MAX) && nowhere(mem + 5, SIZE_MAX - 2) && nowhere(NULL, 1) && nowhere((void *)UINTPTR_MAX, 2));
}

/* read_at reads a region into memory that is known by its address alone. */
static void read_at(char *p, size_t len, const char *ip)
{
	struct rds_addr at, to;
	rds_socket *s, *t;
	rds_buffer *b;
	rds_region *r;
	struct rds_segment g;
	CHECK(rds_addr_parse(ip, &at) == 0 && rds_bind(client, &at, &s) == 0 && rds_bind(client, &at, &t) == 0 && rds_local(t, &to) == 0);
	CHECK(rds_alloc(client, len, &b) == 0);
	memset(rds_buffer_mem(b), 'r', len);
	CHECK(rds_register(t, b, 0, len, RDS_ALLOW_READ | RDS_OPEN, &r) == 0 && rds_segment_at(client, p, len, &g) == 0);
	struct rds_rdma op = {.kind = RDS_OP_READ, .cookie = rds_region_cookie(r), .local = &g, .segments = 1};
	CHECK(rds_transfer(s, &to, &op, NULL, 60000) == 0);
	CHECK(p[-1] == 'p' && p[0] == 'r' && p[len - 1] == 'r' && p[len] == 'p');
	rds_region_free(r);
	rds_socket_free(s);
	rds_socket_free(t);
	rds_buffer_free(b);
}

int main(int argc, char **argv)
{
	struct rds_options o = {.path = argv[1], .timeout_ms = 10000};
	rds_buffer *a, *b, *i, *wide, *part;
	struct rds_segment g;
	CHECK(argc == 3 && rds_open(&o, &client) == 0);
	CHECK(rds_alloc(client, SIZE, &a) == 0 && rds_alloc(client, SIZE, &b) == 0);
	edges(a);
	edges(b);
	CHECK(rds_segment_at(client, rds_buffer_mem(a), 0, &g) == -EINVAL);
	int fd = memfd_create("segments", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(fd >= 0 && ftruncate(fd, 8 * PAGE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	CHECK(rds_import(client, fd, 2 * PAGE, SIZE, &i) == 0);
	edges(i);
	/* Adopted memory that begins inside a page, and a part of it. */
	char *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	memset(p, 'p', 16 * PAGE);
	CHECK(nowhere(p, 1) && rds_adopt(client, p + 100, SIZE, &wide) == 0);
	edges(wide);
	CHECK(rds_adopt(client, p + 300, 400, &part) == 0);
	CHECK(is_at(part, 0, 400) && is_at(part, 399, 1) && is_at(wide, 199, 1) && is_at(wide, 200, 401));
	read_at(p + 5000, 3000, argv[2]);
	/* What is closed, and what has no handle any more, is not found. */
	CHECK(rds_unadopt(part) == 0 && is_at(wide, 200, 400));
	char *was = rds_buffer_mem(a);
	CHECK(rds_buffer_close(a) == 0 && nowhere(was, 1));
	was = rds_buffer_mem(b);
	rds_buffer_free(b);
	CHECK(nowhere(was, 1));
	CHECK(rds_client_close(client) == 0 && rds_segment_at(client, p + 100, 1, &g) == -EBADF);
	rds_buffer_free(a);
	rds_buffer_free(i);
	rds_buffer_free(wide);
	rds_buffer_free(part);
	rds_client_free(client);
	close(fd);
	return 0;
}
