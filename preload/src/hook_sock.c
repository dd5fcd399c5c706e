/* Hooks of sockets' names and options. */
#include "hook.h"

/* A descriptor that came from another process is met here, by a call that a UNIX socket refuses. */
static struct pre_sock *met(int fd, bool refused) { return refused ? pre_adopt(fd) : NULL; }

HOOK int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct pre_sock *s = hooked(fd);
	int got = s ? 0 : real_bind(fd, addr, len);
	if (!s && !(s = met(fd, got && errno == EINVAL)))
		return got;
	return (int)done(s, pre_bind(s, addr, len));
}

HOOK int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct pre_sock *s = hooked(fd);
	int got = s ? 0 : real_connect(fd, addr, len);
	if (!s && !(s = met(fd, got && errno == EINVAL)))
		return got;
	return (int)done(s, pre_connect(s, addr, len));
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
	return s ? (int)done(s, addr && len ? pre_name(s, false, addr, len) : -EFAULT) : real_getsockname(fd, addr, len);
}

HOOK int getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct pre_sock *s = hooked(fd);
	return s ? (int)done(s, addr && len ? pre_name(s, true, addr, len) : -EFAULT) : real_getpeername(fd, addr, len);
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
