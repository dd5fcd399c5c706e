/*
 * Adopted memory: pages of the program that lie in a memory file of this process, so that the
 * daemon can map them, too. A page lies in the file where it lies in the address space. So
 * ranges that share pages need no agreement: each is a contiguous part of the file.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adopt.h"
#include "move.h"
#include "vma.h"

/* FILE_SIZE is beyond every address. */
#define FILE_SIZE (INT64_C(1) << 52)

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and moves of pages */
static struct rdsi_link adopted = {&adopted, &adopted};
static int file = -1;
static dev_t file_dev;
static ino_t file_ino;
static int parent[2] = {-1, -1}; /* a pipe that the child of a fork closes when it has its copy */

/* lost reports whether the program has closed the memory file, which is not its own. The number
 * may be that of another file since. mu is held. */
static bool lost(void)
{
	struct stat st;
	return fstat(file, &st) || st.st_dev != file_dev || st.st_ino != file_ino;
}

/* open_file makes the memory file. mu is held. */
static int open_file(void)
{
	struct rlimit lim;
	struct stat st;
	if (file >= 0)
		return lost() ? -EBADF : 0;
	if (getrlimit(RLIMIT_FSIZE, &lim))
		return -errno;
	if (lim.rlim_cur != RLIM_INFINITY && lim.rlim_cur < (rlim_t)FILE_SIZE)
		return -EFBIG; /* growing the file would be a signal */
	int fd = memfd_create("rds-adopted", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, FILE_SIZE) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) || fstat(fd, &st)) {
		int err = -errno;
		close(fd);
		return err;
	}
	file = fd;
	file_dev = st.st_dev;
	file_ino = st.st_ino;
	return 0;
}

/* ours reports whether a mapping is of the file, and where it belongs. */
static bool ours(const struct rdsi_vma *v)
{
	return file >= 0 && v->shared && v->dev == file_dev && v->inode == file_ino && v->off == v->start;
}

/* refused is why a mapping cannot be adopted; 0 if it can. here is on the caller's stack. */
static int refused(const struct rdsi_vma *v, uintptr_t here)
{
	bool named = v->path[0] && strcmp(v->path, "[heap]") && strncmp(v->path, "[anon:", 6);
	if (v->shared || v->inode || named || (here >= v->start && here < v->end))
		return -EINVAL;
	return v->prot == (PROT_READ | PROT_WRITE) ? 0 : -EACCES;
}

/* A plan is the parts of a range that are to be moved, found before anything is. Moving them
 * changes the list of mappings. */
struct plan {
	uintptr_t start, end; /* of the range */
	uintptr_t here;       /* an address on the caller's stack, or 0 */
	bool in;              /* into the file, or back */
	uintptr_t from, to;   /* the next part; from == to: there is none */
	int prot;
};

static uintptr_t later(uintptr_t a, uintptr_t b) { return a > b ? a : b; }
static uintptr_t earlier(uintptr_t a, uintptr_t b) { return a < b ? a : b; }

/* look takes a mapping into a plan: the first part that is to be moved. */
static int look(const struct rdsi_vma *v, void *arg)
{
	struct plan *p = arg;
	int err = !p->in || ours(v) ? 0 : refused(v, p->here);
	if (err || p->in == ours(v) || p->from < p->to)
		return err;
	p->from = later(v->start, p->start);
	p->to = earlier(v->end, p->end);
	p->prot = v->prot;
	return 0;
}

/* move_in brings all pages of a range into the file. mu is held. */
static int move_in(uintptr_t start, uintptr_t end)
{
	char here;
	struct plan p = {.start = start, .end = end, .here = (uintptr_t)&here, .in = true};
	for (;;) {
		p.from = p.to = 0;
		int err = rdsi_vmas_each(start, end, true, look, &p);
		if (err || p.from == p.to)
			return err;
		if ((err = rdsi_move_in(file, p.from, p.to)))
			return err;
	}
}

/* move_out makes those pages of a range private that are in the file, and are mapped where they
 * were adopted. Without memory for a copy it fails, or in a child maps the file privately: then
 * the child may see what its parent writes later. mu is held. */
static int move_out(uintptr_t start, uintptr_t end, bool child)
{
	struct plan p = {.start = start, .end = end};
	for (;;) {
		p.from = p.to = 0;
		int err = rdsi_vmas_each(p.start, end, false, look, &p);
		if (!err && p.from == p.to)
			return 0;
		if (!err)
			err = rdsi_move_out(file, p.from, p.to, p.prot);
		if (err && child && p.from < p.to && mmap((void *)p.from, p.to - p.from, p.prot, MAP_PRIVATE | MAP_FIXED, file, (off_t)p.from) != MAP_FAILED)
			err = 0;
		if (err)
			return err;
		p.start = p.to;
	}
}

/* drop makes pages private, and frees them in the file, unless another adopted buffer has them.
 * mu is held. */
