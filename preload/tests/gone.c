/* The daemon ends and another one begins. Commands come on standard input, a line each. */
#include <poll.h>
#include <sys/epoll.h>

#include "check.h"

static void line(void)
{
	char c;
	puts("ready");
	fflush(stdout);
	do
		CHECK(read(0, &c, 1) == 1);
	while (c != '\n');
}

int main(int argc, char **argv)
{
	address = argc > 1 ? argv[1] : address;
	if (argc > 2) { /* there is no daemon */
		FAILS(socket(RDS, SOCK_SEQPACKET, 0), EAFNOSUPPORT);
		FAILS(socket(RDS, SOCK_SEQPACKET, 0), EAFNOSUPPORT);
		return 0;
	}
	int a = bound(0), b = bound(0), e = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN}, got;
	CHECK(epoll_ctl(e, EPOLL_CTL_ADD, b, &ev) == 0);
	sends(a, b, "delivered");
	CHECK(epoll_wait(e, &got, 1, 10000) == 1);
	line(); /* the daemon is ended */
	struct sockaddr_in to = name_of(b);
	CHECK(epoll_wait(e, &got, 1, 10000) == 1);
	gets_text(b, "delivered"); /* what had arrived is there */
	CHECK(recv(b, &ev, 1, 0) == -1 && (errno == ECONNRESET || errno == ECONNABORTED));
	CHECK(sendto(a, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == -1 && (errno == ECONNRESET || errno == ECONNABORTED));
	struct pollfd f = {b, POLLIN, 0};
	CHECK(poll(&f, 1, 10000) == 1 && f.revents & POLLERR);
	for (int i = 0; i < 2; i++) { /* nothing that is asked for can come */
		struct pollfd both[2] = {{b, i ? POLLWRBAND : 0, 0}, {e, 0, 0}};
		CHECK(poll(both, 1, 10000) == 1 && both[0].revents == POLLERR);
		CHECK(poll(both, 2, 10000) == 1 && both[0].revents == POLLERR);
	}
	CHECK(epoll_wait(e, &got, 1, 10000) == 1);
	FAILS(socket(RDS, SOCK_SEQPACKET, 0), EAFNOSUPPORT);
	line(); /* another daemon runs */
	close(a);
	close(b);
	a = bound(0);
	b = bound(0);
	sends(a, b, "again");
	gets_text(b, "again");
	return 0;
}
