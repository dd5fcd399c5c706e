/* Every call on an RDS socket, as net/rds answers it. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "check.h"

static void names(void)
{
	struct sockaddr_in a = at(0), any = a, b;
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
	socklen_t n = sizeof b;
	FAILS(socket(RDS, SOCK_DGRAM, 0), ESOCKTNOSUPPORT);
	FAILS(socket(RDS, SOCK_SEQPACKET, 1), ESOCKTNOSUPPORT);
	FAILS(socketpair(RDS, SOCK_SEQPACKET, 0, (int[2]){0}), EOPNOTSUPP);
	int fd = socket(RDS, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFL) & O_NONBLOCK);
	CHECK(getsockname(fd, (struct sockaddr *)&b, &n) == 0 && n == sizeof b && b.sin_family == AF_UNSPEC && !b.sin_port);
	FAILS(getpeername(fd, (struct sockaddr *)&b, &n), ENOTCONN);
	FAILS(send(fd, "x", 1, 0), ENOTCONN);
	FAILS(recv(fd, &b, 1, 0), EAGAIN);
	any.sin_addr.s_addr = 0;
	FAILS(bind(fd, (struct sockaddr *)&any, sizeof any), EINVAL);
	FAILS(bind(fd, (struct sockaddr *)&a, 10), EINVAL);
	FAILS(connect(fd, (struct sockaddr *)&any, sizeof any), EDESTADDRREQ);
	FAILS(connect(fd, (struct sockaddr *)&six, sizeof six), EPROTOTYPE);
	any.sin_family = AF_UNSPEC;
	FAILS(connect(fd, (struct sockaddr *)&any, sizeof any), EAFNOSUPPORT);
	inet_pton(AF_INET, "203.0.113.9", &b.sin_addr);
	b.sin_family = AF_INET;
	FAILS(bind(fd, (struct sockaddr *)&b, sizeof b), EADDRNOTAVAIL);
	a.sin_port = htons(1);
	FAILS(bind(fd, (struct sockaddr *)&a, sizeof a), EINVAL);
	a.sin_port = 0;
	CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
	FAILS(bind(fd, (struct sockaddr *)&a, sizeof a), EINVAL);
	b = name_of(fd);
	CHECK(b.sin_family == AF_INET && b.sin_port && b.sin_addr.s_addr == a.sin_addr.s_addr);
	int other = socket(RDS, SOCK_SEQPACKET, 0);
	FAILS(bind(other, (struct sockaddr *)&b, sizeof b), EADDRINUSE);
	CHECK(connect(other, (struct sockaddr *)&b, sizeof b) == 0 && getpeername(other, (struct sockaddr *)&b, &n) == 0);
	FAILS(listen(fd, 1), EOPNOTSUPP);
	FAILS(accept(fd, NULL, NULL), EOPNOTSUPP);
	FAILS(shutdown(fd, SHUT_RDWR), EOPNOTSUPP);
	CHECK(close(other) == 0 && close(fd) == 0);
	FAILS(close(fd), EBADF);
	FAILS(recv(fd, &b, 1, 0), EBADF);
}

static void messages(void)
{
	int a = bound(0), b = bound(0);
	struct sockaddr_in to = name_of(b), from;
	char mem[8192] = "", got[8192];
	socklen_t n = sizeof from;
	CHECK(connect(a, (struct sockaddr *)&to, sizeof to) == 0);
	CHECK(send(a, "one", 3, 0) == 3 && write(a, "two", 3) == 3);
	CHECK(writev(a, (struct iovec[]){{"th", 2}, {"ree", 3}}, 2) == 5);
	CHECK(send(a, "", 0, 0) == 0);
	CHECK(recv(b, got, 2, MSG_PEEK | MSG_TRUNC) == 3 && recvfrom(b, got, 8, 0, (struct sockaddr *)&from, &n) == 3);
	CHECK(n == sizeof from && from.sin_port == name_of(a).sin_port && !memcmp(got, "one", 3));
	CHECK(read(b, got, 8) == 3 && !memcmp(got, "two", 3));
	CHECK(readv(b, (struct iovec[]){{got, 1}, {got + 4, 8}}, 2) == 5 && got[0] == 't' && !memcmp(got + 4, "hree", 4));
	CHECK(recv(b, got, 8, 0) == 0);
	FAILS(recv(b, got, 8, MSG_DONTWAIT), EAGAIN);
	CHECK(recv(b, got, 8, MSG_OOB) == 0);
	FAILS(recv(b, got, 8, MSG_ERRQUEUE), EAGAIN);
	FAILS(send(a, "x", 1, MSG_NOSIGNAL), EOPNOTSUPP);
	FAILS(send(a, mem, (1 << 20) + 1, 0), EMSGSIZE);
	FAILS(send(a, mem, 106497, 0), EMSGSIZE);
	FAILS(sendto(a, mem, 1, 0, (struct sockaddr *)&to, 15), EINVAL);
	FAILS(sendfile(a, 0, NULL, 1), EINVAL);
	FAILS(lseek(a, 0, SEEK_SET), ESPIPE);
	struct mmsghdr many[3] = {0};
	struct iovec v[3] = {{"a", 1}, {"bb", 2}, {"ccc", 3}}, w[3] = {{got, 8}, {got + 8, 8}, {got + 16, 8}};
	for (int i = 0; i < 3; i++)
		many[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
	CHECK(sendmmsg(a, many, 3, 0) == 3 && many[2].msg_len == 3);
	for (int i = 0; i < 3; i++)
		many[i].msg_hdr = (struct msghdr){.msg_iov = &w[i], .msg_iovlen = 1};
	CHECK(recvmmsg(b, many, 3, 0, NULL) == 3 && many[1].msg_len == 2 && !memcmp(got + 16, "ccc", 3));
	struct msghdr h = {.msg_iov = w, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = 4};
	CHECK(send(a, mem, 100, 0) == 100 && recvmsg(b, &h, 0) == 8 && h.msg_flags == MSG_TRUNC && h.msg_namelen == sizeof from);
	close(a);
	close(b);
}

static void options(void)
{
	int a = bound(0), b = bound(0), v, k, i;
	socklen_t n = sizeof v;
	struct timeval tv = {0, 50000}, got;
	struct stat st;
	uint8_t tos = 3;
	CHECK(fstat(a, &st) == 0 && S_ISSOCK(st.st_mode));
	CHECK(getsockopt(a, SOL_SOCKET, SO_TYPE, &v, &n) == 0 && v == SOCK_SEQPACKET);
	CHECK(getsockopt(a, SOL_SOCKET, SO_DOMAIN, &v, &n) == 0 && v == RDS);
	i = socket(AF_UNIX, SOCK_DGRAM, 0); /* whose buffers are the host's default */
	CHECK(getsockopt(a, SOL_SOCKET, SO_SNDBUF, &v, &n) == 0 && getsockopt(i, SOL_SOCKET, SO_SNDBUF, &k, &n) == 0 && v == k);
	CHECK(getsockopt(a, SOL_SOCKET, SO_RCVBUF, &v, &n) == 0 && getsockopt(i, SOL_SOCKET, SO_RCVBUF, &k, &n) == 0 && v == k);
	close(i);
	v = 65536;
	CHECK(setsockopt(a, SOL_SOCKET, SO_SNDBUF, &v, sizeof v) == 0 && getsockopt(a, SOL_SOCKET, SO_SNDBUF, &v, &n) == 0 && v == 131072);
	CHECK(setsockopt(a, SOL_SOCKET, SO_RCVBUF, &v, sizeof v) == 0 && getsockopt(a, SOL_SOCKET, SO_RCVBUF, &v, &n) == 0 && v == 262144);
	CHECK(setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
	n = sizeof got;
	CHECK(getsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &got, &n) == 0 && got.tv_usec == 50000);
	FAILS(recv(a, &v, 4, 0), ETIMEDOUT);
	tv.tv_usec = 1000000;
	FAILS(setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv), EDOM);
	FAILS(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &v, sizeof v), ENOPROTOOPT);
	CHECK(setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, (v = 1, &v), sizeof v) == 0);
	for (i = 5; i <= 6; i++) /* RECVERR, CONG_MONITOR */
		CHECK(setsockopt(a, SOL, i, &v, sizeof v) == 0);
	n = sizeof v;
	CHECK(getsockopt(a, SOL, 5, &v, &n) == 0 && v == 1);
	FAILS(getsockopt(a, SOL, 6, &v, &n), ENOPROTOOPT);
	FAILS(setsockopt(a, SOL, 8, &v, sizeof v), EOPNOTSUPP);
	FAILS(setsockopt(a, SOL, 99, &v, sizeof v), ENOPROTOOPT);
	struct sockaddr_in to = name_of(b);
	FAILS(setsockopt(a, SOL, 1, &to, 10), EINVAL);
	CHECK(setsockopt(a, SOL, 1, &to, sizeof to) == 0);
	CHECK(ioctl(a, 0x89e0, &tos) == 0 && (tos = 0, ioctl(a, 0x89e1, &tos)) == 0 && tos == 3);
	FAILS(ioctl(a, 0x89e0, &tos), EINVAL);
	FAILS(ioctl(a, FIONREAD, &v), ENOTTY);
	FAILS(ioctl(a, 0x89e1, (void *)8), EFAULT);
	CHECK(ioctl(a, FIONBIO, (v = 1, &v)) == 0);
	FAILS(recv(a, &v, 4, 0), EAGAIN);
	CHECK(fcntl(a, F_SETFL, 0) == 0);
	FAILS(recv(a, &v, 4, 0), ETIMEDOUT);
	close(a);
	close(b);
}

