/* rds/op.h - RDMA operations, their statuses, and the memory that they use. Include rds/rds.h. */
#ifndef RDS_OP_H
#define RDS_OP_H

#include <rds/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An rds_segment is a piece of a buffer. It belongs to an operation until the operation is
 * locally complete. */
struct rds_segment {
	rds_buffer *buffer;
	size_t off;
	size_t len;
};

enum rds_op_kind {
	RDS_OP_WRITE = 1,     /* local memory to the remote region */
	RDS_OP_READ = 2,      /* remote region to local memory */
	RDS_OP_FETCH_ADD = 3, /* rds_atomic: adds, returns the value before */
	RDS_OP_CMP_SWAP = 4   /* rds_atomic: stores if equal, returns the value before */
};

/* Flags of operations. */
#define RDS_OP_NOTIFY 1u /* queue a completion when the operation is settled */
#define RDS_OP_REPORT 2u /* queue a completion if it is no success */
#define RDS_OP_SILENT 4u /* do not deliver the message; counts if it has no payload and all its operations are silent */
/* Of an rds_rdma: the region has to be one of the socket that the message is for. If it is of
 * another socket of that host, the operation ends with RDS_REMOTE_ERROR, EACCES. Use it
 * with a cookie that the other side has sent: it may name a third party's memory. */
#define RDS_OP_OWNER 8u

/*
 * An rds_rdma is a read or write that a message carries. One of more than RDS_MAX_RDMA bytes
 * goes to the other host in pieces, and other sockets' operations go between them. It is one
 * operation all the same: it has one id and one status, and its message is delivered behind
 * the last piece, and only if all pieces were successful. After another status than
 * RDS_SUCCESS any of its bytes may have been moved.
 */
struct rds_rdma {
	uint32_t kind;  /* RDS_OP_WRITE or RDS_OP_READ */
	uint32_t flags; /* RDS_OP_... */
	uint64_t cookie;
	uint64_t remote_off;             /* in the remote region, bytes */
	const struct rds_segment *local; /* 1 to 1024 segments, none empty, at most 1 GiB together */
	size_t segments;
	uint64_t token; /* comes back in the completion */
};

/* An rds_atomic is an operation on 8 aligned bytes of remote memory, a number in the target
 * host's byte order. The value before goes to local. */
struct rds_atomic {
	uint32_t kind;  /* RDS_OP_FETCH_ADD or RDS_OP_CMP_SWAP */
	uint32_t flags; /* RDS_OP_... */
	uint64_t cookie;
	uint64_t remote_off;
	struct rds_segment local; /* 8 bytes at a multiple of 8 */
	uint64_t add;             /* FETCH_ADD */
	uint64_t no_carry;        /* FETCH_ADD: each bit set is the top bit of a field that the carry does not leave */
	uint64_t compare, swap;   /* CMP_SWAP */
	uint64_t compare_mask, swap_mask; /* CMP_SWAP with masked: the bits to compare and to store; else 0 */
	uint32_t masked;
	uint64_t token;
};

enum rds_status {
	RDS_SUCCESS = 0,      /* delivered with its message; a message: acknowledged */
	RDS_REMOTE_ERROR = 1, /* failed at the target, or refused: see err */
	RDS_CANCELED = 2,     /* withdrawn */
	RDS_DROPPED = 3,      /* not delivered, and never will be; err is ECONNREFUSED if no socket was there */
	RDS_OTHER_ERROR = 4,  /* failed locally: see err */
	RDS_UNKNOWN = 5       /* not known, and never will be */
};

/*
 * An rds_completion is the one status of an operation, or of a message (RDS_NOTIFY). err is the
 * reason, where this host's daemon found it. rds_completion_text has it in words.
 *
 * RDS_REMOTE_ERROR: EINVAL the cookie is of no region, or of one that was never granted to this
 * host, or an atomic is not aligned; EACCES the region is not granted to this socket's port, or
 * not with the right for the operation, or RDS_OP_OWNER forbids it; ERANGE it ends before the
 * operation does; EFAULT the local memory; EMSGSIZE the length; EOPNOTSUPP no RDMA on the way to
 * the host (RDS/TCP); ENOBUFS a quota. RDS_DROPPED: ECONNREFUSED no socket was there. Else, or if
 * the target itself refused, 0.
 */
