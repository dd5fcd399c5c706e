package rds

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Socket is a bound RDS socket. Its methods may be called from many goroutines at
// once. Messages that two goroutines send at the same time may go in either order.
type Socket struct {
	c      *Client
	handle uint32 // shm.SockHandle
	local  netip.AddrPort

	failUnreachable atomic.Bool           // see SetFailUnreachable
	closed          atomic.Bool           // set with tx.mu held, or while the client closes
	end             atomic.Pointer[error] // why it has lost its port, see ended
	rdl, wdl        deadline
	wait            socketWaiters

	// Guarded by tx.mu.
	lane     uint8
	exposed  bool // the lane is fixed without a destination
	anybody  bool // see SetAnybody
	orMeets  bool // ... and krds.Socket.PreferAnybody
	sndbuf   int
	queued   int     // payload bytes submitted and not returned
	parked   int     // of these, to destinations congested at the last look
	msgs     int     // with payload, submitted and not returned, but those parked
	busy     []*dest // with messages pending, in no order
	dests    map[netip.AddrPort]*dest
	lastDest *dest
	near     []*dest // of dests, if they are several: see nearest
	cells    map[netip.Addr]*cell
	zcOpen   int // zero-copy cookies promised and not taken

	congMon   atomic.Bool // changed with rx.mu held
	pollLooks atomic.Bool // poll.w != nil

	// Guarded by rx.mu.
	rcvbuf   int
	rxq      queue[shm.Event]
	in       inRun // goes before rxq
	comps    queue[Completion]
	notices  queue[Notice]
	unwanted noticeSet           // kinds of notices not queued
	awaited  map[opKey]awaitedOp // operations and messages that have asked for their status
	cellAddr map[uint32]cellRef  // of cells with such
	zcDone   queue[uint32]       // zero-copy cookies to be taken
	cong     congMonitor
	poll     *pollFD // nil: none asked for
	pollFor  WaitSet // of PollFD

	noticed     atomic.Uint32 // notices that came
	promised    atomic.Int32  // such whose status may still come
	queuedComps atomic.Int32  // len(comps)
}

var _ net.PacketConn = (*Socket)(nil)

// err returns why nothing more comes: the end of the client, or of the socket.
func (s *Socket) err() error {
	if err := s.ended(); err != nil {
		return err
	}
	return s.c.Err()
}

// ended returns why the socket has ended without the client: ErrOverrun, or it could not
// be bound again. nil: it has not.
func (s *Socket) ended() error {
	if p := s.end.Load(); p != nil {
		return *p
	}
	return nil
}

// state is err, or *outage.
func (s *Socket) state() error {
	if err := s.ended(); err != nil {
		return err
	}
	return s.c.state()
}

// atDaemon is Client.control for requests about s.
func (s *Socket) atDaemon(ctx context.Context, f func() error) error {
	return s.c.control(ctx, func() error {
		if s.handle == noHandle {
			if s.closed.Load() {
				return ErrClosed
			}
			return s.ended()
		}
		return f()
	})
}

// Client returns the client through which the socket was bound.
func (s *Socket) Client() *Client { return s.c }

// LocalAddrPort returns the address and port the socket is bound to.
func (s *Socket) LocalAddrPort() netip.AddrPort { return s.local }

// LocalAddr returns LocalAddrPort as a net.Addr, an *Addr.
func (s *Socket) LocalAddr() net.Addr { return &Addr{s.local} }

// checkDest returns why the address to cannot be a destination of s, or nil.
func (s *Socket) checkDest(to netip.AddrPort) error {
	if err := checkAddr(to.Addr()); err != nil {
		return err
	}
	if to.Addr().Is4() != s.local.Addr().Is4() {
		return errFamily
	}
	return nil
}

// SetDeadline sets the read and the write deadline.
func (s *Socket) SetDeadline(t time.Time) error {
	if err := s.SetReadDeadline(t); err != nil {
		return err
	}
	return s.SetWriteDeadline(t)
}

// SetReadDeadline sets the time at which receives fail with os.ErrDeadlineExceeded,
// those that wait already included. The zero time sets no deadline.
func (s *Socket) SetReadDeadline(t time.Time) error {
	return s.setDeadline(&s.rdl, t, wantMessage)
}

// SetWriteDeadline sets the time at which sends fail with os.ErrDeadlineExceeded,
// those that wait already included. The zero time sets no deadline.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	return s.setDeadline(&s.wdl, t, wantSpace|wantMemory|wantRelief)
}

