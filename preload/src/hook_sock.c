/* Hooks of sockets' names and options. */
#include "hook.h"

/* A descriptor that came from another process is met here, by a call that a UNIX socket refuses. */
static struct pre_sock *met(int fd, bool refused) { return refused ? pre_adopt(fd) : NULL; }

/* named calls bind or connect with a copy of the name. */
static ssize_t named(struct pre_sock *s, int (*call)(struct pre_sock *, const void *, socklen_t), const void *addr, socklen_t len)
{
	struct sockaddr_storage name;
	int err = pre_name_load(&name, addr, len);
	return done(s, err ? err : call(s, &name, len));
}

/* tell is getsockname or getpeername. */
static ssize_t tell(struct pre_sock *s, bool peer, void *addr, socklen_t *len)
{
	struct sockaddr_storage name;
	socklen_t n;
	int err = pre_name(s, peer, &name, &n);
	return done(s, err ? err : pre_name_store(&name, n, addr, len));
}

HOOK int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct pre_sock *s = hooked(fd);
	int got = s ? 0 : real_bind(fd, addr, len);
	if (!s && !(s = met(fd, got && errno == EINVAL)))
		return got;
	return (int)named(s, pre_bind, addr, len);
}

HOOK int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct pre_sock *s = hooked(fd);
	int got = s ? 0 : real_connect(fd, addr, len);
	if (!s && !(s = met(fd, got && errno == EINVAL)))
		return got;
	return (int)named(s, pre_connect, addr, len);
}

HOOK int listen(int fd, int backlog)
{
	struct pre_sock *s = hooked(fd);
	return s ? (int)done(s, -EOPNOTSUPP) : real_listen(fd, backlog);
}

HOOK int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct pre_sock *s = hooked(fd);
	return s ? (int)done(s, -EOPNOTSUPP) : real_accept(fd, addr, len);
}

HOOK int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct pre_sock *s = hooked(fd);
	return s ? (int)done(s, -EOPNOTSUPP) : real_accept4(fd, addr, len, flags);
}

HOOK int shutdown(int fd, int how)
{
	struct pre_sock *s = hooked(fd);
	return s ? (int)done(s, -EOPNOTSUPP) : real_shutdown(fd, how);
}

HOOK int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct pre_sock *s = hooked(fd);
	return s ? (int)tell(s, false, addr, len) : real_getsockname(fd, addr, len);
}

HOOK int getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct pre_sock *s = hooked(fd);
	return s ? (int)tell(s, true, addr, len) : real_getpeername(fd, addr, len);
}

HOOK int setsockopt(int fd, int level, int opt, const void *val, socklen_t len)
{
	struct pre_sock *s = hooked(fd);
	if (!s && !(s = met(fd, level == (int)PRE_SOL_RDS)))
		return real_setsockopt(fd, level, opt, val, len);
	return (int)done(s, pre_setsockopt(s, level, opt, val, len));
}

HOOK int getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
	struct pre_sock *s = hooked(fd);
	if (!s && !(s = met(fd, level == (int)PRE_SOL_RDS)))
		return real_getsockopt(fd, level, opt, val, len);
	return (int)done(s, pre_getsockopt(s, level, opt, val, len));
}
