/* Copies to and from addresses of the program that may be wrong. The kernel makes them: it fails with
 * EFAULT where memcpy would end the program. */
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pre.h"
#include "rdsfd.h"
#include "../../librds/src/cancel.h"

/* A piece fits into a pipe of one page, which is what a user with many pipes gets. */
enum { PIECE = 4096 };

/* refused notes that process_vm_readv and process_vm_writev are not allowed, as under many seccomp
 * profiles: each copy goes through a pipe of its own from then on. */
static _Atomic bool refused;

/* moved is the error of a read or write that should have moved n bytes. */
static int moved(ssize_t got, size_t n) { return got == (ssize_t)n ? 0 : got < 0 ? -errno : -EFAULT; }

static int by_pipe(void *to, const void *from, size_t n)
{
	int p[2], err = 0;
	if (pre_pipe_hidden(p, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	for (size_t done = 0, k; done < n && !err; done += k) {
		k = n - done < PIECE ? n - done : PIECE;
		if (!(err = moved(RDSI_UNCANCELLED(real_write(p[1], (const char *)from + done, k)), k)))
			err = moved(RDSI_UNCANCELLED(real_read(p[0], (char *)to + done, k)), k);
	}
	pre_close_hidden(p[0]);
	pre_close_hidden(p[1]);
	return err;
}

/* copy copies n bytes. store says which of the two addresses is the program's. */
static int copy(void *to, const void *from, size_t n, bool store)
{
	struct iovec into = {to, n}, out = {(void *)(uintptr_t)from, n};
	if (!atomic_load_explicit(&refused, memory_order_relaxed)) {
		ssize_t got = store ? process_vm_writev(getpid(), &out, 1, &into, 1, 0) : process_vm_readv(getpid(), &into, 1, &out, 1, 0);
		if (got == (ssize_t)n)
			return 0;
		if (got >= 0 || (errno != EPERM && errno != ENOSYS))
			return -EFAULT;
		atomic_store(&refused, true);
	}
	return by_pipe(to, from, n);
}

int pre_store(uint64_t at, const void *from, size_t n) { return copy((void *)(uintptr_t)at, from, n, true); }
int pre_load(void *to, uint64_t at, size_t n) { return copy(to, (const void *)(uintptr_t)at, n, false); }
