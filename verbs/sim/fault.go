package sim

import "net/netip"

// Faults are the rates of what may go wrong, in parts per million. All zero:
// nothing.
type Faults struct {
	Break    [pointKinds]uint32 // a break at a point, per passage
	HalfOpen uint32             // per break: one end learns late

	PostFail    uint32 // per posted send request: ENOMEM
	Refuse      uint32 // per connect: refused at once
	Unreachable uint32 // per connect: no route
	Lost        uint32 // per connect: the request never arrives
}

// BreakAll sets the rate of breaks at every point.
func (f *Faults) BreakAll(ppm uint32) {
	for i := range f.Break {
		f.Break[i] = ppm
	}
}

// PointKind is a moment in the life of a message or of a connection's set-up.
type PointKind uint8

const (
	BeforeWrite         PointKind = iota // at the responder; a break may leave part of the data
	AfterWritePlaced                     // at the responder
	BeforeSendDelivered                  // at the responder, which has a receive for it
	AfterSendDelivered                   // at the responder, whose completion is queued
	BeforeReadSampled                    // at the responder
	AfterReadSampled                     // at the responder; a break loses the response
	BeforeAtomic                         // at the responder
	AfterAtomic                          // at the responder; a break loses the response
	BeforeCompletion                     // at the requester, which will not know
	ConnectRequest                       // the request arrives at the passive side
	ConnectReply                         // the reply arrives at the active side
	ConnectReady                         // the passive side is about to be established
	pointKinds
)

// Point is where a fault can be placed. QP and WRID are those of the request;
// during set-up QP is the active side's and WRID is 0.
type Point struct {
	Kind PointKind
	Host netip.Addr // where it happens
	QP   *QP
	WRID uint64
}

// Action is the answer of Network.Hook.
type Action uint8

const (
	Pass           Action = iota
	Break                 // the connection breaks; both ends learn in their own time
	HalfOpen              // ... the requester (active side) learns late
	HalfOpenPeer          // ... the responder (passive side) learns late
	CrashRequester        // the host of QP crashes
	CrashResponder        // the host of its peer crashes
)

// fault returns what happens at a point.
func (n *Network) fault(k PointKind, at *Device, q *QP, wrid uint64) Action {
	if n.Hook != nil {
		if a := n.Hook(Point{Kind: k, Host: at.addr, QP: q, WRID: wrid}); a != Pass {
			return a
		}
	}
	if !n.rand.breakAt[k].chance(n.Faults.Break[k]) {
		return Pass
	}
	if !n.rand.halfOpen.chance(n.Faults.HalfOpen) {
		return Break
	}
	return HalfOpen + Action(n.rand.halfOpen.below(2))
}

// pass asks for a fault at a point of the established connection of q and carries it
// out. It returns false if the message goes no further.
func (n *Network) pass(k PointKind, at *Device, q *QP, wrid uint64) bool {
	a := n.fault(k, at, q, wrid)
	if a == Pass {
		return true
	}
	n.sever(q, a)
	return false
}

// sever breaks the connection of q, and crashes a host if a says so. From now on
// nothing crosses the connection.
func (n *Network) sever(q *QP, a Action) {
	n.note(traceBreak, q.num, uint64(a))
	p := q.peer
	switch a {
	case CrashRequester:
		n.Crash(q.dev.addr)
	case CrashResponder:
		if p != nil {
			n.Crash(p.dev.addr)
		}
	}
	q.cut()
	q.learnLater(a == HalfOpen)
	if p != nil {
		p.cut()
		p.learnLater(a == HalfOpenPeer)
	}
}
