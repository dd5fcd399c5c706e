#include "textflag.h"

// func handler() uintptr
TEXT ·handler(SB), NOSPLIT, $0-8
	MOVD $·onFault(SB), R0
	MOVD R0, ret+0(FP)
	RET

// ZEROS maps private zeros at R0, R1 bytes, over what is there:
// mmap(R0, R1, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0).
// After success it returns from the signal, which restores all registers.
#define ZEROS(failed) \
	MOVD $3, R2; \
	MOVD $0x4032, R3; \
	MOVD $-1, R4; \
	MOVD $0, R5; \
	MOVD $222, R8; \
	SVC; \
	CMN  $4095, R0; \
	BCS  failed; \
	RET

// func onFault()
// In C: onFault(R0 signal, R1 *siginfo, R2 *ucontext). The code is at 8 of the siginfo, the address at 16.
TEXT ·onFault(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	MOVW 8(R1), R3
	CMPW $2, R3 // BUS_ADRERR
	BNE  pass
	MOVD 16(R1), R4
	MOVD $·table(SB), R12
	MOVD ·used(SB), R6
next:
	SUBS $1, R6, R6
	BLT  pass
	MOVD 0(R12), R14
	MOVD 8(R12), R15
	CMP  R14, R4
	BLO  other
	CMP  R15, R4
	BLO  ours
other:
	ADD $32, R12
	B   next
ours:
	MOVD R1, R9
	MOVD R2, R10
	MOVD 16(R12), R16
	AND  R16, R4, R13
	MOVD $1, R11
	MOVD R11, 24(R12)
	MOVD $·hits(SB), R3
count: // other threads may be here, too
	LDAXR (R3), R11
	ADD   $1, R11
	STLXR R11, (R3), R5
	CBNZ  R5, count
	// From the page to the end of the mapping.
	MOVD R13, R0
	SUB  R0, R15, R1
	ZEROS(whole)
whole: // without another mapping than now
	MOVD R14, R0
	SUB  R0, R15, R1
	ZEROS(one)
one: // with the least memory
	MOVD R13, R0
	NEG  R16, R1
	ZEROS(lost)
lost:
	MOVD $7, R0
	MOVD R9, R1
	MOVD R10, R2
pass:
	MOVD ·before(SB), R11
	B    (R11)
