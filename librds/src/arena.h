/*
 * The send arena: it allocates chunks for payload from windows of shared memory. Its state is
 * private, so the daemon can overwrite the memory but not the state. It works as
 * internal/shm.Arena does: chunks of up to 32 KiB come from pages of one power of two,
 * longer ones are spans of pages. A caller holds the lock of the sending side.
 */
#ifndef RDSI_ARENA_H
#define RDSI_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto.h"

#define RDSI_ARENA_CLASSES 10

struct rdsi_window;
struct rdsi_page;

struct rdsi_arena {
	struct rdsi_window *windows;
	uint32_t count; /* windows */
	struct rdsi_page *pages;
	int32_t partial[RDSI_ARENA_CLASSES]; /* pages with free chunks, a list per class */
	size_t in_use;                       /* bytes allocated, rounding included */
};

void rdsi_arena_init(struct rdsi_arena *a);
void rdsi_arena_free_all(struct rdsi_arena *a);

/* rdsi_arena_add adds mem, of SHM_WINDOW_SIZE bytes, as the next window. It returns 0 or
 * -ENOMEM. */
int rdsi_arena_add(struct rdsi_arena *a, uint8_t *mem);

/* rdsi_arena_alloc takes n bytes, 1 to ABI_MAX_MESSAGE. It reports whether there was room. */
bool rdsi_arena_alloc(struct rdsi_arena *a, size_t n, uint32_t *chunk);

/* rdsi_arena_release frees the chunk that rdsi_arena_alloc gave for n bytes. */
void rdsi_arena_release(struct rdsi_arena *a, uint32_t chunk, size_t n);

/* rdsi_arena_mem is the memory of an allocated chunk. */
uint8_t *rdsi_arena_mem(const struct rdsi_arena *a, uint32_t chunk);

/* rdsi_chunk_valid reports whether n bytes, at least one, at chunk lie within one of windows
 * windows. */
static inline bool rdsi_chunk_valid(uint32_t windows, uint32_t chunk, size_t n)
{
	const uint32_t units = SHM_WINDOW_SIZE / SHM_UNIT;
	return chunk / units < windows && n > 0 && n <= SHM_WINDOW_SIZE - (size_t)(chunk % units) * SHM_UNIT;
}

#endif
