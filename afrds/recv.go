package afrds

import (
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
)

const msgErrQueue = 0x2000 // MSG_ERRQUEUE

// Received is what recvmsg returns besides the data.
type Received struct {
	N          int // its return value
	NameLen    int // length of the whole address; 0 if there is none
	ControlLen int // bytes of control
	Flags      int // MSG_TRUNC, MSG_CTRUNC
}

// Recvmsg is recvmsg(2). One call returns statuses of operations, or relief of
// congestion, or a message, in this order. Only a message sets name. Statuses take
// 32 bytes of control each; those without room stay queued, and MSG_CTRUNC is set.
//
// Errors: EAGAIN, nothing is there, on a socket that does not block; ETIMEDOUT after
// SO_RCVTIMEO; EINTR after Interrupt. MSG_OOB returns 0 at once, MSG_ERRQUEUE
// returns EAGAIN.
//
// Source: net/rds/recv.c rds_recvmsg.
func (s *Socket) Recvmsg(payload, name, control []byte, flags int) (Received, error) {
	switch {
	case flags&syscall.MSG_OOB != 0:
		return Received{}, nil
	case flags&msgErrQueue != 0:
		return Received{}, syscall.EAGAIN
	}
	ctx, cancel := s.patience(flags, &s.opts.rcvtimeo)
	defer cancel()
	for {
		r, done, err := s.receive(payload, name, control, flags)
		if done || err != nil {
			return r, err
		}
		if ctx == rds.DontWait {
			s.tellRelief()
			return Received{}, syscall.EAGAIN
		}
		if err := s.waitReadable(ctx); err != nil {
			return Received{}, err
		}
	}
}

// waitReadable waits until there may be something to receive.
func (s *Socket) waitReadable(ctx context.Context) error {
	rs, err := s.socket()
	if err != nil {
		return err
	}
	if rs == nil {
		select {
		case <-s.isBound:
			return nil
		case <-ctx.Done():
			return s.ended(ctx)
		}
	}
	w := rds.WaitSet{Message: true, Completion: true}
	*krds.Congestion(&w) = true
	_, err = rs.Wait(ctx, w)
	return s.waited(ctx, err)
}

// receive takes what is there. done reports whether there was anything.
func (s *Socket) receive(payload, name, control []byte, flags int) (r Received, done bool, err error) {
	rs, err := s.socket()
	if err != nil || rs == nil {
		return Received{}, false, err
	}
	c := controls{buf: control}
	if s.putStatuses(rs, &c) || s.putCongestion(rs, &c) {
		return c.received(0), true, nil
	}
	m := rds.Received{Payload: payload}
	assembly, err := krds.Of(rs).Recv(&m, flags&syscall.MSG_PEEK != 0)
	if err != nil {
		if !wouldBlock(err) {
			return Received{}, false, errno(err)
		}
		// A call that does not wait may return with zero-copy cookies alone.
		if flags&syscall.MSG_DONTWAIT != 0 || s.nonblock.Load() {
			done = s.putZeroCopy(rs, &c)
		}
		return c.received(0), done, nil
	}
	s.describe(rs, &m, assembly, &c)
	r = c.received(m.N)
	if m.N < m.Len {
		r.Flags |= syscall.MSG_TRUNC
		if flags&syscall.MSG_TRUNC != 0 {
			r.N = m.Len
		}
	}
	from := encodeSockaddr(m.Addr, s.scopeOf(m.Addr.Addr()))
	copy(name, from)
	r.NameLen = len(from)
	return r, true, nil
}

func (s *Socket) scopeOf(ip netip.Addr) uint32 {
	if ip.Is4() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bound.scope
}

// putStatuses puts as many statuses of operations as fit into c, and reports whether
// there were any. A status without room stays queued.
func (s *Socket) putStatuses(rs *rds.Socket, c *controls) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for any := false; ; any = true {
		if any && !c.has(cmsg.NotifySize) || !s.nextStatus(rs) {
			return any
		}
		if !c.room(cmsg.NotifySize) {
			return true
		}
		c.put(cmsg.SOLRDS, cmsg.TypeRDMAStatus, s.status.Append(nil))
		s.hasStatus = false
	}
}

// nextStatus takes the next status for the application, and reports whether there is
// one. mu is held.
func (s *Socket) nextStatus(rs *rds.Socket) bool {
	var c [1]rds.Completion
	for !s.hasStatus && rs.Completions(c[:]) > 0 {
		s.settled(&c[0])
	}
	return s.hasStatus
}

