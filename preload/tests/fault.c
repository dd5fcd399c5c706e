/* Wrong addresses end with EFAULT, no signal, and as if the call had not been made, but for what the kernel
 * does not take back either. The program's own handlers of faults are as without the library. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

enum { PAGE = 4096, LARGE = 64 << 10 };

static char *page; /* can be used, and no page behind it can */
static struct sockaddr_in to;
static int a, b; /* a sends to b */
static void *volatile low = (void *)8, *volatile no_address = (void *)0x8000000000000000, *volatile null;

#define NOWHERE ((void *)(page + PAGE))
#define ACROSS(n) ((void *)(page + PAGE - (n))) /* the first n bytes are there */
#define TO (struct sockaddr *)&to, sizeof to
#ifdef __SANITIZE_ADDRESS__ /* its runtime reads lengths itself */
#define LENGTH_FAILS(call) ((void)0)
#else
#define LENGTH_FAILS(call) FAILS(call, EFAULT)
#endif
#define EMPTY(fd) FAILS(recv(fd, page, 1, MSG_DONTWAIT), EAGAIN)

/* The kernel's test of its own mistake: many sends from a page without rights. */
static void sent(void)
{
	struct iovec v[2] = {{page, 8}, {NOWHERE, 8}}, wide = {ACROSS(10), LARGE};
	struct msghdr h = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = v, .msg_iovlen = 2};
	for (int i = 0; i < 1024; i++)
		FAILS(sendmsg(a, &h, 0), EFAULT);
	for (size_t n = 1; n <= LARGE; n *= 2) {
		FAILS(sendto(a, NOWHERE, n, 0, TO), EFAULT);
		FAILS(sendto(a, low, n, 0, TO), EFAULT);
		FAILS(sendto(a, no_address, n, 0, TO), EFAULT);
	}
	for (int i = 0; i < 100; i++)
		FAILS(sendto(a, ACROSS(10), LARGE, 0, TO), EFAULT);
	CHECK(connect(a, TO) == 0);
	FAILS(write(a, NOWHERE, 1), EFAULT);
	FAILS(send(a, ACROSS(1), 2, 0), EFAULT);
	FAILS(writev(a, v, 2), EFAULT);
	FAILS(writev(a, NOWHERE, 1), EFAULT);
	FAILS(sendto(a, "x", 1, 0, NOWHERE, sizeof to), EFAULT);
	FAILS(sendmsg(a, NOWHERE, 0), EFAULT);
	FAILS(sendmsg(a, ACROSS(sizeof h - 1), 0), EFAULT);
	h.msg_iov = ACROSS(sizeof *v);
	memcpy(h.msg_iov, v, sizeof *v);
	FAILS(sendmsg(a, &h, 0), EFAULT);
	h.msg_iov = &wide;
	h.msg_iovlen = 1;
	FAILS(sendmsg(a, &h, 0), EFAULT);
	h.msg_iov = v;
	h.msg_name = NOWHERE;
	FAILS(sendmsg(a, &h, 0), EFAULT);
	h.msg_name = &to;
	h.msg_control = NOWHERE;
	h.msg_controllen = 64;
	FAILS(sendmsg(a, &h, 0), EFAULT);
	EMPTY(b);
	/* Between good ones, which go into one run and keep their order. */
	for (char c = 'a'; c <= 'z'; c++) {
		CHECK(send(a, &c, 1, 0) == 1);
		FAILS(send(a, ACROSS(100), c % 2 ? 200 : LARGE, 0), EFAULT);
	}
	for (char c = 'a'; c <= 'z'; c++)
		CHECK(recv(b, page, 8, 0) == 1 && *page == c);
	EMPTY(b);
}

/* Several at once. The first count goes where the array lies. */
static void several(void)
{
	struct iovec v[3] = {{"one", 3}, {NOWHERE, 3}, {"three", 5}};
	struct mmsghdr m[3] = {0}, *last = ACROSS(sizeof *m);
	for (int i = 0; i < 3; i++)
		m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
	CHECK(sendmmsg(a, m, 3, 0) == 1 && m[0].msg_len == 3);
	FAILS(sendmmsg(a, m + 1, 2, 0), EFAULT);
	FAILS(sendmmsg(a, NOWHERE, 1, 0), EFAULT);
	*last = m[2];
	CHECK(sendmmsg(a, last, 2, 0) == 1 && last->msg_len == 5);
	v[0] = (struct iovec){page, 8};
	CHECK(recvmmsg(b, m, 2, 0, NULL) == 1 && m[0].msg_len == 3 && !memcmp(page, "one", 3));
	FAILS(recvmmsg(b, m, 1, 0, NOWHERE), EFAULT);
	FAILS(recvmmsg(b, NOWHERE, 1, 0, NULL), EFAULT);
	gets_text(b, "three");
}

