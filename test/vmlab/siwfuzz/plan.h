/*
 * The requests of a round of siwfuzz, and the generator that draws them.
 *
 * test/vmlab/fuzzplan_test.go has the same memory layout, patterns and messages.
 */
#ifndef PLAN_H
#define PLAN_H

#include <stdint.h>
#include <string.h>

enum {
	PAGE = 4096,
	/* Each side has one region with these areas. */
	SOURCE = 0, SOURCE_SIZE = 0x140000, /* never changes: data of own SENDs and WRITEs, and of the peer's READs */
	TARGET = 0x200000,                  /* the peer WRITEs here */
	SINK = 0x500000,                    /* own READs put their data here */
	RECEIVE = 0x800000,                 /* the peer's SENDs arrive here */
	AREA = 0x300000,                    /* size of TARGET, SINK and RECEIVE */
	CONTROL = 0xb00000, SLOT = 4096,    /* control messages: six slots in, three out */
	MEMORY = 0xb10000,                  /* size of the region */
	GUARD = 64,                         /* bytes behind the used part of an area that are checked, too */

	MAX_REQUESTS = 40, MAX_SGE = 6,
	SMALL = 32, /* siw copies messages of up to so many bytes behind their header */

	OP_SEND = 0, OP_WRITE = 1, OP_READ = 2,
	/* Flags of a request. The first four are those of libibverbs. */
	FENCE = 1, SIGNALED = 2, SOLICITED = 4, INLINE = 8,
	ALONE = 16,       /* the last of a list that is posted by one call */
	FROM_TARGET = 32, /* a READ of memory that this side has written before in this round */

	/* What siw does wrong. Without a flag -b siwfuzz avoids it. */
	BAD_INLINE = 1, BAD_PAGE = 2, BAD_FENCED_READ = 4, BAD_EMPTY_READ = 8, BAD_BOTH_READ = 16,
	NO_READ = 32, /* of a round: no READs */
};

struct piece { uint32_t off, len; };

/* One request, also in the form in which a plan tells it to the peer. */
struct request {
	uint32_t op, flags, len;
	uint32_t at; /* of a WRITE or READ: offset in the peer's memory */
	uint32_t pieces;
	struct piece piece[MAX_SGE]; /* in this side's memory */
};

/* The requests of one side in a round, as the message PLAN. */
struct plan {
	uint32_t round, count;
	struct request request[MAX_REQUESTS];
};

_Static_assert(sizeof(struct plan) <= SLOT, "a plan has to fit a slot");

/* mix is the output function of splitmix64. */
static inline uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* pattern fills a side's SOURCE. All words differ, so that data from a wrong place
 * is noticed. */
static inline void pattern(unsigned char *b, uint64_t seed)
{
	for (uint64_t i = 0; i < SOURCE_SIZE; i += 8) {
		uint64_t word = mix(seed * 0x100000001 + i);

		memcpy(b + i, &word, 8);
	}
}

/* spoil returns the byte that fills areas before a round. */
static inline unsigned char spoil(uint32_t round) { return 0xa0 + round % 61; }

static uint64_t random_state;

/* draw returns a number below n. */
static inline uint32_t draw(uint32_t n)
{
	random_state += 0x9e3779b97f4a7c15u;
	return mix(random_state) % n;
}

static inline int one_in(uint32_t n) { return draw(n) == 0; }

/* draw_length returns the length of a request. kind is the kind of the round: 0 tiny,
 * 1 a few segments, 2 large, 3 up to 1 MiB. */
static inline uint32_t draw_length(uint32_t kind)
{
	static const uint32_t around[] = { 0, 1, 4, SMALL, 1400, 1428, 1432, 1448, 1460, 2896, PAGE, 2 * PAGE, 64512, 65536 };
	uint32_t n;

	switch (kind) {
	case 0:
		return draw(70);
	case 1:
		if (one_in(3))
			return draw(9000);
		n = around[draw(12)] + draw(7);
		return n < 3 ? 0 : n - 3;
	case 2:
		if (one_in(3))
			return draw(100000);
		n = around[draw(14)] + draw(7);
		return n < 3 ? 0 : n - 3;
	default:
		return one_in(2) ? 1 << 20 : draw((1 << 20) + 1);
	}
}

static inline uint32_t draw_kind(void)
{
	uint32_t n = draw(100);

	return n < 50 ? 0 : n < 85 ? 1 : n < 97 ? 2 : 3;
}

/* crosses reports whether siw may send a wrong tail of len bytes at off: they are a
 * small message that crosses a page. */
static inline int crosses(uint32_t off, uint32_t len)
{
	return len > 0 && len <= SMALL && off / PAGE != (off + len - 1) / PAGE;
}

/* draw_place returns a place for len bytes in SOURCE: anywhere, at the beginning of
 * a page, or shortly before one. With whole, small data does not cross a page. */
