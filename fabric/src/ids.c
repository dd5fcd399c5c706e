/* ids.c - numbers of what a peer's answers name: an index and how often it was used, so that a late answer finds nothing. */
#include <stdlib.h>

#include "fi.h"

static bool more(struct ids *t)
{
	uint32_t room = t->room ? 2 * t->room : 64;
	void **slots = realloc(t->slots, room * sizeof *slots);
	if (slots)
		t->slots = slots;
	uint32_t *gens = realloc(t->gens, room * sizeof *gens);
	if (gens)
		t->gens = gens;
	uint32_t *unused = realloc(t->free, room * sizeof *unused);
	if (unused)
		t->free = unused;
	if (!slots || !gens || !unused)
		return false;
	for (uint32_t i = room; i > t->room; i--) {
		t->slots[i - 1] = NULL;
		t->gens[i - 1] = 1;
		t->free[t->free_count++] = i - 1;
	}
	t->room = room;
	return true;
}

int ids_add(struct ids *t, void *what, uint64_t *id)
{
	if (!t->free_count && !more(t))
		return -FI_ENOMEM;
	uint32_t i = t->free[--t->free_count];
	t->slots[i] = what;
	*id = (uint64_t)t->gens[i] << 32 | i;
	return 0;
}

void *ids_get(const struct ids *t, uint64_t id)
{
	uint32_t i = (uint32_t)id;
	return i < t->room && t->gens[i] == id >> 32 ? t->slots[i] : NULL;
}

void ids_del(struct ids *t, uint64_t id)
{
	uint32_t i = (uint32_t)id;
	if (!ids_get(t, id))
		return;
	t->slots[i] = NULL;
	if (!++t->gens[i]) /* 0 is no number */
		t->gens[i] = 1;
	t->free[t->free_count++] = i;
}

void ids_end(struct ids *t)
{
	free(t->slots);
	free(t->gens);
	free(t->free);
}