/* A message whose payload has no place stays the next one. */
static void receives(size_t n)
{
	static char mem[LARGE], got[LARGE];
	struct iovec v[2] = {{page, 8}, {NOWHERE, LARGE}};
	struct msghdr h = {.msg_iov = v, .msg_iovlen = 2};
	struct epoll_event e = {.events = EPOLLIN};
	int ep = epoll_create1(0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, b, &e) == 0);
	for (int i = 0; i < 8; i++) {
		memset(mem, 'a' + i, n);
		CHECK(send(a, mem, n, 0) == (ssize_t)n);
	}
	for (int i = 0; i < 8; i++) {
		FAILS(recv(b, NOWHERE, LARGE, 0), EFAULT);
		FAILS(recv(b, NOWHERE, LARGE, MSG_PEEK), EFAULT);
		FAILS(recvfrom(b, ACROSS(9), LARGE, 0, NULL, NULL), EFAULT);
		FAILS(read(b, low, LARGE), EFAULT);
		FAILS(read(b, no_address, LARGE), EFAULT);
		FAILS(recvmsg(b, &h, 0), EFAULT);
		FAILS(readv(b, v, 2), EFAULT);
		FAILS(readv(b, NOWHERE, 2), EFAULT);
		FAILS(recvmsg(b, NOWHERE, 0), EFAULT);
		CHECK(epoll_wait(ep, &e, 1, 0) == 1 && e.events == EPOLLIN);
		memset(mem, 'a' + i, n);
		CHECK(recv(b, got, LARGE, MSG_PEEK) == (ssize_t)n && !memcmp(got, mem, n));
		CHECK(recv(b, got, LARGE, 0) == (ssize_t)n && !memcmp(got, mem, n));
	}
	EMPTY(b);
	close(ep);
}

/* A message whose name or control messages have no place is gone. */
static void described(void)
{
	struct iovec v = {page, 8};
	struct msghdr h = {.msg_name = NOWHERE, .msg_namelen = sizeof to, .msg_iov = &v, .msg_iovlen = 1};
	socklen_t n = sizeof to;
	int on = 1;
	for (int i = 0; i < 5; i++)
		CHECK(send(a, &i, sizeof i, 0) == sizeof i);
	FAILS(recvfrom(b, page, 8, 0, NOWHERE, &n), EFAULT);
	FAILS(recvfrom(b, page, 8, 0, (struct sockaddr *)&to, NOWHERE), EFAULT);
	FAILS(recvmsg(b, &h, 0), EFAULT);
	CHECK(setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	h = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = ACROSS(20), .msg_controllen = 100};
	FAILS(recvmsg(b, &h, 0), EFAULT);
	CHECK(recv(b, &on, sizeof on, 0) == sizeof on && on == 4);
	on = 0;
	CHECK(setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	EMPTY(b);
}

/* The status of an operation stays until it has a place. */
static void statuses(void)
{
	char *local = malloc(PAGE);
	uint64_t vec[2] = {(uintptr_t)local, 8};
	struct { uint64_t cookie, raddr, rbytes, local, n, flags, token; } args = {4711, 0, 8, (uintptr_t)vec, 1, 0x21, 77};
	struct { struct cmsghdr h; char data[sizeof args]; } m = {{CMSG_LEN(sizeof args), SOL, 1}, {0}};
	struct { struct cmsghdr h; uint64_t token; int32_t status, pad; } got;
	struct msghdr h = {.msg_control = &m, .msg_controllen = sizeof m};
	memcpy(m.data, &args, sizeof args);
	CHECK(sendmsg(a, &h, 0) == 0);
	h = (struct msghdr){.msg_control = NOWHERE, .msg_controllen = sizeof got};
	FAILS(recvmsg(a, &h, 0), EFAULT); /* it waits for the status */
	h.msg_control = ACROSS(sizeof got.h);
	FAILS(recvmsg(a, &h, MSG_DONTWAIT), EFAULT);
	h.msg_control = &got;
	CHECK(recvmsg(a, &h, MSG_DONTWAIT) == 0 && h.msg_controllen == sizeof got && got.h.cmsg_type == 4 && got.token == 77);
	EMPTY(a);
	free(local);
}

static void names(void)
{
	int fd = socket(RDS, SOCK_SEQPACKET, 0);
	socklen_t n = sizeof to, *across = ACROSS(sizeof n);
	FAILS(bind(fd, NOWHERE, sizeof to), EFAULT);
	FAILS(bind(fd, ACROSS(8), sizeof to), EFAULT);
	FAILS(connect(fd, NOWHERE, sizeof to), EFAULT);
	FAILS(getsockname(fd, NOWHERE, &n), EFAULT);
	FAILS(getsockname(a, NOWHERE, &n), EFAULT);
	FAILS(getsockname(a, null, &n), EFAULT);
	LENGTH_FAILS(getsockname(a, (struct sockaddr *)&to, NOWHERE));
	LENGTH_FAILS(getsockname(a, (struct sockaddr *)&to, null));
	FAILS(getpeername(a, ACROSS(8), &n), EFAULT);
	*across = 8;
	CHECK(getpeername(a, ACROSS(8), across) == 0 && n == sizeof to);
	to = name_of(b);
	close(fd);
}

static void options(void)
{
	static const int rds[] = {1, 2, 3, 4, 5, 6, 7, 10, 29}, sizes[] = {16, 32, 16, 24, 4, 4, 160, 4, 4};
	static const int common[] = {SO_SNDBUF, SO_RCVBUF, SO_RCVTIMEO, SO_SNDTIMEO, SO_TIMESTAMP, SO_ZEROCOPY, SO_REUSEADDR, SO_KEEPALIVE};
	int v = 0;
	socklen_t n = 16;
	for (size_t i = 0; i < sizeof rds / sizeof *rds; i++) {
		FAILS(setsockopt(a, SOL, rds[i], NOWHERE, (socklen_t)sizes[i]), EFAULT);
		FAILS(setsockopt(a, SOL, rds[i], ACROSS(1), (socklen_t)sizes[i]), EFAULT);
	}
	for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
		FAILS(setsockopt(a, SOL_SOCKET, common[i], NOWHERE, 16), EFAULT);
		FAILS(getsockopt(a, SOL_SOCKET, common[i], NOWHERE, &n), EFAULT);
		LENGTH_FAILS(getsockopt(a, SOL_SOCKET, common[i], &v, NOWHERE));
	}
	FAILS(getsockopt(a, SOL, 5, NOWHERE, &n), EFAULT);
	LENGTH_FAILS(getsockopt(a, SOL, 5, &v, NOWHERE));
	FAILS(getsockopt(a, SOL, 10000, NOWHERE, (n = 60000, &n)), EFAULT);
	int *last = ACROSS(sizeof v);
	*last = 1 << 17;
	CHECK(setsockopt(a, SOL_SOCKET, SO_SNDBUF, last, 1000) == 0); /* four bytes of them are read */
	FAILS(ioctl(a, FIONBIO, NOWHERE), EFAULT);
}

