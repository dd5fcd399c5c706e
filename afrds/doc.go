// Package afrds is the kernel's AF_RDS socket calls over rdsd: the same calls,
// with addresses, options, control messages and tables in the bytes the Linux
// kernel uses on a 64-bit machine, and the errnos it answers with, decided in
// its order. It is for programs, and for libraries that stand between a program
// and the kernel, that speak the kernel's interface; new programs are better
// served by package rds.
//
//	c, err := rds.Open(ctx, rds.Options{})
//	k := afrds.New(c)
//	s, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0)
//	err = s.Bind(afrds.Sockaddr(netip.MustParseAddrPort("10.0.0.1:4000")))
//	n, err := s.Sendmsg(payload, afrds.Sockaddr(to), control, syscall.MSG_DONTWAIT)
//
// Errors are syscall.Errno. What the kernel has no errno for keeps the one of
// package rds: ECONNRESET, the daemon is gone; ECONNABORTED, it ended the
// session.
//
// # Memory
//
// Structures that hold a user address (rds_rdma_args.local_vec_addr,
// rds_iovec.addr, cookie_addr, ...) mean memory of a rds.Buffer that was made
// with Kernel.Alloc or announced with Kernel.Map; any other address is EFAULT.
//
// # Waiting
//
// Calls block as the kernel's do unless MSG_DONTWAIT or SetNonblock says
// otherwise, for at most SO_SNDTIMEO or SO_RCVTIMEO. There are no signals here:
// Socket.Interrupt ends the calls that wait with EINTR.
//
// docs/kernel.md lists every difference from the kernel with its reason.
package afrds
