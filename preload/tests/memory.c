/* The program's own memory: regions, operations, memory that is mapped anew, forks, and a program
 * that closes every descriptor. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

enum { PAGE = 4096, SIZE = 16 * PAGE, GET_MR = 2, FREE_MR = 3, RDMA_ARGS = 1, RDMA_STATUS = 4, WRITE = 1, NOTIFY_ME = 32 };

struct iov {
	uint64_t addr, bytes;
};

struct args { /* struct rds_rdma_args */
	uint64_t cookie;
	struct iov remote;
	uint64_t local_addr, nr_local, flags, token;
};

/* get_mr registers n bytes at p. It returns 0 or -1. */
static int get_mr(int fd, const void *p, uint64_t n, uint64_t *cookie)
{
	struct {
		struct iov vec;
		uint64_t cookie_addr, flags;
	} a = {{(uintptr_t)p, n}, (uintptr_t)cookie, WRITE};
	return setsockopt(fd, SOL, GET_MR, &a, sizeof a);
}

static int free_mr(int fd, uint64_t cookie)
{
	uint64_t a[2] = {cookie, 0};
	return setsockopt(fd, SOL, FREE_MR, a, sizeof a);
}

/* write_from sends an RDMA write of n bytes at p into a region, with a message that lets the
 * region's owner know. It returns what sendmsg does. */
static ssize_t write_from(int fd, int to, const void *p, uint64_t n, uint64_t cookie)
{
	struct sockaddr_in dest = name_of(to);
	struct iov local = {(uintptr_t)p, n};
	struct args a = {cookie, {0, n}, (uintptr_t)&local, 1, WRITE | NOTIFY_ME, 7};
	union {
		struct cmsghdr h;
		char mem[CMSG_SPACE(sizeof a)];
	} c = {.h = {.cmsg_len = CMSG_LEN(sizeof a), .cmsg_level = SOL, .cmsg_type = RDMA_ARGS}};
	memcpy(CMSG_DATA(&c.h), &a, sizeof a);
	struct iovec text = {"done", 4};
	struct msghdr m = {.msg_name = &dest, .msg_namelen = sizeof dest, .msg_iov = &text, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
	return sendmsg(fd, &m, 0);
}

/* status takes the status of an operation. */
static int32_t status(int fd)
{
	struct {
		uint64_t token;
		int32_t status;
	} s = {0, -1};
	union {
		struct cmsghdr h;
		char mem[CMSG_SPACE(sizeof s)];
	} c;
	struct msghdr m = {.msg_control = &c, .msg_controllen = sizeof c};
	CHECK(recvmsg(fd, &m, 0) == 0 && m.msg_controllen >= sizeof c && c.h.cmsg_type == RDMA_STATUS);
	memcpy(&s, CMSG_DATA(&c.h), sizeof s);
	CHECK(s.token == 7);
	return s.status;
}

static int owner, user;

/* offer sends the cookie of a region, so that the user may use it. */
static void offer(uint64_t cookie)
{
	struct sockaddr_in dest = name_of(user);
	union {
		struct cmsghdr h;
		char mem[CMSG_SPACE(sizeof cookie)];
	} c = {.h = {.cmsg_len = CMSG_LEN(sizeof cookie), .cmsg_level = SOL, .cmsg_type = 2}};
	memcpy(CMSG_DATA(&c.h), &cookie, sizeof cookie);
	struct iovec text = {"use", 3};
	struct msghdr m = {.msg_name = &dest, .msg_namelen = sizeof dest, .msg_iov = &text, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
	CHECK(sendmsg(owner, &m, 0) == 3);
	gets_text(user, "use");
}

/* moves writes text from p into q, both memory of this program. Every other region is used by its
 * cookie alone, which nobody was sent as one. */
static void moves(char *p, char *q, const char *text)
{
	static bool sent;
	uint64_t cookie;
	strcpy(p, text);
	CHECK(get_mr(owner, q, SIZE - PAGE, &cookie) == 0);
	sent = !sent;
	if (!sent && getenv("RDSD_PRELOAD_STRICT")) {
		CHECK(write_from(user, owner, p, 1, cookie) == 4 && status(user) == 1);
		sent = true;
	}
	if (sent)
		offer(cookie);
	CHECK(write_from(user, owner, p, strlen(text) + 1, cookie) == 4);
	gets_text(owner, "done");
	CHECK(!strcmp(q, text) && status(user) == 0);
	CHECK(free_mr(owner, cookie) == 0);
	FAILS(free_mr(owner, cookie), EINVAL);
}

static char *pages(void)
{
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

int main(int argc, char **argv)
{
	uint64_t cookie;
	int wait;
	address = argc > 1 ? argv[1] : address;
	owner = bound(0);
	user = bound(0);
	char *p = pages() + 10, *q = pages() + 20, *heap = malloc(SIZE);
	for (int i = 0; i < 100; i++)
		moves(p + i, q + i, i % 2 ? "odd" : "even");
	moves(heap, q, "from the heap");
	/* Memory that was unmapped and mapped anew is other memory, however that came about. */
	CHECK(mmap(q - 20, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == q - 20 && !*q);
	moves(p, q, "anew");
	free(heap); /* munmap within the C library */
	moves(heap = malloc(SIZE), q, "the heap anew");
	/* Memory that is gone, where no mmap goes by itself: ThreadSanitizer's runtime maps memory of its own at a fault,
	 * and took the place of whatever was unmapped last. */
	p = mmap((void *)0x10000000, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(p == (void *)0x10000000);
	p += 10;
	moves(p, q, "then gone");
	CHECK(munmap(p - 10, SIZE) == 0);
	FAILS(get_mr(owner, p, 10, &cookie), EFAULT);
	FAILS(get_mr(owner, q, 10, (uint64_t *)p), EFAULT); /* no place for the cookie */
	FAILS(write_from(user, owner, p, 10, 1), EFAULT);
	p = pages();
	/* A child has a copy of its own. */
	moves(p, q, "parent");
	pid_t pid = fork();
	if (pid == 0) {
		strcpy(q, "child");
		_exit(strcmp(p, "parent") != 0);
	}
	CHECK(pid > 0 && waitpid(pid, &wait, 0) == pid && wait == 0 && !strcmp(q, "parent"));
	/* Descriptors that are not the program's stay. */
	for (int fd = 3; fd < 65536; fd++)
		if (fd != owner && fd != user)
			close(fd);
	moves(p, q, "closed one by one");
	close_range((unsigned)(owner > user ? owner : user) + 1, ~0u, 0);
	moves(pages(), pages(), "closed at once");
	return 0;
}
