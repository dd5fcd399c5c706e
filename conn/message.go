package conn

import (
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
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
	Returned                 // never posted, and not withdrawn: its port is Conn.Stopped, the host sends it later
)

var outcomeNames = [...]string{"Acked", "Cancelled", "NoSock", "Lost", "Dropped", "Unknown", "OpFailed", "OpRefused",
	"Withdrawn", "GaveUp", "Returned"}

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
	Data []byte
	Addr uint64
	LKey uint32
	// Run is how many datagrams Data has if it is a run, see package frames: at least 1,
	// and Data is no longer than frames.MaxLen. A Run of 0 says that Data is one
	// datagram, as it is. A run has no Op, DestCookie and Internal, and does not go to
	// port 0. Payload is how many bytes of payload it has; only Stats depend on it.
	// While a run is sent to a Linux kernel, Data and Run are what is left of it, see Whole.
	// At MsgDone they are what they were.
	Run, Payload int
	DestCookie   uint64            // RDMA_DEST extension header to attach, 0 = none
	Op           *rdmaop.Op        // operation to post ahead of the message, or nil
	Op2          *rdmaop.Op        // with Op: a second one, posted behind it
	Silent       bool              // with Op: the peer's socket is not told
	AckNow       bool              // ask for an ack at once (Op implies it)
	Watched      bool              // Config.Posted is called whenever it is posted
	Internal     wire.InternalType // 0 for datagrams
	At           int64             // when the host took it in, by the Conn's clock; only Info.Oldest depends on it

	// WCStatus says why operation Bad failed, with OpFailed, and why it was refused,
	// with an OpRefused that CanPost did not ask for: WCLocQPOpErr, this device or
	// peer cannot run it; WCLocLenErr, it has more work requests than a queue pair
	// takes.
	WCStatus verbs.WCStatus
	Bad      *rdmaop.Op
	// Ended is set before MsgDone: how many datagrams have the outcome that it tells,
	// which is all there are but for a run to a Linux kernel, of which some may have
	// been Acked before the others were not.
	Ended int

	priv msgPriv // the Conn's part
}

// msgState says where a message is.
type msgState uint8

const (
	msgIdle   msgState = iota // the owner's
	msgQueued                 // waits in a queue; not posted on this connection
	msgPosted                 // on the unacked list
	msgEnding                 // its end is known; work requests still use its memory
)

// msgPriv is the Conn's part of a Msg.
type msgPriv struct {
	next, prev *Msg
	list       *msgList
	chain      *Msg      // next operation of the same SEND
	cut        *cutRun   // the run that is sent in parts: m or the one that m is a part of
	stop       *portStop // the stopped port it is in flight to
	seq        uint64    // 0 until first posted
	about      uint64    // of a notice: the sequence it tells of
	end        uint64    // over TCP: position in the stream behind its last byte
	state      msgState
	outcome    Outcome    // of msgEnding
	flags      wire.Flags // RETRANSMITTED, RESUME
	refs       int        // work requests that may touch Data or the operation's buffers
	sent       int        // payload bytes posted of a message in fragments
	own        bool       // made by the Conn itself: notices, pongs, parts of runs
	posted     bool       // posted at least once, on any connection
	again      bool       // it was when it was put on list, see msgList.again
	opPosted   bool       // CanPost said yes
	opLocal    bool       // OpLocal was called
	opProven   bool       // it was received once (and refused): its RDMA is done
	carried    bool       // its atomic travels in its frame, see atomic.go
	answered   bool       // the result of its atomic has come
}

// datagrams is how many datagrams m counts as.
func (m *Msg) datagrams() int { return max(m.Run, 1) }

// payload is how many bytes of payload m counts as.
func (m *Msg) payload() int {
	if m.Run != 0 {
		return m.Payload
	}
	return len(m.Data)
}

// opNew says that m has an operation that was not posted yet.
func (m *Msg) opNew() bool { return m.Op != nil && !m.priv.opPosted }

// opOpen says that m's fate is that of its posted operation: it must not be
// sent again, because its RDMA may not have happened or must not happen twice.
func (m *Msg) opOpen() bool { return m.priv.opPosted && !m.priv.opProven && m.hasRDMA() }

// opBytes is how many bytes the operations of m move.
func (m *Msg) opBytes() uint64 {
	n := m.Op.Len
	if m.Op2 != nil {
		n += m.Op2.Len
	}
	return n
}

// Whole returns Data and Run as they were passed to Send.
func (m *Msg) Whole() (data []byte, run int) {
	if m.isCut() {
		return m.priv.cut.data, m.priv.cut.datagrams
	}
	return m.Data, m.Run
}

// EverSent reports whether m was posted, on any connection.
func (m *Msg) EverSent() bool { return m.priv.posted }

// GivenUp returns the outcome of Conn.GiveUp: Withdrawn if m was never sent or has come back
// refused, else GaveUp.
func (m *Msg) GivenUp() Outcome {
	if m.priv.seq == 0 || m.notRun() {
		return Withdrawn
	}
	return GaveUp
}

// OpLocal reports whether no work request can touch the local buffers of m's operation.
func (m *Msg) OpLocal() bool { return !m.priv.opPosted || m.priv.opLocal }

// Sent reports whether m was posted on this connection and is not acked yet,
// and its sequence, 0 before it has one. Of a run that is sent as single datagrams it
// tells of the first one that is under way.
func (m *Msg) Sent() (seq uint64, sent bool) {
	if m.isCut() && m.priv.cut.first != nil {
		m = &m.priv.cut.first.Msg
	}
	return m.priv.seq, m.priv.state == msgPosted || m.priv.state == msgEnding
}
