/* Hooks of descriptors: socket, close, dup, fcntl, ioctl. */
#include <fcntl.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "hook.h"

HOOK int socket(int domain, int type, int protocol)
{
	pre_start();
	if (domain != (int)PRE_AF_RDS)
		return real_socket(domain, type, protocol);
	return (int)result(pre_socket(type, protocol));
}

HOOK int socketpair(int domain, int type, int protocol, int pair[2])
{
	pre_start();
	return domain == (int)PRE_AF_RDS ? (int)result(-EOPNOTSUPP) : real_socketpair(domain, type, protocol, pair);
}

/* The descriptors of this library are not the program's to close. The child of a vfork shares the
 * parent's table, and its descriptors are its own. */
HOOK int close(int fd)
{
	pre_start();
	if (__builtin_expect(pre_hidden(fd), 0) && pre_same_process())
		return (int)result(-EBADF);
	if (__builtin_expect(!pre_is(fd), 1) || !pre_same_process())
		return real_close(fd);
	/* The table first: once the kernel has closed it, another thread may get the number. */
	pre_set(fd, NULL);
	return real_close(fd);
}

HOOK int close_range(unsigned first, unsigned last, int flags)
{
	pre_start();
	if (flags & CLOSE_RANGE_CLOEXEC || !pre_same_process())
		return real_close_range(first, last, flags);
	if (first > last)
		return (int)result(-EINVAL);
	return (int)result(pre_close_range(first, last, flags));
}

/* closefrom ends with close_range in the C library, past the hook. */
HOOK void closefrom(int first) { close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0); }

/* duped gives the copy of a descriptor its entry. */
static int duped(int old, int new)
{
	if (new < 0)
		return new;
	struct pre_sock *s = hooked(old);
	if (!pre_same_process()) { /* the child of a vfork */
		if (s)
			pre_put(s);
		return new;
	}
	int err = pre_set(new, s);
	if (s)
		pre_put(s);
	if (!err)
		return new;
	real_close(new);
	return (int)result(err);
}

/* watches reports whether fd, a copy or its target, concerns the table. */
static bool concerns(int fd) { return pre_is(fd) || pre_hidden(fd); }

HOOK int dup(int fd)
{
	pre_start();
	return pre_is(fd) ? duped(fd, real_dup(fd)) : real_dup(fd);
}

HOOK int dup2(int old, int new)
{
	pre_start();
	if (old == new || (!concerns(old) && !concerns(new)))
		return real_dup2(old, new);
	if (pre_hidden(new) && pre_same_process())
		return (int)result(-EBADF);
	return duped(old, real_dup2(old, new));
}

HOOK int dup3(int old, int new, int flags)
{
	pre_start();
	if (old == new || (!concerns(old) && !concerns(new)))
		return real_dup3(old, new, flags);
	if (pre_hidden(new) && pre_same_process())
		return (int)result(-EBADF);
	return duped(old, real_dup3(old, new, flags));
}

/* control is fcntl of an RDS socket. */
static int control(struct pre_sock *s, int fd, int cmd, long arg)
{
	int got = real_fcntl(fd, cmd, arg);
	if (got < 0)
		return -1;
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return duped(fd, got);
	if (cmd == F_SETFL)
		atomic_store(&s->nonblock, (arg & O_NONBLOCK) != 0);
	return got;
}

#define FCNTL(name)                                                       \
	HOOK int name(int fd, int cmd, ...)                               \
	{                                                                 \
		va_list ap;                                               \
		va_start(ap, cmd);                                        \
		long arg = va_arg(ap, long);                              \
		va_end(ap);                                               \
		struct pre_sock *s = hooked(fd);                          \
		if (!s)                                                   \
			return real_##name(fd, cmd, arg);                 \
		int got = control(s, fd, cmd, arg);                       \
		pre_put(s);                                               \
		return got;                                               \
	}

FCNTL(fcntl)
FCNTL(fcntl64)

HOOK int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	bool handled;
	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	struct pre_sock *s = hooked(fd);
	if (!s)
		return real_ioctl(fd, request, arg);
	int err = pre_ioctl(s, request, arg, &handled);
	if (handled)
		return (int)done(s, err);
	if (request == FIONREAD || request == TIOCOUTQ) /* RDS has neither */
		return (int)done(s, -ENOTTY);
	int got = real_ioctl(fd, request, arg);
	int on;
	if (!got && request == FIONBIO && !pre_load(&on, (uintptr_t)arg, sizeof on))
		atomic_store(&s->nonblock, on != 0);
	pre_put(s);
	return got;
}
