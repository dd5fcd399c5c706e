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
	Refused                 // over the hard limit: the sender gets REFUSED; the port's congestion bit must be set, it says when to try again
)

// Outcome says how a message's life on the connection ended.
type Outcome uint8

const (
	Acked     Outcome = iota // received and accepted at the peer: delivered; operation SUCCESS
	Cancelled                // withdrawn with CancelMatching or Close
	NoSock                   // received, but no socket there; operation DROPPED
	Lost                     // sent, unacked, and the peer restarted
	Dropped                  // operation posted; proven not delivered by a handshake
	Unknown                  // operation posted; the peer restarted or settlement timed out
	OpFailed                 // operation ended by an error completion: Msg.WCStatus
	OpRefused                // operation not postable when its turn came (grant gone, not of this device or peer): never posted
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

// Msg is one message on its way to the peer. The owner fills the first part and
// passes it to Conn.Send; from then until Host.MsgDone the Msg and the memory
// it names belong to the Conn.
type Msg struct {
	Owner        any // the host's own record of the message
	SPort, DPort uint16
	SrcInc       uint32 // incarnation of the source socket, non-zero
	DstInc       uint32 // incarnation meant, 0 = any
	// Data is the payload, readable until MsgDone. Other processes may
	// scribble on it: it is read, never trusted. LKey != 0: the same bytes are
	// registered and Addr is the address of Data[0] under LKey; then large
	// payloads are posted from there.
	Data       []byte
	Addr       uint64
	LKey       uint32
	DestCookie uint64            // RDMA_DEST extension header to attach, 0 = none
	Op         *rdmaop.Op        // operation to post ahead of the message, or nil
	Op2        *rdmaop.Op        // with Op: a second one, posted behind it
	Silent     bool              // with Op: the peer's socket is not told
	AckNow     bool              // ask for an ack at once (Op implies it)
	Internal   wire.InternalType // 0 for datagrams

	// WCStatus is set for OpFailed, and Bad is the operation that failed. Of an
	// OpRefused that the host did not ask for it is WCLocQPOpErr: Bad is not for
	// this device or peer; or WCLocLenErr: it has more work requests than a
	// queue pair takes.
	WCStatus verbs.WCStatus
	Bad      *rdmaop.Op

	priv msgPriv // the Conn's part
}

// Host is the owner of a Conn. The Conn calls it synchronously from inside its
// own methods; the Host must not call back into the same Conn from these,
// Send excepted.
type Host interface {
	// Deliver hands up a message that arrived whole. payload is valid during
	// the call only. The header's extension headers are still encoded. met is the
	// incarnation of the socket that accepted it, 0: nobody is told.
	Deliver(c *Conn, h *wire.Header, payload []byte) (v Verdict, met uint32)
	// Begin announces a message that arrives in pieces and returns h.Len bytes
	// to assemble it in, plus a token; with another verdict than Accepted the
	// pieces are skipped. Exactly one Commit (all there) or Abort (the
	// connection broke; it will come again) follows an Accepted Begin, unless
	// the host withdrew it with Conn.ForgetPartial.
	Begin(c *Conn, h *wire.Header) (dst []byte, token any, v Verdict)
	Commit(c *Conn, h *wire.Header, token any) (met uint32)
	Abort(c *Conn, token any)
	// Bound: the peer's socket of incarnation inc has accepted m, which named none.
	// MsgDone follows. The host hears it before m's ack settles, unless the peer owes
	// too much already; never of a peer that is a kernel.
	Bound(c *Conn, m *Msg, inc uint32)
	// Internal hands up bodies of GRANT, REVOKE, REVOKED and GRANT_NAK, well formed.
	Internal(c *Conn, t wire.InternalType, body []byte)

	// CanPost is asked once, when m.Op's turn has come: false ends it OpRefused
	// (its grant was revoked since Send), true makes it a posted operation:
	// exactly one OpLocal will follow. Two operations of one message share
	// everything: one CanPost, one OpLocal, one outcome.
	CanPost(c *Conn, m *Msg) bool
	// OpLocal: m.Op is locally complete: no work request will touch its local
	// buffers again. Once per posted operation, before or inside MsgDone;
	// never for one that was not posted (then MsgDone alone says so).
	OpLocal(c *Conn, m *Msg)
	// OpPlaced: the peer's device has carried out m's operations and has taken
	// its message: their status is SUCCESS. Only with kernel peers, at most once,
	// ahead of OpLocal; MsgDone follows when the message is acked, and says
	// nothing of the operations any more.
	OpPlaced(c *Conn, m *Msg)
	// MsgDone: the Conn is done with m. Exactly once per Send.
	MsgDone(c *Conn, m *Msg, o Outcome)

	// Instance is asked when the peer's HELLO has named its daemon, or with
	// KernelInstance when the peer turned out to be a kernel: false
	// breaks the connection off before anything else counts, to be tried again.
	// With several connections to one host only their owner can tell a new
	// instance of its daemon from the last words of an old one.
	Instance(c *Conn, id uint64) bool
	// PeerUp: the handshake is complete, restarted says that the peer's
	// instance id differs from the last connection's.
	PeerUp(c *Conn, restarted bool)
	// PeerDown: the connection is down and drained: nothing of it touches any
	// buffer any more. Called for every connection that was established, and
	// after Conn.Reset of one that was not yet; not for failed attempts. No
	// PeerUp came before it if the handshake was not complete.
	PeerDown(c *Conn, why error)
	// Congestion: the peer's congestion map changed.
	Congestion(c *Conn, m *cong.Map)

	// NewQP makes a queue pair for c on the shared CQ and SRQ: to answer request
	// req, or with 0 to dial. If it is another device's than Config.Attr says,
	// the host calls Conn.UseAttr first. CloseQP destroys it (after it drained).
	// Dial, Accept and Reject pass on to the device's connection manager; the
	// private data is the Conn's.
	NewQP(c *Conn, req verbs.RequestID) (verbs.QP, error)
	CloseQP(c *Conn, qp verbs.QP)
	Dial(c *Conn, qp verbs.QP, private []byte) error
	Accept(c *Conn, req verbs.RequestID, qp verbs.QP, private []byte) error
	Reject(req verbs.RequestID, private []byte)

	// SendBuf takes a registered private buffer of at least Config.MaxSend
	// bytes, nil when none is free; PutSendBuf returns it.
	SendBuf() *SendBuf
	PutSendBuf(*SendBuf)
	// CtlBuf takes such a buffer of CtlLen bytes, which a connection keeps while
	// it has a queue pair: what must be sent never waits for the pool.
	CtlBuf() *SendBuf
	PutCtlBuf(*SendBuf)
	// Trace is called for what an operator wants to know (connection up, down,
	// protocol errors); it must be cheap: the host queues it for a logger.
	Trace(c *Conn, event string, err error)
}

// EventConnectFailed is traced when an attempt ends without a connection, before
// the next one begins.
const EventConnectFailed = "connect failed"

// SendBuf is a buffer of the host's send pool.
type SendBuf struct {
	Mem  []byte
	LKey uint32
	Addr uint64 // of Mem[0]
}

// Scratch is where a Conn builds work requests, between two calls unused: one
// serves all Conns of an owner.
type Scratch struct {
	wrs  []verbs.SendWR
	sges []verbs.SGE
}

// Config of a Conn. Times are nanoseconds.
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
	Rand           func() uint64    // back-off jitter; injected
	Scratch        *Scratch         // shared with the owner's other Conns; nil: its own
	Attr           verbs.DeviceAttr // limits for operation chains
	Ctx            any              // the host's own, returned by Conn.Ctx
}
