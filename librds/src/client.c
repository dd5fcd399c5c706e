/* The life of a client: its end, for whatever reason, and what is freed when. */
#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "buffer.h"
#include "int.h"
#include "pollfd.h"
#include "rx.h"
#include "tx.h"

static void init_locks(rds_client *c)
{
	pthread_mutex_t *all[] = {&c->tx.mu, &c->rx.mu, &c->polls.mu, &c->words.mu, &c->binds, &c->maps_mu, &c->regions_mu, &c->err_mu};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		pthread_mutex_init(all[i], NULL);
}

/* rdsi_client_new makes a client that is not attached. */
int rdsi_client_new(rds_client **client)
{
	rds_client *c = calloc(1, sizeof *c);
	if (!c)
		return -ENOMEM;
	init_locks(c);
	rdsi_ctl_init(&c->ctl);
	rdsi_waiters_init(&c->wait);
	rdsi_list_init(&c->polls.fds);
	rdsi_list_init(&c->buffers);
	rdsi_list_init(&c->link);
	rdsi_list_init(&c->tx.over);
	rdsi_arena_init(&c->tx.arena);
	c->refs = 1;
	c->daemon_bell = c->bell = c->self = -1;
	c->ctl.frame = malloc(IPC_MAX_FRAME);
	int err = c->ctl.frame ? rdsi_process_add(c) : -ENOMEM;
	if (err) {
		free(c->ctl.frame);
		free(c);
		return err;
	}
	*client = c;
	return 0;
}

void rdsi_fail(rds_client *c, int err, const char *format, ...)
{
	int none = 0;
	va_list ap;
	pthread_mutex_lock(&c->err_mu);
	if (atomic_load(&c->err) == 0) {
		va_start(ap, format);
		vsnprintf(c->reason, sizeof c->reason, format, ap);
		va_end(ap);
	}
	atomic_compare_exchange_strong(&c->err, &none, err);
	pthread_mutex_unlock(&c->err_mu);
	rdsi_notify_everybody(c, WANT_ALL);
	rdsi_polls_ring_all(c);
}

int rdsi_broken(rds_client *c, const char *format, ...)
{
	char text[128];
	va_list ap;
	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	/* After the end of a session the daemon empties its rings: the reason came before. */
	struct pollfd p = {.fd = c->ctl.fd, .events = POLLRDHUP};
	if (poll(&p, 1, 0) > 0)
		rdsi_ctl_poll(c);
	rdsi_fail(c, -ECONNABORTED, "the daemon broke the memory contract: %s", text);
	return rdsi_client_err(c);
}

int rds_client_error(rds_client *c, char *text, size_t size)
{
	if (rdsi_forked(c)) {
		if (text && size)
			snprintf(text, size, "the client was opened before a fork, in the parent");
		return -ESTALE;
	}
	if (!rdsi_client_err(c))
		rdsi_ctl_poll(c);
	pthread_mutex_lock(&c->err_mu);
	int err = rdsi_client_err(c);
	if (text && size)
		snprintf(text, size, "%s", err ? c->reason : "");
	pthread_mutex_unlock(&c->err_mu);
	return err;
}

/* The count of pins doubles as the futex of the thread that closes. */
void rdsi_pin(rds_client *c) { atomic_fetch_add(&c->pins, 1); }

void rdsi_unpin(rds_client *c)
{
	if (atomic_fetch_sub(&c->pins, 1) == 1 && atomic_load(&c->shut))
		syscall(SYS_futex, &c->pins, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wait_pins(rds_client *c)
{
	int n;
	while ((n = atomic_load(&c->pins)) != 0)
		syscall(SYS_futex, &c->pins, FUTEX_WAIT_PRIVATE, n, NULL, NULL, 0);
}

bool rdsi_daemon_sleeps(rds_client *c)
{
	if (!rdsi_wake_needed(c->seg.daemon_asleep))
		return false;
	rdsi_pin(c); /* the descriptor must not be used again before the ring */
	return true;
}

void rdsi_ring_daemon(rds_client *c)
{
	rdsi_ring_pipe(c->daemon_bell);
	rdsi_unpin(c);
}

static void unmap(struct rdsi_mapping *m)
{
	if (m->mem)
		munmap(m->mem, m->size);
	m->mem = NULL;
}

static void unmap_all(rds_client *c)
{
	pthread_mutex_lock(&c->maps_mu);
	c->unmapped = true;
	for (uint32_t i = 0; i < c->nwindows; i++)
		unmap(&c->windows[i]);
	c->nwindows = 0;
	unmap(&c->segment);
	unmap(&c->table);
	rdsi_buffers_unmap(c);
	pthread_mutex_unlock(&c->maps_mu);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* shut ends all use of the memory, waits until nobody is using it, and unmaps it. */
static void shut(rds_client *c)
{
	atomic_store(&c->shut, true);
	rdsi_fail(c, -EBADF, "the client was closed");
	rdsi_waiters_close(c);
	rdsi_polls_join(c);
	rdsi_rx_close(c);
	rdsi_tx_close(c);
	wait_pins(c);
	rdsi_ctl_shut(c);
	rdsi_process_del(c);
	close_fd(&c->daemon_bell);
	close_fd(&c->bell);
	close_fd(&c->self);
	unmap_all(c);
}

int rds_client_close(rds_client *c)
{
	bool no = false;
	if (rdsi_forked(c))
		return -ESTALE;
	if (!atomic_compare_exchange_strong(&c->shut, &no, true))
		return -EBADF;
	shut(c);
	return 0;
}

void rds_client_free(rds_client *c)
{
	if (!c || rdsi_forked(c))
		return;
	rds_client_close(c);
	rdsi_client_put(c);
}

/* destroy frees what is private. */
static void destroy(rds_client *c)
{
	rdsi_words_end(c);
	rdsi_tx_free(c);
	rdsi_rx_free(c);
	rdsi_ctl_free(&c->ctl);
	rdsi_free_options(c);
	rdsi_hash_end(&c->regions);
	free(c->windows);
	free(c);
}

void rdsi_client_put(rds_client *c)
{
	if (atomic_fetch_sub(&c->refs, 1) == 1)
		destroy(c);
}
