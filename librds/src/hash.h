/* A hash table of nodes that lie in the structures they stand for. */
#ifndef RDSI_HASH_H
#define RDSI_HASH_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

struct rdsi_node {
	struct rdsi_node *next;
	uint64_t hash;
};

struct rdsi_hash {
	struct rdsi_node **heads;
	uint32_t size; /* of heads, a power of two or 0 */
	uint32_t count;
};

/* rdsi_mix is a hash of two words. */
static inline uint64_t rdsi_mix(uint64_t a, uint64_t b)
{
	uint64_t h = (a ^ (b * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 32;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ h >> 29;
}

/* rdsi_hash_first and rdsi_hash_next find the nodes of a hash. The caller compares keys. */
static inline struct rdsi_node *rdsi_hash_same(struct rdsi_node *n, uint64_t hash)
{
	while (n && n->hash != hash)
		n = n->next;
	return n;
}

static inline struct rdsi_node *rdsi_hash_first(const struct rdsi_hash *h, uint64_t hash)
{
	return h->size ? rdsi_hash_same(h->heads[hash & (h->size - 1)], hash) : NULL;
}

static inline struct rdsi_node *rdsi_hash_next(struct rdsi_node *n) { return rdsi_hash_same(n->next, n->hash); }

/* rdsi_hash_reserve makes room for one more node. It returns 0 or -ENOMEM. */
static inline int rdsi_hash_reserve(struct rdsi_hash *h)
{
	if (h->count < h->size)
		return 0;
	uint32_t size = h->size ? 2 * h->size : 8;
	struct rdsi_node **heads = calloc(size, sizeof *heads);
	if (!heads)
		return h->size ? 0 : -ENOMEM; /* longer chains do as well */
	for (uint32_t i = 0; i < h->size; i++) {
		for (struct rdsi_node *n = h->heads[i], *next; n; n = next) {
			next = n->next;
			n->next = heads[n->hash & (size - 1)];
			heads[n->hash & (size - 1)] = n;
		}
	}
	free(h->heads);
	h->heads = heads;
	h->size = size;
	return 0;
}

/* rdsi_hash_add adds n, behind a successful rdsi_hash_reserve. */
static inline void rdsi_hash_add(struct rdsi_hash *h, struct rdsi_node *n, uint64_t hash)
{
	n->hash = hash;
	n->next = h->heads[hash & (h->size - 1)];
	h->heads[hash & (h->size - 1)] = n;
	h->count++;
}

static inline void rdsi_hash_del(struct rdsi_hash *h, struct rdsi_node *n)
{
	struct rdsi_node **at = &h->heads[n->hash & (h->size - 1)];
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	h->count--;
}

/* rdsi_hash_any returns some node, or NULL. *at is 0 at first and says where to go on. */
static inline struct rdsi_node *rdsi_hash_any(const struct rdsi_hash *h, uint32_t *at)
{
	while (*at < h->size && !h->heads[*at])
		++*at;
	return *at < h->size ? h->heads[*at] : NULL;
}

static inline void rdsi_hash_end(struct rdsi_hash *h)
{
	free(h->heads);
	*h = (struct rdsi_hash){0};
}

#endif
