/* The format of a run: frames of length, payload and padding, one behind the other. And the
 * state word of a run in the send arena. docs/ipc.md has both. */
#ifndef RDSI_FRAMES_H
#define RDSI_FRAMES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto.h"

/* rdsi_frame_size is the length of the frame of a payload of n bytes. */
static inline size_t rdsi_frame_size(size_t n) { return (FRAMES_HEAD + n + 3) & ~(size_t)3; }

/* rdsi_frame_next finds the payload of the frame at the start of the left bytes at b. It
 * returns the length of the frame, or 0 if b does not begin with a whole frame. The length
 * is read once, so the payload lies within b even if the daemon writes to b. */
static inline size_t rdsi_frame_next(const uint8_t *b, size_t left, size_t *payload)
{
	if (left < FRAMES_HEAD)
		return 0;
	size_t n = atomic_load_explicit((const _Atomic uint32_t *)b, memory_order_relaxed);
	size_t size = rdsi_frame_size(n);
	if (size > left)
		return 0;
	*payload = n;
	return size;
}

/* Parts of the state word. */
static inline size_t rdsi_run_len(uint64_t s) { return s & 0xfffff; }
static inline size_t rdsi_run_datagrams(uint64_t s) { return s >> 20 & 0xfffff; }
static inline size_t rdsi_run_payload(uint64_t s) { return s >> 40 & 0xfffff; }

/* rdsi_run_append is the state with one more datagram of n bytes. */
static inline uint64_t rdsi_run_append(uint64_t s, size_t n)
{
	return s + rdsi_frame_size(n) + SHM_RUN_DATAGRAM + n * SHM_RUN_PAYLOAD;
}

static inline _Atomic uint64_t *rdsi_run_word(uint8_t *mem) { return (_Atomic uint64_t *)mem; }

#endif
