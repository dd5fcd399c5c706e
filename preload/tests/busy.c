/* A busy socket: bursts of messages to itself, received as poll says. It prints how many. */
#include <poll.h>

#include "check.h"

int main(int argc, char **argv)
{
	address = argc > 1 ? argv[1] : address;
	int a = bound(SOCK_NONBLOCK), b = bound(SOCK_NONBLOCK), sent = 0;
	struct sockaddr_in to = name_of(b);
	char mem[64] = "busy";
	for (int round = 0; round < 2000; round++) {
		int got = 0;
		for (int i = 0; i < 16; i++, sent++)
			CHECK(sendto(a, mem, sizeof mem, 0, (struct sockaddr *)&to, sizeof to) == sizeof mem);
		while (got < 16) {
			struct pollfd f = {b, POLLIN, 0};
			CHECK(poll(&f, 1, 10000) == 1);
			while (recv(b, mem, sizeof mem, 0) > 0)
				got++;
		}
	}
	printf("%d\n", sent);
	return 0;
}