struct rds_completion {
	uint64_t token;
	uint64_t id;          /* barrier id, 0: of a message */
	struct rds_addr to;   /* host; the port is 0 */
	uint32_t status;      /* enum rds_status */
	int32_t err;          /* errno, or 0: see above */
};

/* rds_status_error returns 0 for success, else the negative errno of a status: -EIO,
 * -ECANCELED, -EPIPE (dropped) or -ETIME (unknown). */
RDS_API int rds_status_error(uint32_t status);

/* rds_completion_text returns what a completion says, with the reason and what to do. The text is
 * never NULL, and valid until the next call of the thread. */
RDS_API const char *rds_completion_text(const struct rds_completion *completion);

/* rds_completions takes up to count completions, in the order in which the operations were
 * settled, and returns how many. It does not wait. */
RDS_API ssize_t rds_completions(rds_socket *socket, struct rds_completion *completions, size_t count);

/* rds_hwm stores the high-water mark of the operations that the socket has sent to the host
 * of addr: operations 1 to *id are locally complete, so their memory is the caller's. */
RDS_API int rds_hwm(rds_socket *socket, const struct rds_addr *addr, uint64_t *id);

/* rds_barrier waits until the operations up to id to the host of addr are locally complete.
 * A negative timeout waits without limit. Errors: -EINVAL the id was not issued;
 * -ETIMEDOUT; -EINTR; -ECANCELED (rds_wake). */
RDS_API int rds_barrier(rds_socket *socket, const struct rds_addr *addr, uint64_t id, int timeout_ms);

/* rds_barrier_all waits until every operation issued so far is locally complete. */
RDS_API int rds_barrier_all(rds_socket *socket, int timeout_ms);

/* rds_wait_op waits for the completion of one operation and takes it out of the queue.
 * Errors: those of rds_barrier; -EINVAL none will come. */
RDS_API int rds_wait_op(rds_socket *socket, const struct rds_addr *addr, uint64_t id, struct rds_completion *completion, int timeout_ms);

/*
 * rds_transfer runs one read or write without a message, and waits until its memory is the
 * caller's again and its outcome is known. Of op->flags only RDS_OP_OWNER counts. timeout_ms
 * limits the wait and the operation. It returns 0, or rds_status_error of the status; then
 * *completion, unless NULL, has the details. After -ETIMEDOUT or -EINTR the outcome is unknown,
 * and the memory is in use until rds_barrier_all returns 0.
 *
 * If the host turns out not to be reached before the operation has gone out, it is withdrawn:
 * it has not run and never will. The error is that of rds_reach. If it has gone out, it waits.
 */
RDS_API int rds_transfer(rds_socket *socket, const struct rds_addr *to, const struct rds_rdma *op, struct rds_completion *completion, int timeout_ms);

/* rds_atomic_op does the same for an atomic, and stores the value before in *old. If
 * atomic->local.buffer is NULL the library uses memory of its own. */
RDS_API int rds_atomic_op(rds_socket *socket, const struct rds_addr *to, const struct rds_atomic *atomic, uint64_t *old, struct rds_completion *completion, int timeout_ms);

/* rds_reach says whether the host of to is reached. It does not block. It returns 0 if the host is
 * reached, if the daemon does not try to reach it, or if to is no destination of the socket. Else it
 * returns why not: -EACCES, -EHOSTUNREACH, -ECONNREFUSED, -EHOSTDOWN or -EPERM, see enum rds_reason.
 * RDS_UNTIL_UNREACHABLE waits for that. Other errors: -EBADF the socket or client was closed;
 * -ESTALE. */
RDS_API int rds_reach(rds_socket *socket, const struct rds_addr *to);