static inline uint32_t draw_place(uint32_t len, int whole)
{
	uint32_t room = SOURCE_SIZE - len, off = draw(room + 1), page = off & ~(PAGE - 1);

	switch (draw(4)) {
	case 0:
		off = page;
		break;
	case 1:
		if (page >= SMALL)
			off = page - draw(SMALL);
	}
	if (whole && crosses(off, len))
		off -= len; /* now both ends are in the page before */
	return SOURCE + off;
}

/* cut draws one to six pieces of SOURCE that together have r->len bytes, or none for
 * 0 bytes. */
static inline void cut(struct request *r, int whole)
{
	uint32_t left = r->len, most = one_in(2) ? 1 : 1 + draw(MAX_SGE);

	for (r->pieces = 0; left > 0; r->pieces++) {
		struct piece *p = &r->piece[r->pieces];

		p->len = r->pieces + 1 == most ? left : 1 + draw(one_in(2) ? left : (left + 3) / 4);
		left -= p->len;
		p->off = draw_place(p->len, whole && p->len == r->len);
	}
}

/* written returns a WRITE of this plan that has bytes, or NULL if it finds none in
 * four draws. */
static inline const struct request *written(const struct plan *p)
{
	for (int try = 0; try < 4 && p->count > 0; try++) {
		const struct request *r = &p->request[draw(p->count)];

		if (r->op == OP_WRITE && r->len > 0)
			return r;
	}
	return NULL;
}

/* narrow makes r name a part of the memory that w writes. */
static inline void narrow(struct request *r, const struct request *w, int whole)
{
	uint32_t from = draw(w->len);

	r->at = w->at + from;
	r->len = 1 + draw(w->len - from);
	if (whole && crosses(r->at, r->len))
		r->len = PAGE - r->at % PAGE;
}

/* make_plan draws the requests of a round. bad has the faults of siw that are not
 * avoided. max_inline is the largest length of inline data, 0 for no inline data. */
static inline void make_plan(struct plan *p, uint32_t round, uint32_t bad, uint32_t max_inline)
{
	uint32_t kind = draw_kind(), budget = kind == 3 ? 5 << 18 : 3 << 18, target = TARGET, sink = SINK;
	uint32_t count = 1 + draw(one_in(3) ? MAX_REQUESTS : 12);
	int whole = !(bad & BAD_PAGE);
	const struct request *w;

	memset(p, 0, sizeof *p);
	p->round = round;
	while (p->count < count) {
		struct request *r = &p->request[p->count];

		r->len = draw_length(kind > 0 && one_in(4) ? 0 : kind);
		if (r->len > budget)
			r->len = 0;
		r->flags = (one_in(2) ? SIGNALED : 0) | (one_in(4) ? SOLICITED : 0) | (one_in(3) ? ALONE : 0);
		switch (draw(bad & NO_READ ? 2 : 3)) {
		case 0:
			r->op = OP_SEND;
			break;
		case 1:
			r->op = OP_WRITE;
			w = one_in(5) ? written(p) : NULL;
			if (w) { /* again to written memory; the fence keeps the data from earlier READs */
				narrow(r, w, 0);
				r->flags |= FENCE;
				if (r->len > budget)
					r->len = 1;
			} else {
				r->at = target + (one_in(4) ? -target % PAGE : draw(GUARD));
				target = r->at + r->len;
			}
			break;
		default:
			r->op = OP_READ;
			if (r->len == 0 && !(bad & BAD_EMPTY_READ))
				r->len = 1;
			w = one_in(3) ? written(p) : NULL;
			if (w) {
				narrow(r, w, whole);
				if (r->len > budget)
					r->len = 1;
				r->flags |= FROM_TARGET;
			} else
				r->at = draw_place(r->len, whole);
			r->flags &= ~SOLICITED;
			if (bad & BAD_FENCED_READ && one_in(4))
				r->flags |= FENCE;
			r->pieces = 1;
			r->piece[0].off = sink + draw(GUARD);
			r->piece[0].len = r->len;
			sink = r->piece[0].off + r->len;
		}
		if (r->op != OP_READ) {
			if (one_in(6))
				r->flags |= FENCE;
			if (r->len > 0 && r->len <= max_inline && one_in(2))
				r->flags |= INLINE;
			cut(r, whole && !(r->flags & INLINE));
		}
		budget -= r->len;
		p->count++;
	}
	/* siw completes READs in order, and SENDs and WRITEs in order, but a READ may
	 * complete after a later SEND or WRITE. So the last READ and the last other
	 * request are signaled: their completions mean that all are done. */
	for (int reads = 0; reads < 2; reads++)
		for (int i = p->count - 1; i >= 0; i--)
			if ((p->request[i].op == OP_READ) == reads) {
				p->request[i].flags |= SIGNALED;
				break;
			}
}

/* gather copies the data of a SEND or WRITE from its side's SOURCE. */
static inline void gather(unsigned char *to, const struct request *r, const unsigned char *source)
{
	for (uint32_t i = 0; i < r->pieces; i++) {
		memcpy(to, source + r->piece[i].off, r->piece[i].len);
		to += r->piece[i].len;
	}
}

#endif
