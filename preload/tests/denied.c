/* A sandbox that denies AF_RDS, as container engines and units do since the module is switched off, does not
 * concern the library: no call of it names the family to the kernel. Nor does one without io_uring and
 * process_vm_readv. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"

#define DENY(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))

int main(int argc, char **argv)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 6, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RDS, 0, 2),
		DENY(EAFNOSUPPORT),
		DENY(EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
	char got[8];
	address = argc > 1 ? argv[1] : address;
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	FAILS(syscall(SYS_socket, RDS, SOCK_SEQPACKET, 0), EAFNOSUPPORT);
	FAILS(syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0), EPERM);
	int a = bound(0), b = bound(0);
	sends(a, b, "through");
	CHECK(recv(b, got, sizeof got, 0) == 7 && !memcmp(got, "through", 7));
	FAILS(send(a, (void *)8, 4, 0), ENOTCONN);
	close(a);
	close(b);
	return 0;
}
