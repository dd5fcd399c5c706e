#include "textflag.h"

// func handler() uintptr
TEXT ·handler(SB), NOSPLIT, $0-8
	LEAQ ·onFault(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// ZEROS maps private zeros at DI, SI bytes, over what is there:
// mmap(DI, SI, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0).
// After success it returns from the signal, which restores all registers.
#define ZEROS(failed) \
	MOVQ $3, DX; \
	MOVQ $0x4032, R10; \
	MOVQ $-1, R8; \
	MOVQ $0, R9; \
	MOVQ $9, AX; \
	SYSCALL; \
	CMPQ AX, $-4095; \
	JCC  failed; \
	RET

// func onFault()
// In C: onFault(DI signal, SI *siginfo, DX *ucontext). The code is at 8 of the siginfo, the address at 16.
TEXT ·onFault(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	CMPL 8(SI), $2 // BUS_ADRERR
	JNE  pass
	MOVQ 16(SI), R8
	LEAQ ·table(SB), R12
	MOVQ ·used(SB), R10
next:
	SUBQ $1, R10
	JLT  pass
	CMPQ R8, 0(R12)
	JCS  other
	CMPQ R8, 8(R12)
	JCS  ours
other:
	ADDQ $32, R12
	JMP  next
ours:
	MOVQ SI, BX
	MOVQ DX, R15
	MOVQ R8, R13
	ANDQ 16(R12), R13
	MOVQ $1, 24(R12)
	LOCK
	INCQ ·hits(SB)
	// From the page to the end of the mapping.
	MOVQ R13, DI
	MOVQ 8(R12), SI
	SUBQ DI, SI
	ZEROS(whole)
whole: // without another mapping than now
	MOVQ 0(R12), DI
	MOVQ 8(R12), SI
	SUBQ DI, SI
	ZEROS(one)
one: // with the least memory
	MOVQ R13, DI
	MOVQ 16(R12), SI
	NEGQ SI
	ZEROS(lost)
lost:
	MOVQ $7, DI
	MOVQ BX, SI
	MOVQ R15, DX
pass:
	MOVQ ·before(SB), AX
	JMP  AX