/* Control messages that are received, and those of sends that fail. */
static void controls(void)
{
	int a = bound(0), b = bound(0), on = 1;
	char mem[16], room[256];
	uint8_t trace[4] = {2, 1, 2};
	struct iovec v = {mem, sizeof mem};
	CHECK(setsockopt(b, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0 && setsockopt(b, SOL, 10, trace, 4) == 0);
	trace[1] = 9;
	FAILS(setsockopt(b, SOL, 10, trace, 4), EFAULT);
	sends(a, b, "stamped");
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	CHECK(recvmsg(b, &h, 0) == 7 && h.msg_flags == 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);
	CHECK(c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMP);
	c = CMSG_NXTHDR(&h, c);
	CHECK(c && c->cmsg_level == SOL && c->cmsg_type == 11 && CMSG_DATA(c)[0] == 2);
	sends(a, b, "cut");
	h.msg_controllen = 20;
	CHECK(recvmsg(b, &h, 0) == 3 && h.msg_flags == MSG_CTRUNC);
	/* An operation on memory that is not there, or with wrong arguments. */
	struct sockaddr_in to = name_of(b);
	struct { uint64_t cookie, raddr, rbytes, local, n, flags, token; } args = {.rbytes = 8, .n = 1};
	uint64_t vec[2] = {8, 8};
	struct { struct cmsghdr h; char data[sizeof args]; } m = {{CMSG_LEN(sizeof args), SOL, 1}, {0}};
	h = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_control = &m, .msg_controllen = sizeof m};
	memcpy(m.data, &args, sizeof args);
	FAILS(sendmsg(a, &h, 0), EFAULT);
	args.local = 8; /* the vector itself */
	memcpy(m.data, &args, sizeof args);
	FAILS(sendmsg(a, &h, 0), EFAULT);
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED && mprotect(page + 4096, 4096, PROT_NONE) == 0);
	args.local = (uintptr_t)page + 4096 - 8; /* its second half */
	memcpy(m.data, &args, sizeof args);
	FAILS(sendmsg(a, &h, 0), EFAULT);
	h.msg_control = page + 4096 - 8;
	FAILS(sendmsg(a, &h, 0), EFAULT);
	h.msg_controllen = 1 << 20;
	FAILS(sendmsg(a, &h, 0), ENOBUFS);
	h.msg_control = &m;
	h.msg_controllen = sizeof m;
	CHECK(munmap(page, 8192) == 0);
	static uint64_t longest[2 * 1024];
	for (int i = 0; i < 2 * 1023; i++)
		longest[i] = 8;
	args.local = (uintptr_t)longest;
	args.n = 1024;
	memcpy(m.data, &args, sizeof args);
	FAILS(sendmsg(a, &h, 0), EINVAL); /* the last part is empty */
	args.local = (uintptr_t)vec;
	args.n = 1;
	memcpy(m.data, &args, sizeof args);
	FAILS(sendmsg(a, &h, 0), EFAULT);
	args.n = 0;
	memcpy(m.data, &args, sizeof args);
	FAILS(sendmsg(a, &h, 0), EINVAL);
	args.n = 2000;
	memcpy(m.data, &args, sizeof args);
	FAILS(sendmsg(a, &h, 0), EMSGSIZE);
	args.n = 1;
	args.rbytes = (1 << 30) + 1;
	memcpy(m.data, &args, sizeof args);
	FAILS(sendmsg(a, &h, 0), EMSGSIZE);
	m.h.cmsg_type = 4; /* RDMA_STATUS is not sent */
	FAILS(sendmsg(a, &h, 0), EINVAL);
	m.h.cmsg_len = 9;
	FAILS(sendmsg(a, &h, 0), EINVAL);
	uint64_t free_args[2] = {0, 0};
	CHECK(setsockopt(a, SOL, 3, free_args, sizeof free_args) == 0);
	free_args[0] = 77;
	FAILS(setsockopt(a, SOL, 3, free_args, sizeof free_args), EINVAL);
	close(a);
	close(b);
}

