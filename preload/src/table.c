/* The table of descriptors: which of the program's are RDS sockets, and which are hidden. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../librds/src/int.h"
#include "fault.h"
#include "pre.h"
#include "rdsfd.h"
#undef close
#undef memfd_create
#undef pipe2
#include "../../librds/src/cancel.h"

enum { TABLE = 1 << 20 }; /* descriptors; memory only for those in use */

static _Atomic(_Atomic(struct pre_sock *) *) table; /* NULL until the first RDS socket */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct pre_sock *unused, *all;
static bool registered;
static _Atomic pid_t process;

/* A hidden descriptor is marked by the address of this socket, which never has references. */
static struct pre_sock hidden;

static inline struct pre_sock *entry(int fd)
{
	_Atomic(struct pre_sock *) *t = atomic_load_explicit(&table, memory_order_acquire);
	return t && (unsigned)fd < TABLE ? atomic_load_explicit(&t[fd], memory_order_acquire) : NULL;
}

bool pre_is(int fd)
{
	struct pre_sock *s = entry(fd);
	return s && s != &hidden;
}

bool pre_fits(int fd) { return (unsigned)fd < TABLE; }

bool pre_hidden(int fd) { return entry(fd) == &hidden; }

struct pre_sock *pre_get(int fd)
{
	struct pre_sock *s;
	while ((s = entry(fd)) && s != &hidden) {
		uint32_t n = atomic_load(&s->refs);
		while (n && !atomic_compare_exchange_weak(&s->refs, &n, n + 1))
			;
		if (n && entry(fd) == s)
			return s;
		if (n)
			pre_put(s);
	}
	return NULL;
}

static void recycle(struct pre_sock *s)
{
	pthread_mutex_lock(&mu);
	s->next_free = unused;
	unused = s;
	pthread_mutex_unlock(&mu);
}

void pre_put(struct pre_sock *s)
{
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	int err = errno;
	pre_release(s);
	recycle(s);
	errno = err;
}

static void before_fork(void) { pthread_mutex_lock(&mu); }
static void in_parent(void) { pthread_mutex_unlock(&mu); }

/* lose makes a socket of the parent usable again, as far as it can be. What other threads were
 * doing with it is not known. */
static void lose(struct pre_sock *s)
{
	pthread_mutex_init(&s->mu, NULL);
	pthread_mutex_init(&s->watching, NULL);
	if (atomic_load(&s->rs))
		atomic_store(&s->lost, true);
}

static void in_child(void)
{
	pthread_mutex_init(&mu, NULL);
	pre_adopt_in_child();
	pre_catch_in_child();
	atomic_store(&process, getpid());
	for (struct pre_sock *s = all; s; s = s->next_all)
		if (atomic_load(&s->refs))
			lose(s);
}

bool pre_same_process(void) { return getpid() == atomic_load(&process); }

/* make_table makes the table with the first socket. mu is held. */
static int make_table(void)
{
	if (atomic_load(&table))
		return 0;
	void *p = mmap(NULL, TABLE * sizeof(void *), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	/* Behind librds's: sockets may lie in memory of the program that is adopted. */
	if (!registered && (rdsi_fork_handlers() || pthread_atfork(before_fork, in_parent, in_child))) {
		munmap(p, TABLE * sizeof(void *));
		return -ENOMEM;
	}
	registered = true;
	atomic_store(&process, getpid());
	atomic_store_explicit(&table, p, memory_order_release);
	return 0;
}

struct pre_sock *pre_sock_new(void)
{
	struct pre_sock *s = NULL, *next_all;
	pthread_mutex_lock(&mu);
	if (!make_table()) {
		s = unused;
		if (s) {
			unused = s->next_free;
		} else if ((s = calloc(1, sizeof *s))) {
			s->next_all = all;
			all = s;
		}
	}
	if (s) {
		next_all = s->next_all;
		memset((char *)s + offsetof(struct pre_sock, next_free), 0, sizeof *s - offsetof(struct pre_sock, next_free));
		s->next_all = next_all;
		s->own = s->end = s->travelled = -1;
		pthread_mutex_init(&s->mu, NULL);
		pthread_mutex_init(&s->watching, NULL);
		atomic_store(&s->refs, 1);
	}
	pthread_mutex_unlock(&mu);
	return s;
}

void pre_socks(void (*f)(struct pre_sock *s, void *arg), void *arg)
{
	pthread_mutex_lock(&mu);
	for (struct pre_sock *s = all; s; s = s->next_all)
		if (atomic_load(&s->refs))
			f(s, arg);
	pthread_mutex_unlock(&mu);
}

int pre_set(int fd, struct pre_sock *s)
{
	_Atomic(struct pre_sock *) *t = atomic_load_explicit(&table, memory_order_acquire);
	if (!t || fd < 0)
		return 0;
	if (fd >= TABLE)
		return s ? -EMFILE : 0;
	if (!s && !atomic_load(&t[fd])) /* most descriptors */
		return 0;
	if (s)
		atomic_fetch_add(&s->refs, 1);
	struct pre_sock *old = atomic_exchange(&t[fd], s);
	if (old && old != &hidden)
		pre_put(old);
	return 0;
}

int pre_lift(int fd)
{
	struct rlimit lim;
	int base = 512;
	if (!getrlimit(RLIMIT_NOFILE, &lim) && lim.rlim_cur / 2 < TABLE / 2)
		base = (int)(lim.rlim_cur / 2);
	int high = real_fcntl(fd, F_DUPFD_CLOEXEC, base);
	if (high < 0)
		high = real_fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (high < 0)
		return -errno;
	if (high >= TABLE) {
		real_close(high);
		return -EMFILE;
	}
	real_close(fd);
	atomic_store(&atomic_load(&table)[high], &hidden);
	return high;
}

/* lifted hides a descriptor that a call of librds has just made. */
static int lifted(int fd)
{
	int high = fd < 0 ? -errno : pre_lift(fd);
	if (high >= 0)
		return high;
	if (fd >= 0)
		real_close(fd);
	errno = -high;
	return -1;
}

int pre_memfd_hidden(const char *name, unsigned flags) { return lifted(memfd_create(name, flags)); }

int pre_pipe_hidden(int fds[2], int flags)
{
	if (pipe2(fds, flags))
		return -1;
	fds[0] = lifted(fds[0]);
	fds[1] = lifted(fds[1]);
	if (fds[0] >= 0 && fds[1] >= 0)
		return 0;
	int err = errno;
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			pre_close_hidden(fds[i]);
	errno = err;
	return -1;
}

/* librds closes with it, too. */
int pre_close_hidden(int fd)
{
	pre_start();
	if (pre_hidden(fd))
		atomic_store(&atomic_load(&table)[fd], NULL);
	return RDSI_UNCANCELLED(real_close(fd));
}

/* pre_close_range closes what is the program's in the range. */
int pre_close_range(unsigned first, unsigned last, int flags)
{
	unsigned end = last < TABLE - 1 ? last : TABLE - 1, from = first;
	_Atomic(struct pre_sock *) *t = atomic_load(&table);
	for (unsigned fd = first; t && fd <= end; fd++) {
		struct pre_sock *s = atomic_load_explicit(&t[fd], memory_order_relaxed);
		if (!s)
			continue;
		if (s != &hidden) {
			pre_set((int)fd, NULL);
			continue;
		}
		if (from < fd && real_close_range(from, fd - 1, flags))
			return -errno;
		from = fd + 1;
	}
	return from > last || !real_close_range(from, last, flags) ? 0 : -errno;
}
