/*
 * Copies from and to addresses of the program that may be wrong. The kernel fails with EFAULT where
 * memcpy would end the program.
 *
 * The copy is a routine of its own, and a handler of SIGSEGV and SIGBUS (fault.c) lets it return
 * -EFAULT where it faults. A good copy costs no system call and no state, and it holds when another thread unmaps the
 * memory meanwhile. To let the kernel copy, or to ask it before what is mapped, is a system call for
 * each message, and the answer may be old. The routine keeps nothing on the stack and calls nothing.
 * So the program counter alone says that a fault is of a copy: nothing is to be set before a copy.
 *
 * A fault whose signal is blocked ends the process. So a thread that blocks one of the two has
 * it unblocked for the copy, with two system calls. What a thread blocks is asked when it first copies
 * and after it has changed its mask.
 */
#include <ucontext.h>

#include "fault.h"
#include "pre.h"

/* pre_copying copies upwards, 64 bytes at once, then 16, then 1. On x86-64 the processor copies 1 KiB and
 * more by itself, as fast as memcpy does; from 64 bytes on the rest takes up to half as long again. */
int pre_copying(void *to, const void *from, size_t n);
extern const char pre_copying_fails[];

#if defined(__x86_64__)
__asm__(".text\n\t.p2align 4\n\t.hidden pre_copying\n\t.globl pre_copying\n\t.type pre_copying, @function\n"
	"pre_copying:\n\t.cfi_startproc\n\tcmpq $64, %rdx\n\tjb 2f\n"
	"\tcmpq $1024, %rdx\n\tjb 1f\n\tmovq %rdx, %rcx\n\trep movsb\n\tjmp 6f\n"
	"1:\tmovups (%rsi), %xmm0\n\tmovups 16(%rsi), %xmm1\n\tmovups 32(%rsi), %xmm2\n\tmovups 48(%rsi), %xmm3\n"
	"\tmovups %xmm0, (%rdi)\n\tmovups %xmm1, 16(%rdi)\n\tmovups %xmm2, 32(%rdi)\n\tmovups %xmm3, 48(%rdi)\n"
	"\taddq $64, %rsi\n\taddq $64, %rdi\n\tsubq $64, %rdx\n\tcmpq $64, %rdx\n\tjae 1b\n"
	"2:\tsubq $16, %rdx\n\tjb 4f\n"
	"3:\tmovups (%rsi), %xmm0\n\tmovups %xmm0, (%rdi)\n\taddq $16, %rsi\n\taddq $16, %rdi\n\tsubq $16, %rdx\n\tjae 3b\n"
	"4:\taddq $16, %rdx\n\tjz 6f\n"
	"5:\tmovb (%rsi), %al\n\tmovb %al, (%rdi)\n\tincq %rsi\n\tincq %rdi\n\tdecq %rdx\n\tjnz 5b\n"
	"6:\txorl %eax, %eax\n\tret\n"
	".hidden pre_copying_fails\n\t.globl pre_copying_fails\n"
	"pre_copying_fails:\n\tmovl $-14, %eax\n\tret\n\t.cfi_endproc\n\t.size pre_copying, . - pre_copying\n");
#define PC(context) ((context)->uc_mcontext.gregs[REG_RIP])
#elif defined(__aarch64__)
__asm__(".text\n\t.p2align 4\n\t.hidden pre_copying\n\t.globl pre_copying\n\t.type pre_copying, %function\n"
	"pre_copying:\n\t.cfi_startproc\n\tcmp x2, #64\n\tb.lo 2f\n"
	"1:\tldp q0, q1, [x1]\n\tldp q2, q3, [x1, #32]\n\tstp q0, q1, [x0]\n\tstp q2, q3, [x0, #32]\n"
	"\tadd x1, x1, #64\n\tadd x0, x0, #64\n\tsub x2, x2, #64\n\tcmp x2, #64\n\tb.hs 1b\n"
	"2:\tsubs x2, x2, #16\n\tb.lo 4f\n"
	"3:\tldr q0, [x1], #16\n\tstr q0, [x0], #16\n\tsubs x2, x2, #16\n\tb.hs 3b\n"
	"4:\tadds x2, x2, #16\n\tb.eq 6f\n"
	"5:\tldrb w3, [x1], #1\n\tstrb w3, [x0], #1\n\tsubs x2, x2, #1\n\tb.ne 5b\n"
	"6:\tmov w0, #0\n\tret\n"
	".hidden pre_copying_fails\n\t.globl pre_copying_fails\n"
	"pre_copying_fails:\n\tmov w0, #-14\n\tret\n\t.cfi_endproc\n\t.size pre_copying, . - pre_copying\n");
#define PC(context) ((context)->uc_mcontext.pc)
#else
#error "pre_copying is to be written for this processor"
#endif
_Static_assert(EFAULT == 14, "as in pre_copying");

/* What the thread blocks. */
static _Thread_local __attribute__((tls_model("initial-exec"))) enum { UNKNOWN, NEITHER, ONE, LIFTED } mask;

void pre_mask_changed(void) { mask = UNKNOWN; }
bool pre_mask_lifted(void) { return mask == LIFTED; }

bool pre_copy_ends(int sig, const siginfo_t *info, void *context)
{
	ucontext_t *c = context;
	uintptr_t pc = (uintptr_t)PC(c);
	/* The processor has met bad memory, which this thread does not use. */
	bool elsewhere = sig == SIGBUS && info->si_code == BUS_MCEERR_AO;
	if (info->si_code <= 0 || elsewhere || pc < (uintptr_t)pre_copying || pc >= (uintptr_t)pre_copying_fails)
		return false;
	PC(c) = (uintptr_t)pre_copying_fails;
	return true;
}

/* copy_blocked copies in a thread that may block a signal of faults. */
static int copy_blocked(void *to, const void *from, size_t n)
{
	sigset_t faults, was;
	if (mask == UNKNOWN) {
		real_pthread_sigmask(SIG_BLOCK, NULL, &was);
		mask = sigismember(&was, SIGSEGV) || sigismember(&was, SIGBUS) ? ONE : NEITHER;
		if (mask == NEITHER)
			return pre_copying(to, from, n);
	}
	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	mask = LIFTED;
	real_pthread_sigmask(SIG_UNBLOCK, &faults, &was);
	int err = pre_copying(to, from, n);
	real_pthread_sigmask(SIG_SETMASK, &was, NULL);
	mask = ONE;
	return err;
}

int pre_copy(void *to, const void *from, size_t n)
{
	return __builtin_expect(mask == NEITHER, 1) ? pre_copying(to, from, n) : copy_blocked(to, from, n);
}

int pre_store(uint64_t at, const void *from, size_t n) { return pre_copy((void *)(uintptr_t)at, from, n); }
int pre_load(void *to, uint64_t at, size_t n) { return pre_copy(to, (const void *)(uintptr_t)at, n); }
