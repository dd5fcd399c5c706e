/* What the files of hooks share. A hook looks its descriptor up in the table, and hands the call
 * to the C library if it is no RDS socket. */
#ifndef PRE_HOOK_H
#define PRE_HOOK_H

#include <stdlib.h>
#include <sys/uio.h>

#include "pre.h"

#define HOOK __attribute__((visibility("default")))

/* result is what a call returns: a count, or -1 and errno. */
static inline ssize_t result(ssize_t n)
{
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

/* hooked returns the RDS socket of fd with a reference, or NULL. */
static inline struct pre_sock *hooked(int fd)
{
	pre_start();
	return __builtin_expect(pre_is(fd), 0) ? pre_get(fd) : NULL;
}

/* done ends a call on s. */
static inline ssize_t done(struct pre_sock *s, ssize_t n)
{
	pre_put(s);
	return result(n);
}

#endif