func (s *Socket) setDeadline(d *deadline, t time.Time, want interest) error {
	if s.closed.Load() {
		return opErr("set deadline", s.local, ErrClosed)
	}
	d.set(t, func() { s.notifyAll(want) })
	if s.closed.Load() {
		d.stop() // closed meanwhile: leave no timer behind
	}
	return nil
}

// SetSndBuf sets the send buffer limit to n bytes of payload, at least 1. A new
// socket has 524288. A message is accepted while less than the limit is queued, so
// the last one may exceed it. A single message longer than the limit is never
// accepted. Payload counts from the send until the peer has acknowledged it. RDMA
// data does not count. Payload that waits for a congested destination does not count
// either, and that destination may not have more than the limit. Besides, at most
// n/256 messages with payload may be queued, or 2048 if that is more.
//
// Source: net/rds/send.c rds_send_queue_rm. The kernel doubles the value of
// SO_SNDBUF and halves it again here; this one is taken as it is. Its default
// is 106496, and it does not count messages.
func (s *Socket) SetSndBuf(n int) error {
	if n < 1 {
		return opErr("set send buffer", s.local, invalid("%d bytes", n))
	}
	s.c.tx.mu.Lock()
	s.sndbuf = n
	s.c.tx.mu.Unlock()
	s.notifyAll(wantSpace)
	return nil
}

// SetRcvBuf sets the receive buffer limit to n bytes of payload, at least 1. It is a
// call to the daemon. A new socket has 524288. When more bytes than that wait to be
// received, or more messages with payload than n/256 (but at least 2048), the port
// is congested and senders wait.
func (s *Socket) SetRcvBuf(n int) error {
	if n < 1 || int64(n) > 1<<31-1 {
		return opErr("set receive buffer", s.local, invalid("%d bytes", n))
	}
	if s.closed.Load() {
		return opErr("set receive buffer", s.local, ErrClosed)
	}
	err := s.atDaemon(context.Background(), func() error {
		if _, _, err := s.c.call(&ipc.SetRcvBuf{Sock: s.handle, Bytes: uint32(n)}); err != nil {
			return s.overtaken(err)
		}
		s.c.rx.mu.Lock()
		defer s.c.rx.mu.Unlock()
		s.rcvbuf = n
		return nil
	})
	return opErr("set receive buffer", s.local, err)
}

// Close closes the socket and frees its port. Messages that were not sent are
// withdrawn, messages on their way may or may not arrive, and messages that were not
// received are dropped. No notice tells the peers. The local memory of operations in
// flight is the caller's again when its Buffer can be freed, see Buffer.FreeWait.
//
// Calls that wait fail with ErrClosed, and so does a second Close. Completions,
// Notices, ZeroCopyDone and HWM still return what the socket had been told.
//
// Source: net/rds/af_rds.c rds_release.
func (s *Socket) Close() error {
	if err := s.shut(); err != nil {
		return err
	}
	s.finishClose()
	return nil
}

// shut makes all calls of s fail, once.
func (s *Socket) shut() error {
	s.c.tx.mu.Lock()
	first := s.closed.CompareAndSwap(false, true)
	s.c.tx.mu.Unlock()
	if !first {
		return opErr("close", s.local, ErrClosed)
	}
	s.rdl.stop()
	s.wdl.stop()
	s.notifyAll(wantAll)
	return nil
}

// overtaken turns the answer to a control call about s into ErrClosed if Close was
// faster than the call, so that the daemon did not find what the call named.
func (s *Socket) overtaken(err error) error {
	if s.closed.Load() && (errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.EINVAL)) {
		return ErrClosed
	}
	return err
}

// finishClose closes s at the daemon and drops it here.
func (s *Socket) finishClose() {
	c := s.c
	c.life.RLock()
	defer c.life.RUnlock()
	// One bind or close at a time: the index must not belong to a new socket
	// before this one has left the table.
	c.binds.Lock()
	defer c.binds.Unlock()
	// If the daemon has gone, or goes just now, the port is free all the same.
	err := c.state()
	if err == nil && s.handle != noHandle {
		_, _, err = c.call(&ipc.CloseSock{Sock: s.handle})
	}
	c.regions.takeAll(s)
	c.rx.remove(s)
	c.tx.forgetSocket(s, err == nil)
}
