/*
 * Memory that the program has mapped itself, imported in place: of every kind, inside a page, and what is refused. The
 * session of who cuts its memory short ends, and the program goes on.
 *
 * inplace PATH ADDRESS
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rds/rds.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

enum { PAGE = 4096, PAGES = 16, SIZE = PAGES * PAGE };

static const char *path;
static struct rds_addr at;

static rds_client *opened(void)
{
	struct rds_options o = {.path = path, .timeout_ms = 10000};
	rds_client *c;
	CHECK(rds_open(&o, &c) == 0);
	return c;
}

/* target makes len bytes at off of b a region of a new socket. */
static rds_region *target(rds_client *c, rds_buffer *b, size_t off, size_t len, rds_socket **t)
{
	rds_region *r;
	CHECK(rds_bind(c, &at, t) == 0 && rds_register(*t, b, off, len, RDS_ALLOW_WRITE | RDS_OPEN, &r) == 0);
	return r;
}

/* write_region has another client write len bytes to the region r of t. It returns the error. */
static int write_region(rds_socket *t, rds_region *r, size_t len, char with)
{
	rds_client *other = opened();
	rds_socket *s;
	rds_buffer *src;
	struct rds_addr to;
	CHECK(rds_local(t, &to) == 0 && rds_bind(other, &at, &s) == 0 && rds_alloc(other, len, &src) == 0);
	memset(rds_buffer_mem(src), with, len);
	struct rds_segment g = {src, 0, len};
	struct rds_rdma op = {.kind = RDS_OP_WRITE, .cookie = rds_region_cookie(r), .local = &g, .segments = 1};
	int err = rds_transfer(s, &to, &op, NULL, 60000);
	rds_socket_free(s);
	rds_buffer_free(src);
	rds_client_close(other);
	rds_client_free(other);
	return err;
}

/* write_to has another client write len bytes to off of b, which is of c. It returns the error. */
static int write_to(rds_client *c, rds_buffer *b, size_t off, size_t len, char with)
{
	rds_socket *t;
	rds_region *r = target(c, b, off, len, &t);
	int err = write_region(t, r, len, with);
	CHECK(rds_release(r, 60000) == 0);
	rds_region_free(r);
	rds_socket_free(t);
	return err;
}

static int memory(unsigned flags)
{
	int fd = memfd_create("inplace", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
	return fd;
}

static int posix_memory(void)
{
	char name[64];
	snprintf(name, sizeof name, "/rds-inplace-%d", (int)getpid());
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && shm_unlink(name) == 0 && ftruncate(fd, SIZE) == 0);
	return fd;
}

static char *map(int fd, int prot, int flags, off_t off, size_t size)
{
	char *p = mmap(NULL, size, prot, flags, fd, off);
	CHECK(p != MAP_FAILED);
	return p;
}

/* works: a part of a mapping that begins inside the file and inside a page. */
static void works(int fd)
{
	enum { OFF = 2 * PAGE, IN = 100, LEN = 5 * PAGE };
	rds_client *c = opened();
	rds_buffer *b, *whole;
	struct rds_segment g;
	char *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED, OFF, SIZE - OFF);
	memset(p, 'p', SIZE - OFF);
	CHECK(rds_import_at(c, p + IN, fd, OFF + IN, LEN, &b) == 0);
	CHECK(rds_import_at(c, p, fd, OFF, SIZE - OFF, &whole) == 0); /* ranges may overlap */
	CHECK(rds_buffer_mem(b) == p + IN && rds_buffer_size(b) == LEN && rds_adopted(b) == 0 && rds_unadopt(b) == -EINVAL);
	CHECK(rds_segment_at(c, p + IN + 7, LEN - 7, &g) == 0 && g.len == LEN - 7);
	CHECK(write_to(c, b, 5, LEN - 10, 'w') == 0);
	CHECK(p[IN + 4] == 'p' && p[IN + 5] == 'w' && p[IN + LEN - 6] == 'w' && p[IN + LEN - 5] == 'p');
	CHECK(rds_buffer_close(whole) == 0 && p[SIZE - OFF - 1] == 'p'); /* it stays mapped */
	pid_t child = fork();
	if (child == 0)
		_exit(p[IN + 5] != 'w'); /* and in a child */
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	CHECK(rds_client_close(c) == 0 && rds_buffer_mem(b) == NULL && p[IN + 5] == 'w');
	rds_buffer_free(whole);
	rds_buffer_free(b);
	rds_client_free(c);
	CHECK(munmap(p, SIZE - OFF) == 0);
}

