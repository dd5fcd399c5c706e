package rds

import (
	"net"
	"net/netip"

	"github.com/rdsd/rdsd/internal/shm"
)

// ReadFrom is RecvFrom for net.PacketConn; the address is an *Addr.
func (s *Socket) ReadFrom(p []byte) (int, net.Addr, error) {
	n, from, err := s.RecvFrom(p)
	if err != nil {
		return n, nil, err
	}
	return n, &Addr{from}, nil
}

// WriteTo is SendTo for net.PacketConn; to is an *Addr or a *net.UDPAddr.
func (s *Socket) WriteTo(p []byte, to net.Addr) (int, error) {
	ap, err := addrPortOf(to)
	if err != nil {
		return 0, opErr("send", netip.AddrPort{}, err)
	}
	return s.SendTo(p, ap)
}

// Send is SendTo to the connected destination.
func (s *Socket) Send(p []byte) (int, error) { return s.SendTo(p, netip.AddrPort{}) }

// SendTo queues p for delivery to the socket at to and returns len(p).
//
// p may be empty and up to the send buffer limit or MaxMessage, whichever is
// less (ErrMessageTooLong); it is copied. Success means queued, not delivered:
// see the package comment. Messages from one socket to one other are delivered
// in the order they were sent.
//
// SendTo waits while the send buffer is full or the destination congested;
// the write deadline, Close and the daemon's end interrupt it. A non-blocking
// socket returns ErrWouldBlock or ErrCongested. An unreachable host is no
// error: messages to it wait. Other errors: ErrNoDestination, ErrInvalid,
// ErrTooManyDestinations, EOPNOTSUPP for an address of the other family.
//
// Safe for concurrent use; it allocates nothing once the destination is known.
//
// Source: net/rds/send.c rds_sendmsg; rds(7) "Message Transmission".
func (s *Socket) SendTo(p []byte, to netip.AddrPort) (int, error) {
	m := outMsg{p: p, to: to}
	if err := s.send(&m, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// SendMsg queues m.Payload, or the memory m.From, for delivery to m.Addr, with
// m.Cookie or after the operations m.Op and m.Atomic. It returns the barrier id
// of the last of them, 0 without one; m.OpID and m.AtomicID have both. Blocking
// and errors as SendTo; m.DontWait makes this call non-blocking. Also
// ErrInvalid for a malformed operation (EFAULT for an atomic's local memory
// that is not aligned), ErrCompletionsFull when it asks for a completion or a
// zero-copy cookie there is no room for, EOPNOTSUPP when m.Cookie is for a host
// that is reached by RDS/TCP: Linux's RDS does not take cookies there (a message
// that goes before the daemon has opened the destination is refused by the daemon,
// and the notice NotGranted says so). What only the daemon can see (an
// unknown or released cookie, bounds, rights) ends in a status.
func (s *Socket) SendMsg(m *Message) (opID uint64, err error) {
	m.OpID, m.AtomicID = 0, 0
	o := outMsg{p: m.Payload, to: m.Addr}
	if !m.plain() {
		o.x = m
	}
	if err := s.send(&o, m.DontWait); err != nil {
		return 0, err
	}
	return max(m.OpID, m.AtomicID), nil
}

// SendMsgs queues the messages of ms in order, like SendMsg for each but with
// one hand-over to the daemon, and returns how many. The error, if any, is that
// of the first one not queued. The elements' DontWait decide for themselves.
func (s *Socket) SendMsgs(ms []Message) (n int, err error) {
	for n < len(ms) {
		n += s.sendBatch(ms[n:])
		if n == len(ms) {
			break
		}
		// One that does not go through at once: the long way.
		if _, err := s.SendMsg(&ms[n]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// sendBatch submits small messages up to the first that fails or has to wait.
func (s *Socket) sendBatch(ms []Message) (n int) {
	t := &s.c.tx
	// One outMsg, filled field by field: a literal would be built elsewhere and
	// copied in wider words, which wait for all stores before them.
	var o outMsg
	t.mu.Lock()
	for n < len(ms) && len(ms[n].Payload) <= inlineCopy {
		m := &ms[n]
		m.OpID, m.AtomicID = 0, 0
		o.p, o.to, o.x, o.id, o.copied = m.Payload, m.Addr, nil, noID, false
		if !m.plain() {
			o.x = m
		}
		if t.submit(s, &o, false) != nil {
			t.drop(s, &o)
			break
		}
		n++
	}
	ring := t.publish()
	t.mu.Unlock()
	if ring {
		s.c.ringDaemon()
	}
	return n
}

// CancelSentTo withdraws everything this socket has queued or sent to the
// socket at to. Messages already on the wire may still be delivered; operations end with
// Canceled, and are locally complete when the hardware is done with them.
//
// Source: RDS_CANCEL_SENT_TO, net/rds/send.c rds_send_drop_to.
func (s *Socket) CancelSentTo(to netip.AddrPort) error {
	to = normal(to)
	c, t := s.c, &s.c.tx
	for {
		t.mu.Lock()
		err := c.Err()
		if s.closed.Load() {
			err = ErrClosed
		}
		d := s.dests[to]
		full := err == nil && t.sub.Free() < 1
		if err == nil && !full && d != nil {
			*t.sub.Reserve().Sub() = shm.Sub{Kind: shm.KindCancel, Sock: s.handle, Slot: d.slot}
		}
		ring := t.publish()
		t.mu.Unlock()
		if ring {
			c.ringDaemon()
		}
		if !full || d == nil {
			return opErr("cancel", to, err)
		}
		if err := s.ringWait(false); err != nil {
			return err
		}
	}
}
