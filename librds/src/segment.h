/* The segment and the table as the client sees them: rings, announcements, wishes, slots and
 * cells. docs/ipc.md has the layout. */
#ifndef RDSI_SEGMENT_H
#define RDSI_SEGMENT_H

#include "ring.h"

struct rdsi_segment {
	struct shm_params params;
	struct rdsi_producer sub;      /* submissions */
	struct rdsi_consumer event;    /* events */
	struct rdsi_consumer send_ret; /* message ids that came back */
	struct rdsi_producer recv_ret; /* receive ids that go back */
	_Atomic uint32_t *daemon_asleep;
	_Atomic uint32_t *client_asleep;
	uint8_t *want_cells;
	uint8_t *want_slots;
	const uint8_t *table; /* slots, then cells; read-only */
};

/* rdsi_params_check returns the name of the first field that is beyond its limits, or NULL. */
const char *rdsi_params_check(const struct shm_params *p);

/* rdsi_segment_size and rdsi_table_size are what a daemon with these parameters maps. */
size_t rdsi_segment_size(const struct shm_params *p);
size_t rdsi_table_size(const struct shm_params *p);

/* rdsi_segment_open checks memory of size bytes that the daemon formatted for want. It
 * returns NULL and fills s, or says what is wrong. */
const char *rdsi_segment_open(struct rdsi_segment *s, uint8_t *mem, size_t size, const struct shm_params *want);

/* Fields of slots and cells are read atomically, each by itself. */
static inline uint32_t rdsi_slot_field(const struct rdsi_segment *s, uint32_t slot, size_t off)
{
	return atomic_load((const _Atomic uint32_t *)(s->table + (size_t)slot * SHM_ENTRY_SIZE + off));
}

static inline uint64_t rdsi_cell_hwm(const struct rdsi_segment *s, uint32_t cell)
{
	return atomic_load((const _Atomic uint64_t *)(s->table + ((size_t)s->params.slots + cell) * SHM_ENTRY_SIZE));
}

static inline _Atomic uint32_t *rdsi_want_slot(struct rdsi_segment *s, uint32_t slot)
{
	return (_Atomic uint32_t *)(s->want_slots + (size_t)slot * sizeof(struct shm_want_slot));
}

static inline _Atomic uint64_t *rdsi_want_cell(struct rdsi_segment *s, uint32_t cell)
{
	return (_Atomic uint64_t *)(s->want_cells + (size_t)cell * sizeof(struct shm_want_cell));
}

#endif