static void refused(int fd)
{
	rds_client *c = opened();
	rds_buffer *b;
	int other = memory(0), sealed = memory(0), file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	CHECK(fcntl(sealed, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
	char *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED, PAGE, SIZE - PAGE);
	char *own = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE, PAGE, PAGE), *ro = map(fd, PROT_READ, MAP_SHARED, PAGE, PAGE);
	char *holed = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED, PAGE, 4 * PAGE);
	CHECK(munmap(holed + 2 * PAGE, PAGE) == 0);
	const struct { void *addr; int fd; uint64_t off; size_t len; int want; } bad[] = {
		{p, fd, 0, PAGE, -EINVAL},                       /* another part of the file */
		{p + 1, fd, PAGE, PAGE, -EINVAL},                /* not at the same place of a page */
		{p, other, PAGE, PAGE, -EINVAL},                 /* another file */
		{p, sealed, PAGE, PAGE, -EPERM}, {p, file, PAGE, 1, -EINVAL}, {p, -1, PAGE, 1, -EBADF},
		{p, fd, PAGE, 0, -EINVAL}, {p, fd, PAGE, SIZE, -EINVAL}, {p, fd, UINT64_MAX - 5, 100, -EINVAL}, {p, fd, PAGE, SIZE_MAX, -EINVAL},
		{own, fd, PAGE, 1, -EINVAL}, {ro, fd, PAGE, 1, -EACCES},
		{holed, fd, PAGE, 2 * PAGE + 1, -EFAULT}, {holed + PAGE, fd, 2 * PAGE, 3 * PAGE, -EFAULT},
		{NULL, fd, 0, PAGE, -EFAULT}, {(void *)(UINTPTR_MAX - PAGE + 1), fd, 0, PAGE, -EFAULT},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int err = rds_import_at(c, bad[i].addr, bad[i].fd, bad[i].off, bad[i].len, &b);
		if (err != bad[i].want || b)
			fprintf(stderr, "case %zu: %d, want %d\n", i, err, bad[i].want);
		CHECK(err == bad[i].want && !b);
	}
	CHECK(rds_import_at(c, holed, fd, PAGE, 2 * PAGE, &b) == 0);
	CHECK(rds_client_close(c) == 0);
	rds_buffer_free(b);
	CHECK(rds_import_at(c, p, fd, PAGE, PAGE, &b) == -EBADF && !b);
	rds_client_free(c);
	munmap(p, SIZE - PAGE);
	munmap(own, PAGE);
	munmap(ro, PAGE);
	munmap(holed, 2 * PAGE);
	munmap(holed + 3 * PAGE, PAGE);
	close(other);
	close(sealed);
	close(file);
}

/* cut: the owner cuts the file short, and another process writes there. */
static void cut(int fd)
{
	rds_client *c = opened(), *stays = opened();
	rds_buffer *b, *kept;
	int other = memory(0);
	char *p = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED, 0, SIZE), *q = map(other, PROT_READ | PROT_WRITE, MAP_SHARED, 0, SIZE);
	CHECK(rds_import_at(c, p, fd, 0, SIZE, &b) == 0 && rds_import_at(stays, q, other, 0, SIZE, &kept) == 0);
	rds_socket *t;
	rds_region *r = target(c, b, 0, SIZE, &t);
	char why[256];
	CHECK(ftruncate(fd, PAGE) == 0);
	while (!rds_client_error(c, NULL, 0))
		write_region(t, r, SIZE, 'w');
	CHECK(rds_client_error(c, why, sizeof why) == -ECONNABORTED && strstr(why, "memory with holes"));
	rds_region_free(r);
	rds_socket_free(t);
	CHECK(write_to(stays, kept, 0, SIZE, 'k') == 0 && q[SIZE - 1] == 'k');
	rds_buffer_free(b);
	rds_buffer_free(kept);
	rds_client_free(c);
	rds_client_close(stays);
	rds_client_free(stays);
	munmap(p, SIZE);
	munmap(q, SIZE);
	close(other);
}

/* huge imports huge pages in place, if there are any. */
static void huge(void)
{
	enum { HUGE = 2 << 20 };
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	char *p = fd < 0 || ftruncate(fd, 2 * HUGE) ? MAP_FAILED : mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		puts("no huge pages");
		close(fd);
		return;
	}
	rds_client *c = opened();
	rds_buffer *b;
	CHECK(rds_import_at(c, p + HUGE + 100, fd, HUGE + 100, 5000, &b) == 0);
	CHECK(write_to(c, b, 0, 5000, 'h') == 0 && p[HUGE + 99] == 0 && p[HUGE + 100] == 'h' && p[HUGE + 5099] == 'h' && p[HUGE + 5100] == 0);
	rds_buffer_free(b);
	rds_client_close(c);
	rds_client_free(c);
	munmap(p, 2 * HUGE);
	close(fd);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3 && rds_addr_parse(argv[2], &at) == 0);
	path = argv[1];
	int files[] = {memory(0), posix_memory()};
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		works(files[i]);
		refused(files[i]);
		cut(files[i]);
		close(files[i]);
	}
	huge();
	return 0;
}
