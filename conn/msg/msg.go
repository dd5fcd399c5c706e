package msg

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

// Msg is one message on its way to the peer. The host fills in the fields ahead of WCStatus
// and passes the Msg to the connection's Send. From then until Host.MsgDone the Msg and the
// memory that it names belong to the connection.
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
	// Traceparent goes along, unless it is nil, the message is Silent or the peer does not know
	// it. A run has none.
	Traceparent *wire.Traceparent
	DestCookie  uint64            // RDMA_DEST extension header to attach, 0 = none
	Op          *rdmaop.Op        // operation to post ahead of the message, or nil
	Op2         *rdmaop.Op        // with Op: a second one, posted behind it
	Silent      bool              // with Op: the peer's socket is not told
	Anybody     bool              // with DstInc 0: the host does not want to know which socket accepts it
	AckNow      bool              // ask for an ack at once (Op implies it)
	Watched     bool              // Config.Posted is called whenever it is posted
	Internal    wire.InternalType // 0 for datagrams
	// Owed says that only the peer waits for the message: it answers, or takes back what nobody
	// here waits for. On a List it changes by Owe alone.
	Owed bool
	At   int64 // when the host took it in, by the connection's clock; only Info.Oldest depends on it

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

	Track Track // the connection's part; the host has nothing to do with it
}

// State says where a message is.
type State uint8

const (
	Idle   State = iota // the owner's
	Queued              // waits in a queue; not posted on this connection
	Posted              // on the unacked list
	Ending              // its end is known; work requests still use its memory
)

// OpState is what the connection knows of a message's operations, which share one fate.
type OpState uint8

const (
	OpWaits     OpState = iota // not posted, or there is none
	OpPosted                   // CanPost said yes: work requests may use the local buffers
	OpLocal                    // locally complete: Host.OpLocal was called
	OpDone                     // as OpPosted, and the message was received once and refused: the RDMA is done
	OpDoneLocal                // as OpDone, and locally complete
)

// Posted reports whether the operation was posted.
func (s OpState) Posted() bool { return s != OpWaits }

// Local reports whether a posted operation is locally complete.
func (s OpState) Local() bool { return s == OpLocal || s == OpDoneLocal }

// Done reports whether the RDMA of a posted operation is done for certain.
func (s OpState) Done() bool { return s >= OpDone }

// Complete moves a posted operation to locally complete, and reports whether it was not.
func (s *OpState) Complete() bool {
	switch *s {
	case OpPosted:
		*s = OpLocal
	case OpDone:
		*s = OpDoneLocal
	default:
		return false
	}
	return true
}

// Prove notes that the RDMA of the operation, if it was posted, is done.
func (s *OpState) Prove() {
	switch *s {
	case OpPosted:
		*s = OpDone
	case OpLocal:
		*s = OpDoneLocal
	}
}

// Carriage is how a message's atomic gets to the peer.
type Carriage uint8

const (
	ByDevice Carriage = iota // as a work request, or there is none
	Carried                  // it travels in its message's frame, see conn/atomic.go
	Answered                 // likewise, and its result has come
)

// Track is the connection's part of a Msg: where it stands. A field is for connections of both
// kinds unless its comment says otherwise.
type Track struct {
	Next, Prev *Msg
	List       *List
	Chain      *Msg    // next operation of the same SEND
	Cut        *CutRun // the run that is sent in parts: m or the one that m is a part of
	port       *Port   // while it is in a list that Ports know of
	portPrev   *Msg    // in a chain of Ports
	portNext   *Msg
	Seq        uint64 // 0 until first posted
	About      uint64 // of a notice: the sequence it tells of
	End        uint64 // over TCP: position in the stream behind its last byte
	State      State
	Outcome    Outcome    // of Ending
	Flags      wire.Flags // RETRANSMITTED, RESUME
	Refs       int        // work requests that may touch Data or the operation's buffers
	Sent       int        // payload bytes posted of a message in fragments
	Own        bool       // made by the connection itself: notices, pongs, parts of runs
	Posted     bool       // posted at least once, on any connection
	Again      bool       // it was when it was put on list, see List.Again
	Op         OpState    // of its operation
	Atomic     Carriage   // of its atomic
}

// End makes m the host's again, whole.
func (m *Msg) End() { m.Track.State, m.Ended = Idle, m.Datagrams() }

// Datagrams is how many datagrams m counts as.
func (m *Msg) Datagrams() int { return max(m.Run, 1) }

// PayloadLen is how many bytes of payload m counts as.
func (m *Msg) PayloadLen() int {
	if m.Run != 0 {
		return m.Payload
	}
	return len(m.Data)
}

// OpNew says that m has an operation that was not posted yet.
func (m *Msg) OpNew() bool { return m.Op != nil && !m.Track.Op.Posted() }

// OpOpen says that m's fate is that of its posted operation: it must not be
// sent again, because its RDMA may not have happened or must not happen twice.
func (m *Msg) OpOpen() bool { return m.Track.Op.Posted() && !m.Track.Op.Done() && m.HasRDMA() }

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
	if m.IsCut() {
		return m.Track.Cut.Data, m.Track.Cut.Datagrams
	}
	return m.Data, m.Run
}

// EverSent reports whether m was posted, on any connection.
func (m *Msg) EverSent() bool { return m.Track.Posted }

// GivenUp returns the outcome of Conn.GiveUp: Withdrawn if m was never sent or has come back
// refused, else GaveUp.
func (m *Msg) GivenUp() Outcome {
	if m.Track.Seq == 0 || m.NotRun() {
		return Withdrawn
	}
	return GaveUp
}

// OpLocal reports whether no work request can touch the local buffers of m's operation.
func (m *Msg) OpLocal() bool { return !m.Track.Op.Posted() || m.Track.Op.Local() }

// Sent reports whether m was posted on this connection and is not acked yet,
// and its sequence, 0 before it has one. Of a run that is sent as single datagrams it
// tells of the first one that is under way.
func (m *Msg) Sent() (seq uint64, sent bool) {
	if m.IsCut() && m.Track.Cut.First != nil {
		m = &m.Track.Cut.First.Msg
	}
	return m.Track.Seq, m.Track.State == Posted || m.Track.State == Ending
}

// Atomic returns the atomic among m's operations; nil if there is none.
func (m *Msg) Atomic() *rdmaop.Op {
	switch {
	case m.Op == nil:
		return nil
	case m.Op.Kind.Atomic():
		return m.Op
	case m.Op2 != nil && m.Op2.Kind.Atomic():
		return m.Op2
	}
	return nil
}

// Carried reports whether m's atomic travels in its frame. It is known from CanPost on.
func (m *Msg) Carried() bool { return m.Track.Atomic != ByDevice }

// HasRDMA says that m has an operation that needs work requests.
func (m *Msg) HasRDMA() bool { return !m.Carried() || m.Op != m.Atomic() }

// NotRun says that the atomic which m carries has certainly not run: the peer has refused m,
// or has said what it received, and m was not sent since.
func (m *Msg) NotRun() bool { return m.Carried() && (m.Track.Seq == 0 || !m.Track.Posted) }

// HeadLen is the length of what is ahead of the payload in m's frames.
func (m *Msg) HeadLen() int {
	if m.Carried() {
		return wire.HeaderLen + wire.AtomicLen
	}
	return wire.HeaderLen
}