static int drop(uintptr_t start, uintptr_t end)
{
	int err = lost() ? -EBADF : 0;
	for (uintptr_t at = start, until; at < end && !err; at = until) {
		bool covered = false;
		until = end;
		for (struct rdsi_link *l = adopted.next; l != &adopted && !covered; l = l->next) {
			const struct rdsi_mapping *o = &RDSI_OF(l, rds_buffer, adopted)->map;
			uintptr_t from = (uintptr_t)o->mem, to = from + o->size;
			covered = from <= at && at < to;
			if (covered)
				until = earlier(to, end);
			else if (from > at)
				until = earlier(from, until);
		}
		if (covered)
			continue;
		err = move_out(at, until, false);
		if (!err)
			fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)(until - at));
	}
	return err;
}

void rdsi_adopt_end(rds_buffer *b)
{
	pthread_mutex_lock(&mu);
	rdsi_list_del(&b->adopted);
	/* Without memory for the copy, or without the file, the pages stay there, and do no harm. */
	drop((uintptr_t)b->map.mem, (uintptr_t)b->map.mem + b->map.size);
	pthread_mutex_unlock(&mu);
}

/* take brings the memory of b into the file. */
static int take(rds_buffer *b)
{
	uintptr_t start = (uintptr_t)b->map.mem, end = start + b->map.size;
	pthread_mutex_lock(&mu);
	int err = open_file();
	if (!err && !(err = move_in(start, end)))
		rdsi_list_add(&adopted, &b->adopted);
	else if (file >= 0)
		drop(start, end);
	pthread_mutex_unlock(&mu);
	return err;
}

int rds_adopt(rds_client *c, void *addr, size_t len, rds_buffer **buffer)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)addr & ~(page - 1);
	*buffer = NULL;
	if (rdsi_forked(c))
		return -ESTALE;
	int err = atomic_load(&c->shut) ? -EBADF : rdsi_client_err(c);
	if (err)
		return err;
	if (len == 0 || len > UINT64_C(1) << 40)
		return -EINVAL;
	if ((uintptr_t)addr > (uintptr_t)FILE_SIZE - len - page)
		return -EFAULT;
	if (!c->imports)
		return -EOPNOTSUPP;
	rds_buffer *b = rdsi_buffer_new(c, len);
	if (!b)
		return -ENOMEM;
	b->was_adopted = true;
	b->shift = (uintptr_t)addr - start;
	b->map = (struct rdsi_mapping){(uint8_t *)start, rdsi_round_up(b->shift + len, page)};
	if (!(err = take(b)) && ((err = rdsi_import(b, file, start, b->shift + len)) || (err = rdsi_buffer_add(b))))
		rdsi_adopt_end(b);
	if (err) {
		rdsi_buffer_drop(b);
		return err;
	}
	atomic_fetch_add(&c->refs, 1);
	*buffer = b;
	return 0;
}

/* not_ours finds a mapping that is not adopted. */
static int not_ours(const struct rdsi_vma *v, void *arg) { return ours(v) ? 0 : -EINVAL; }

int rds_adopted(rds_buffer *b)
{
	if (rdsi_forked(b->c) || !b->was_adopted)
		return 0;
	const uint8_t *mem = rds_buffer_mem(b);
	if (!mem)
		return 0;
	uintptr_t start = (uintptr_t)mem - b->shift;
	pthread_mutex_lock(&mu);
	int err = rdsi_vmas_each(start, start + b->map.size, true, not_ours, NULL);
	pthread_mutex_unlock(&mu);
	return !err;
}

int rds_unadopt(rds_buffer *b)
{
	if (!rdsi_forked(b->c) && !b->was_adopted)
		return -EINVAL;
	return rds_buffer_close(b);
}

/* ---- Fork ---------------------------------------------------------------------------- */

void rdsi_adopt_before_fork(void)
{
	pthread_mutex_lock(&mu);
	if (!rdsi_list_empty(&adopted) && pipe2(parent, O_CLOEXEC))
		parent[0] = parent[1] = -1; /* the child may then see what the parent writes next */
}

static void close_end(int i)
{
	if (parent[i] >= 0)
		close(parent[i]);
	parent[i] = -1;
}

/* rdsi_adopt_after_fork waits in the parent until the child has its copy, or has ended. */
void rdsi_adopt_after_fork(void)
{
	char c;
	close_end(1);
	while (parent[0] >= 0 && read(parent[0], &c, 1) < 0 && errno == EINTR)
		;
	close_end(0);
	pthread_mutex_unlock(&mu);
}

void rdsi_adopt_in_child(void)
{
	close_end(0);
	bool have = file >= 0 && !lost(); /* else the child shares the pages with its parent */
	for (struct rdsi_link *l = adopted.next; have && l != &adopted; l = l->next) {
		const struct rdsi_mapping *m = &RDSI_OF(l, rds_buffer, adopted)->map;
		move_out((uintptr_t)m->mem, (uintptr_t)m->mem + m->size, true);
	}
	rdsi_list_init(&adopted);
	if (have)
		close(file);
	file = -1;
	close_end(1);
	pthread_mutex_unlock(&mu);
}
