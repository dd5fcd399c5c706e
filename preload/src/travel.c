/* Descriptors that travel: through a UNIX socket, or exec. The receiver's table does not know them.
 *
 * A socket of this library is one end of a pair. The name of the other end says so to whoever has
 * the descriptor, and the name of its own end says that somebody has bound it. The kernel gives an end one
 * name, so of several processes one binds, and the others fail as they do on a socket that is bound. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include "pre.h"

static const char mark[] = "\0librdsd-preload ";

enum { MARK = sizeof mark - 1, UNIQUE = 8, NET = 8, NAME = offsetof(struct sockaddr_un, sun_path) + MARK + UNIQUE + NET };

/* name_end names an end, with the namespace of its daemon. Abstract names are those of a network namespace, where each is taken once. */
static int name_end(int fd, uint64_t net)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	memcpy(a.sun_path, mark, MARK);
	memcpy(a.sun_path + MARK + UNIQUE, &net, NET);
	for (;;) {
		if (getrandom(a.sun_path + MARK, UNIQUE, 0) != UNIQUE)
			return -errno;
		if (!real_bind(fd, (struct sockaddr *)&a, NAME))
			return 0;
		if (errno != EADDRINUSE)
			return -errno;
	}
}

/* Where names are not allowed, descriptors do not travel. */
void pre_mark(int end, uint64_t net) { (void)name_end(end, net); }

int pre_claim(struct pre_sock *s) { return name_end(s->travelled >= 0 ? s->travelled : s->own, s->net) == -EINVAL ? -EINVAL : 0; }

/* marked reports whether fd is the program's end of a pair of this library, of whatever process, and stores the
 * namespace that it was made in. */
static bool marked(int fd, uint64_t *net)
{
	struct sockaddr_un a;
	socklen_t n = sizeof a;
	bool is = !real_getpeername(fd, (struct sockaddr *)&a, &n) && n == NAME && a.sun_family == AF_UNIX && !memcmp(a.sun_path, mark, MARK);
	if (is)
		memcpy(net, a.sun_path + MARK + UNIQUE, NET);
	return is;
}

/* claimed reports whether a process has bound fd. */
static bool claimed(int fd)
{
	struct sockaddr_un a;
	socklen_t n = sizeof a;
	return real_getsockname(fd, (struct sockaddr *)&a, &n) || n > offsetof(struct sockaddr_un, sun_path);
}

/* replace puts a pair of this process in the place of fd, whose other end another process has, and
 * keeps what was there for pre_claim. */
static int replace(struct pre_sock *s, int fd)
{
	int closes = real_fcntl(fd, F_GETFD), old = real_dup(fd);
	if (old < 0)
		return -errno;
	if ((s->travelled = pre_lift(old)) < 0) {
		real_close(old);
		return s->travelled;
	}
	int end = pre_ends(s, 0);
	if (end < 0)
		return end;
	if (atomic_load(&s->nonblock))
		real_fcntl(end, F_SETFL, O_NONBLOCK);
	int err = real_dup3(end, fd, closes & FD_CLOEXEC ? O_CLOEXEC : 0) < 0 ? -errno : 0;
	real_close(end);
	return err;
}

/* One thread at a time adopts. The others find what it has put there. */
static pthread_mutex_t adopting = PTHREAD_MUTEX_INITIALIZER;

void pre_adopt_in_child(void) { pthread_mutex_init(&adopting, NULL); }

/* adopt makes a socket of fd, which is marked with net. */
static struct pre_sock *adopt(int fd, uint64_t net)
{
	struct pre_sock *s = pre_sock_fresh();
	int flags = real_fcntl(fd, F_GETFL), err = 0;
	if (!s)
		return NULL;
	s->net = net;
	atomic_store(&s->nonblock, (flags & O_NONBLOCK) != 0);
	if (claimed(fd))
		atomic_store(&s->lost, true);
	else
		err = replace(s, fd);
	if (!err && !pre_set(fd, s))
		return s;
	pre_put(s);
	return NULL;
}

struct pre_sock *pre_adopt(int fd)
{
	int was = errno;
	uint64_t net;
	struct pre_sock *s = NULL;
	if (pre_fits(fd) && !pre_hidden(fd) && marked(fd, &net)) {
		pthread_mutex_lock(&adopting);
		if (!(s = pre_get(fd)))
			s = adopt(fd, net);
		pthread_mutex_unlock(&adopting);
	}
	errno = was;
	return s;
}

void pre_adopt_received(const struct msghdr *h)
{
	struct msghdr m = *h;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len; at += sizeof(int)) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
			struct pre_sock *s = pre_adopt(fd);
			if (s)
				pre_put(s);
		}
	}
}
