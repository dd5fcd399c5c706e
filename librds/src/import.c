/* Memory of the program's own: files of memory that the daemon maps, too. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "buffer.h"
#include "vma.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGETLBFS 0x958458f6

/* A part is len bytes at off of the file fd. */
struct part {
	int fd;
	uint64_t off;
	size_t len;
	size_t page; /* the size of the file's pages */
	dev_t dev;
	ino_t ino;
};

/* check checks that the daemon can map p for good, and sets what it finds. The daemon checks the same. */
static int check(struct part *p)
{
	struct stat st;
	struct statfs fs;
	int seals = fcntl(p->fd, F_GET_SEALS);
	if (seals < 0)
		return errno == EBADF ? -EBADF : -EINVAL; /* no memory */
	if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return -EPERM;
	if (fstat(p->fd, &st) || fstatfs(p->fd, &fs))
		return -errno;
	p->page = (unsigned long)fs.f_type == HUGETLBFS ? (size_t)fs.f_bsize : (size_t)sysconf(_SC_PAGESIZE);
	p->dev = st.st_dev;
	p->ino = st.st_ino;
	if (p->len == 0 || p->len > UINT64_C(1) << 40 || p->off > (uint64_t)INT64_MAX - p->len || p->off + p->len > (uint64_t)st.st_size)
		return -EINVAL;
	return 0;
}

/* fill allocates the pages of b, which is mapped from off of fd, in this process's memory cgroup. The daemon
 * refuses a file with holes. */
static int fill(const rds_buffer *b, int fd, uint64_t off)
{
	int err;
	do
		err = madvise(b->map.mem, b->map.size, MADV_POPULATE_WRITE) ? errno : 0;
	while (err == EINTR);
	if (err == EINVAL) { /* before Linux 5.14 */
		do
			err = fallocate(fd, 0, (off_t)off, (off_t)b->map.size) ? errno : 0;
		while (err == EINTR);
	}
	return err == EFAULT ? -ENOMEM : -err; /* EFAULT: as SIGBUS */
}

int rdsi_import(rds_buffer *b, int fd, uint64_t off, uint64_t len)
{
	int err = fill(b, fd, off);
	if (err)
		return err;
	struct rdsi_call *call = rdsi_call_new(IPC_IMPORT, IPC_IMPORT_OK);
	if (!call)
		return -ENOMEM;
	call->len = (uint32_t)(rdsi_put64(rdsi_put64(call->body, off), len) - call->body);
	call->send_fd = fd;
	err = rdsi_call_run(b->c, call, RDSI_NEVER);
	if (!err)
		b->id = rdsi_get32(call->body);
	rdsi_call_end(call);
	return err;
}

/* may checks that c can import p. */
static int may(rds_client *c, struct part *p)
{
	int err = atomic_load(&c->shut) ? -EBADF : rdsi_client_err(c);
	if (!err && p->len == 0)
		err = -EINVAL;
	if (!err && !c->imports)
		err = -EOPNOTSUPP;
	return err ? err : check(p);
}

/* import makes a buffer of p, whose whole pages are mapped at mem from shift bytes ahead of it. After an error the
 * mapping is the caller's. */
static int import(rds_client *c, const struct part *p, void *mem, size_t shift, bool in_place, rds_buffer **buffer)
{
	rds_buffer *b = rdsi_buffer_new(c, p->len);
	if (!b)
		return -ENOMEM;
	b->in_place = in_place;
	b->shift = shift;
	b->map = (struct rdsi_mapping){mem, rdsi_round_up(shift + p->len, p->page)};
	int err = rdsi_import(b, p->fd, p->off - shift, shift + p->len);
	if (!err)
		err = rdsi_buffer_add(b);
	if (err) {
		rdsi_buffer_drop(b);
		return err;
	}
	atomic_fetch_add(&c->refs, 1);
	*buffer = b;
	return 0;
}

int rds_import(rds_client *c, int fd, uint64_t off, size_t len, rds_buffer **buffer)
{
	struct part p = {.fd = fd, .off = off, .len = len};
	*buffer = NULL;
	if (rdsi_forked(c))
		return -ESTALE;
	int err = may(c, &p);
	if (!err && off % p.page)
		err = -EINVAL;
	if (err)
		return err;
	size_t size = rdsi_round_up(len, p.page);
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)off);
	if (mem == MAP_FAILED)
		return -errno;
	if ((err = import(c, &p, mem, 0, false, buffer)))
		munmap(mem, size);
	return err;
}

/* A place is where a part of a file is to be mapped. */
struct place {
	const struct part *part;
	uintptr_t addr;
};

/* elsewhere is why v does not have the memory of a place; 0 if it has. */
static int elsewhere(const struct rdsi_vma *v, void *arg)
{
	const struct place *at = arg;
	if (!v->shared || v->dev != at->part->dev || v->inode != at->part->ino || v->off - v->start != at->part->off - at->addr)
		return -EINVAL;
	return (v->prot & (PROT_READ | PROT_WRITE)) == (PROT_READ | PROT_WRITE) ? 0 : -EACCES;
}

int rds_import_at(rds_client *c, void *addr, int fd, uint64_t off, size_t len, rds_buffer **buffer)
{
	struct part p = {.fd = fd, .off = off, .len = len};
	struct place at = {&p, (uintptr_t)addr};
	*buffer = NULL;
	if (rdsi_forked(c))
		return -ESTALE;
	int err = may(c, &p);
	if (err)
		return err;
	size_t shift = off % p.page;
	if (at.addr > UINTPTR_MAX - len - p.page)
		return -EFAULT;
	if (at.addr % p.page != shift)
		return -EINVAL;
	uintptr_t start = at.addr - shift;
	err = rdsi_vmas_each(start, start + rdsi_round_up(shift + len, p.page), true, elsewhere, &at);
	return err ? err : import(c, &p, (void *)start, shift, true, buffer);
}
