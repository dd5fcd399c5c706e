/* Memory of the program's own: files of memory that the daemon maps, too. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "buffer.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGETLBFS 0x958458f6

/* check checks that len bytes at off of fd can be mapped for good. The daemon checks the same.
 * *page is the size of the file's pages. */
static int check(int fd, uint64_t off, size_t len, size_t *page)
{
	struct stat st;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0)
		return errno == EBADF ? -EBADF : -EINVAL; /* no memory */
	if (!(seals & F_SEAL_SHRINK) || seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return -EPERM;
	if (fstat(fd, &st) || fstatfs(fd, &fs))
		return -errno;
	*page = (unsigned long)fs.f_type == HUGETLBFS ? (size_t)fs.f_bsize : (size_t)sysconf(_SC_PAGESIZE);
	if (len == 0 || len > UINT64_C(1) << 40 || off > (uint64_t)INT64_MAX - len || off + len > (uint64_t)st.st_size || off % *page)
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

int rds_import(rds_client *c, int fd, uint64_t off, size_t len, rds_buffer **buffer)
{
	size_t page = 0; /* errno is not 0 where check fails, which gcc for arm64 cannot know */
	*buffer = NULL;
	if (rdsi_forked(c))
		return -ESTALE;
	int err = atomic_load(&c->shut) ? -EBADF : rdsi_client_err(c);
	if (!err && len == 0)
		err = -EINVAL;
	if (!err && !c->imports)
		err = -EOPNOTSUPP;
	if (!err)
		err = check(fd, off, len, &page);
	if (err)
		return err;
	rds_buffer *b = rdsi_buffer_new(c, len);
	if (!b)
		return -ENOMEM;
	b->map.size = rdsi_round_up(len, page);
	void *mem = mmap(NULL, b->map.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)off);
	if (mem == MAP_FAILED) {
		err = -errno;
	} else {
		b->map.mem = mem;
		if ((err = rdsi_import(b, fd, off, len)) || (err = rdsi_buffer_add(b)))
			munmap(mem, b->map.size);
	}
	if (err) {
		rdsi_buffer_drop(b);
		return err;
	}
	atomic_fetch_add(&c->refs, 1);
	*buffer = b;
	return 0;
}
