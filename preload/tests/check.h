/* What the test programs share. They know the kernel's AF_RDS alone, nothing of rdsd. */
#ifndef CHECK_H
#define CHECK_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RDS = 21, SOL = 276 };

#define CHECK(cond)                                                                                                   \
	do {                                                                                                          \
		int check_errno = errno;                                                                              \
		if (!(cond)) {                                                                                        \
			fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #cond, strerror(check_errno)); \
			exit(1);                                                                                      \
		}                                                                                                     \
	} while (0)
/* FAILS checks that a call fails with an errno. */
#define FAILS(call, want) CHECK((errno = 0, (call) == -1) && errno == (want))

static const char *address = "127.0.0.1";

static inline struct sockaddr_in at(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	inet_pton(AF_INET, address, &a.sin_addr);
	return a;
}

static inline struct sockaddr_in name_of(int fd)
{
	struct sockaddr_in a;
	socklen_t n = sizeof a;
	CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0 && n == sizeof a);
	return a;
}

/* bound returns a socket at a free port. */
static inline int bound(int flags)
{
	int fd = socket(RDS, SOCK_SEQPACKET | flags, 0);
	struct sockaddr_in a = at(0);
	CHECK(fd >= 0);
	CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
	return fd;
}

/* sends sends text from one socket to another. */
static inline void sends(int from, int to, const char *text)
{
	struct sockaddr_in a = name_of(to);
	CHECK(sendto(from, text, strlen(text), 0, (struct sockaddr *)&a, sizeof a) == (ssize_t)strlen(text));
}

/* hand sends a descriptor through a UNIX socket, and take receives one. */
static inline void hand(int through, int fd)
{
	union { struct cmsghdr c; char b[CMSG_SPACE(sizeof fd)]; } u = {.c = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec v = {"x", 1};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof u};
	memcpy(CMSG_DATA(&u.c), &fd, sizeof fd);
	CHECK(sendmsg(through, &h, 0) == 1);
}

static inline int take(int through)
{
	int fd;
	union { struct cmsghdr c; char b[CMSG_SPACE(sizeof fd)]; } u;
	char x;
	struct iovec v = {&x, 1};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof u};
	CHECK(recvmsg(through, &h, 0) == 1 && h.msg_controllen >= CMSG_LEN(sizeof fd));
	memcpy(&fd, CMSG_DATA(&u.c), sizeof fd);
	return fd;
}

/* gets_text receives text. */
#define gets_text(fd, text)                                                        \
	do {                                                                       \
		char got_text[100] = "";                                           \
		ssize_t got_size = recv(fd, got_text, sizeof got_text - 1, 0);     \
		CHECK(got_size == (ssize_t)strlen(text) && !strcmp(got_text, text)); \
	} while (0)

#endif
