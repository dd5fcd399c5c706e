/* Circular doubly linked lists of links that lie in the structures they stand for. */
#ifndef RDSI_LIST_H
#define RDSI_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct rdsi_link {
	struct rdsi_link *next, *prev;
};

#define RDSI_OF(link, type, member) ((type *)((char *)(link) - offsetof(type, member)))

static inline void rdsi_list_init(struct rdsi_link *l) { l->next = l->prev = l; }
static inline bool rdsi_list_empty(const struct rdsi_link *l) { return l->next == l; }

/* rdsi_list_add puts l behind at. Behind the head is the front, behind its prev the end. */
static inline void rdsi_list_add(struct rdsi_link *at, struct rdsi_link *l)
{
	l->next = at->next;
	l->prev = at;
	at->next->prev = l;
	at->next = l;
}

/* rdsi_list_del takes l out. A link that was taken out may be taken out again. */
static inline void rdsi_list_del(struct rdsi_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	rdsi_list_init(l);
}

#endif