struct mr_args { uint64_t addr, bytes, cookie_addr, flags; };

/* transfer sends an operation on one region, and waits for its status. */
static int transfer(int from, int to, uint64_t cookie, void *local, size_t n, uint64_t flags)
{
	struct sockaddr_in name = name_of(to);
	uint64_t vec[2] = {(uintptr_t)local, n};
	struct { uint64_t cookie, raddr, rbytes, local, n, flags, token; } args = {cookie, 0, n, (uintptr_t)vec, 1, flags | 0x20, 4711};
	struct { struct cmsghdr h; char data[sizeof args]; } m = {{CMSG_LEN(sizeof args), SOL, 1}, {0}};
	struct msghdr h = {.msg_name = &name, .msg_namelen = sizeof name, .msg_control = &m, .msg_controllen = sizeof m};
	struct { uint64_t token; int32_t status, pad; } done;
	char room[64];
	memcpy(m.data, &args, sizeof args);
	CHECK(sendmsg(from, &h, 0) == 0);
	h = (struct msghdr){.msg_control = room, .msg_controllen = sizeof room};
	CHECK(recvmsg(from, &h, 0) == 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);
	CHECK(c && c->cmsg_level == SOL && c->cmsg_type == 4);
	memcpy(&done, CMSG_DATA(c), sizeof done);
	CHECK(done.token == 4711);
	return done.status;
}

