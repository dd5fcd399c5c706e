/* Readiness: poll, ppoll, select, epoll, with RDS sockets alone and among others. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#include "check.h"

/* fill sends until the destination or the send buffer is full. */
static int fill(int from, int to)
{
	static char mem[1000];
	struct sockaddr_in a = name_of(to);
	int n = 0;
	while (sendto(from, mem, sizeof mem, MSG_DONTWAIT, (struct sockaddr *)&a, sizeof a) > 0)
		n++;
	CHECK(errno == EAGAIN || errno == ENOBUFS);
	return n;
}

static void polls(void)
{
	int a = bound(0), b = bound(0), p[2];
	CHECK(pipe(p) == 0);
	struct pollfd f[3] = {{b, POLLIN | POLLOUT, 0}, {p[0], POLLIN, 0}, {-1, POLLIN, 0}};
	CHECK(poll(f, 1, 0) == 1 && f[0].revents == POLLOUT);
	f[0].events = POLLIN;
	CHECK(poll(f, 1, 20) == 0 && poll(f, 3, 20) == 0);
	sends(a, b, "x");
	CHECK(poll(f, 1, 10000) == 1 && f[0].revents == POLLIN);
	CHECK(poll(f, 3, -1) == 1 && f[0].revents == POLLIN && !f[1].revents);
	CHECK(write(p[1], "y", 1) == 1 && poll(f, 3, -1) == 2);
	gets_text(b, "x");
	CHECK(poll(f, 3, -1) == 1 && !f[0].revents && f[1].revents == POLLIN);
	CHECK(read(p[0], &(char){0}, 1) == 1 && poll(f, 3, 0) == 0);
	f[1].fd = 9999;
	CHECK(poll(f, 2, -1) == 1 && f[1].revents == POLLNVAL);
	sigset_t none;
	sigemptyset(&none);
	f[1].fd = p[0];
	CHECK(ppoll(f, 2, &(struct timespec){0, 20000000}, &none) == 0);
	sends(a, b, "x");
	CHECK(ppoll(f, 1, NULL, &none) == 1);
	gets_text(b, "x");
	FAILS(ppoll(f, 1, &(struct timespec){0, -1}, NULL), EINVAL);
	close(a);
	close(b);
	close(p[0]);
	close(p[1]);
}

static void selects(void)
{
	int a = bound(0), b = bound(0), p[2];
	fd_set r, w;
	struct timeval tv = {0, 20000};
	CHECK(pipe(p) == 0);
	FD_ZERO(&r);
	FD_SET(b, &r);
	FD_SET(p[0], &r);
	CHECK(select(p[1] + 1, &r, NULL, NULL, &tv) == 0 && !FD_ISSET(b, &r) && tv.tv_sec == 0 && tv.tv_usec == 0);
	sends(a, b, "x");
	CHECK(poll(&(struct pollfd){b, POLLIN, 0}, 1, 10000) == 1); /* it has arrived */
	FD_SET(b, &r);
	FD_ZERO(&w);
	FD_SET(b, &w);
	CHECK(select(b + 1, &r, &w, NULL, NULL) == 2 && FD_ISSET(b, &r) && FD_ISSET(b, &w));
	FD_SET(p[0], &r);
	CHECK(pselect(p[1] + 1, &r, NULL, NULL, NULL, NULL) == 1 && FD_ISSET(b, &r) && !FD_ISSET(p[0], &r));
	close(p[0]);
	FD_SET(p[0], &r);
	FAILS(select(p[1] + 1, &r, NULL, NULL, NULL), EBADF);
	close(a);
	close(b);
	close(p[1]);
}

static void epolls(void)
{
	int a = bound(0), b = bound(SOCK_NONBLOCK), e = epoll_create1(0), copy;
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = b}, got[4];
	CHECK(epoll_ctl(e, EPOLL_CTL_ADD, b, &ev) == 0 && epoll_wait(e, got, 4, 20) == 0);
	for (int i = 0; i < 50; i++) {
		sends(a, b, "x");
		CHECK(epoll_wait(e, got, 4, 10000) == 1 && got[0].events == EPOLLIN && got[0].data.fd == b);
		CHECK(epoll_wait(e, got, 4, 0) == 1);
		gets_text(b, "x");
		CHECK(epoll_wait(e, got, 4, 0) == 0);
	}
	ev.events = EPOLLIN | EPOLLET;
	CHECK(epoll_ctl(e, EPOLL_CTL_MOD, b, &ev) == 0);
	sends(a, b, "x");
	CHECK(epoll_wait(e, got, 4, 10000) == 1 && epoll_wait(e, got, 4, 20) == 0);
	gets_text(b, "x");
	FAILS(recv(b, got, 1, 0), EAGAIN);
	sends(a, b, "y");
	CHECK(epoll_wait(e, got, 4, 10000) == 1);
	gets_text(b, "y");
	/* A copy keeps it in the set. */
	CHECK((copy = dup(b)) >= 0 && close(b) == 0);
	sends(a, copy, "z");
	CHECK(epoll_wait(e, got, 4, 10000) == 1);
	gets_text(copy, "z");
	CHECK(close(copy) == 0 && epoll_wait(e, got, 4, 0) == 0);
	close(a);
	close(e);
}

