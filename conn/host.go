package conn

import (
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// Verdict is the Host's answer to an arriving message.
type Verdict uint8

const (
	Accepted Verdict = iota // delivered, or taken into the Host's own memory
	NoSocket                // no socket there: the sender gets NOSOCK
	Refused                 // no room: the sender gets REFUSED, and tries again when the port's congestion bit, which the host sets, is cleared
)

// Host is the owner of a Conn. The Conn calls the methods of its Host, the up-calls,
// from inside its own methods. From there the Host may call the same Conn back:
//
//   - A method that only reads, like State or Info, from every up-call.
//   - Send, QueueCong, Hold, Excuse and TookRun from every up-call of MessageHost and
//     PeerHost but CanPost and Trace. They leave the work to the next Flush; but Send on a closed
//     Conn, or of an internal message to a kernel, calls MsgDone at once.
//   - The methods that the comment of the up-call names. The Conn is not going through
//     the messages that they end.
//
// It may call no other method. An up-call from inside another up-call may call what
// both may call. A Conn panics at any other call if it is built with the tag upcalls,
// as scripts/test.sh does for the simulator.
type Host interface {
	MessageHost
	PeerHost
	DeviceHost
}

// MessageHost is the part of a Host that messages come to, and that is told what
// became of those it sent.
type MessageHost interface {
	// Deliver hands up a message that arrived whole. payload is valid during
	// the call only. The header's extension headers are still encoded. met is the
	// incarnation of the socket that accepted the message; the sender is told, unless it is 0.
	//
	// If h.Run says that the message is a run, payload has its frames, of at least 4 bytes
	// for each datagram. Nobody has looked at them, and the peer cannot answer for them: a
	// run that is malformed harms nobody but whoever reads it. A run is accepted, refused
	// or sent back as a whole, and one that is accepted is told with TookRun. Commit tells
	// it likewise.
	//
	// Withdraw and ForgetPartial may be called from here.
	Deliver(c *Conn, h *wire.Header, payload []byte) (v Verdict, met uint32)
	// Begin announces a message that arrives in pieces. It returns h.Len bytes
	// to assemble the message in, and a token that names it. With another verdict
	// than Accepted the pieces are skipped. An Accepted Begin is followed by
	// exactly one Commit (the message is whole) or Abort (the connection broke and
	// the message will come again), unless the host withdrew the message with
	// Conn.ForgetPartial.
	//
	// ForgetPartial, of another message, may be called from here.
	Begin(c *Conn, h *wire.Header) (dst []byte, token any, v Verdict)
	// Commit tells that the message of an accepted Begin is whole.
	//
	// Withdraw and ForgetPartial may be called from here.
	Commit(c *Conn, h *wire.Header, token any) (met uint32)
	// Abort tells that the rest of the message of an accepted Begin does not come.
	Abort(c *Conn, token any)
	// Bound tells that the peer's socket of incarnation inc has accepted m, which
	// named no incarnation. MsgDone follows. A kernel never sends this notice, and
	// a peer leaves it out when it owes too many notices already.
	Bound(c *Conn, m *msg.Msg, inc uint32)
	// Internal hands up the body of a GRANT, REVOKE, REVOKED or GRANT_NAK. The body
	// is well formed.
	Internal(c *Conn, t wire.InternalType, body []byte)

	// AimAtomic asks whether r, the atomic that the message of h carries, may run. With
	// AtomicDone the host keeps its 8 bytes of memory until RunAtomic, which follows before
	// the call that brought the message returns. Between the two the message is handed up;
	// RunAtomic comes before the application can see it. With another status the message is
	// not handed up, or, if it was being assembled, Abort follows. AtomicNobody says that a
	// message which is to be handed up would find no socket, and the atomic no memory.
	AimAtomic(c *Conn, h *wire.Header, r *wire.Atomic) wire.AtomicStatus
	// RunAtomic carries r out, which the host has aimed at, and returns what the memory
	// held before; or, if run is false, lets go of the memory only.
	RunAtomic(c *Conn, r *wire.Atomic, run bool) (old uint64)
	// AtomicResult tells that the atomic that m carries has run at the peer, and what its
	// memory held before. It is called at most once, before MsgDone. If it is not, the local
	// buffer of the atomic is not written to.
	AtomicResult(c *Conn, m *msg.Msg, old uint64)

	// CanPost is asked once, when m.Op's turn has come. False ends m with OpRefused,
	// because the operation's grant was revoked since Send. True makes it a posted
	// operation, and exactly one OpLocal will follow. Two operations of one message
	// share one CanPost, one OpLocal and one outcome. Nothing but a method that reads
	// may be called from here.
	CanPost(c *Conn, m *msg.Msg) bool
	// OpLocal tells that m.Op is locally complete: no work request will touch its
	// local buffers again. The local buffer of an atomic that m carries is the host's own
	// affair: it is complete with MsgDone. It is called once per posted operation, before MsgDone.
	// An operation that was not posted ends with MsgDone alone.
	OpLocal(c *Conn, m *msg.Msg)
	// OpPlaced tells that the peer's device has carried out m's operations and has
	// taken its message: the status is SUCCESS. It is called for kernel peers only, at
	// most once and ahead of OpLocal. MsgDone, which follows when the message is
	// acked, then says nothing about the operations.
	OpPlaced(c *Conn, m *msg.Msg)
	// MsgDone gives m back to the host. It is called exactly once per Send. m.Ended says
	// how many of its datagrams o is for; the others, of a run, were Acked. The host may
	// send m again from here, but with Returned not before Conn.Stopped says that it may. When
	// a port stops, the messages to it are Returned in one call, the last one first.
	MsgDone(c *Conn, m *msg.Msg, o msg.Outcome)
	// HasWaiting reports whether the host has messages that wait for ports that are Stopped, or for
	// what it has to ask the peer: they are a reason to connect, as those are that the Conn has. Nothing but a method that reads may be called from here.
	HasWaiting(c *Conn) bool
}

// PeerHost is the part of a Host that follows the peer and decides whether to
// believe it.
type PeerHost interface {
	// Instance is asked when the peer's HELLO has named the instance of its daemon,
	// or with KernelInstance when the peer turned out to be a kernel. False breaks
	// the connection off before anything else of it counts; it is tried again. The
	// host decides because it may have several connections to one peer: only it can
	// tell a new daemon from the last words of an old one.
	//
	// Waiting may be called from here.
	Instance(c *Conn, id uint64) bool
	// PeerUp tells that the handshake is complete. restarted is true if the peer's
	// instance differs from that of the last connection.
	PeerUp(c *Conn, restarted bool)
	// PeerDown tells that the connection is down and that nothing of it touches a
	// buffer any more. It is called for every connection that was established, and
	// after Conn.Reset of one that was not; not for a failed attempt. No PeerUp came
	// before it if the handshake was not complete.
	//
	// Cancel, GiveUp and CancelMatching may be called from here.
	PeerDown(c *Conn, why error)
	// Congestion tells that the peer's congestion map changed.
	Congestion(c *Conn, m *cong.Map)
	// Trace is called for events that an operator wants to know: connection up,
	// down, protocol errors. It must be cheap: the host queues the event for a logger.
	// Nothing but a method that reads may be called from here.
	Trace(c *Conn, event string, err error)
}

// DeviceHost is the part of a Host that has the device: queue pairs, connection
// manager and registered memory.
type DeviceHost interface {
	// NewQP makes a queue pair for c on the shared CQ and SRQ. It is to answer
	// request req, or to dial if req is 0. If its device is not the one of
	// Config.Attr, the host calls Conn.UseAttr first.
	//
	// UseAttr and Send may be called from here. HELLO announces the internal messages
	// that are sent from here, so the peer waits for them.
	NewQP(c *Conn, req verbs.RequestID) (verbs.QP, error)
	// CloseQP destroys a queue pair that is empty. Dial, Accept and Reject call the
	// device's connection manager with the Conn's private data.
	CloseQP(c *Conn, qp verbs.QP)
	Dial(c *Conn, qp verbs.QP, private []byte) error
	Accept(c *Conn, req verbs.RequestID, qp verbs.QP, private []byte) error
	Reject(req verbs.RequestID, private []byte)

	// SendBuf takes a registered private buffer of at least Config.MaxSend and
	// wire.MinMaxSend bytes. It returns nil if none is free. PutSendBuf gives the
	// buffer back.
	SendBuf() *SendBuf
	PutSendBuf(*SendBuf)
	// CtlBuf takes such a buffer of CtlLen bytes. A connection keeps it while it has
	// a queue pair, so that an ack never waits for the pool.
	CtlBuf() *SendBuf
	PutCtlBuf(*SendBuf)
}

// SendBuf is a buffer of the host's send pool.
type SendBuf struct {
	Mem  []byte
	LKey uint32
	Addr uint64 // of Mem[0]
}