static _Atomic int stop;

/* flip takes a page away and gives it back. */
static void *flip(void *at)
{
	while (!atomic_load(&stop)) {
		CHECK(munmap(at, PAGE) == 0);
		CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	}
	return NULL;
}

/* Another thread unmaps the page meanwhile: each call is whole, or has not been made. */
static void raced(size_t n)
{
	static char mem[LARGE];
	int good = 0, bad = 0;
	/* where no mmap goes by itself, so that nobody else is in the gap when flip fills it */
	char *at = mmap((void *)0x10000000, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	pthread_t t;
	atomic_store(&stop, 0);
	CHECK(at != MAP_FAILED && pthread_create(&t, NULL, flip, at) == 0);
	while (good < 300 || bad < 300) {
		struct iovec v[2] = {{mem, n}, {at + PAGE - 8, 8}};
		struct msghdr h = {.msg_iov = v, .msg_iovlen = 2};
		ssize_t got = sendmsg(a, &h, 0);
		CHECK(got == (ssize_t)n + 8 || (got == -1 && errno == EFAULT));
		if (got < 0) {
			bad++;
			continue;
		}
		while ((got = recvmsg(b, &h, 0)) < 0) {
			CHECK(errno == EFAULT);
			bad++;
		}
		CHECK(got == (ssize_t)n + 8);
		good++;
	}
	atomic_store(&stop, 1);
	pthread_join(t, NULL);
	munmap(at, PAGE);
	EMPTY(b);
}

static void never(int sig) { CHECK(!sig); }

/* A thread that blocks every signal gets EFAULT, too, and keeps them blocked. */
static void *blocked(void *arg)
{
	sigset_t all, now;
	struct sigaction act = {.sa_handler = never, .sa_flags = SA_NODEFER};
	CHECK(sigaction(SIGSEGV, &act, NULL) == 0);
	FAILS(send(a, NOWHERE, 1, 0), EFAULT);
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	FAILS(send(a, NOWHERE, 1, 0), EFAULT);
	FAILS(send(a, NOWHERE, LARGE, 0), EFAULT);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGSEGV) == 1 && sigismember(&now, SIGBUS) == 1);
	FAILS(send(a, NOWHERE, 1, 0), EFAULT);
	pthread_kill(pthread_self(), SIGSEGV); /* it stays pending */
	CHECK(send(a, "pending", 7, 0) == 7);
	gets_text(b, "pending");
	CHECK(sigpending(&now) == 0 && sigismember(&now, SIGSEGV) == 1);
	siginfo_t info;
	CHECK(sigwaitinfo(&now, &info) == SIGSEGV && info.si_pid == getpid());
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;
	address = argc > 1 ? argv[1] : address;
	page = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED && mprotect(page + PAGE, 2 * PAGE, PROT_NONE) == 0);
	a = bound(0);
	b = bound(0);
	to = name_of(b);
	sent();
	several();
	receives(100);
	receives(LARGE / 8 + 100);
	described();
	statuses();
	names();
	options();
	raced(100);
	raced(LARGE / 2);
	CHECK(pthread_create(&t, NULL, blocked, NULL) == 0 && pthread_join(t, NULL) == 0);
	return 0;
}
