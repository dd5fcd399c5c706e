/*
 * Moving pages. During the copy the pages are read-only. A thread that writes there gets
 * SIGSEGV. The handler here lets it wait until the pages are in place, and then try again.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "move.h"

/* RETRIES bounds how many faults behind a move are taken for writes that it has stopped. Each
 * thread has one at most. */
#define RETRIES 4096

static _Atomic uintptr_t moving, moving_end; /* the pages of this move or of the last one */
static _Atomic bool moves;
static _Atomic int retries;

bool rdsi_stopped(int sig, const siginfo_t *info)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	if (sig != SIGSEGV || info->si_code != SEGV_ACCERR || at < atomic_load(&moving) || at >= atomic_load(&moving_end))
		return false;
	while (atomic_load(&moves))
		sched_yield();
	return atomic_load(&retries) > 0 && atomic_fetch_sub(&retries, 1) > 0;
}

#ifdef RDSI_FAULTS /* the handler is the preload library's */
static int install(void) { return 0; }
#else
static struct sigaction before; /* the program's */
static bool installed;

/* pass_on does what would be done without this handler. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO && before.sa_sigaction) {
		before.sa_sigaction(sig, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(sig);
	} else { /* the access faults again, or the signal was sent by kill */
		signal(sig, before.sa_handler);
		if (info->si_code <= 0)
			raise(sig);
	}
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	if (!rdsi_stopped(sig, info))
		pass_on(sig, info, context);
	errno = saved;
}

static int install(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
	sigemptyset(&sa.sa_mask);
	if (!installed && (sigaction(SIGSEGV, NULL, &before) || sigaction(SIGSEGV, &sa, NULL)))
		return -errno;
	installed = true;
	return 0;
}
#endif

/* begin makes the pages read-only. */
static int begin(uintptr_t start, uintptr_t end)
{
	int err = install();
	if (err)
		return err;
	atomic_store(&moves, true);
	atomic_store(&moving_end, 0);
	atomic_store(&moving, start);
	atomic_store(&moving_end, end);
	atomic_store(&retries, RETRIES);
	if (mprotect((void *)start, end - start, PROT_READ)) {
		err = -errno;
		atomic_store(&moves, false);
	}
	return err;
}

/* end ends a move. After an error the pages get their rights back. */
static int end_move(uintptr_t start, uintptr_t end, int prot, int err)
{
	if (err)
		mprotect((void *)start, end - start, prot);
	atomic_store(&moves, false);
	return err;
}

int rdsi_move_in(int file, uintptr_t start, uintptr_t end)
{
	int err = begin(start, end);
	if (err)
		return err;
	for (uintptr_t at = start; at < end && !err;) {
		/* Not by pwrite, because the address sanitizer would look at what lies beside the program's blocks. */
		ssize_t n = syscall(SYS_pwrite64, file, (const void *)at, end - at, (off_t)at);
		if (n > 0)
			at += (uintptr_t)n;
		else if (n == 0 || errno != EINTR)
			err = n == 0 || errno == ENOSPC ? -ENOMEM : -errno;
	}
	if (!err && mmap((void *)start, end - start, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, (off_t)start) == MAP_FAILED)
		err = -errno;
	return end_move(start, end, PROT_READ | PROT_WRITE, err);
}

int rdsi_move_out(int file, uintptr_t start, uintptr_t end, int prot)
{
	char *copy = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return -errno;
	int err = begin(start, end);
	for (uintptr_t at = start; at < end && !err;) {
		ssize_t n = pread(file, copy + (at - start), end - at, (off_t)at);
		if (n > 0)
			at += (uintptr_t)n;
		else if (n == 0 || errno != EINTR)
			err = n == 0 ? -EIO : -errno;
	}
	if (!err && prot != (PROT_READ | PROT_WRITE) && mprotect(copy, end - start, prot))
		err = -errno;
	if (!err && mremap(copy, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == MAP_FAILED)
		err = -errno;
	if (err)
		munmap(copy, end - start);
	return end_move(start, end, prot, err);
}
