/* A program that asks for errors gets one for a message that found no socket, in each call that reports
 * errors of a socket, and once. */
#include <poll.h>
#include <sys/epoll.h>

#include "check.h"

/* nowhere sends to a port that has no socket any more. */
static void nowhere(int fd)
{
	int gone = bound(0);
	struct sockaddr_in to = name_of(gone);
	CHECK(close(gone) == 0);
	CHECK(sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == 1);
}

static int pending(int fd)
{
	int err = -1;
	socklen_t n = sizeof err;
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) == 0 && n == sizeof err);
	return err;
}

int main(int argc, char **argv)
{
	char b[8];
	address = argc > 1 ? argv[1] : address;
	int fd = bound(0), other = bound(0), e = epoll_create1(0);
	struct pollfd f = {fd, 0, 0};
	CHECK(pending(fd) == 0 && poll(&f, 1, 0) == 0);
	nowhere(fd);
	CHECK(poll(&f, 1, 10000) == 1 && f.revents == POLLERR);
	CHECK(pending(fd) == ECONNREFUSED && pending(fd) == 0 && poll(&f, 1, 0) == 0);
	nowhere(fd); /* beside another descriptor */
	struct pollfd both[2] = {{fd, 0, 0}, {e, POLLIN, 0}};
	CHECK(poll(both, 2, 10000) == 1 && both[0].revents == POLLERR && pending(fd) == ECONNREFUSED);
	nowhere(fd);
	FAILS(recv(fd, b, sizeof b, 0), ECONNREFUSED); /* it waits for the error */
	FAILS(recv(fd, b, sizeof b, MSG_DONTWAIT), EAGAIN);
	nowhere(fd);
	f.events = POLLIN;
	CHECK(poll(&f, 1, 10000) == 1 && f.revents == POLLERR);
	struct sockaddr_in to = name_of(other);
	FAILS(sendto(fd, "y", 1, 0, (struct sockaddr *)&to, sizeof to), ECONNREFUSED);
	sends(fd, other, "z");
	gets_text(other, "z");
	struct epoll_event ev = {.events = EPOLLIN};
	CHECK(epoll_ctl(e, EPOLL_CTL_ADD, fd, &ev) == 0 && epoll_wait(e, &ev, 1, 0) == 0);
	nowhere(fd);
	CHECK(epoll_wait(e, &ev, 1, 10000) == 1);
	CHECK(pending(fd) == ECONNREFUSED && epoll_wait(e, &ev, 1, 0) == 0);
	return 0;
}
