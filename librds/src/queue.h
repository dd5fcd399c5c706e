/* A growing first-in first-out queue of equal elements. Its users limit its length. */
#ifndef RDSI_QUEUE_H
#define RDSI_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A queue that becomes empty and is longer than this gives its memory up. */
#define RDSI_QUEUE_KEEP 1024

struct rdsi_queue {
	uint8_t *buf;
	uint32_t cap; /* elements, a power of two or 0 */
	uint32_t head;
	uint32_t n;
};

static inline void *rdsi_queue_at(const struct rdsi_queue *q, uint32_t i, size_t size)
{
	return q->buf + (size_t)((q->head + i) & (q->cap - 1)) * size;
}

/* rdsi_queue_push appends an element of size bytes. It reports whether there was memory. */
static inline bool rdsi_queue_push(struct rdsi_queue *q, const void *v, size_t size)
{
	if (q->n == q->cap) {
		uint32_t cap = q->cap ? 2 * q->cap : 8;
		uint8_t *buf = malloc(cap * size);
		if (!buf)
			return false;
		for (uint32_t i = 0; i < q->n; i++)
			memcpy(buf + i * size, rdsi_queue_at(q, i, size), size);
		free(q->buf);
		q->buf = buf;
		q->cap = cap;
		q->head = 0;
	}
	memcpy(rdsi_queue_at(q, q->n++, size), v, size);
	return true;
}

/* rdsi_queue_return puts back an element that was taken, in front of the others. It reports whether
 * there was memory. */
static inline bool rdsi_queue_return(struct rdsi_queue *q, const void *v, size_t size)
{
	if (!rdsi_queue_push(q, v, size)) /* for room alone */
		return false;
	q->head = (q->head - 1) & (q->cap - 1);
	memcpy(rdsi_queue_at(q, 0, size), v, size);
	return true;
}

static inline void rdsi_queue_end(struct rdsi_queue *q)
{
	free(q->buf);
	*q = (struct rdsi_queue){0};
}

/* rdsi_queue_pop takes the first element; the queue must not be empty. */
static inline void rdsi_queue_pop(struct rdsi_queue *q, void *v, size_t size)
{
	memcpy(v, rdsi_queue_at(q, 0, size), size);
	q->head = (q->head + 1) & (q->cap - 1);
	if (--q->n == 0 && q->cap > RDSI_QUEUE_KEEP)
		rdsi_queue_end(q);
}

/* rdsi_queue_move moves up to count elements to dst and returns how many. */
static inline size_t rdsi_queue_move(struct rdsi_queue *q, void *dst, size_t count, size_t size)
{
	size_t n = 0;
	for (; n < count && q->n; n++)
		rdsi_queue_pop(q, (uint8_t *)dst + n * size, size);
	return n;
}

/* rdsi_queue_remove takes out element i and keeps the order of the others. */
static inline void rdsi_queue_remove(struct rdsi_queue *q, uint32_t i, void *v, size_t size)
{
	uint8_t first[128];
	memcpy(v, rdsi_queue_at(q, i, size), size);
	for (; i > 0; i--)
		memcpy(rdsi_queue_at(q, i, size), rdsi_queue_at(q, i - 1, size), size);
	rdsi_queue_pop(q, first, size);
}

#endif
