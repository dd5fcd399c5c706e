package conn

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// Verdict is the Host's answer to an arriving message.
type Verdict uint8

const (
	Accepted Verdict = iota // delivered, or taken into the Host's own memory
	NoSocket                // no socket there: the sender gets NOSOCK
	Refused                 // no room: the sender gets REFUSED, and tries again when the port's congestion bit, which the host sets, is cleared
)

// Outcome says what became of a message.
type Outcome uint8

const (
	Acked     Outcome = iota // received and accepted at the peer: delivered; operation SUCCESS
	Cancelled                // withdrawn with CancelMatching or Close
	NoSock                   // received, but no socket there; operation DROPPED
	Lost                     // sent, unacked, and the peer restarted
	Dropped                  // operation posted; proven not delivered by a handshake
	Unknown                  // operation posted; the peer restarted or settlement timed out
	OpFailed                 // operation ended by an error completion: Msg.WCStatus
	OpRefused                // operation never posted: its grant had gone, or the device or peer cannot run it
	Withdrawn                // GiveUp: not delivered, and never will be
	GaveUp                   // GiveUp: it was sent, and may have been delivered
)

var outcomeNames = [...]string{"Acked", "Cancelled", "NoSock", "Lost", "Dropped", "Unknown", "OpFailed", "OpRefused",
	"Withdrawn", "GaveUp"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "invalid outcome"
}

// Msg is one message on its way to the peer. The host fills in the exported
// fields and passes the Msg to Conn.Send. From then until Host.MsgDone the Msg and
// the memory that it names belong to the Conn.
type Msg struct {
	Owner        any // the host's own record of the message
	SPort, DPort uint16
	SrcInc       uint32 // incarnation of the source socket, non-zero
	DstInc       uint32 // incarnation meant, 0 = any
	// Data is the payload, readable until MsgDone. Other processes may write to it
	// at any time, so its content is never trusted. If LKey is not 0, Data is
	// registered, Addr is the address of Data[0] under LKey, and large payloads are
	// sent from there without a copy.
	Data       []byte
	Addr       uint64
	LKey       uint32
	DestCookie uint64            // RDMA_DEST extension header to attach, 0 = none
	Op         *rdmaop.Op        // operation to post ahead of the message, or nil
	Op2        *rdmaop.Op        // with Op: a second one, posted behind it
	Silent     bool              // with Op: the peer's socket is not told
	AckNow     bool              // ask for an ack at once (Op implies it)
	Internal   wire.InternalType // 0 for datagrams

	// WCStatus says why operation Bad failed, with OpFailed, and why it was refused,
	// with an OpRefused that CanPost did not ask for: WCLocQPOpErr, this device or
	// peer cannot run it; WCLocLenErr, it has more work requests than a queue pair
	// takes.
	WCStatus verbs.WCStatus
	Bad      *rdmaop.Op

	priv msgPriv // the Conn's part
}

// Host is the owner of a Conn. The Conn calls the methods of its Host, the up-calls,
// from inside its own methods. From there the Host may call the same Conn back:
//
//   - A method that only reads, like State or Info, from every up-call.
//   - Send, QueueCong, Hold and Excuse from every up-call of MessageHost and PeerHost
//     but CanPost and Trace. They leave the work to the next Flush; but Send on a closed
//     Conn calls MsgDone at once.
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
	Bound(c *Conn, m *Msg, inc uint32)
	// Internal hands up the body of a GRANT, REVOKE, REVOKED or GRANT_NAK. The body
	// is well formed.
	Internal(c *Conn, t wire.InternalType, body []byte)

	// CanPost is asked once, when m.Op's turn has come. False ends m with OpRefused,
	// because the operation's grant was revoked since Send. True makes it a posted
	// operation, and exactly one OpLocal will follow. Two operations of one message
	// share one CanPost, one OpLocal and one outcome. Nothing but a method that reads
	// may be called from here.
	CanPost(c *Conn, m *Msg) bool
	// OpLocal tells that m.Op is locally complete: no work request will touch its
	// local buffers again. It is called once per posted operation, before MsgDone.
	// An operation that was not posted ends with MsgDone alone.
	OpLocal(c *Conn, m *Msg)
	// OpPlaced tells that the peer's device has carried out m's operations and has
	// taken its message: the status is SUCCESS. It is called for kernel peers only, at
	// most once and ahead of OpLocal. MsgDone, which follows when the message is
	// acked, then says nothing about the operations.
	OpPlaced(c *Conn, m *Msg)
	// MsgDone gives m back to the host. It is called exactly once per Send. The host
	// may send m again from here.
	MsgDone(c *Conn, m *Msg, o Outcome)
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
	// CloseQP destroys a queue pair that has drained. Dial, Accept and Reject call the
	// device's connection manager with the Conn's private data.
	CloseQP(c *Conn, qp verbs.QP)
	Dial(c *Conn, qp verbs.QP, private []byte) error
	Accept(c *Conn, req verbs.RequestID, qp verbs.QP, private []byte) error
	Reject(req verbs.RequestID, private []byte)

	// SendBuf takes a registered private buffer of at least Config.MaxSend bytes. It
	// returns nil if none is free. PutSendBuf gives the buffer back.
	SendBuf() *SendBuf
	PutSendBuf(*SendBuf)
	// CtlBuf takes such a buffer of CtlLen bytes. A connection keeps it while it has
	// a queue pair, so that an ack never waits for the pool.
	CtlBuf() *SendBuf
	PutCtlBuf(*SendBuf)
}

// EventConnectFailed is the Trace event of an attempt to connect that ended
// without a connection.
const EventConnectFailed = "connect failed"

// SendBuf is a buffer of the host's send pool.
type SendBuf struct {
	Mem  []byte
	LKey uint32
	Addr uint64 // of Mem[0]
}

// Scratch is the memory in which a Conn builds work requests. It holds nothing
// between two calls, so one Scratch serves all Conns of an owner.
type Scratch struct {
	wrs  []verbs.SendWR
	sges []verbs.SGE
}

// Config of a Conn. Times are nanoseconds; the daemon's defaults are in
// parentheses.
type Config struct {
	Local, Remote  netip.Addr
	Lane           uint8
	Instance       uint64 // this daemon's instance id, random per start
	MaxSend        int    // largest SEND either way, bytes (32 KiB); at least wire.MinMaxSend
	RecvCredits    int    // receive buffers of the shared pool this peer may use (64); at least MinCredits
	StartSeq       uint64
	Past           Past             // of a former Conn of this lane
	MaxSendWR      int              // send queue of the QPs
	ReadDepth      int              // READs in flight each way
	MinBackoff     int64            // 1 ms
	MaxBackoff     int64            // 1 s
	ConnectTimeout int64            // 5 s: a handshake not complete by then is broken off
	AckDelay       int64            // 1 ms: an ack nobody asked for waits this long
	AckBytes       int              // ... or for this many unacked bytes (64 KiB)
	SettleTimeout  int64            // posted operations of a vanished peer become Unknown after this (30 s)
	Silence        int64            // a peer that owes an answer may say nothing for this long (30 s), <= 0: for ever
	Kernel         bool             // the peer may be a Linux kernel; else one that says so is rejected
	IgnorePings    bool             // messages to port 0 go to the host, who has no socket there
	Rand           func() uint64    // random numbers for the back-off
	Scratch        *Scratch         // shared with the owner's other Conns; nil: its own
	Attr           verbs.DeviceAttr // limits for operation chains
	Ctx            any              // the host's record of this Conn, returned by Conn.Ctx
}
