/* mmap and munmap that put a page without access on either side of each mapping, so that the
 * library faults where it reads or writes outside of one. They replace those of the C library in
 * a program that includes this file. */
#ifndef RDSI_FENCE_H
#define RDSI_FENCE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __SANITIZE_THREAD__ /* which has to know of mappings, to forget what lay there */

enum { FENCE = 4096 };

void *mmap(void *addr, size_t size, int prot, int flags, int fd, off_t off)
{
	if (addr || (flags & MAP_FIXED))
		return (void *)syscall(SYS_mmap, addr, size, prot, flags, fd, off);
	size_t whole = ((size + FENCE - 1) & ~(size_t)(FENCE - 1)) + 2 * (size_t)FENCE;
	char *p = (char *)syscall(SYS_mmap, NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
	if (p == MAP_FAILED)
		return p;
	void *mem = (void *)syscall(SYS_mmap, p + FENCE, size, prot, flags | MAP_FIXED, fd, off);
	if (mem == MAP_FAILED) {
		int err = errno;
		syscall(SYS_munmap, p, whole);
		errno = err;
	}
	return mem;
}

/* munmap of what mmap has made. */
int munmap(void *addr, size_t size)
{
	size_t whole = ((size + FENCE - 1) & ~(size_t)(FENCE - 1)) + 2 * (size_t)FENCE;
	return (int)syscall(SYS_munmap, (char *)addr - FENCE, whole);
}

#endif
#endif
