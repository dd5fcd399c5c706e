package rds

import (
	"context"
	"net"
	"net/netip"

	"github.com/rdsd/rdsd/internal/shm"
)

// ReadFrom is RecvFrom with the signature of net.PacketConn. The address is an
// *Addr.
func (s *Socket) ReadFrom(p []byte) (int, net.Addr, error) {
	n, from, err := s.RecvFrom(p)
	if err != nil {
		return n, nil, err
	}
	return n, &Addr{from}, nil
}

// WriteTo is SendTo with the signature of net.PacketConn. to is an *Addr or a
// *net.UDPAddr.
func (s *Socket) WriteTo(p []byte, to net.Addr) (int, error) {
	ap, err := addrPortOf(to)
	if err != nil {
		return 0, opErr("send", netip.AddrPort{}, err)
	}
	return s.SendTo(p, ap)
}

// SendTo queues p for delivery to the socket at to and returns len(p). Success means
// queued, not delivered: see the package comment. Messages from one socket to
// another are delivered in the order in which they were sent. p is copied. It may be
// empty, and has at most as many bytes as the send buffer limit and MaxMessage
// (ErrMessageTooLong).
//
// SendTo waits while the send buffer is full or the destination congested. The write
// deadline, Close and the daemon's end interrupt the wait. A host that is not reached is
// no error: messages to it wait. Other errors: ErrInvalid, ErrTooManyDestinations,
// EOPNOTSUPP for an address of the other family.
//
// It allocates nothing once the destination is known.
//
// Source: net/rds/send.c rds_sendmsg; rds(7) "Message Transmission".
func (s *Socket) SendTo(p []byte, to netip.AddrPort) (int, error) {
	if s.sendAgain(p, to) {
		return len(p), nil
	}
	var m outMsg // filled field by field: see sendBatch
	m.p, m.to = p, to
	if err := s.send(context.Background(), &m, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Send queues m.Payload, or the memory m.From, for delivery to m.Addr, with
// m.Cookie and behind the operations m.Op and m.Atomic. It sets m.OpID and
// m.AtomicID to their barrier ids and returns the last of them, or 0 if m has no
// operation.
//
// It waits as SendTo does, and until ctx ends. The error is the context's then, and nothing
// is queued. With DontWait it does not wait: ErrWouldBlock or ErrCongested. ctx does not
// limit how long the message may wait to be acknowledged: see Message.GiveUpAfter. Send
// allocates only if it has to wait and ctx can end.
//
// More errors: ErrInvalid for a malformed operation; EFAULT for an atomic operation
// whose local memory is not aligned; ErrCompletionsFull if m asks for a completion
// or a zero-copy cookie for which there is no room; EOPNOTSUPP if m has a Cookie and
// its destination is a Linux host reached by RDS/TCP, which does not take cookies.
// What only the daemon can check (an unknown or released cookie, bounds, rights)
// becomes the operation's status.
func (s *Socket) Send(ctx context.Context, m *Message) (opID uint64, err error) {
	m.OpID, m.AtomicID = 0, 0
	dontWait, err := impatient(ctx)
	if err != nil {
		return 0, opErr("send", m.Addr, err)
	}
	var o outMsg // filled field by field: see sendBatch
	o.p, o.to = m.Payload, m.Addr
	if !m.plain() {
		o.x = m
		s.c.tx.mu.Lock()
	} else if s.sendAgain(m.Payload, m.Addr) {
		return 0, nil
	}
	if err := s.send(ctx, &o, dontWait); err != nil {
		return 0, err
	}
	return max(m.OpID, m.AtomicID), nil
}

// SendBatch queues the messages of ms in order, as Send does, and hands them to
// the daemon together. It returns how many it queued. The error, if any, is that of
// the first message that was not queued.
func (s *Socket) SendBatch(ctx context.Context, ms []Message) (n int, err error) {
	if _, err := impatient(ctx); err != nil {
		return 0, opErr("send", netip.AddrPort{}, err)
	}
	for n < len(ms) {
		n += s.sendBatch(ms[n:])
		if n == len(ms) {
			break
		}
		// One that does not go through at once: the long way.
		if _, err := s.Send(ctx, &ms[n]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// sendBatch submits small messages. It stops at the first that fails or has to wait, and
// returns how many are submitted and visible to the daemon.
func (s *Socket) sendBatch(ms []Message) (n int) {
	t := &s.c.tx
	// One outMsg, filled field by field: a literal would be built elsewhere and
	// copied in wider words, which wait for all stores before them.
	var o outMsg
	done := 0 // of those n so many are no part of a run, or committed
	t.mu.Lock()
	for n < len(ms) && len(ms[n].Payload) <= inlineCopy {
		if t.cur != nil {
			n, done = t.commitBatch(n, done)
			continue
		}
		m := &ms[n]
		m.OpID, m.AtomicID = 0, 0
		o.p, o.to, o.x, o.id, o.copied = m.Payload, m.Addr, nil, noID, false
		if !m.plain() {
			o.x = m
		}
		if err := t.submit(s, &o, false); err != nil {
			if t.drop(&o); err == errOpening {
				t.openAhead(s, ms[n+1:])
			}
			break
		}
		if n++; t.cur == nil {
			done = n
		} else {
			n, done = t.appendMore(s, ms, n, done)
		}
	}
	n, _ = t.commitBatch(n, done)
	t.unlock()
	return n
}

// commitBatch commits the datagrams of a batch from done on. n have been submitted. It
// returns how many are now, uncommitted ones included, and how many are committed.
func (t *tx) commitBatch(n, done int) (int, int) {
	if !t.commitRun() {
		return done, done // the daemon has taken their run: again, into another
	}
	return n, n
}

// CancelSentTo withdraws everything that this socket has queued or sent to the
// socket at to. Messages already sent may still be delivered. Operations end with
// Canceled, and are locally complete when the device has finished with their memory.
//
// Source: RDS_CANCEL_SENT_TO, net/rds/send.c rds_send_drop_to.
func (s *Socket) CancelSentTo(to netip.AddrPort) error {
	to = normal(to)
	t := &s.c.tx
	for {
		t.mu.Lock()
		err := s.state()
		if s.closed.Load() {
			err = ErrClosed
		}
		d := s.dests[to]
		if _, is := err.(*outage); is {
			err, d = nil, nil // the daemon that had what was sent has gone
		}
		full := err == nil && !t.sub.FreeAtLeast(1)
		if err == nil && !full && d != nil {
			d.endRun()
			*t.sub.Reserve().Sub() = shm.Sub{Kind: shm.KindCancel, Sock: s.handle, Slot: d.slot}
		}
		t.unlock()
		if !full || d == nil {
			return opErr("cancel", to, err)
		}
		if err := s.ringWait(false); err != nil {
			return err
		}
	}
}
