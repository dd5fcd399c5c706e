/*
 * match.c - which posted receive a message is for. Receives without bits to ignore lie in lists by
 * their tag, the others in one list, and the one that was posted first counts. Unexpected messages
 * lie in lists by tag, and in one in the order of their arrival.
 */
#include "fi.h"

void match_init(struct matcher *m)
{
	list_init(&m->all);
	for (int i = 0; i <= MATCH_HEADS; i++)
		list_init(&m->posted[i]);
	for (int i = 0; i < MATCH_HEADS; i++)
		list_init(&m->hashed[i]);
}

void match_post(struct matcher *m, struct rx *rx)
{
	rx->seq = m->seq++;
	list_add(&m->posted[rx->ignore ? MATCH_HEADS : rfi_hash(rx->tag, MATCH_HEADS)], &rx->link);
}

static struct rx *first_in(struct link *head, const struct peer *p, uint64_t tag)
{
	LIST_EACH(l, after, head) {
		struct rx *rx = LIST_ENTRY(l, struct rx, link);
		if ((rx->tag | rx->ignore) == (tag | rx->ignore) && (!rx->peer || rx->peer == p))
			return rx;
	}
	return NULL;
}

/* match_posted returns the receive for a message of p, and leaves it posted. */
struct rx *match_posted(struct matcher *m, const struct peer *p, uint64_t tag)
{
	struct rx *exact = first_in(&m->posted[rfi_hash(tag, MATCH_HEADS)], p, tag);
	struct rx *wild = first_in(&m->posted[MATCH_HEADS], p, tag);
	return !exact || (wild && wild->seq < exact->seq) ? wild : exact;
}

void match_keep(struct matcher *m, struct unexp *u)
{
	list_add(&m->all, &u->link);
	list_add(&m->hashed[rfi_hash(u->head.tag, MATCH_HEADS)], &u->hashed);
}

/* match_unexpected returns the first message that a receive is for, and leaves it. */
struct unexp *match_unexpected(struct matcher *m, const struct peer *p, uint64_t tag, uint64_t ignore)
{
	LIST_EACH(l, after, ignore ? &m->all : &m->hashed[rfi_hash(tag, MATCH_HEADS)]) {
		struct unexp *u = ignore ? LIST_ENTRY(l, struct unexp, link) : LIST_ENTRY(l, struct unexp, hashed);
		if ((u->head.tag | ignore) == (tag | ignore) && (!p || u->peer == p))
			return u;
	}
	return NULL;
}

void match_take(struct unexp *u)
{
	list_del(&u->link);
	list_del(&u->hashed);
}
