#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "vma.h"

/* A query is the kernel's struct procmap_query, which older headers do not have. */
struct query {
	uint64_t size, flags, addr;
	uint64_t start, end, vma_flags, page_size, off, inode;
	uint32_t dev_major, dev_minor;
	uint32_t name_size, build_id_size;
	uint64_t name, build_id;
};

#define QUERY _IOWR('f', 17, struct query)

enum { FLAG_READ = 1, FLAG_WRITE = 2, FLAG_EXEC = 4, FLAG_SHARED = 8, FLAG_OR_NEXT = 16 };

_Static_assert(sizeof(struct query) == 104, "PROCMAP_QUERY");

int rdsi_vmas_open(struct rdsi_vmas *m, uintptr_t from)
{
	m->len = m->at = 0;
	m->from = from;
	m->text = false;
	m->fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	return m->fd < 0 ? -errno : 0;
}

void rdsi_vmas_close(struct rdsi_vmas *m) { close(m->fd); }

/* ask asks for the mapping at from or behind it. It returns 0, or -ENOENT behind the last. The
 * path of a file may be longer than any buffer, and then the kernel says nothing at all. */
static int ask(struct rdsi_vmas *m, struct rdsi_vma *v)
{
	struct query q = {.size = sizeof q, .flags = FLAG_OR_NEXT, .addr = m->from};
	if (ioctl(m->fd, QUERY, &q))
		return -errno;
	*v = (struct rdsi_vma){.start = q.start, .end = q.end, .shared = q.vma_flags & FLAG_SHARED, .off = q.off,
		.dev = makedev(q.dev_major, q.dev_minor), .inode = q.inode};
	v->prot = (q.vma_flags & FLAG_READ ? PROT_READ : 0) | (q.vma_flags & FLAG_WRITE ? PROT_WRITE : 0) | (q.vma_flags & FLAG_EXEC ? PROT_EXEC : 0);
	if (q.inode || v->shared)
		return 0;
	q = (struct query){.size = sizeof q, .addr = q.start, .name = (uintptr_t)m->buf, .name_size = sizeof m->buf};
	if (ioctl(m->fd, QUERY, &q))
		return errno == ENOENT ? -EAGAIN : -errno;
	if (q.name_size)
		memcpy(v->path, m->buf, q.name_size < sizeof v->path ? q.name_size : sizeof v->path - 1);
	return 0;
}

/* next is the next character, or -1 behind the last. */
static int next(struct rdsi_vmas *m)
{
	while (m->at == m->len) {
		m->at = 0;
		m->len = read(m->fd, m->buf, sizeof m->buf);
		if (m->len == 0 || (m->len < 0 && errno != EINTR)) {
			m->len = 0;
			return -1;
		}
		if (m->len < 0)
			m->len = 0;
	}
	return (unsigned char)m->buf[m->at++];
}

/* number reads digits up to another character, which it takes. */
static uint64_t number(struct rdsi_vmas *m, unsigned base)
{
	uint64_t n = 0;
	for (;;) {
		int c = next(m);
		if (c >= '0' && c <= '9')
			n = n * base + (uint64_t)(c - '0');
		else if (base == 16 && c >= 'a' && c <= 'f')
			n = n * base + (uint64_t)(c - 'a' + 10);
		else
			return n;
	}
}

/* parse reads a line. */
static bool parse(struct rdsi_vmas *m, struct rdsi_vma *v)
{
	v->start = (uintptr_t)number(m, 16);
	v->end = (uintptr_t)number(m, 16);
	if (!v->end)
		return false;
	v->prot = (next(m) == 'r' ? PROT_READ : 0) | (next(m) == 'w' ? PROT_WRITE : 0);
	v->prot |= next(m) == 'x' ? PROT_EXEC : 0;
	v->shared = next(m) == 's';
	next(m);
	v->off = number(m, 16);
	unsigned high = (unsigned)number(m, 16), low = (unsigned)number(m, 16);
	v->dev = makedev(high, low);
	v->inode = 0;
	int c;
	while ((c = next(m)) >= '0' && c <= '9')
		v->inode = v->inode * 10 + (uint64_t)(c - '0');
	while (c == ' ')
		c = next(m);
	size_t n = 0;
	for (; c != '\n' && c >= 0; c = next(m))
		if (n < sizeof v->path - 1)
			v->path[n++] = (char)c;
	v->path[n] = 0;
	return true;
}

bool rdsi_vmas_next(struct rdsi_vmas *m, struct rdsi_vma *v)
{
	int err = -EAGAIN;
	while (!m->text && err == -EAGAIN)
		err = ask(m, v);
	if (err && err != -ENOENT)
		m->text = true;
	if (m->text)
		for (err = 0; !err && (err = parse(m, v) ? 0 : -ENOENT) == 0 && v->end <= m->from;)
			;
	if (!err)
		m->from = v->end;
	return !err;
}

int rdsi_vmas_each(uintptr_t start, uintptr_t end, bool whole, int (*visit)(const struct rdsi_vma *v, void *arg), void *arg)
{
	struct rdsi_vmas m;
	struct rdsi_vma v;
	int err = rdsi_vmas_open(&m, start);
	if (err)
		return err;
	uintptr_t at = start;
	while (!err && at < end && rdsi_vmas_next(&m, &v)) {
		if (v.end <= at)
			continue;
		if (v.start >= end || (whole && v.start > at))
			break;
		err = visit(&v, arg);
		at = v.end;
	}
	rdsi_vmas_close(&m);
	return !err && whole && at < end ? -EFAULT : err;
}
