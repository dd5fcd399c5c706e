/* A socket belongs to the daemon of the network namespace in which it was made: of the program's, of one that a
 * thread has entered, and in the process that receives it by SCM_RIGHTS. RDSD_SOCKET is DIR/%n. Arguments: the
 * address and the control socket of this namespace's daemon, those of the other one's, DIR. Ends with 4 where
 * namespaces cannot be made. */
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

enum { SKIPPED = 4 };

/* names_daemon makes the path of the thread's namespace lead to a daemon. */
static void names_daemon(const char *dir, const char *socket)
{
	struct stat st;
	char path[256];
	CHECK(stat("/proc/thread-self/ns/net", &st) == 0);
	CHECK(snprintf(path, sizeof path, "%s/%llu", dir, (unsigned long long)st.st_ino) < (int)sizeof path);
	CHECK(symlink(socket, path) == 0);
}

static bool enters_another(void)
{
	return unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}

static int named(int fd, const char *host)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	CHECK(inet_pton(AF_INET, host, &a.sin_addr) == 1);
	return bind(fd, (struct sockaddr *)&a, sizeof a);
}

/* exchanges sends a message each way. */
static void exchanges(int a, int b)
{
	char got[8];
	sends(a, b, "there");
	CHECK(recv(b, got, sizeof got, 0) == 5 && !memcmp(got, "there", 5));
	sends(b, a, "back");
	CHECK(recv(a, got, sizeof got, 0) == 4 && !memcmp(got, "back", 4));
}

/* received returns a socket that a child has made in a namespace of its own, and that came by SCM_RIGHTS. */
static int received(const char *dir, const char *socket_there)
{
	int way[2], fd, status;
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof fd)]; } c = {.h = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}};
	char byte = 0;
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, way) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		if (!enters_another())
			_exit(SKIPPED);
		FAILS(socket(RDS, SOCK_SEQPACKET, 0), EAFNOSUPPORT); /* no daemon has this name yet */
		names_daemon(dir, socket_there);
		fd = socket(RDS, SOCK_SEQPACKET, 0);
		CHECK(fd >= 0);
		memcpy(CMSG_DATA(&c.h), &fd, sizeof fd);
		CHECK(sendmsg(way[0], &m, 0) == 1);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		exit(SKIPPED);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(recvmsg(way[1], &m, 0) == 1 && m.msg_controllen >= CMSG_LEN(sizeof fd));
	memcpy(&fd, CMSG_DATA(&c.h), sizeof fd);
	close(way[0]);
	close(way[1]);
	return fd;
}

/* tables are those of the socket's daemon: the socket stands in its own daemon's alone. */
static bool lists(int fd, int other)
{
	struct __attribute__((packed)) { uint32_t sndbuf, addr, to; uint16_t port, to_port; uint32_t rcvbuf; uint64_t inode; } rows[64];
	struct sockaddr_in a = name_of(other);
	socklen_t n = sizeof rows;
	CHECK(getsockopt(fd, SOL, 10006, rows, &n) == 28);
	for (size_t i = 0; i < n / sizeof *rows; i++)
		if (rows[i].addr == a.sin_addr.s_addr && rows[i].port == a.sin_port)
			return true;
	return false;
}

struct place { const char *dir, *socket, *host; int fd; };

/* in_a_thread makes a socket in a namespace that only this thread has entered. */
static void *in_a_thread(void *arg)
{
	struct place *p = arg;
	p->fd = -1;
	if (unshare(CLONE_NEWNET)) /* a thread cannot enter a user namespace */
		return NULL;
	names_daemon(p->dir, p->socket);
	p->fd = socket(RDS, SOCK_SEQPACKET, 0);
	CHECK(p->fd >= 0 && named(p->fd, p->host) == 0);
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc == 6);
	const char *here = argv[1], *socket_here = argv[2], *there = argv[3], *socket_there = argv[4], *dir = argv[5];
	names_daemon(dir, socket_here);
	int far = received(dir, socket_there), near = socket(RDS, SOCK_SEQPACKET, 0);
	FAILS(named(far, here), EADDRNOTAVAIL);
	FAILS(named(near, there), EADDRNOTAVAIL);
	CHECK(named(far, there) == 0 && named(near, here) == 0);
	exchanges(near, far);
	CHECK(lists(near, near) && lists(far, far) && !lists(near, far) && !lists(far, near));
	struct place p = {dir, socket_there, there, -1};
	pthread_t t;
	CHECK(pthread_create(&t, NULL, in_a_thread, &p) == 0 && pthread_join(t, NULL) == 0);
	if (p.fd >= 0)
		exchanges(near, p.fd);
	close(near);
	close(far);
	return 0;
}
