/*
 * What a fork does to clients. A page that the kernel wipes in the child says in which
 * process one is, so that a call needs no system call to find out. In the child the library
 * closes the descriptors of the session, because otherwise the daemon would not notice the
 * parent's end before the child's.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "adopt.h"
#include "int.h"

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct rdsi_link clients = {&clients, &clients};
static _Atomic uint32_t *page; /* of this process, or of the parent before the first rds_open */
static bool registered;

static void before_fork(void)
{
	pthread_mutex_lock(&mu);
	rdsi_adopt_before_fork();
}

static void after_fork(void)
{
	rdsi_adopt_after_fork();
	pthread_mutex_unlock(&mu);
}

static void close_inherited(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void in_child(void)
{
	rdsi_adopt_in_child(); /* first: until then clients may lie in memory that the parent shares */
	for (struct rdsi_link *l = clients.next; l != &clients; l = l->next) {
		rds_client *c = RDSI_OF(l, rds_client, link);
		close_inherited(&c->ctl.fd);
		close_inherited(&c->daemon_bell);
		close_inherited(&c->bell);
		close_inherited(&c->self);
	}
	rdsi_list_init(&clients);
	pthread_mutex_unlock(&mu);
}

/* new_page makes the page that says which process this is. mu is held. */
static int new_page(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, 4096, MADV_WIPEONFORK)) {
		int err = -errno;
		munmap(p, 4096);
		return err;
	}
	page = p;
	atomic_store(page, 1);
	return 0;
}

int rdsi_fork_handlers(void)
{
	pthread_mutex_lock(&mu);
	int err = registered ? 0 : -pthread_atfork(before_fork, after_fork, in_child);
	registered = registered || !err;
	pthread_mutex_unlock(&mu);
	return err;
}

int rdsi_process_add(rds_client *c)
{
	int err = rdsi_fork_handlers();
	pthread_mutex_lock(&mu);
	if (!err && (!page || atomic_load(page) == 0))
		err = new_page();
	if (!err) {
		c->process = page;
		rdsi_list_add(&clients, &c->link);
	}
	pthread_mutex_unlock(&mu);
	return err;
}

void rdsi_process_del(rds_client *c)
{
	if (rdsi_forked(c))
		return;
	pthread_mutex_lock(&mu);
	rdsi_list_del(&c->link);
	pthread_mutex_unlock(&mu);
}
