// Package rds is the client of rdsd: reliable, in-order, connectionless
// datagrams from one socket to any number of hosts, and one-sided RDMA into
// registered memory.
//
// [Open] attaches the process to the daemon of its host, [Client.Bind] makes a
// [Socket] at an address and port. A Socket is a [net.PacketConn]; its own
// methods ([Socket.SendTo], [Socket.RecvFrom], [Socket.SendMsg],
// [Socket.RecvMsg], ...) say more and allocate nothing.
//
//	c, err := rds.Open(ctx, rds.Options{})
//	s, err := c.Bind(netip.MustParseAddrPort("10.0.0.1:4000"))
//	_, err = s.SendTo([]byte("hello"), netip.MustParseAddrPort("10.0.0.2:4000"))
//	n, from, err := s.RecvFrom(buf)
//
// # What a send means
//
// A send that succeeded is queued, nothing more. The message is delivered
// exactly once and in order per pair of sockets, or its sender gets a [Notice]:
// Lost (the peer's daemon restarted), NoSocket (nobody is bound there) or GaveUp
// (Message.GiveUpAfter passed). The payload is copied, the caller's slice is
// free when the call returns; one that lies in a [Buffer] can be sent from there
// (Message.From), and [Socket.ZeroCopyDone] tells when it is free.
//
// A socket holds at most SndBuf bytes that are not acknowledged; beyond that a
// send waits or fails with [ErrWouldBlock]. Those to a congested destination do not
// count. A destination whose receiver is
// over its limit is congested, and so is one whose messages hold its share of
// what the process has to send with; a send to it waits or fails with
// [ErrCongested]. Wait tells of the relief of a destination (WaitSet.Relief),
// and after [Socket.SetCongMonitor] [Socket.CongUpdates] does, as the kernel's
// mask.
//
// Messages to one host go over one connection, unless their sockets are in
// different lanes ([Socket.SetLane]). Close waits for nothing, unless
// [Socket.SetLinger] said so: [Socket.CloseWait].
//
// # RDMA
//
// The target allocates memory ([Client.Alloc]), registers a part of it
// ([Socket.Register]) and hands the [Cookie] to the initiator, as
// [Message.Cookie] or after [Region.Expose] in any way it likes. The initiator
// sends a message with an operation ([Message.Op]): when that message arrives,
// the operation's data is there. [Atomic] operations (Message.Atomic) do the same
// to 8 bytes; a message can carry one of each. [Socket.Write], [Socket.Read],
// [Socket.FetchAdd] and [Socket.CompareAndSwap] run one without a message and
// wait for its end.
//
// Two things end an operation, and they are different. It is locally complete
// when its local buffers are the caller's again: then the high-water mark of
// (socket, destination address) reaches its id ([Socket.HWM],
// [Socket.Barrier]), whatever became of it. It is settled when its fate is
// known: then its [Completion] is queued ([Socket.Completions],
// [Socket.WaitOp]), once, if it asked for one.
//
// # Blocking
//
// Calls that move data follow the socket's deadlines and SetNonblock, or
// DontWait per message; calls that wait ([Socket.Wait], [Socket.Barrier],
// [Socket.WaitOp], [Region.Release]) take a context. Of all goroutines that
// wait in one Client, one at a time looks after the shared memory: it yields
// for a bounded time ([Options].Spin), then sleeps until it is rung. The others
// are parked and cost nothing. Programs with an event loop of their own use
// [Socket.PollFD], which tells whatever Wait can wait for ([Socket.SetPoll]).
//
// # Death of the daemon
//
// When the daemon ends, by a shutdown, an upgrade or a crash, every call fails
// with [ErrDaemonGone], after what had been delivered before was read. When the
// daemon goes on and ends this session alone, because this process broke the
// memory contract, it is [ErrSession] with the reason. [Client.Reopen] waits for the daemon and makes a
// new Client, [Client.Rebind] a socket there in place of each old one; it says
// what is lost.
//
// All methods may be called from many goroutines at once, except where a
// comment says otherwise.
package rds