/* rds_withdraw withdraws an operation, and its message, if it has not gone out: it never runs, and
 * its completion is RDS_DROPPED. An operation that has gone out goes on. The completion comes in
 * either case. rds_withdraw returns 0, also if the completion has come; it blocks while the
 * submission ring is full. Errors: -EINVAL no completion will come; -EINTR; -EBADF, -ESTALE as
 * rds_reach; the session's error. A daemon before 0.3 withdraws nothing. */
RDS_API int rds_withdraw(rds_socket *socket, const struct rds_addr *to, uint64_t id);

/* rds_alloc makes a buffer of size bytes, page aligned and zeroed. It is a call to the
 * daemon. Errors: -EINVAL size 0 or above 1 TiB; -ENOMEM, -ENOBUFS, -EMFILE, -ENFILE. */
RDS_API int rds_alloc(rds_client *client, size_t size, rds_buffer **buffer);

/*
 * rds_import makes a buffer of memory that the program has: len bytes at off of the file fd,
 * which is of memfd_create, of shm_open, or in a tmpfs or hugetlbfs. The file may be written, and is not
 * sealed against writing. off is a multiple of the page size. Files of huge pages are for root
 * and for the user of the daemon. The buffer is a mapping of its own, and fd stays the
 * caller's. It is a call to the daemon. Holes of the file in that range are filled with zeros
 * first, in the program's memory.
 *
 * While the buffer is open its pages must stay: the session ends if the file is cut short or
 * gets holes. Seal a memfd against shrinking (F_SEAL_SHRINK) if another program has it, too.
 *
 * Errors: -EINVAL the file is no memory, off is inside a page, or the file does not have the
 * range; -EPERM seals, huge pages; -EACCES fd is not open for writing; -EBADF fd; -EOPNOTSUPP the
 * daemon or its kernel (before Linux 5.9) is too old; those of rds_alloc. A daemon before 0.3
 * refuses a file that is not sealed against shrinking: -EPERM.
 */
RDS_API int rds_import(rds_client *client, int fd, uint64_t off, size_t len, rds_buffer **buffer);

/*
 * rds_import_at is rds_import of memory that the program has mapped already: the byte at addr is
 * the one at off of fd, by a shared mapping that can be read and written. The buffer is that mapping:
 * rds_buffer_mem is addr. The library neither maps nor unmaps anything, and the mapping has to
 * stay until the buffer is closed. addr and off may be inside a page, at the same distance from its
 * begin. Ranges may overlap.
 *
 * Errors: -EFAULT a part is not mapped; -EACCES a part may not be read and written; -EINVAL a part
 * is a private mapping, or one of another file or offset; those of rds_import.
 */
RDS_API int rds_import_at(rds_client *client, void *addr, int fd, uint64_t off, size_t len, rds_buffer **buffer);

/*
 * rds_adopt makes a buffer of the len bytes at addr, which stay where they are: memory of
 * malloc, of anonymous private mappings, of the data of the heap. rds_buffer_mem is addr. The
 * whole pages around them are copied once into a memory file that the daemon maps, and mapped
 * over in place. Operations then need no copy. Ranges may overlap, or share pages.
 *
 * Other threads may read the memory during the call. A thread that writes there waits: the
 * library installs a handler of SIGSEGV at the first call, which passes everything else on
 * to the handler before it. A system call that writes there fails with EFAULT. Writes that are
 * in progress (O_DIRECT, io_uring) are lost, as are those of a thread that blocks SIGSEGV: it
 * is killed. Stacks of threads must not be adopted. The calling thread's is refused.
 *
 * A child of fork gets a copy of its own, made before fork returns in the parent. A child made
 * by clone or vfork without exec shares the memory with its parent. After
 * madvise(MADV_DONTNEED) adopted memory keeps its contents.
 *
 * Errors: -EFAULT a part is not mapped; -EACCES a part may not be read and written; -EINVAL a
 * part is a mapping of a file, shared memory (rds_import_at), huge pages, or the stack; -EFBIG the limit of
 * file sizes (RLIMIT_FSIZE); those of rds_import. The memory is unchanged then.
 */
RDS_API int rds_adopt(rds_client *client, void *addr, size_t len, rds_buffer **buffer);