// settled keeps the status of an operation for the application. An operation without
// NOTIFY_ME is reported by RDS_RECVERR, if it failed and was not cancelled by the
// application.
func (s *Socket) settled(c *rds.Completion) {
	op, known := s.ops[c.Token]
	delete(s.ops, c.Token)
	if !known || !op.notify && (c.Status == rds.Success || c.Status == rds.Canceled) {
		return
	}
	s.status, s.hasStatus = cmsg.Notify{UserToken: op.token, Status: int32(c.Status)}, true
	if c.Status == rds.Unknown {
		s.status.Status = cmsg.StatusDropped // the nearest the layout has
	}
}

// putCongestion puts the relief of congestion into c, and reports whether there was
// any. Without room for it, it stays queued.
func (s *Socket) putCongestion(rs *rds.Socket, c *controls) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cong |= krds.Of(rs).CongUpdates()
	if s.cong == 0 {
		return false
	}
	if c.room(8) {
		c.put(cmsg.SOLRDS, cmsg.TypeCongUpdate, host.AppendUint64(nil, s.cong))
		s.cong = 0
	}
	return true
}

// describe puts the control messages of a message into c, in the order of the
// kernel.
func (s *Socket) describe(rs *rds.Socket, m *rds.Received, assembly time.Duration, c *controls) {
	s.mu.Lock()
	stamp, trace, zerocopy := s.opts.timestamp, s.trace, s.opts.zerocopy != 0
	s.mu.Unlock()
	if m.Cookie != 0 {
		c.put(cmsg.SOLRDS, cmsg.TypeRDMADest, host.AppendUint64(nil, uint64(m.Cookie)))
	}
	if stamp != 0 {
		us := m.Time.UnixMicro()
		tv := host.AppendUint64(nil, uint64(us/1e6))
		c.put(syscall.SOL_SOCKET, cmsg.Type(stamp), host.AppendUint64(tv, uint64(us%1e6)))
	}
	if trace.Traces > 0 {
		t := traceOf(&trace, m.Time, assembly)
		c.put(cmsg.SOLRDS, cmsg.TypeRxPathLatency, t.Append(nil))
	}
	if zerocopy {
		s.putZeroCopy(rs, c)
	}
}

// traceOf says where a message spent its time. at is when it was complete and queued, and assembly how
// long it had taken until then. From the arrival of its header to its start rdsd has no step.
func traceOf(o *cmsg.RxTraceOption, at time.Time, assembly time.Duration) cmsg.RxTrace {
	t := cmsg.RxTrace{Traces: o.Traces, Pos: o.Pos}
	for i, pos := range o.Pos[:o.Traces] {
		var d time.Duration
		switch pos {
		case cmsg.RxDgramReassemble:
			d = assembly
		case cmsg.RxDgramDelivered:
			d = max(0, time.Since(at)) // by the wall clock
		}
		t.Nanos[i] = uint64(d)
	}
	return t
}

// putZeroCopy puts the cookies of finished zero-copy sends into c, if SO_ZEROCOPY is
// set and they fit.
func (s *Socket) putZeroCopy(rs *rds.Socket, c *controls) bool {
	s.mu.Lock()
	on := s.opts.zerocopy != 0
	s.mu.Unlock()
	if !on || !c.has(cmsg.ZcopyCookiesSize) {
		return false
	}
	var z cmsg.ZcopyCookies
	z.Num = uint32(rs.ZeroCopyDone(z.Cookies[:]))
	if z.Num == 0 {
		return false
	}
	c.put(cmsg.SOLRDS, cmsg.TypeZcopyCompletion, z.Append(nil))
	return true
}

// controls is a control buffer being filled.
type controls struct {
	buf   []byte
	n     int
	flags int
}

// has reports whether a control message of n bytes of data fits.
func (c *controls) has(n int) bool { return len(c.buf)-c.n >= cmsg.Len(n) }

// room is has; what does not fit is told.
func (c *controls) room(n int) bool {
	if !c.has(n) {
		c.flags |= syscall.MSG_CTRUNC
	}
	return c.has(n)
}

// put appends one control message. One that does not fit is cut off, as in the
// kernel (net/core/scm.c put_cmsg).
func (c *controls) put(level int32, typ cmsg.Type, data []byte) {
	left := len(c.buf) - c.n
	if left < cmsg.HeaderSize {
		c.flags |= syscall.MSG_CTRUNC
		return
	}
	if left < cmsg.Len(len(data)) {
		c.flags |= syscall.MSG_CTRUNC
		data = data[:left-cmsg.HeaderSize]
	}
	c.n += copy(c.buf[c.n:], cmsg.Append(nil, level, typ, data))
}

func (c *controls) received(n int) Received {
	return Received{N: n, ControlLen: c.n, Flags: c.flags}
}
