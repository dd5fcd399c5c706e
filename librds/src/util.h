/* Small helpers: time, rounding, bytes in little-endian. */
#ifndef RDSI_UTIL_H
#define RDSI_UTIL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the shared memory is little-endian");

#define RDSI_MS INT64_C(1000000)
#define RDSI_NEVER INT64_MAX

/* rdsi_now is the monotonic clock in ns. */
static inline int64_t rdsi_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* rdsi_deadline is the time at which a timeout in ms ends; a negative one never ends. */
static inline int64_t rdsi_deadline(int64_t timeout_ms)
{
	return timeout_ms < 0 ? RDSI_NEVER : rdsi_now() + timeout_ms * RDSI_MS;
}

/* rdsi_left is the time until a deadline for ppoll and futexes. It returns NULL if there is
 * no deadline. */
static inline struct timespec *rdsi_left(int64_t deadline, struct timespec *ts)
{
	if (deadline == RDSI_NEVER)
		return NULL;
	int64_t left = deadline - rdsi_now();
	if (left < 0)
		left = 0;
	ts->tv_sec = left / 1000000000;
	ts->tv_nsec = left % 1000000000;
	return ts;
}

/* RDSI_USER_COPY copies payload from or to memory of the program, and returns 0. The preload library, which
 * owes its programs EFAULT, has one that fails with it where memory is not there. */
#ifndef RDSI_USER_COPY
#define RDSI_USER_COPY(to, from, n) (memcpy(to, from, n), 0)
#endif

static inline size_t rdsi_round_up(size_t n, size_t to) { return (n + to - 1) & ~(to - 1); }

static inline uint16_t rdsi_get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static inline uint32_t rdsi_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t rdsi_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline uint8_t *rdsi_put16(uint8_t *p, uint16_t v) { memcpy(p, &v, 2); return p + 2; }
static inline uint8_t *rdsi_put32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); return p + 4; }
static inline uint8_t *rdsi_put64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); return p + 8; }

#endif
