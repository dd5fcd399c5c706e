/* check.h - what the programs of tests/ share. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <rdma/fi_errno.h>

#define MUST(call)                                                                                       \
	do {                                                                                             \
		ssize_t must_ = (call);                                                                  \
		if (must_ < 0) {                                                                         \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, fi_strerror((int)-must_)); \
			exit(1);                                                                         \
		}                                                                                        \
	} while (0)
#define SHALL(cond)                                                            \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "line %d: not %s\n", __LINE__, #cond); \
			exit(1);                                               \
		}                                                              \
	} while (0)

static inline void fill(char *p, size_t n, int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 13 + (size_t)seed);
}

#endif