/* Congestion: a receiver that does not read stops the sender, and reading lets it go on. */
static void full(void)
{
	int a = bound(SOCK_NONBLOCK), b = bound(SOCK_NONBLOCK), e = epoll_create1(0), small = 20000, n, total = 0;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT}, got;
	char mem[1000];
	CHECK(setsockopt(b, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
	CHECK(epoll_ctl(e, EPOLL_CTL_ADD, a, &ev) == 0);
	struct pollfd f = {a, POLLIN | POLLOUT, 0};
	do {
		n = fill(a, b);
		total += n;
	} while (errno != ENOBUFS && poll(&f, 1, 10000) == 1 && f.revents & POLLOUT);
	CHECK(errno == ENOBUFS);
	/* Without the monitor the end of congestion is told once, by POLLIN. */
	f.events = POLLIN;
	CHECK(poll(&f, 1, 20) == 0);
	for (int i = 0; i < total; i++) {
		struct pollfd in = {b, POLLIN, 0};
		CHECK(poll(&in, 1, 10000) == 1 && recv(b, mem, sizeof mem, 0) == sizeof mem);
	}
	CHECK(epoll_wait(e, &got, 1, 10000) == 1 && got.events & EPOLLOUT);
	CHECK(poll(&f, 1, 10000) == 1 && f.revents & POLLIN);
	CHECK(poll(&f, 1, 20) == 0);
	/* With it, by a control message. */
	int on = 1;
	CHECK(setsockopt(a, SOL, 6, &on, sizeof on) == 0);
	for (total = 0; total == 0 || errno != ENOBUFS;)
		total += fill(a, b);
	for (int i = 0; i < total; i++) {
		struct pollfd in = {b, POLLIN, 0};
		CHECK(poll(&in, 1, 10000) == 1 && recv(b, mem, sizeof mem, 0) == sizeof mem);
	}
	CHECK(poll(&f, 1, 10000) == 1);
	char room[64];
	struct iovec v = {mem, sizeof mem};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room, .msg_name = mem, .msg_namelen = 16};
	CHECK(recvmsg(a, &h, 0) == 0 && h.msg_namelen == 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);
	uint64_t mask;
	CHECK(c && c->cmsg_level == SOL && c->cmsg_type == 5);
	memcpy(&mask, CMSG_DATA(c), 8);
	CHECK(mask == UINT64_C(1) << ntohs(name_of(b).sin_port) % 64);
	close(a);
	close(b);
	close(e);
}

