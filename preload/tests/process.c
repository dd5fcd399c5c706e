/* Processes and descriptors: copies, fork, vfork, exec, descriptors that are not the program's. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"

static void copies(void)
{
	int a = bound(0), b = bound(0), c = dup(b), d = fcntl(b, F_DUPFD_CLOEXEC, 50), n = open("/dev/null", O_RDWR);
	CHECK(c > 0 && d >= 50 && close(b) == 0);
	sends(a, c, "copy");
	gets_text(d, "copy");
	CHECK(dup2(c, n) == n && close(c) == 0);
	sends(a, n, "over");
	gets_text(n, "over");
	CHECK(dup3(n, n + 1, O_CLOEXEC) == n + 1 && dup2(0, d) == d && close(n) == 0);
	sends(a, n + 1, "three");
	gets_text(n + 1, "three");
	struct sockaddr_in name = name_of(n + 1);
	close(n + 1);
	b = socket(RDS, SOCK_SEQPACKET, 0); /* the port is free again */
	CHECK(bind(b, (struct sockaddr *)&name, sizeof name) == 0);
	close(b);
	close(d);
	close(a);
}

/* A program closes every descriptor that it can think of, and keeps one. */
static void strangers(void)
{
	int a = bound(0), b = bound(0);
	struct rlimit lim;
	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	for (int fd = 3; fd < (int)(lim.rlim_cur < 65536 ? lim.rlim_cur : 65536); fd++)
		if (fd != a && fd != b)
			close(fd);
	sends(a, b, "still");
	gets_text(b, "still");
	close_range((unsigned)(a > b ? a : b) + 1, ~0u, 0);
	sends(a, b, "here");
	gets_text(b, "here");
	closefrom(3);
	FAILS(recv(b, &lim, 1, MSG_DONTWAIT), EBADF);
	CHECK(bound(0) == 3 && close(3) == 0);
}

/* Without descriptors a socket fails cleanly, and later there are some again. */
static void exhausted(void)
{
	struct rlimit old, few;
	int fds[200], n = 0, a = bound(0);
	CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
	few = (struct rlimit){100, old.rlim_max};
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	while (n < 200 && (fds[n] = socket(RDS, SOCK_SEQPACKET, 0)) >= 0)
		n++;
	CHECK(n > 10 && n < 100 && errno == EMFILE);
	CHECK(close(fds[--n]) == 0 && (fds[n] = socket(RDS, SOCK_SEQPACKET, 0)) >= 0);
	while (n >= 0)
		close(fds[n--]);
	CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
	sends(a, a, "self");
	gets_text(a, "self");
	close(a);
}

static void ended_well(pid_t pid)
{
	int status;
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static void forks(void)
{
	int a = bound(0), b = bound(0);
	struct sockaddr_in any = at(0);
	for (int i = 0; i < 3; i++) {
		int unbound = socket(RDS, SOCK_SEQPACKET, 0);
		pid_t pid = fork();
		if (pid == 0) {
			int own = bound(0);
			struct sockaddr_in to = any;
			/* What the parent has bound stays the parent's: docs/kernel.md. */
			FAILS(send(a, "x", 1, 0), ESTALE);
			FAILS(recv(b, &to, 1, 0), ESTALE);
			CHECK(bind(unbound, (struct sockaddr *)&any, sizeof any) == 0);
			sends(own, unbound, "child");
			gets_text(unbound, "child");
			CHECK(close(a) == 0 && close(b) == 0 && close(own) == 0);
			pid_t grandchild = fork();
			if (grandchild == 0)
				_exit(bound(0) < 0);
			ended_well(grandchild);
			_exit(0);
		}
		ended_well(pid);
		FAILS(bind(unbound, (struct sockaddr *)&any, sizeof any), EINVAL); /* the child has */
		CHECK(close(unbound) == 0);
		sends(a, b, "parent");
		gets_text(b, "parent");
	}
	pid_t pid = vfork();
	if (pid == 0) { /* it shares the parent's memory, not its descriptors */
		close(a);
		dup2(0, b);
		execl("/proc/self/exe", "process", address, "exec", (char *)NULL);
		_exit(1);
	}
	ended_well(pid);
	sends(a, b, "after");
	gets_text(b, "after");
	close(a);
	close(b);
}

/* The program of an exec uses a socket that nobody has bound. */
static void execs(void)
{
	char number[12];
	int unbound = socket(RDS, SOCK_SEQPACKET, 0);
	struct sockaddr_in any = at(0);
	snprintf(number, sizeof number, "%d", unbound);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "process", address, number, (char *)NULL);
		_exit(1);
	}
	ended_well(pid);
	FAILS(bind(unbound, (struct sockaddr *)&any, sizeof any), EINVAL); /* it is that program's */
	close(unbound);
}