/* Memory of malloc as it is: registered, written and read by a peer, freed and registered again. */
static void regions(void)
{
	int a = bound(0), b = bound(0), first = 0;
	for (int round = 0; round < 3; round++) {
		size_t n = round == 2 ? 5000000 : 300000, part = round == 2 ? 4000001 : 200000; /* more than one piece */
		char *mine = malloc(n), *there = malloc(n), *back = calloc(1, n);
		uint64_t cookie = 0, got = 0;
		memset(mine, 'a' + round, n);
		memset(there, 'z', n);
		struct mr_args mr = {(uintptr_t)there + 100, n - 100, (uintptr_t)&cookie, 0};
		CHECK(setsockopt(b, SOL, 2, &mr, sizeof mr) == 0 && cookie);
		struct sockaddr_in name = name_of(a);
		struct { struct cmsghdr h; uint64_t cookie; } m = {{CMSG_LEN(8), SOL, 2}, cookie};
		struct msghdr h = {.msg_name = &name, .msg_namelen = sizeof name, .msg_control = &m, .msg_controllen = sizeof m};
		CHECK(sendmsg(b, &h, 0) == 0);
		m.cookie = 0;
		h = (struct msghdr){.msg_control = &m, .msg_controllen = sizeof m};
		CHECK(recvmsg(a, &h, 0) == 0 && m.h.cmsg_type == 2 && m.cookie == cookie);
		CHECK(transfer(a, b, cookie, mine + 7, part, 1) == 0);
		CHECK(recv(b, &got, sizeof got, 0) == 0); /* the message behind the data */
		CHECK(there[99] == 'z' && there[100] == 'a' + round && there[part + 99] == 'a' + round && there[part + 100] == 'z');
		CHECK(transfer(a, b, cookie, back, part, 0) == 0 && !memcmp(back, there + 100, part));
		CHECK(recv(b, &got, sizeof got, 0) == 0);
		uint64_t freed[2] = {cookie, 0};
		CHECK(setsockopt(b, SOL, 3, freed, sizeof freed) == 0);
		CHECK(transfer(a, b, cookie, back, 8, 1) == 1); /* REMOTE_ERROR */
		CHECK(there[100] == 'a' + round);
		free(mine);
		free(there);
		free(back);
	}
	struct mr_args mr = {8, 8, 0, 0};
	FAILS(setsockopt(b, SOL, 2, &mr, sizeof mr), EFAULT);
	mr = (struct mr_args){(uintptr_t)&first, 0, 0, 0};
	FAILS(setsockopt(b, SOL, 2, &mr, sizeof mr), EINVAL);
	mr.bytes = (1 << 30) + 8192;
	FAILS(setsockopt(b, SOL, 2, &mr, sizeof mr), EMSGSIZE);
	close(a);
	close(b);
}

static void tables(void)
{
	int fd = socket(RDS, SOCK_SEQPACKET, 0);
	for (int opt = 10000; opt <= 10017; opt++) {
		char mem[60000];
		socklen_t n = 0;
		int size;
		if (opt == 10002 || opt == 10009 || opt == 10010) {
			FAILS(getsockopt(fd, SOL, opt, mem, &n), ENOPROTOOPT);
			continue;
		}
		errno = 0;
		size = getsockopt(fd, SOL, opt, NULL, &n);
		CHECK(size > 0 || (size == -1 && errno == ENOSPC && n > 0));
		CHECK(n <= sizeof mem);
		n = sizeof mem;
		size = getsockopt(fd, SOL, opt, mem, &n);
		CHECK(size > 0 && n % (socklen_t)size == 0);
		if (opt == 10000)
			CHECK(size == 40 && n >= 36 * 40 && !strcmp(mem, "conn_reset"));
	}
	close(fd);
}

int main(int argc, char **argv)
{
	address = argc > 1 ? argv[1] : address;
	names();
	messages();
	options();
	controls();
	regions();
	tables();
	return 0;
}
