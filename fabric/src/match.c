/*
 * match.c - which posted receive a message is for. Receives without bits to ignore lie in lists by
 * their tag, the others in one list, and the one that was posted first counts. Unexpected messages
 * lie in lists by tag, and in one in the order of their arrival.
 */
#include <stdlib.h>

#include "fi.h"

static struct link *by_tag(struct link *heads, uint64_t tag)
{
	return &heads[(tag * 0x9e3779b97f4a7c15u) >> 55];
}

int match_init(struct matcher *m)
{
	m->posted = calloc(MATCH_HEADS, sizeof *m->posted);
	m->hashed = calloc(MATCH_HEADS, sizeof *m->hashed);
	if (!m->posted || !m->hashed)
		return -FI_ENOMEM;
	list_init(&m->wild);
	list_init(&m->all);
	for (int i = 0; i < MATCH_HEADS; i++) {
		list_init(&m->posted[i]);
		list_init(&m->hashed[i]);
	}
	return 0;
}

void match_end(struct matcher *m)
{
	free(m->posted);
	free(m->hashed);
}

void match_post(struct matcher *m, struct rx *rx)
{
	rx->seq = m->seq++;
	list_add(rx->ignore ? &m->wild : by_tag(m->posted, rx->tag), &rx->link);
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
	struct rx *exact = first_in(by_tag(m->posted, tag), p, tag), *wild = first_in(&m->wild, p, tag);
	return !exact || (wild && wild->seq < exact->seq) ? wild : exact;
}

void match_keep(struct matcher *m, struct unexp *u)
{
	list_add(&m->all, &u->link);
	list_add(by_tag(m->hashed, u->head.tag), &u->hashed);
}

/* match_unexpected returns the first message that a receive is for, and leaves it. */
struct unexp *match_unexpected(struct matcher *m, const struct peer *p, uint64_t tag, uint64_t ignore)
{
	if (ignore) {
		LIST_EACH(l, after, &m->all) {
			struct unexp *u = LIST_ENTRY(l, struct unexp, link);
			if ((u->head.tag | ignore) == (tag | ignore) && (!p || u->peer == p))
				return u;
		}
		return NULL;
	}
	LIST_EACH(l, after, by_tag(m->hashed, tag)) {
		struct unexp *u = LIST_ENTRY(l, struct unexp, hashed);
		if (u->head.tag == tag && (!p || u->peer == p))
			return u;
	}
	return NULL;
}

void match_take(struct unexp *u)
{
	list_del(&u->link);
	list_del(&u->hashed);
}
