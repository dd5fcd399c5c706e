#include "arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	MIN_SHIFT = 6, /* chunks of 64 bytes */
	PAGE_UNITS = SHM_PAGE_SIZE / SHM_UNIT,
	WINDOW_UNITS = SHM_WINDOW_SIZE / SHM_UNIT,
	WINDOW_PAGES = SHM_WINDOW_SIZE / SHM_PAGE_SIZE, /* 64: one word of bits */
	MAX_SMALL = SHM_PAGE_SIZE / 2,
	NO_PAGE = -1,
	END_OF_LIST = 0xfffe,
	IN_USE = 0xffff,
};

struct rdsi_window {
	uint8_t *mem;
	uint64_t free;  /* one bit for each page */
	uint16_t *link; /* for each chunk the next free one of its page, or IN_USE */
};

struct rdsi_page {
	int32_t next, prev; /* in the list of its class */
	uint16_t used;
	uint16_t fresh; /* chunks from this index on were never given out */
	uint16_t first; /* free list */
};

void rdsi_arena_init(struct rdsi_arena *a)
{
	memset(a, 0, sizeof *a);
	for (int i = 0; i < RDSI_ARENA_CLASSES; i++)
		a->partial[i] = NO_PAGE;
}

void rdsi_arena_free_all(struct rdsi_arena *a)
{
	for (uint32_t i = 0; i < a->count; i++)
		free(a->windows[i].link);
	free(a->windows);
	free(a->pages);
	rdsi_arena_init(a);
}

int rdsi_arena_add(struct rdsi_arena *a, uint8_t *mem)
{
	struct rdsi_window *w = realloc(a->windows, (a->count + 1) * sizeof *w);
	if (!w)
		return -ENOMEM;
	a->windows = w;
	struct rdsi_page *p = realloc(a->pages, (size_t)(a->count + 1) * WINDOW_PAGES * sizeof *p);
	if (!p)
		return -ENOMEM;
	a->pages = p;
	uint16_t *link = malloc(WINDOW_UNITS * sizeof *link);
	if (!link)
		return -ENOMEM;
	w[a->count++] = (struct rdsi_window){mem, ~UINT64_C(0), link};
	return 0;
}

/* class_of is the size class of n bytes, 1 to MAX_SMALL. */
static int class_of(size_t n)
{
	int c = 0;
	while (((size_t)1 << (c + MIN_SHIFT)) < n)
		c++;
	return c;
}

static uint16_t *links(struct rdsi_arena *a, int32_t pi)
{
	return a->windows[pi / WINDOW_PAGES].link + (size_t)(pi % WINDOW_PAGES) * PAGE_UNITS;
}

static uint64_t span_mask(unsigned k) { return k == 64 ? ~UINT64_C(0) : (UINT64_C(1) << k) - 1; }

/* find_span is the lowest i such that bits i to i + k - 1 of free are set, or 64. */
static int find_span(uint64_t free, unsigned k)
{
	for (unsigned have = 1; have < k;) { /* bit i: have bits from i on are set */
		unsigned step = have < k - have ? have : k - have;
		free &= free >> step;
		have += step;
	}
	return free ? __builtin_ctzll(free) : 64;
}

static int32_t take_pages(struct rdsi_arena *a, unsigned k)
{
	for (uint32_t w = 0; w < a->count; w++) {
		int i = find_span(a->windows[w].free, k);
		if (i < WINDOW_PAGES) {
			a->windows[w].free &= ~(span_mask(k) << i);
			return (int32_t)(w * WINDOW_PAGES) + i;
		}
	}
	return NO_PAGE;
}

static void give_pages(struct rdsi_arena *a, int32_t pi, unsigned k)
{
	a->windows[pi / WINDOW_PAGES].free |= span_mask(k) << (pi % WINDOW_PAGES);
}

static void push_partial(struct rdsi_arena *a, int c, int32_t pi)
{
	struct rdsi_page *p = &a->pages[pi];
	p->next = a->partial[c];
	p->prev = NO_PAGE;
	if (p->next != NO_PAGE)
		a->pages[p->next].prev = pi;
	a->partial[c] = pi;
}

static void unlink_page(struct rdsi_arena *a, int c, int32_t pi)
{
	struct rdsi_page *p = &a->pages[pi];
	if (p->prev != NO_PAGE)
		a->pages[p->prev].next = p->next;
	else
		a->partial[c] = p->next;
	if (p->next != NO_PAGE)
		a->pages[p->next].prev = p->prev;
}

static unsigned pages_of(size_t n) { return (unsigned)((n + SHM_PAGE_SIZE - 1) / SHM_PAGE_SIZE); }

bool rdsi_arena_alloc(struct rdsi_arena *a, size_t n, uint32_t *chunk)
{
	if (n == 0 || n > ABI_MAX_MESSAGE)
		return false;
	int32_t pi;
	if (n > MAX_SMALL) {
		if ((pi = take_pages(a, pages_of(n))) == NO_PAGE)
			return false;
		a->in_use += (size_t)pages_of(n) * SHM_PAGE_SIZE;
		*chunk = (uint32_t)pi * PAGE_UNITS;
		return true;
	}
	int c = class_of(n);
	if ((pi = a->partial[c]) == NO_PAGE) {
		if ((pi = take_pages(a, 1)) == NO_PAGE)
			return false;
		a->pages[pi] = (struct rdsi_page){.first = END_OF_LIST};
		push_partial(a, c, pi);
	}
	struct rdsi_page *p = &a->pages[pi];
	uint16_t *link = links(a, pi), i = p->first;
	if (i != END_OF_LIST)
		p->first = link[i];
	else
		i = p->fresh++;
	link[i] = IN_USE;
	if (++p->used == PAGE_UNITS >> c)
		unlink_page(a, c, pi);
	a->in_use += (size_t)1 << (c + MIN_SHIFT);
	*chunk = (uint32_t)pi * PAGE_UNITS + ((uint32_t)i << c);
	return true;
}

void rdsi_arena_release(struct rdsi_arena *a, uint32_t chunk, size_t n)
{
	int32_t pi = (int32_t)(chunk / PAGE_UNITS);
	if (n > MAX_SMALL) {
		a->in_use -= (size_t)pages_of(n) * SHM_PAGE_SIZE;
		give_pages(a, pi, pages_of(n));
		return;
	}
	int c = class_of(n);
	struct rdsi_page *p = &a->pages[pi];
	uint16_t *link = links(a, pi), i = (uint16_t)(chunk % PAGE_UNITS >> c);
	a->in_use -= (size_t)1 << (c + MIN_SHIFT);
	link[i] = p->first;
	p->first = i;
	if (p->used == PAGE_UNITS >> c)
		push_partial(a, c, pi);
	if (--p->used == 0) {
		unlink_page(a, c, pi);
		give_pages(a, pi, 1);
	}
}

uint8_t *rdsi_arena_mem(const struct rdsi_arena *a, uint32_t chunk)
{
	return a->windows[chunk / WINDOW_UNITS].mem + (size_t)(chunk % WINDOW_UNITS) * SHM_UNIT;
}