/* spent is the time in ns that this thread has run. */
static int64_t spent(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* A poll for nothing but the end of congestion does not end for what else there is, and waits. */
static void band(void)
{
	int a = bound(0), b = bound(0);
	struct pollfd f = {b, POLLIN, 0};
	sends(a, b, "x");
	CHECK(poll(&f, 1, 10000) == 1);
	f.events = POLLWRBAND;
	int64_t before = spent();
	CHECK(poll(&f, 1, 200) == 0);
	CHECK(spent() - before < 100000000);
	close(a);
	close(b);
}

enum { CONGESTED = 80, HUGE_WRITE = 256 << 20 };

/* behind begins a barrier that is not reached, behind a write from a to b, and returns its id. */
static uint64_t behind(int a, int b, uint64_t cookie, char *mem, uint64_t id)
{
	struct sockaddr_in name = name_of(b);
	uint64_t vec[2] = {(uintptr_t)mem, HUGE_WRITE};
	struct { uint64_t cookie, raddr, rbytes, local, n, flags, token; } args = {cookie, 0, HUGE_WRITE, (uintptr_t)vec, 1, 1, 0};
	struct { struct cmsghdr h; char data[sizeof args]; } m = {{CMSG_LEN(sizeof args), SOL, 1}, {0}};
	struct msghdr h = {.msg_name = &name, .msg_namelen = sizeof name, .msg_control = &m, .msg_controllen = sizeof m};
	struct { uint32_t dest, flags; uint64_t mark, id; } wait = {name.sin_addr.s_addr, MSG_DONTWAIT, 0, id};
	memcpy(m.data, &args, sizeof args);
	for (;; wait.id++) {
		CHECK(sendmsg(a, &h, 0) == 0);
		if (setsockopt(a, SOL, 4, &wait, sizeof wait) == -1)
			break;
	}
	CHECK(errno == EAGAIN);
	return wait.id;
}

/* A barrier is reported, beside more destinations that stay congested than poll has room for on its
 * stack, in poll and in epoll, and until it is asked for again. */
static void barriers(void)
{
	int a = bound(SOCK_NONBLOCK), b = bound(0), e = epoll_create1(0), small = 1, to[CONGESTED];
	char *from = malloc(HUGE_WRITE), *into = malloc(HUGE_WRITE);
	uint64_t cookie, id = 1;
	CHECK(from && into);
	for (int i = 0; i < CONGESTED; i++) {
		to[i] = bound(0);
		CHECK(setsockopt(to[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
		while (fill(a, to[i]), errno != ENOBUFS)
			CHECK(poll(&(struct pollfd){a, POLLOUT, 0}, 1, 10000) == 1);
	}
	struct pollfd f = {a, POLLIN, 0};
	CHECK(poll(&f, 1, 0) == 0);
	struct { uint64_t addr, bytes, cookie_addr, flags; } mr = {(uintptr_t)into, HUGE_WRITE, (uintptr_t)&cookie, 1};
	CHECK(setsockopt(b, SOL, 2, &mr, sizeof mr) == 0);
	for (int i = 0; i < 2; i++, id++) {
		struct epoll_event ev = {.events = EPOLLIN};
		id = behind(a, b, cookie, from, id);
		int64_t before = spent();
		CHECK(poll(&f, 1, 30000) == 1 && f.revents == POLLIN);
		CHECK(spent() - before < 1000000000);
		CHECK(poll(&f, 1, 0) == 1);
		struct { uint32_t dest, flags; uint64_t mark, id; } wait = {name_of(b).sin_addr.s_addr, MSG_DONTWAIT, 0, id};
		if (i == 0)
			CHECK(epoll_ctl(e, EPOLL_CTL_ADD, a, &ev) == 0);
		CHECK(epoll_wait(e, &ev, 1, 30000) == 1 && ev.events == EPOLLIN);
		CHECK(setsockopt(a, SOL, 4, &wait, sizeof wait) == 0);
		CHECK(poll(&f, 1, 0) == 0 && epoll_wait(e, &ev, 1, 0) == 0);
	}
	for (int i = 0; i < CONGESTED; i++)
		close(to[i]);
	close(a);
	close(b);
	close(e);
	free(from);
	free(into);
}

static volatile sig_atomic_t signals;
static void count(int sig) { (void)sig, signals++; }

static void *interrupt(void *arg)
{
	struct { pthread_t thread; int from, to; } *x = arg;
	for (int i = 0; i < 20; i++) {
		usleep(1000);
		pthread_kill(x->thread, SIGUSR1);
	}
	if (x->from >= 0)
		sends(x->from, x->to, "late");
	return NULL;
}

/* With SA_RESTART a receive goes on; without it, and always in poll, it fails with EINTR. */
static void interrupted(void)
{
	int a = bound(0), b = bound(0);
	struct sigaction s = {.sa_handler = count, .sa_flags = SA_RESTART};
	struct { pthread_t thread; int from, to; } x = {pthread_self(), a, b};
	pthread_t t;
	sigaction(SIGUSR1, &s, NULL);
	CHECK(pthread_create(&t, NULL, interrupt, &x) == 0);
	gets_text(b, "late");
	pthread_join(t, NULL);
	CHECK(signals > 0);
	struct pollfd f = {b, POLLIN, 0};
	x.from = -1;
	CHECK(pthread_create(&t, NULL, interrupt, &x) == 0);
	FAILS(poll(&f, 1, -1), EINTR);
	pthread_join(t, NULL);
	s.sa_flags = 0;
	sigaction(SIGUSR1, &s, NULL);
	CHECK(pthread_create(&t, NULL, interrupt, &x) == 0);
	FAILS(recv(b, &s, 1, 0), EINTR);
	pthread_join(t, NULL);
	close(a);
	close(b);
}

int main(int argc, char **argv)
{
	address = argc > 1 ? argv[1] : address;
	polls();
	selects();
	epolls();
	full();
	band();
	barriers();
	interrupted();
	return 0;
}