/* A process makes sockets and gives them away: one that nobody has bound, the same once more, and one
 * that it has bound itself. */
static void travels(void)
{
	int p[2], a = bound(0), one = 1;
	struct sockaddr_in any = at(0);
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		int unbound = socket(RDS, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
		hand(p[1], unbound);
		hand(p[1], unbound);
		hand(p[1], bound(0));
		_exit(0);
	}
	ended_well(pid);
	int first = take(p[0]), second = take(p[0]), third = take(p[0]);
	struct pollfd when = {.fd = first, .events = POLLIN};
	int epoll = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = first}, got;
	CHECK(setsockopt(first, SOL_SOCKET, SO_SNDBUF, &one, sizeof one) == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, first, &ev) == 0);
	CHECK(bind(first, (struct sockaddr *)&any, sizeof any) == 0 && poll(&when, 1, 0) == 0);
	FAILS(recv(first, &one, 1, 0), EAGAIN); /* as its maker wanted it */
	sends(a, first, "travelled");
	CHECK(poll(&when, 1, -1) == 1 && epoll_wait(epoll, &got, 1, -1) == 1 && got.data.fd == first);
	gets_text(first, "travelled");
	FAILS(bind(second, (struct sockaddr *)&any, sizeof any), EINVAL); /* it is the first */
	FAILS(bind(third, (struct sockaddr *)&any, sizeof any), EINVAL);
	FAILS(send(third, "x", 1, 0), ESTALE);
	CHECK(close(first) == 0 && close(second) == 0 && close(third) == 0 && close(epoll) == 0);
	close(p[0]);
	close(p[1]);
	close(a);
}

static void *binds(void *fd)
{
	struct sockaddr_in any = at(0);
	return bind(*(int *)fd, (struct sockaddr *)&any, sizeof any) ? NULL : fd;
}

/* inherited uses the descriptor that it had before the exec, or one of its own. Of threads that meet
 * it at the same time one binds it. */
static int inherited(int fd)
{
	int own = bound(0), n = 0;
	pthread_t t[4];
	void *did;
	for (int i = 0; fd && i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, binds, &fd) == 0);
	for (int i = 0; fd && i < 4; i++)
		n += pthread_join(t[i], &did) == 0 && did != NULL;
	CHECK(fd == 0 || n == 1);
	sends(own, fd ? fd : own, "exec");
	gets_text(fd ? fd : own, "exec");
	return 0;
}

static int pair[2];

static void *echo(void *arg)
{
	for (int i = 0; i < 20000; i++) {
		char b[100];
		struct sockaddr_in from;
		socklen_t n = sizeof from;
		ssize_t got = recvfrom(pair[1], b, sizeof b, 0, (struct sockaddr *)&from, &n);
		CHECK(got > 0 && sendto(pair[1], b, (size_t)got, 0, (struct sockaddr *)&from, n) == got);
	}
	return arg;
}

/* Threads open and close sockets while others send. */
static void *churn(void *arg)
{
	for (int i = 0; i < 300; i++) {
		int fd = bound(0), copy = dup(fd);
		sends(fd, copy, "churn");
		close(fd);
		gets_text(copy, "churn");
		close(copy);
	}
	return arg;
}

static void threads(void)
{
	pthread_t t[3];
	pair[0] = bound(0);
	pair[1] = bound(0);
	CHECK(pthread_create(&t[0], NULL, echo, NULL) == 0);
	CHECK(pthread_create(&t[1], NULL, churn, NULL) == 0 && pthread_create(&t[2], NULL, churn, NULL) == 0);
	for (int i = 0; i < 20000; i++) {
		char b[100];
		int len = snprintf(b, sizeof b, "ping %d", i);
		sends(pair[0], pair[1], b);
		(void)len;
		gets_text(pair[0], b);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	close(pair[0]);
	close(pair[1]);
}

int main(int argc, char **argv)
{
	address = argc > 1 ? argv[1] : address;
	if (argc > 2)
		return inherited(atoi(argv[2])); /* after exec */
	copies();
	exhausted();
	forks();
	execs();
	travels(); /* forks no more: poll of mixed descriptors has started a thread */
	threads();
	strangers();
	return 0;
}
