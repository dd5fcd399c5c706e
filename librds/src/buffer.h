/* Buffers and regions as the rest of the library sees them. */
#ifndef RDSI_BUFFER_H
#define RDSI_BUFFER_H

#include "int.h"

struct rds_buffer {
	_Atomic int refs; /* the handle, a close that goes on, an orphan's mapping */
	rds_client *c;
	uint32_t id;
	struct rdsi_mapping map; /* guarded by client.maps_mu */
	size_t size;             /* that was asked for */
	size_t shift;            /* where in map these bytes begin */
	bool in_place; /* of rds_import_at: map is the program's own mapping */
	bool was_adopted;
	struct rdsi_link adopted; /* of rds_adopt: map is the program's own memory. See adopt.c */
	bool freed;              /* guarded by tx.mu: nothing may name it any more */
	bool orphan;             /* mapped without a handle; guarded by client.maps_mu */
	pthread_mutex_t mu;      /* one close at a time */
	struct rdsi_link link;   /* in client.buffers, while mapped */
};

struct rds_region {
	struct rdsi_node node; /* in client.regions, while live */
	rds_socket *s;
	uint32_t id;
	uint64_t cookie;
	bool once;  /* RDS_USE_ONCE: the daemon may have ended it already */
	bool live;  /* guarded by client.regions_mu, as is freed */
	bool freed; /* the handle is; the region goes when it is not live */
};

/* rdsi_buffers_unmap unmaps all buffers. maps_mu is held. */
void rdsi_buffers_unmap(rds_client *c);

/* rdsi_regions_end ends the regions of a socket that is being closed. */
void rdsi_regions_end(rds_socket *s);

/* rdsi_region_known reports whether the key of a cookie is that of a live region. */
bool rdsi_region_known(rds_client *c, uint64_t cookie);

/* rdsi_buffer_alloc is rds_alloc. */
int rdsi_buffer_alloc(rds_client *c, size_t size, rds_buffer **buffer);

/* rdsi_buffer_new makes a buffer of size bytes that the daemon does not know yet. */
rds_buffer *rdsi_buffer_new(rds_client *c, size_t size);

/* rdsi_buffer_drop frees a buffer that nothing knows. NULL is ignored. */
void rdsi_buffer_drop(rds_buffer *b);

/* rdsi_buffer_add notes a mapped buffer, which rds_client_close unmaps. It returns -EBADF if
 * the client was closed; then the mapping is the caller's. */
int rdsi_buffer_add(rds_buffer *b);

/* rdsi_import allocates the pages of b, which is mapped, and tells the daemon that b is len bytes at off of the
 * file fd. */
int rdsi_import(rds_buffer *b, int fd, uint64_t off, uint64_t len);

/* rdsi_buffer_orphan gives up the only handle of a buffer, which stays mapped. */
void rdsi_buffer_orphan(rds_buffer *b);

/* rdsi_overtaken turns the answer to a call about a socket into -EBADF if its close was faster
 * than the call. */
int rdsi_overtaken(rds_socket *s, int err);

#endif
