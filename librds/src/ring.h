/*
 * Rings in shared memory: queues with one producer and one consumer. Each side keeps private
 * copies of the indices and compares what the daemon publishes with them, so an index that
 * no correct daemon publishes stops the ring and harms nothing else.
 */
#ifndef RDSI_RING_H
#define RDSI_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto.h"

typedef _Atomic uint64_t rdsi_index;

/* A rdsi_ring is the shared part. Entry i is at i modulo size. */
struct rdsi_ring {
	uint8_t *entries;
	uint32_t size;   /* entries, a power of two */
	uint32_t stride; /* bytes of an entry */
	rdsi_index *head; /* written by the consumer: entries taken */
	rdsi_index *tail; /* written by the producer: entries published */
};

static inline void *rdsi_ring_at(const struct rdsi_ring *r, uint64_t i)
{
	return r->entries + (size_t)(i & (r->size - 1)) * r->stride;
}

/* A rdsi_producer is the writing end's private state. */
struct rdsi_producer {
	struct rdsi_ring ring;
	uint64_t next; /* entry to fill */
	uint64_t tail; /* as published */
	uint64_t head; /* the consumer's index at the last look */
	bool bad;      /* the consumer published an impossible index */
};

/* A rdsi_consumer is the reading end's private state. */
struct rdsi_consumer {
	struct rdsi_ring ring;
	uint64_t next; /* entry to take */
	uint64_t head; /* as published */
	uint64_t tail; /* the producer's index at the last look */
	bool bad;
};

/* rdsi_free_at_least reports whether n entries can be filled. It reads the consumer's index if
 * its copy leaves less, so false is exact. */
static inline bool rdsi_free_at_least(struct rdsi_producer *p, uint32_t n)
{
	uint64_t size = p->ring.size;
	if (size - (p->next - p->head) < n && !p->bad) {
		uint64_t h = atomic_load(p->ring.head);
		if (h - p->head > p->tail - p->head)
			p->bad = true;
		else
			p->head = h;
	}
	return !p->bad && size - (p->next - p->head) >= n;
}

/* rdsi_reserve returns the next entry to fill, or NULL if the ring is full. */
static inline void *rdsi_reserve(struct rdsi_producer *p)
{
	if (!rdsi_free_at_least(p, 1))
		return NULL;
	return rdsi_ring_at(&p->ring, p->next++);
}

/* rdsi_publish makes the reserved entries visible to the consumer. It reports whether there
 * were any. */
static inline bool rdsi_publish(struct rdsi_producer *p)
{
	if (p->next == p->tail)
		return false;
	p->tail = p->next;
	atomic_store(p->ring.tail, p->tail);
	return true;
}

/* rdsi_avail takes a fresh look and returns how many entries there are to take. */
static inline uint32_t rdsi_avail(struct rdsi_consumer *c)
{
	if (!c->bad) {
		uint64_t t = atomic_load(c->ring.tail);
		if (t - c->tail > c->ring.size - (c->tail - c->head)) {
			c->bad = true;
			c->tail = c->next; /* what was published before is not read either */
		} else {
			c->tail = t;
		}
	}
	return (uint32_t)(c->tail - c->next);
}

/* rdsi_peek returns the next entry, or NULL if there is none. */
static inline void *rdsi_peek(struct rdsi_consumer *c)
{
	if (c->next == c->tail && (c->bad || rdsi_avail(c) == 0))
		return NULL;
	return rdsi_ring_at(&c->ring, c->next);
}

/* rdsi_take copies the next descriptor into entry and takes it. Each word is read once, so
 * later writes of the daemon have no effect. */
static inline bool rdsi_take(struct rdsi_consumer *c, uint64_t entry[SHM_ENTRY_SIZE / 8])
{
	_Atomic uint64_t *from = rdsi_peek(c);
	if (!from)
		return false;
	for (unsigned i = 0; i < SHM_ENTRY_SIZE / 8; i++)
		entry[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
	c->next++;
	return true;
}

/* rdsi_take_id takes the next id of a return ring. */
static inline bool rdsi_take_id(struct rdsi_consumer *c, uint32_t *id)
{
	_Atomic uint32_t *from = rdsi_peek(c);
	if (!from)
		return false;
	*id = atomic_load_explicit(from, memory_order_relaxed);
	c->next++;
	return true;
}

/* rdsi_put_id queues an id. It reports whether there was room. */
static inline bool rdsi_put_id(struct rdsi_producer *p, uint32_t id)
{
	uint32_t *to = rdsi_reserve(p);
	if (to)
		*to = id;
	return to != NULL;
}

/* rdsi_release gives the entries taken back to the producer. */
static inline void rdsi_release(struct rdsi_consumer *c)
{
	if (c->next != c->head) {
		c->head = c->next;
		atomic_store(c->ring.head, c->head);
	}
}

/* rdsi_half_taken reports whether, by the last look, at most half of the ring is left. */
static inline bool rdsi_half_taken(const struct rdsi_consumer *c)
{
	return 2 * (c->tail - c->next) <= c->ring.size;
}

/* rdsi_wake_needed is the producer's half of the sleep protocol, to be called after
 * rdsi_publish: it reports whether the caller has to ring. */
static inline bool rdsi_wake_needed(_Atomic uint32_t *asleep)
{
	return atomic_load(asleep) != SHM_AWAKE && atomic_exchange(asleep, SHM_AWAKE) != SHM_AWAKE;
}

/* rdsi_wake_for_room is the same for a client that has released events. */
static inline bool rdsi_wake_for_room(_Atomic uint32_t *asleep)
{
	uint32_t was = SHM_ASLEEP_FOR_ROOM;
	return atomic_load(asleep) == was && atomic_compare_exchange_strong(asleep, &was, SHM_AWAKE);
}

#endif
