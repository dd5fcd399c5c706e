// Package afrds gives programs that were written for the Linux kernel's AF_RDS
// sockets the same calls over rdsd. Addresses, options, control messages and tables
// are in the bytes of the kernel on a 64-bit machine. Errors are the errnos of the
// kernel, and are found in its order. Libraries that stand between a program and the
// kernel use it, too. New programs are better served by package rds.
//
//	c, err := rds.Open(ctx, rds.Options{})
//	k := afrds.New(c)
//	s, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0)
//	err = s.Bind(afrds.Sockaddr(netip.MustParseAddrPort("10.0.0.1:4000")))
//	n, err := s.Sendmsg(payload, afrds.Sockaddr(to), control, syscall.MSG_DONTWAIT)
//
// Errors are of type syscall.Errno. Two have no counterpart in the kernel:
// ECONNRESET, the daemon is gone, and ECONNABORTED, the daemon ended the session.
//
// # Memory
//
// Some structures hold a user address (rds_rdma_args.local_vec_addr, rds_iovec.addr,
// cookie_addr, ...). It must be an address in a rds.Buffer that was made with
// Kernel.Alloc or announced with Kernel.Map; another address is EFAULT.
//
// # Waiting
//
// Calls wait as those of the kernel do, unless MSG_DONTWAIT or SetNonblock says
// otherwise, for at most SO_SNDTIMEO or SO_RCVTIMEO. There are no signals:
// Socket.Interrupt ends the calls that wait with EINTR.
//
// docs/kernel.md lists every difference from the kernel with its reason.
//
// Not covered by docs/stability.md: any release may change this package.
package afrds
