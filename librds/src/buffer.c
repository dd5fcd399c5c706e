#include "adopt.h"
#include "buffer.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "tx.h"

/* set_freed sets whether anything may still name b. It reports whether that changed it. */
static bool set_freed(rds_buffer *b, bool freed)
{
	pthread_mutex_lock(&b->c->tx.mu);
	bool changed = b->freed != freed;
	b->freed = freed;
	pthread_mutex_unlock(&b->c->tx.mu);
	return changed;
}

static void put(rds_buffer *b)
{
	if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
		return;
	pthread_mutex_destroy(&b->mu);
	free(b);
}

void rdsi_buffer_drop(rds_buffer *b) { put(b); }

/* unmap unmaps b. maps_mu is held. */
static void unmap(rds_buffer *b)
{
	if (!rdsi_list_empty(&b->adopted))
		rdsi_adopt_end(b);
	else if (b->map.mem && !b->in_place)
		munmap(b->map.mem, b->map.size);
	b->map.mem = NULL;
	rdsi_list_del(&b->link);
	if (b->orphan) {
		b->orphan = false;
		put(b);
	}
}

/* unmap_one unmaps b, behind the daemon's answer. */
static void unmap_one(rds_buffer *b)
{
	pthread_mutex_lock(&b->c->maps_mu);
	unmap(b);
	pthread_mutex_unlock(&b->c->maps_mu);
}

void rdsi_buffers_unmap(rds_client *c)
{
	while (!rdsi_list_empty(&c->buffers))
		unmap(RDSI_OF(c->buffers.next, rds_buffer, link));
}

/* ask_free asks the daemon to end a buffer. *answered is false if the answer is still to come;
 * late is called with it then. */
static int ask_free(rds_client *c, uint32_t id, bool wait, int64_t deadline, void (*late)(struct rdsi_call *, int), void *arg, bool *answered)
{
	struct rdsi_call *call = rdsi_call_new(IPC_FREE, IPC_OK);
	*answered = true;
	if (!call)
		return -ENOMEM;
	call->len = (uint32_t)(rdsi_put32(rdsi_put32(call->body, id), wait) - call->body);
	call->late = late;
	call->arg = arg;
	int err = rdsi_call_run(c, call, deadline);
	if (err == RDSI_LATE) {
		*answered = false;
		return -ETIMEDOUT;
	}
	rdsi_call_end(call);
	return err;
}

/* map_answer maps the buffer of an AllocOK. */
static int map_answer(rds_client *c, struct rdsi_call *call, rds_buffer *b)
{
	uint64_t size = rdsi_get64(call->body + 4);
	if (call->nfds != 1 || size < b->size || size > UINT64_C(1) << 40)
		return rdsi_broken(c, "an answer of %d descriptors to Alloc of %zu bytes", call->nfds, b->size);
	b->id = rdsi_get32(call->body);
	int err = rdsi_map(call->fds[0], size, true, true, &b->map);
	if (!err && (err = rdsi_buffer_add(b)))
		munmap(b->map.mem, b->map.size);
	bool answered;
	if (err && !rdsi_client_err(c))
		ask_free(c, b->id, false, RDSI_NEVER, NULL, NULL, &answered);
	return err;
}

int rdsi_buffer_add(rds_buffer *b)
{
	rds_client *c = b->c;
	pthread_mutex_lock(&c->maps_mu);
	int err = c->unmapped ? -EBADF : 0;
	if (!err)
		rdsi_list_add(&c->buffers, &b->link);
	pthread_mutex_unlock(&c->maps_mu);
	return err;
}

rds_buffer *rdsi_buffer_new(rds_client *c, size_t size)
{
	rds_buffer *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->refs = 1;
	b->c = c;
	b->size = size;
	pthread_mutex_init(&b->mu, NULL);
	rdsi_list_init(&b->link);
	rdsi_list_init(&b->adopted);
	return b;
}

int rdsi_buffer_alloc(rds_client *c, size_t size, rds_buffer **buffer)
{
	rds_buffer *b = rdsi_buffer_new(c, size);
	struct rdsi_call *call = rdsi_call_new(IPC_ALLOC, IPC_ALLOC_OK);
	int err = b && call ? 0 : -ENOMEM;
	if (!err) {
		call->len = (uint32_t)(rdsi_put64(call->body, size) - call->body);
		if (!(err = rdsi_call_run(c, call, RDSI_NEVER)))
			err = map_answer(c, call, b);
	}
	rdsi_call_end(call);
	if (err) {
		rdsi_buffer_drop(b);
		return err;
	}
	*buffer = b;
	return 0;
}

