/*
 * The handler of SIGSEGV and SIGBUS, which stands in front of the program's own, and the functions that
 * install handlers. The program sees what it would see without this one: the action that it has set
 * is kept here, and the kernel has this handler with the flags and mask of that action. So the kernel does
 * what SA_ONSTACK, SA_NODEFER, SA_RESTART and the mask ask for; SA_RESETHAND and the default action
 * are done here.
 *
 * Not seen are actions set by sigset, sigignore or system calls that the program makes itself.
 */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../librds/src/move.h"
#include "fault.h"
#include "hook.h"

/* An action is the program's. The handler may read the first two while they change, so it reads
 * each once: as the kernel does, it calls every handler with three arguments. */
static struct action {
	_Atomic uintptr_t handler;
	_Atomic int flags;
	struct sigaction whole; /* as sigaction returns it, but for the handler */
} actions[2];

/* What belongs to the handler in front, not to the program's action. */
enum { OWN_FLAGS = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND };

static _Atomic bool caught;
static atomic_flag busy = ATOMIC_FLAG_INIT; /* guards the actions */

static struct action *action_of(int sig) { return &actions[sig == SIGBUS]; }

/* A handler may install handlers, so none runs while the lock is held. */
static void lock(sigset_t *was)
{
	sigset_t every;
	sigfillset(&every);
	real_pthread_sigmask(SIG_SETMASK, &every, was);
	while (atomic_flag_test_and_set(&busy))
		sched_yield();
}

static void unlock(const sigset_t *was)
{
	atomic_flag_clear(&busy);
	real_pthread_sigmask(SIG_SETMASK, was, NULL);
}

void pre_catch_in_child(void) { atomic_flag_clear(&busy); }

/* again sends the thread the signal once more, with all that it said. Until the handler returns it is
 * blocked, also where the program asks for SA_NODEFER. */
static void again(int sig, siginfo_t *info)
{
	sigset_t one;
	sigemptyset(&one);
	sigaddset(&one, sig);
	real_pthread_sigmask(SIG_BLOCK, &one, NULL);
	syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), sig, info);
}

/* by_default does the default action where the signal came. */
static void by_default(int sig, siginfo_t *info)
{
	struct sigaction none = {.sa_handler = SIG_DFL};
	real_sigaction(sig, &none, NULL);
	again(sig, info);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	struct action *a = action_of(sig);
	uintptr_t handler = atomic_load(&a->handler);
	if (rdsi_stopped(sig, info) || pre_copy_ends(sig, info, context)) {
		errno = saved;
	} else if (info->si_code <= 0 && pre_mask_lifted()) { /* the program blocks it */
		sigaddset(&((ucontext_t *)context)->uc_sigmask, sig);
		again(sig, info);
		errno = saved;
	} else if (handler > (uintptr_t)SIG_IGN) {
		if (atomic_load(&a->flags) & SA_RESETHAND)
			atomic_compare_exchange_strong(&a->handler, &handler, (uintptr_t)SIG_DFL);
		pre_mask_changed(); /* it may end with longjmp */
		errno = saved;
		((void (*)(int, siginfo_t *, void *))handler)(sig, info, context);
	} else if (handler == (uintptr_t)SIG_DFL || info->si_code > 0) { /* a fault cannot be ignored */
		by_default(sig, info);
	}
}

/* install makes act the program's action. The lock is held. */
static int install(int sig, const struct sigaction *act)
{
	struct action *a = action_of(sig);
	struct sigaction now = *act;
	now.sa_sigaction = on_fault;
	now.sa_flags = (act->sa_flags & ~SA_RESETHAND) | SA_SIGINFO;
	if (act->sa_handler == SIG_DFL || act->sa_handler == SIG_IGN)
		now.sa_flags |= SA_ONSTACK;
	if (real_sigaction(sig, &now, NULL) || real_sigaction(sig, NULL, &now))
		return -1;
	now.sa_flags = (now.sa_flags & ~OWN_FLAGS) | (act->sa_flags & OWN_FLAGS);
	a->whole = now;
	atomic_store(&a->flags, now.sa_flags);
	atomic_store(&a->handler, (uintptr_t)act->sa_handler);
	return 0;
}

/* current is the program's action. The lock is held. */
static struct sigaction current(int sig)
{
	struct sigaction now = action_of(sig)->whole;
	uintptr_t handler = atomic_load(&action_of(sig)->handler);
	memcpy(&now.sa_handler, &handler, sizeof handler);
	return now;
}

void pre_catch_faults(void)
{
	static const int both[] = {SIGSEGV, SIGBUS};
	struct sigaction now;
	sigset_t was;
	if (atomic_load_explicit(&caught, memory_order_acquire))
		return;
	lock(&was);
	for (int i = 0; i < 2 && !atomic_load(&caught); i++)
		if (!real_sigaction(both[i], NULL, &now))
			install(both[i], &now);
	atomic_store(&caught, true);
	unlock(&was);
}

/* change is sigaction. */
static int change(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before, to;
	sigset_t was;
	pre_start();
	if ((sig != SIGSEGV && sig != SIGBUS) || !atomic_load(&caught))
		return real_sigaction(sig, act, old);
	if (act)
		to = *act;
	lock(&was);
	before = current(sig);
	/* The child of a vfork has actions of its own, and its parent's memory. */
	int err = !act ? 0 : pre_same_process() ? install(sig, &to) : real_sigaction(sig, &to, NULL);
	unlock(&was);
	if (!err && old)
		*old = before;
	return err;
}

HOOK int sigaction(int sig, const struct sigaction *act, struct sigaction *old) { return change(sig, act, old); }
HOOK int __sigaction(int sig, const struct sigaction *act, struct sigaction *old) { return change(sig, act, old); }

/* by_signal is signal, with the flags of one of its forms. */
static sighandler_t by_signal(int sig, sighandler_t handler, int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;
	sigemptyset(&act.sa_mask);
	if (!(flags & SA_NODEFER))
		sigaddset(&act.sa_mask, sig);
	return change(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

/* ours reports whether signal is for us to do. */
static bool ours(int sig, sighandler_t handler)
{
	pre_start();
	return (sig == SIGSEGV || sig == SIGBUS) && handler != SIG_ERR && atomic_load(&caught);
}

#define BSD(name) \
	HOOK sighandler_t name(int sig, sighandler_t f) { return ours(sig, f) ? by_signal(sig, f, SA_RESTART) : real_signal(sig, f); }
#define SYSTEM_V(name) \
	HOOK sighandler_t name(int sig, sighandler_t f) { return ours(sig, f) ? by_signal(sig, f, SA_RESETHAND | SA_NODEFER) : real_sysv_signal(sig, f); }
BSD(signal)
BSD(bsd_signal)
BSD(ssignal)
SYSTEM_V(sysv_signal)
SYSTEM_V(__sysv_signal)

HOOK int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	pre_start();
	pre_mask_changed();
	return real_pthread_sigmask(how, set, old);
}

HOOK int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	pre_start();
	pre_mask_changed();
	return real_sigprocmask(how, set, old);
}