/* rds_adopted returns 1 while the buffer is adopted memory, all of it, and else 0: it is when
 * the program has unmapped a part, or mapped something else there, as malloc and free do with
 * large blocks. Such a buffer is of no more use. rds_adopt of the new memory makes another. */
RDS_API int rds_adopted(rds_buffer *buffer);

/* rds_unadopt closes the buffer as rds_buffer_close does. Pages that are in no other adopted
 * buffer become private memory again, with their contents. Closing the buffer or the client in
 * another way does the same. -EINVAL: the buffer is not of rds_adopt. */
RDS_API int rds_unadopt(rds_buffer *buffer);

/* rds_buffer_mem returns the memory, or NULL after the buffer or its client was closed. */
RDS_API void *rds_buffer_mem(rds_buffer *buffer);

/* rds_buffer_size returns the size that was asked for, 0 after the buffer was closed. */
RDS_API size_t rds_buffer_size(rds_buffer *buffer);

/* rds_segment_at stores in *segment which buffer of the client has the len bytes at addr, and where:
 * for a program that knows its memory by addresses. One buffer has to have all of them. Of several,
 * which rds_adopt can make, it is the one made last; rds_adopted says whether it still has the
 * memory. A buffer whose handle was freed is not found. It takes time with the number of buffers.
 * Errors: -EFAULT no open buffer of the client has them; -EINVAL len 0. */
RDS_API int rds_segment_at(rds_client *client, const void *addr, size_t len, struct rds_segment *segment);

/* rds_buffer_close unmaps the memory, behind all sends that returned before. -EBUSY: regions,
 * operations or messages use it; it is unchanged then. */
RDS_API int rds_buffer_close(rds_buffer *buffer);

/* rds_buffer_close_wait waits until nothing uses the buffer and closes it. From its start
 * nothing new can name the buffer. After -ETIMEDOUT the memory is unmapped when its last
 * use has ended. */
RDS_API int rds_buffer_close_wait(rds_buffer *buffer, int timeout_ms);

/* rds_buffer_free frees the handle. A buffer that is open stays allocated at the daemon and
 * mapped until the client is closed. NULL is ignored. */
RDS_API void rds_buffer_free(rds_buffer *buffer);

/* Rights of rds_register. At least one of the first three is needed. */
#define RDS_ALLOW_READ 1u
#define RDS_ALLOW_WRITE 2u
#define RDS_ALLOW_ATOMIC 4u
#define RDS_USE_ONCE 8u     /* the region ends with the first message that has operations on it */
#define RDS_OPEN 32u        /* granted to everybody, as by rds_expose with NULL, unless keys.strict forbids it */

/* rds_register makes len bytes at off of buffer a region of the socket. It is a call to the
 * daemon. Errors: -EINVAL the range or the rights; -ENOBUFS; -ENOMEM. */
RDS_API int rds_register(rds_socket *socket, rds_buffer *buffer, size_t off, size_t len, unsigned rights, rds_region **region);

/* rds_region_cookie returns the cookie that names the region to peers. */
RDS_API uint64_t rds_region_cookie(rds_region *region);

/* rds_expose grants the region to the socket at peer, or with port 0 to all sockets of that
 * host. A message that carries the cookie needs no rds_expose. With peer NULL everybody who
 * shows the cookie may use the region, on every host that the daemon allows, now or later.
 * Errors: -EBUSY the region is for one use and granted to another host; -ENOBUFS; -EACCES, with
 * NULL, keys.strict names the user; those of rds_connect. */
RDS_API int rds_expose(rds_region *region, const struct rds_addr *peer);

/* rds_release takes the region back from everybody. When it returns 0, nobody can touch the
 * memory through it. After -ETIMEDOUT the release goes on, and the memory is in use. A second release returns -EBADF. */
RDS_API int rds_release(rds_region *region, int timeout_ms);

/* rds_region_free frees the handle. A region that was not released stays until its socket or
 * client is closed. NULL is ignored. */
RDS_API void rds_region_free(rds_region *region);

#ifdef __cplusplus
}
#endif

#endif
