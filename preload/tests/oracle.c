/* What programs made for Oracle's UEK ask for beyond Linux: each gets the errno of a Linux that has it not.
 * docs/kernel.md, Oracle's extensions, has the table. */
#include <sys/ioctl.h>

#include "check.h"

enum { OKA = 142, NETFILTER = 0x89e2, NOTIFY_ME = 0x20, MANY = 64 };

/* Options. Number 8 is RDS_CONN_RESET there and SO_RDS_TRANSPORT here. */
static void options(void)
{
	struct { uint8_t tos; uint32_t src, dst; } reset = {0}; /* rds_reset */
	struct { uint8_t tos, src[16], dst[16]; } reset6 = {0};
	char table[4096];
	int fd = socket(RDS, SOCK_SEQPACKET, 0), v = 1;
	socklen_t n;
	CHECK(fd >= 0);
	FAILS(socket(RDS, SOCK_SEQPACKET, OKA), ESOCKTNOSUPPORT);
	FAILS(setsockopt(fd, SOL, 8, &reset, sizeof reset), EINVAL);
	int at_last = bound(0);
	FAILS(setsockopt(at_last, SOL, 8, &reset, sizeof reset), EOPNOTSUPP);
	FAILS(setsockopt(fd, SOL, 9, &v, sizeof v), ENOPROTOOPT);
	FAILS(setsockopt(fd, SOL, 11, &reset6, sizeof reset6), ENOPROTOOPT);
	FAILS(setsockopt(fd, SOL, 12, &v, sizeof v), ENOPROTOOPT);
	for (int opt = 9; opt <= 12; opt++) {
		n = sizeof v;
		FAILS(getsockopt(fd, SOL, opt, &v, &n), ENOPROTOOPT);
	}
	for (int opt = 10018; opt <= 10021; opt++) {
		n = sizeof table;
		FAILS(getsockopt(fd, SOL, opt, table, &n), ENOPROTOOPT);
	}
	FAILS(ioctl(fd, NETFILTER, table), ENOTTY);
	close(at_last);
	close(fd);
}

/* A transport is a label: IB can be chosen, once, and the socket binds. */
static void transport(void)
{
	int fd = socket(RDS, SOCK_SEQPACKET, 0), v = 0;
	struct sockaddr_in a = at(0);
	socklen_t n = sizeof v;
	CHECK(getsockopt(fd, SOL, 8, &v, &n) == 0 && v == -1);
	FAILS(setsockopt(fd, SOL, 8, (v = 3, &v), sizeof v), EINVAL);
	FAILS(setsockopt(fd, SOL, 8, (v = 1, &v), sizeof v), ENOPROTOOPT);
	CHECK(setsockopt(fd, SOL, 8, (v = 0, &v), sizeof v) == 0);
	FAILS(setsockopt(fd, SOL, 8, &v, sizeof v), EOPNOTSUPP);
	CHECK(getsockopt(fd, SOL, 8, (v = 9, &v), &n) == 0 && v == 0);
	CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
	close(fd);
}

/* RDS_CMSG_ASYNC_SEND is refused, and nothing is sent. */
static void async_send(void)
{
	int a = bound(0), b = bound(0);
	struct sockaddr_in to = name_of(b);
	struct { struct cmsghdr h; uint64_t token, flags; } m = {{CMSG_LEN(16), SOL, 10}, 1, 0x100};
	struct iovec v = {"async", 5};
	struct msghdr h = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &v, .msg_iovlen = 1, .msg_control = &m, .msg_controllen = sizeof m};
	char got[8];
	FAILS(sendmsg(a, &h, 0), EINVAL);
	sends(a, b, "plain");
	CHECK(recv(b, got, sizeof got, 0) == 5 && !memcmp(got, "plain", 5));
	close(a);
	close(b);
}

/* One recvmsg takes as many statuses as its buffer has room for: the 64 for which rds-stress has room. */
static void statuses(void)
{
	int a = bound(0), b = bound(0);
	char *mine = calloc(MANY, 8), *there = calloc(MANY, 8), room[MANY * CMSG_SPACE(16)];
	CHECK(mine && there);
	uint64_t cookie = 0;
	struct { uint64_t addr, bytes, cookie_addr, flags; } mr = {(uintptr_t)there, MANY * 8, (uintptr_t)&cookie, 0};
	CHECK(setsockopt(b, SOL, 2, &mr, sizeof mr) == 0);
	struct sockaddr_in to = name_of(b), back = name_of(a);
	struct { struct cmsghdr h; uint64_t cookie; } dest = {{CMSG_LEN(8), SOL, 2}, cookie};
	struct msghdr h = {.msg_name = &back, .msg_namelen = sizeof back, .msg_control = &dest, .msg_controllen = sizeof dest};
	CHECK(sendmsg(b, &h, 0) == 0 && recv(a, mine, 1, 0) == 0);
	for (uint64_t i = 0; i < MANY; i++) {
		uint64_t vec[2] = {(uintptr_t)(mine + 8 * i), 8};
		struct { struct cmsghdr h; uint64_t cookie, raddr, rbytes, local, n, flags, token; } m = {{CMSG_LEN(56), SOL, 1}, cookie, i * 8, 8, (uintptr_t)vec, 1, 1 | NOTIFY_ME, i};
		h = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_control = &m, .msg_controllen = sizeof m};
		CHECK(sendmsg(a, &h, 0) == 0);
	}
	/* The barrier returns when the last of them has ended. */
	struct { uint32_t dest, flags; uint64_t mark_at, id; } barrier = {to.sin_addr.s_addr, 0, 0, MANY};
	CHECK(setsockopt(a, SOL, 4, &barrier, sizeof barrier) == 0);
	h = (struct msghdr){.msg_control = room, .msg_controllen = sizeof room};
	CHECK(recvmsg(a, &h, MSG_DONTWAIT) == 0 && !(h.msg_flags & MSG_CTRUNC));
	uint64_t n = 0, token;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c), n++) {
		memcpy(&token, CMSG_DATA(c), sizeof token);
		CHECK(c->cmsg_level == SOL && c->cmsg_type == 4 && token == n);
	}
	CHECK(n == MANY);
	FAILS(recvmsg(a, &h, MSG_DONTWAIT), EAGAIN);
	close(a);
	close(b);
	free(mine);
	free(there);
}

int main(int argc, char **argv)
{
	address = argc > 1 ? argv[1] : address;
	options();
	transport();
	async_send();
	statuses();
	return 0;
}
