/*
 * Adopted memory: where it lies, what may be adopted, threads that write during the move, forks,
 * and what stays when it ends.
 *
 * adopt PATH ADDRESS
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rds/rds.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%d %s:%d: %s\n", (int)getpid(), __FILE__, __LINE__, #x); _exit(1); } } while (0)

enum { PAGE = 4096, BIG = 64 * PAGE };

static rds_client *client;
static rds_socket *from, *to;
static struct rds_addr to_addr;
static rds_buffer *source;

/* pages makes private memory of n bytes. */
static char *pages(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

/* in_file counts the mappings of adopted memory. */
static int in_file(void)
{
	char line[512];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f);
	while (fgets(line, sizeof line, f))
		n += strstr(line, "rds-adopted") != NULL;
	fclose(f);
	return n;
}

static rds_buffer *adopt(void *p, size_t n)
{
	rds_buffer *b = NULL;
	int err = rds_adopt(client, p, n, &b);
	if (err)
		fprintf(stderr, "adopt: %s\n", strerror(-err));
	CHECK(err == 0 && rds_buffer_mem(b) == p && rds_buffer_size(b) == n && rds_adopted(b) == 1);
	return b;
}

static void unadopt(rds_buffer *b)
{
	CHECK(rds_unadopt(b) == 0 && rds_adopted(b) == 0 && rds_unadopt(b) == -EBADF);
	rds_buffer_free(b);
}

/* write_remotely has the daemon write text into a region of b. */
static void write_remotely(rds_buffer *b, size_t off, const char *text)
{
	rds_region *r;
	size_t n = strlen(text) + 1;
	memcpy(rds_buffer_mem(source), text, n);
	CHECK(rds_register(to, b, off, n, RDS_ALLOW_WRITE, &r) == 0);
	struct rds_segment g = {source, 0, n};
	struct rds_rdma op = {.kind = RDS_OP_WRITE, .cookie = rds_region_cookie(r), .local = &g, .segments = 1};
	struct rds_addr a;
	CHECK(rds_local(from, &a) == 0 && rds_expose(r, &a) == 0);
	CHECK(rds_transfer(from, &to_addr, &op, NULL, 20000) == 0);
	CHECK(rds_unadopt(b) == -EBUSY); /* the region uses it */
	CHECK(rds_release(r, 20000) == 0);
	rds_region_free(r);
}

/* in_place: the memory stays where it is, with what it has, and the daemon sees it. */
static void in_place(void)
{
	char *p = malloc(BIG);
	memset(p, 'x', BIG);
	rds_buffer *b = adopt(p + 10, BIG - 100);
	CHECK(p[0] == 'x' && p[BIG - 1] == 'x' && in_file() > 0);
	p[0] = p[BIG - 1] = 'y';
	write_remotely(b, 20, "from afar");
	CHECK(!strcmp(p + 30, "from afar") && p[29] == 'x');
	p[30] = 'F';
	write_remotely(b, 5000, "again");
	unadopt(b);
	CHECK(in_file() == 0 && p[0] == 'y' && !strcmp(p + 30, "From afar") && !strcmp(p + 5010, "again") && p[BIG - 1] == 'y');
	free(p);
}

/* neighbours: two ranges share a page, and one lies in another. */
static void neighbours(void)
{
	char *p = pages(8 * PAGE);
	rds_buffer *a = adopt(p, 2 * PAGE + 100), *b = adopt(p + 2 * PAGE + 100, 3 * PAGE), *in = adopt(p + 50, 10);
	write_remotely(a, 2 * PAGE, "left");
	write_remotely(b, 0, "right");
	write_remotely(in, 0, "in");
	CHECK(!strcmp(p + 2 * PAGE, "left") && !strcmp(p + 2 * PAGE + 100, "right") && !strcmp(p + 50, "in"));
	unadopt(a);
	CHECK(in_file() > 0 && rds_adopted(b) == 1 && rds_adopted(in) == 1 && !strcmp(p + 2 * PAGE, "left"));
	write_remotely(b, 0, "still");
	write_remotely(in, 0, "too");
	unadopt(b);
	unadopt(in);
	CHECK(in_file() == 0 && !strcmp(p + 2 * PAGE, "left") && !strcmp(p + 2 * PAGE + 100, "still") && !strcmp(p + 50, "too"));
	munmap(p, 8 * PAGE);
}