int rds_alloc(rds_client *c, size_t size, rds_buffer **buffer)
{
	*buffer = NULL;
	if (rdsi_forked(c))
		return -ESTALE;
	if (size == 0)
		return -EINVAL;
	int err = atomic_load(&c->shut) ? -EBADF : rdsi_client_err(c);
	if (!err)
		err = rdsi_buffer_alloc(c, size, buffer);
	if (!err)
		atomic_fetch_add(&c->refs, 1);
	return err;
}

void *rds_buffer_mem(rds_buffer *b)
{
	if (rdsi_forked(b->c))
		return b->map.mem + b->shift;
	pthread_mutex_lock(&b->c->tx.mu);
	void *mem = b->freed || b->c->tx.dead ? NULL : b->map.mem + b->shift;
	pthread_mutex_unlock(&b->c->tx.mu);
	return mem;
}

/* has reports whether b has len bytes at addr. tx.mu and maps_mu are held. */
static bool has(const rds_buffer *b, uintptr_t addr, size_t len)
{
	uintptr_t mem = (uintptr_t)b->map.mem + b->shift;
	return b->map.mem && !b->freed && !b->orphan && addr >= mem && addr - mem < b->size && len <= b->size - (addr - mem);
}

int rds_segment_at(rds_client *c, const void *addr, size_t len, struct rds_segment *segment)
{
	if (rdsi_forked(c))
		return -ESTALE;
	if (len == 0)
		return -EINVAL;
	pthread_mutex_lock(&c->maps_mu); /* ahead of tx.mu: an unmap can take long */
	pthread_mutex_lock(&c->tx.mu);
	int err = c->unmapped ? -EBADF : -EFAULT;
	for (struct rdsi_link *l = c->buffers.next; err && l != &c->buffers; l = l->next) {
		rds_buffer *b = RDSI_OF(l, rds_buffer, link);
		if (has(b, (uintptr_t)addr, len)) {
			*segment = (struct rds_segment){b, (uintptr_t)addr - (uintptr_t)b->map.mem - b->shift, len};
			err = 0;
		}
	}
	pthread_mutex_unlock(&c->tx.mu);
	pthread_mutex_unlock(&c->maps_mu);
	return err;
}

size_t rds_buffer_size(rds_buffer *b) { return rds_buffer_mem(b) ? b->size : 0; }

int rds_buffer_close(rds_buffer *b)
{
	bool answered;
	if (rdsi_forked(b->c))
		return -ESTALE;
	pthread_mutex_lock(&b->mu);
	int err = set_freed(b, true) ? 0 : -EBADF;
	if (!err) {
		err = ask_free(b->c, b->id, false, RDSI_NEVER, NULL, NULL, &answered);
		if (err && !rdsi_client_err(b->c))
			set_freed(b, false); /* refused: it stays what it was */
		if (!err)
			unmap_one(b);
	}
	pthread_mutex_unlock(&b->mu);
	return err;
}

/* freed_late unmaps a buffer whose close was not waited for. */
static void freed_late(struct rdsi_call *call, int err)
{
	rds_buffer *b = call->arg;
	if (!err)
		unmap_one(b);
	put(b);
}

int rds_buffer_close_wait(rds_buffer *b, int timeout_ms)
{
	bool answered;
	if (rdsi_forked(b->c))
		return -ESTALE;
	pthread_mutex_lock(&b->mu); /* not while a close may find it busy */
	bool first = set_freed(b, true);
	pthread_mutex_unlock(&b->mu);
	if (!first)
		return -EBADF;
	atomic_fetch_add(&b->refs, 1);
	int err = ask_free(b->c, b->id, true, rdsi_deadline(timeout_ms), freed_late, b, &answered);
	if (answered) {
		if (!err)
			unmap_one(b);
		put(b);
	}
	return err;
}

void rdsi_buffer_orphan(rds_buffer *b)
{
	pthread_mutex_lock(&b->c->maps_mu);
	if (b->map.mem) { /* the client's list keeps it */
		b->orphan = true;
		atomic_fetch_add(&b->refs, 1);
	}
	pthread_mutex_unlock(&b->c->maps_mu);
	put(b);
}

void rds_buffer_free(rds_buffer *b)
{
	if (!b || rdsi_forked(b->c))
		return;
	rds_client *c = b->c;
	rdsi_buffer_orphan(b);
	rdsi_client_put(c);
}
