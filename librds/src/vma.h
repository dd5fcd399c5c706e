/*
 * The mappings of this process. The kernel is asked for one after the other (PROCMAP_QUERY,
 * Linux 6.11), or else /proc/self/maps is read. Nothing here allocates, so that the child of a
 * fork may use it.
 */
#ifndef RDSI_VMA_H
#define RDSI_VMA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* An rdsi_vma is one mapping. */
struct rdsi_vma {
	uintptr_t start, end;
	int prot;
	bool shared;
	uint64_t off; /* in the file */
	dev_t dev;
	uint64_t inode; /* 0: of no file */
	char path[32];  /* without an inode: a name in brackets, or its beginning; else undefined */
};

struct rdsi_vmas {
	int fd;
	uintptr_t from; /* mappings that end here or below are left out */
	bool text;      /* the file is read */
	char buf[4096];
	ssize_t len, at;
};

/* rdsi_vmas_open begins with the mapping that has the address from, or the next one. It returns
 * 0 or a negative errno. */
int rdsi_vmas_open(struct rdsi_vmas *m, uintptr_t from);
/* rdsi_vmas_next takes the next mapping. It returns false behind the last. */
bool rdsi_vmas_next(struct rdsi_vmas *m, struct rdsi_vma *v);
void rdsi_vmas_close(struct rdsi_vmas *m);

/* rdsi_vmas_each calls visit for each mapping that has a part of the range from start to end. It stops at the first
 * error. A gap is -EFAULT if whole. */
int rdsi_vmas_each(uintptr_t start, uintptr_t end, bool whole, int (*visit)(const struct rdsi_vma *v, void *arg), void *arg);

#endif
