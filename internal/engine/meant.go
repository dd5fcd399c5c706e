package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// A port that is bound again has another owner. A message for one socket, and for no later
// one at its port, names that socket's incarnation (msg.Msg.DstInc). It is the incarnation
// that the application named; else that of the socket that owns the memory of the message's
// operations; else the one that the destination has met.
//
// A destination meets a socket with its first message, which goes to whichever socket is
// bound. The peer's daemon answers with BOUND. Later messages wait for the answer, so that
// all go to that socket or to none. When the socket is gone, the application is notified.
// Messages that it submits after that go to whichever socket is bound then.
//
// A destination that was opened with shm.DestAnybody meets no socket. Each of its messages
// that names none goes to whichever is bound when it arrives, and waits for no other.

// anybody is pin.life of a destination that meets no socket. A daemon that does not know it
// takes it for a former life of the peer's daemon, so after a planned restart to such a
// daemon the destination meets a socket.
const anybody = ^uint64(0)

// pin is the socket that a destination leads to. A message keeps the pin that its
// destination had when the message was submitted.
type pin struct {
	handover.InState
	life uint64 // remote.met of the daemon there, 0: of this host, anybody: it meets no socket
	inc  uint32 // of the socket, 0: none was met yet
	gone bool   // a message found that it is gone, or that there is none
	told bool   // the application can know
	at   uint64 // what was submitted up to this place of the ring was before it could
}

// means returns the incarnation that a message of p means. name is the one that the
// application named, or 0.
func (p *pin) means(name uint32) uint32 {
	if name != 0 {
		return name
	}
	return p.inc
}

// newPin returns the pin of a destination that was just opened with flags.
func newPin(flags uint8) *pin {
	if flags&shm.DestAnybody != 0 {
		return &pin{life: anybody}
	}
	return &pin{}
}

// anybody reports whether p leads to whichever socket is bound.
func (p *pin) anybody() bool { return p.life == anybody }

// met notes that the socket of incarnation inc has accepted a message.
func (p *pin) met(inc uint32) {
	if p.inc == 0 && !p.anybody() {
		p.inc = inc
	}
}

// tellGone notes that the event ring has the notice that the socket of sl is gone, for
// when it is published.
func (sl *slot) tellGone() {
	if sl.pin == nil || sl.closed { // nil: see foldNotices
		return
	}
	if p := sl.now(sl.pin); p.gone && !p.told {
		if !sl.gone.On() {
			sl.sock.cl.gone.Add(&sl.gone, sl)
		}
		p.told = true
	}
}

// toldGone notes that the application can know from now on. What it has submitted by
// now it has submitted before.
func (c *Client) toldGone() {
	for at := c.sub.Published(); c.gone.N > 0; {
		sl := c.gone.Head.Of
		c.gone.Del(&sl.gone)
		sl.pin.at = at
	}
}

// meetAnew has sl meet another socket, if the application knew that the former one is
// gone when it submitted the message being taken in, which has so many operations.
func (sl *slot) meetAnew(ops int) {
	if p := sl.pin; p.told && !sl.gone.On() && sl.sock.cl.sub.Taken(p.at+1+uint64(ops)) {
		sl.pin = &pin{}
	}
}

// now returns p as it is in the present life of the daemon that sl leads to: what it
// has met ends with a restart, and messages that have not been sent go to whoever is
// bound there then.
func (sl *slot) now(p *pin) *pin {
	sl.way.renew(p)
	return p
}

// aim says which socket t, which is handed to p's connection, is for. If that is not
// known, t asks. A message behind one that found no socket asks, too, for a socket may
// be bound by now. Linux kernels do not answer, and a silent message, a ping or one for anybody
// meets no socket.
func (p *peer) aim(t *txMsg) {
	sl := t.slot
	p.means(t)
	if t.m.DstInc == 0 && !t.m.Silent && sl.port != 0 && p.c.profile().incarnations && !t.pin.anybody() {
		sl.asks = t
	}
}

// means says which socket t is for, as far as that is known.
func (p *peer) means(t *txMsg) {
	p.renew(t.pin)
	t.m.DstInc = t.pin.means(t.name)
	if t.nops > 0 {
		_, _ = t.meansOwner(p.owner) // CanPost refuses
	}
}

// canName reports whether p has the socket that t names, if it names one.
func (p *peer) canName(t *txMsg) bool { return t.name == 0 || p.c.profile().incarnations }

// owner is whose the memory of an operation of the peer's is, as far as is known.
func (p *peer) owner(o *txOp) rdmaop.Owner { return p.grants.Owner(o.RKey()) }

// Bound is the connection's up-call for the answer to a message that asked.
func (u *qpHost) Bound(_ *conn.Conn, m *msg.Msg, inc uint32) {
	if t, ok := m.Owner.(*txMsg); ok {
		t.slot.now(t.pin).met(inc)
		u.e.dests.goOn(t)
	}
}

// answered notes what the end of t says about the socket at its destination.
func (ds *destinations) answered(t *txMsg, o msg.Outcome) {
	switch p := t.slot.now(t.pin); {
	case o == msg.Acked && t.m.DstInc != 0 && !t.m.Silent:
		p.met(t.m.DstInc)
	case o == msg.NoSock && t.m.DstInc == p.inc && !p.anybody():
		p.gone = true
	}
	ds.goOn(t)
}

// goOn lets the messages go on that wait for what t has asked.
func (ds *destinations) goOn(t *txMsg) {
	sl := t.slot
	if sl.asks != t {
		return
	}
	sl.asks = nil
	sl.way.resume(sl)
}

// meant returns the socket that a message means: the one at port, but only if its
// incarnation is inc; inc 0 means whoever is bound. nil: there is none.
func (ds *destinations) meant(l *localAddr, port uint16, inc uint32) *socket {
	s := ds.e.clients.bound(l, port)
	if s == nil || inc != 0 && inc != s.inc {
		return nil
	}
	return s
}

// meansOwner has a message with operations mean the socket that owns their
// memory, if that socket is at the port that the message is for: the port's next
// owner has another memory, and the data would not be there. owner says whose the
// memory of an operation is. A region of a socket at another port says nothing
// about the destination.
//
// EACCES: bad is for memory of the destination only (abi.FlagOwner), and its region is of
// another socket. EINVAL: bad names memory of another socket than the application named, or than an
// operation before it. One port has one owner at a time, so one of the keys has ended;
// which one is not known here until its REVOKE has come.
func (t *txMsg) meansOwner(owner func(*txOp) rdmaop.Owner) (bad *txOp, errno unix.Errno) {
	means := t.name
	for _, o := range t.ops() {
		w := owner(o)
		if o.Flags&abi.FlagOwner != 0 && w != (rdmaop.Owner{}) && w.Port != t.m.DPort {
			return o, unix.EACCES
		}
		if w.Inc == 0 || w.Port != t.m.DPort {
			continue
		}
		if means != 0 && means != w.Inc {
			return o, unix.EINVAL
		}
		means = w.Inc
	}
	if means != 0 {
		t.m.DstInc = means
	}
	return nil, 0
}
