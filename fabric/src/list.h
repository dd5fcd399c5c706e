/* list.h - doubly linked lists whose links lie in their elements. */
#ifndef RFI_LIST_H
#define RFI_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct link {
	struct link *next, *prev;
};

#define LIST_ENTRY(l, type, field) ((type *)(void *)((char *)(l) - offsetof(type, field)))
/* LIST_EACH visits the elements of head. The body may take l out of the list. */
#define LIST_EACH(l, after, head) \
	for (struct link *l = (head)->next, *after = l->next; l != (head); l = after, after = l->next)

static inline void list_init(struct link *l)
{
	l->next = l->prev = l;
}

static inline void lists_init(struct link *heads, int n)
{
	for (int i = 0; i < n; i++)
		list_init(&heads[i]);
}

static inline bool list_empty(const struct link *l)
{
	return l->next == l;
}

static inline void list_add(struct link *head, struct link *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

/* list_del takes l out of its list, if it is in one. */
static inline void list_del(struct link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}

#endif