static void refuse(void *p, size_t n, int want)
{
	rds_buffer *b = (rds_buffer *)1;
	int err = rds_adopt(client, p, n, &b);
	if (err != want)
		fprintf(stderr, "%p: %d, want %d\n", p, err, want);
	CHECK(err == want && b == NULL);
}

/* bad: what must not be adopted stays as it is. */
static void bad(void)
{
	char *p = pages(8 * PAGE), stack[100];
	int fd = open("/proc/self/exe", O_RDONLY);
	memset(p, 'x', 8 * PAGE);
	refuse(p, 0, -EINVAL);
	refuse(stack, sizeof stack, -EINVAL);
	refuse((void *)(uintptr_t)-PAGE, 10, -EFAULT);
	munmap(p + 6 * PAGE, PAGE);
	refuse(p, 8 * PAGE, -EFAULT);
	CHECK(mprotect(p + 5 * PAGE, PAGE, PROT_READ) == 0);
	refuse(p, 6 * PAGE, -EACCES);
	CHECK(mmap(p + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED);
	refuse(p, 5 * PAGE, -EINVAL);
	CHECK(mmap(p + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	refuse(p, 4 * PAGE, -EINVAL);
	CHECK(in_file() == 0 && p[0] == 'x');
	CHECK(rds_unadopt(source) == -EINVAL && rds_adopted(source) == 0);
	close(fd);
	munmap(p, 8 * PAGE);
}

static _Atomic int stop;

struct counted {
	_Atomic uint64_t *words;
	uint64_t n;
};

static void *count(void *arg)
{
	struct counted *c = arg;
	while (!atomic_load(&stop))
		for (int i = 0; i < 16; i++, c->n++)
			atomic_fetch_add_explicit(&c->words[i * PAGE / 8], 1, memory_order_relaxed);
	return NULL;
}

/* writers: no write of another thread is lost while memory is adopted and given back. */
static void writers(void)
{
	enum { THREADS = 3 };
	char *p = pages(16 * PAGE);
	struct counted c[THREADS];
	pthread_t t[THREADS];
	uint64_t n = 0, sum = 0;
	for (int i = 0; i < THREADS; i++) {
		c[i] = (struct counted){.words = (_Atomic uint64_t *)p};
		CHECK(pthread_create(&t[i], NULL, count, &c[i]) == 0);
	}
	for (int i = 0; i < 100; i++)
		unadopt(adopt(p + i, 16 * PAGE - i));
	atomic_store(&stop, 1);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		n += c[i].n;
	}
	for (int i = 0; i < 16; i++)
		sum += ((uint64_t *)p)[i * PAGE / 8];
	CHECK(n == sum && n > 0);
	munmap(p, 16 * PAGE);
}

/* forks: a child has a copy of its own. */
static void forks(void)
{
	char *p = pages(BIG);
	int up[2], down[2], status;
	char c;
	strcpy(p, "before");
	rds_buffer *b = adopt(p, BIG), *part = adopt(p + PAGE, PAGE);
	CHECK(pipe(up) == 0 && pipe(down) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		rds_buffer *no;
		strcpy(p + PAGE, "child");
		CHECK(write(up[1], "x", 1) == 1 && read(down[0], &c, 1) == 1);
		CHECK(!strcmp(p, "before") && in_file() == 0);
		CHECK(rds_adopt(client, p, 1, &no) == -ESTALE && rds_adopted(b) == 0 && rds_unadopt(b) == -ESTALE);
		_exit(0);
	}
	CHECK(pid > 0);
	strcpy(p, "later");
	write_remotely(b, 100, "remote");
	CHECK(read(up[0], &c, 1) == 1 && p[PAGE] == 0 && write(down[1], "x", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(!strcmp(p, "later") && !strcmp(p + 100, "remote"));
	unadopt(part);
	unadopt(b);
	munmap(p, BIG);
	close(up[0]), close(up[1]), close(down[0]), close(down[1]);
}

/* own: memory of the program that has the library's own beside it, as in the heap. What the child
 * of a fork changes there is the child's. */
static void own(void)
{
	int status;
	char *p = pages(PAGE);
	rds_buffer *b = adopt((char *)client, 64), *other = adopt(p, PAGE);
	pid_t pid = fork();
	if (pid == 0)
		_exit(rds_unadopt(b) != -ESTALE);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	write_remotely(other, 100, "remote");
	unadopt(b);
	unadopt(other);
	munmap(p, PAGE);
}

/* gone: the program unmaps adopted memory and maps other memory there. */
static void gone(void)
{
	char *p = pages(4 * PAGE);
	strcpy(p, "old");
	rds_buffer *b = adopt(p, 4 * PAGE);
	CHECK(munmap(p + PAGE, PAGE) == 0 && rds_adopted(b) == 0);
	CHECK(mmap(p, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
	strcpy(p, "new");
	CHECK(rds_adopted(b) == 0);
	unadopt(b); /* leaves the new memory alone */
	CHECK(!strcmp(p, "new") && in_file() == 0);
	b = adopt(p, 4 * PAGE);
	write_remotely(b, 10, "remote");
	CHECK(!strcmp(p, "new") && !strcmp(p + 10, "remote"));
	unadopt(b);
	munmap(p, 4 * PAGE);
}

static sigjmp_buf back;

static void on_fault(int sig) { siglongjmp(back, 1); }

/* faults of the program are still its own. */
static void faults(void)
{
	char *volatile p = pages(PAGE);
	CHECK(mprotect(p, PAGE, PROT_READ) == 0);
	if (sigsetjmp(back, 1) == 0) {
		*p = 1;
		CHECK(!"a write to read-only memory");
	}
	munmap(p, PAGE);
}

/* close_file closes the descriptor of adopted memory, and returns its number. */
static int close_file(void)
{
	char path[64], name[64];
	for (int fd = 3; fd < 1000; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, name, sizeof name - 1);
		name[n > 0 ? n : 0] = 0;
		if (strstr(name, "rds-adopted"))
			return close(fd) ? -1 : fd;
	}
	return -1;
}

/* lost: the program closes the library's file, and another takes its number. The other is left
 * alone, and adopted memory keeps its contents. */
static void lost(void)
{
	char *p = pages(4 * PAGE), text[8] = "";
	int status, other = memfd_create("other", MFD_CLOEXEC);
	strcpy(p, "mine");
	rds_buffer *b = adopt(p, PAGE);
	int fd = close_file();
	CHECK(fd > 0 && other >= 0 && dup2(other, fd) == fd);
	CHECK(pwrite(fd, "theirs", 6, (off_t)(uintptr_t)p) == 6);
	refuse(p + 2 * PAGE, 10, -EBADF);
	pid_t pid = fork();
	if (pid == 0)
		_exit(strcmp(p, "mine") != 0 || fcntl(fd, F_GETFD) < 0);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(rds_adopted(b) == 1 && rds_unadopt(b) == 0 && !strcmp(p, "mine"));
	CHECK(pread(fd, text, 6, (off_t)(uintptr_t)p) == 6 && !strcmp(text, "theirs"));
	rds_buffer_free(b);
}

static void open_all(const char *path, struct rds_addr addr)
{
	struct rds_options o = {.path = path, .timeout_ms = 10000};
	CHECK(rds_open(&o, &client) == 0);
	addr.port = 4000;
	CHECK(rds_bind(client, &addr, &from) == 0);
	addr.port = 4001;
	CHECK(rds_bind(client, &addr, &to) == 0);
	to_addr = addr;
	CHECK(rds_alloc(client, PAGE, &source) == 0);
}

int main(int argc, char **argv)
{
	struct rds_addr addr;
	signal(SIGSEGV, on_fault); /* the library's handler passes on to it */
	CHECK(argc == 3 && rds_addr_parse(argv[2], &addr) == 0);
	open_all(argv[1], addr);
	in_place();
	neighbours();
	bad();
	writers();
	forks();
	own();
	gone();
	faults();
	/* What is adopted when the client ends becomes private. */
	char *p = pages(BIG);
	rds_buffer *b = adopt(p, BIG);
	write_remotely(b, 0, "kept");
	rds_socket_free(from);
	rds_socket_free(to);
	rds_buffer_free(source);
	rds_client_close(client);
	CHECK(rds_adopted(b) == 0 && in_file() == 0 && !strcmp(p, "kept"));
	refuse(p, 1, -EBADF);
	rds_buffer_free(b);
	rds_client_free(client);
	munmap(p, BIG);
	pid_t pid = fork(); /* a process of its own, because nothing can be adopted in it any more */
	int status;
	if (pid == 0) {
		open_all(argv[1], addr);
		lost();
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	return 0;
}
