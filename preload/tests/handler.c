/* The program's own handlers of faults: set before the first socket and after, they see what they would
 * see without RDS, and wrong addresses of calls never reach them. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"

enum { PAGE = 4096, STACK = 64 << 10 };

static const int both[] = {SIGSEGV, SIGBUS};
static char *bad[2]; /* a page where an access is the signal */
static char stack[STACK];
static int a, b;
static sigjmp_buf back;
static struct { int n, sig, code; void *at; bool on_stack, blocked, usr1; } seen;

/* note keeps what a handler sees. */
static void note(int sig)
{
	char here;
	sigset_t now;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	seen.n++;
	seen.sig = sig;
	seen.on_stack = &here >= stack && &here < stack + STACK;
	seen.blocked = sigismember(&now, sig);
	seen.usr1 = sigismember(&now, SIGUSR1);
}

static void plain(int sig)
{
	note(sig);
	siglongjmp(back, 1);
}

static void detailed(int sig, siginfo_t *info, void *context)
{
	note(sig);
	seen.code = info->si_code;
	seen.at = info->si_addr;
	CHECK(context);
	siglongjmp(back, 1);
}

/* faults accesses memory that is not there. */
static void faults(int i)
{
	seen.n = 0;
	if (!sigsetjmp(back, 1))
		*(volatile char *)(bad[i] + 7) = 1;
}

/* calls makes calls with memory that is not there. No handler runs. */
static void calls(void)
{
	seen.n = 0;
	for (int i = 0; i < 2; i++) {
		FAILS(send(a, bad[i], 100, 0), EFAULT);
		FAILS(send(a, bad[i], PAGE, 0), EFAULT);
		CHECK(send(a, "kept", 4, 0) == 4);
		FAILS(recv(b, bad[i], 100, 0), EFAULT);
		gets_text(b, "kept");
	}
	CHECK(seen.n == 0);
}

/* is checks the action of a signal. */
static void is(int sig, const struct sigaction *want)
{
	struct sigaction now;
	int flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART | SA_RESETHAND;
	CHECK(sigaction(sig, NULL, &now) == 0 && now.sa_handler == want->sa_handler && (now.sa_flags & flags) == want->sa_flags);
	CHECK(sigismember(&now.sa_mask, SIGUSR1) == sigismember(&want->sa_mask, SIGUSR1));
}

/* acts sets actions of all kinds, and lets them be used. */
static void acts(void)
{
	static const int flags[] = {0, SA_ONSTACK, SA_NODEFER, SA_RESTART, SA_ONSTACK | SA_NODEFER, SA_RESETHAND, SA_RESETHAND | SA_ONSTACK};
	struct sigaction before, act = {.sa_handler = SIG_DFL};
	for (size_t i = 0; i < 4 * sizeof flags / sizeof *flags; i++) {
		int k = i % 2, f = flags[i / 4];
		CHECK(sigaction(both[k], NULL, &before) == 0);
		act = (struct sigaction){.sa_flags = f};
		sigemptyset(&act.sa_mask);
		if (i & 2) {
			act.sa_flags |= SA_SIGINFO;
			act.sa_sigaction = detailed;
			sigaddset(&act.sa_mask, SIGUSR1);
		} else {
			act.sa_handler = plain;
		}
		struct sigaction old;
		CHECK(sigaction(both[k], &act, &old) == 0 && old.sa_handler == before.sa_handler && old.sa_flags == before.sa_flags);
		is(both[k], &act);
		calls();
		is(both[k], &act);
		faults(k);
		CHECK(seen.n == 1 && seen.sig == both[k] && seen.on_stack == ((f & SA_ONSTACK) != 0) && seen.blocked == !(f & SA_NODEFER));
		CHECK(!(i & 2) || (seen.usr1 && seen.at == bad[k] + 7 && seen.code > 0));
		if (f & SA_RESETHAND)
			act.sa_handler = SIG_DFL;
		is(both[k], &act);
		calls();
	}
}

/* by_signal uses signal in its two forms. */
static void by_signal(void)
{
	extern void (*__sysv_signal(int sig, void (*f)(int)))(int);
	for (int i = 0; i < 2; i++) {
		CHECK(signal(both[i], plain) == SIG_DFL && signal(both[i], plain) == plain);
		is(both[i], &(struct sigaction){.sa_handler = plain, .sa_flags = SA_RESTART});
		calls();
		faults(i);
		CHECK(seen.n == 1 && seen.blocked);
		CHECK(__sysv_signal(both[i], plain) == plain);
		faults(i);
		CHECK(seen.n == 1 && !seen.blocked && signal(both[i], SIG_DFL) == SIG_DFL);
	}
	FAILS((long)signal(SIGSEGV, SIG_ERR), EINVAL);
	FAILS(sigaction(SIGKILL, &(struct sigaction){.sa_handler = plain}, NULL), EINVAL);
}

/* ends checks how a child ends that does one thing. */
static void ends(void (*handler)(int), int i, bool sent, int sig)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct rlimit none = {0, 0};
		setrlimit(RLIMIT_CORE, &none);
		signal(both[i], handler);
		errno = 0;
		if (sent)
			raise(both[i]);
		else
			*(volatile char *)bad[i] = 1;
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(sig ? WIFSIGNALED(status) && WTERMSIG(status) == sig : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A fault without a handler is the end, one that was ignored, too. */
static void defaults(void)
{
	for (int i = 0; i < 2; i++) {
		ends(SIG_DFL, i, false, both[i]);
		ends(SIG_DFL, i, true, both[i]);
		ends(SIG_IGN, i, false, both[i]);
		ends(SIG_IGN, i, true, 0);
	}
}

/* The child of a vfork has actions of its own. */
static void vforks(void)
{
	struct sigaction act = {.sa_handler = plain}, none = {.sa_handler = SIG_DFL};
	int status;
	CHECK(sigaction(SIGSEGV, &act, NULL) == 0);
	pid_t child = vfork();
	if (child == 0) {
		sigaction(SIGSEGV, &none, NULL);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	is(SIGSEGV, &act);
	calls();
	faults(0);
	CHECK(seen.n == 1);
}

static void jumps(int sig) { longjmp(back, sig); }

/* A handler that leaves by longjmp leaves its signal blocked. */
static void jumped(void)
{
	sigset_t set;
	CHECK(signal(SIGSEGV, jumps) == plain);
	calls();
	if (!sigsetjmp(back, 0))
		*(volatile char *)bad[0] = 1;
	calls();
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0 && sigismember(&set, SIGSEGV) == 1);
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
	calls();
}

int main(int argc, char **argv)
{
	address = argc > 1 ? argv[1] : address;
	FILE *empty = tmpfile();
	struct sigaction act = {.sa_sigaction = detailed, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
	CHECK(empty && sigaltstack(&alt, NULL) == 0);
	bad[0] = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bad[1] = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(empty), 0);
	CHECK(bad[0] != MAP_FAILED && bad[1] != MAP_FAILED);
	for (int i = 0; i < 2; i++)
		CHECK(sigaction(both[i], &act, NULL) == 0);
	a = bound(0);
	b = bound(0);
	struct sockaddr_in to = name_of(b);
	CHECK(connect(a, (struct sockaddr *)&to, sizeof to) == 0);
	for (int i = 0; i < 2; i++) {
		is(both[i], &act); /* those from before the first socket */
		calls();
		faults(i);
		CHECK(seen.n == 1 && seen.sig == both[i] && seen.on_stack && seen.at == bad[i] + 7);
	}
	acts();
	by_signal();
	defaults();
	vforks();
	jumped();
	return 0;
}
