// Package rds lets a program exchange reliable, ordered datagrams with every
// process of a cluster over one socket, and read and write registered memory of
// those processes (RDMA). It is the client of rdsd, the daemon of the host.
//
// [Open] attaches the process to the daemon. [Client.Bind] makes a [Socket] at an
// address and port. A Socket is a [net.PacketConn]. [Socket.Send] sends a [Message], which is
// everything that can be sent, [Socket.Recv] receives into a [Received], and [Socket.SendTo]
// and [Socket.RecvFrom] are their short forms. They allocate nothing. [Socket.SendBatch],
// [Socket.RecvBatch] and [Socket.Messages] are for many messages.
//
//	c, err := rds.Open(ctx, rds.Options{})
//	s, err := c.Bind(netip.MustParseAddrPort("10.0.0.1:4000"))
//	_, err = s.SendTo([]byte("hello"), netip.MustParseAddrPort("10.0.0.2:4000"))
//	n, from, err := s.RecvFrom(buf)
//
// # What a send means
//
// A send that succeeds has queued the message, nothing more. The message is then
// delivered exactly once, in order with the other messages between the two
// sockets. If it is not delivered, the sender gets a [Notice]: Lost (the peer's
// daemon restarted), NoSocket (no socket is bound there), GaveUp (Message.GiveUpAfter
// has passed) or NotGranted (its Cookie could not be granted). Take them with
// [Socket.Notices], or end with [Socket.CloseWait], whose error is what nobody has taken.
//
// The payload is copied: the caller may reuse its slice when the send returns. A
// payload in a [Buffer] can be sent without a copy (Message.From);
// [Socket.ZeroCopyDone] then tells when the memory may be reused.
//
// A socket has room for 512 KiB that are not acknowledged ([Socket.SetSndBuf]). When the send
// buffer is full, a send waits or fails with [ErrWouldBlock]. A send also waits, or
// fails with [ErrCongested], when its destination is congested: the receiver is over
// its limit, or the destination holds its share of what the process can have in
// flight. Bytes for a congested destination do not count in the send buffer.
// [Socket.Wait] can wait for a destination's relief (WaitSet.Relief).
//
// All messages between two hosts take one connection. Sockets in different lanes
// ([Socket.SetLane]) take different connections. Close does not wait for
// messages on their way; [Socket.CloseWait] does.
//
// # RDMA
//
// The target allocates memory ([Client.Alloc]), registers a part of it
// ([Socket.Register]) and gives the [Cookie] to the initiator: as
// [Message].Cookie, or in any other way after [Region.Expose]. The initiator sends a
// message with an operation ([Message.Op]): when the message arrives, the
// operation's data is there. [Atomic] operations (Message.Atomic) work on 8 bytes
// in the same way; a message can carry one operation of each kind. [Socket.RDMAWrite],
// [Socket.RDMARead] and [Socket.Atomic] run an operation without a message and wait for
// its end. [Socket.Remote] is a region as an [io.ReaderAt] and [io.WriterAt].
//
// An operation ends in two independent steps:
//
//   - It is locally complete when its local memory is the caller's again,
//     whatever its outcome. The high-water mark of (socket, destination address)
//     then reaches its id: [Socket.HWM], [Socket.Barrier].
//   - It is settled when its outcome is known. If it asked for a [Completion], that
//     is queued then, once: [Socket.Completions], [Socket.WaitOp].
//
// # Blocking
//
// How long a call waits is said by its context, or, for the calls of [net.PacketConn] and the
// short forms, which have none, by the socket's deadlines. A deadline ends the waits of all
// sends or receives. The context [DontWait] makes a call fail at once where it would have to
// wait. A call to the daemon, as the comments of Bind, Alloc, Register and others say, waits
// for the daemon's answer, which does not depend on peers.
//
// Of all goroutines that wait in one Client, one looks after the shared memory, for a bounded
// time if that makes waits shorter ([Options].Wait), then it sleeps until the daemon rings.
// The other goroutines are parked and cost nothing. A program with an event loop of its own
// uses [Socket.PollFD], whose descriptor tells everything that Wait can wait for.
//
// # When the daemon ends
//
// After a shutdown, an upgrade or a crash of the daemon, every call fails with
// [ErrDaemonGone]. Messages delivered before that can still be read. A Client with
// Options.Reopen opens again at the next daemon instead: its handles go on working, and
// [Reopened] says what was lost. If this process broke the rules of the shared memory,
// the daemon goes on and ends this session alone: calls then fail with [ErrSession] and
// the reason.
//
// All methods may be called from many goroutines at once. A Message, Received, RDMA or Atomic
// belongs to the call that it is given to, until that returns.
package rds
