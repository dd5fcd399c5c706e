/* Ringing: eight bytes into a pipe or an eventfd. */
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include "int.h"

#define NOSIGNAL 0x100 /* RWF_NOSIGNAL, Linux 6.18 */
#define NOWAIT 0x8     /* RWF_NOWAIT: the daemon has the same open file, and may make it one that blocks */

/* rdsi_ring wakes a thread of this process that polls the eventfd fd. */
void rdsi_ring(int fd)
{
	uint64_t one = 1;
	while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
		;
}

/* rdsi_ring_pipe_blocked writes to a pipe with SIGPIPE blocked, and takes the signal if it came. */
void rdsi_ring_pipe_blocked(int fd)
{
	sigset_t pipe_set, old, pending;
	struct timespec now = {0, 0};
	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
	uint64_t one = 1;
	ssize_t n;
	while ((n = write(fd, &one, sizeof one)) < 0 && errno == EINTR)
		;
	if (n < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe_set, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* rdsi_ring_pipe rings the daemon. If the daemon has ended, the pipe has no reader, and a plain
 * write would send SIGPIPE to a program that knows nothing of the pipe. */
void rdsi_ring_pipe(int fd)
{
	static _Atomic bool old_kernel;
	uint64_t one = 1;
	struct iovec iov = {&one, sizeof one};
	while (!atomic_load_explicit(&old_kernel, memory_order_relaxed)) {
		if (pwritev2(fd, &iov, 1, -1, NOSIGNAL | NOWAIT) >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL && errno != EINTR))
			return;
		if (errno != EINTR)
			atomic_store(&old_kernel, true);
	}
	rdsi_ring_pipe_blocked(fd);
}
