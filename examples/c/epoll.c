/* RDS in an event loop: an echo server that waits in epoll for its socket.
 *
 *	epoll -bind 10.0.0.1:4000
 *	echo -bind 10.0.0.2:0 -to 10.0.0.1:4000 hello
 */
#include <sys/epoll.h>

#include "example.h"

static char buf[RDS_MAX_MESSAGE];

int main(int argc, char **argv)
{
	struct example e = example_open(argc, argv);
	int loop = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = {.events = EPOLLIN};
	must(epoll_ctl(loop, EPOLL_CTL_ADD, (int)must(rds_pollfd(e.socket), "rds_pollfd"), &ev) ? -errno : 0, "epoll_ctl");
	for (;;) {
		struct rds_addr from;
		long n;
		if (epoll_wait(loop, &ev, 1, -1) < 0 && errno != EINTR)
			must(-errno, "epoll_wait");
		/* Until nothing is left, which makes the descriptor unreadable. */
		while ((n = rds_recv(e.socket, buf, sizeof buf, &from, RDS_DONTWAIT)) != -EAGAIN)
			must(rds_send(e.socket, buf, (size_t)must(n, "rds_recv"), &from, 0), "rds_send");
	}
}
