package rds

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
)

// MaxMessage is the largest payload, bytes.
const MaxMessage = shm.MaxMessage

// Cookie names a registered region to a remote initiator: its key, and the
// offset of its first byte in the upper 32 bits. 0 is none.
type Cookie uint64

// Message is one datagram for SendMsg and RecvMsg. The zero value with a
// Payload is usable; a Message may be used again and again.
type Message struct {
	// Payload is the data to send (nil and empty send an empty message), or
	// the buffer to receive into. Copied either way.
	Payload []byte
	// From is the data to send, where it lies in a Buffer, in place of
	// Payload. Nothing copies it: it must not change until the message is
	// acknowledged or withdrawn, which ZeroCopy tells. Sends only.
	From Segment
	// N is set by a receive: bytes copied into Payload.
	N int
	// Len is set by a receive: the message's full length.
	Len int
	// Truncated is set by a receive: Len > N; the rest is discarded, unless
	// Peek was set.
	Truncated bool
	// Addr is the destination (zero: the connected one), or the source.
	Addr netip.AddrPort
	// SrcInc is set by a receive: the incarnation of the socket at Addr that sent
	// the message. A later owner of the port has another one. 0: the peer is a
	// Linux kernel, which has none.
	SrcInc uint32
	// DstInc is the incarnation of the destination socket that is meant, say the
	// SrcInc of the message to be answered. If another socket is bound there by
	// then, or none, the sender gets a NoSocket notice or the status Dropped, and
	// nobody the message. 0: the socket that this one's messages to Addr have met,
	// with the first of them whoever is bound. Sends only.
	DstInc uint32
	// Cookie is sent along, or was: the RDMA_DEST of the message. To send it,
	// it must be of a region registered on this client; its grant goes ahead
	// of the message.
	Cookie Cookie
	// Op is an operation to run ahead of this message: when the message is
	// delivered, its data is there. Sends only.
	Op *RDMA
	// Atomic is an atomic operation to run ahead of this message, behind Op if
	// there is one. Sends only.
	Atomic *Atomic
	// OpID and AtomicID are set by a send: the barrier ids of Op and Atomic, 0
	// without.
	OpID, AtomicID uint64
	// ZeroCopy has ZeroCopyCookie come back from ZeroCopyDone once the message
	// is acknowledged or withdrawn: memory named by From is the caller's again.
	// Sends only.
	ZeroCopy       bool
	ZeroCopyCookie uint32
	// GiveUpAfter is how long the message, once queued, may wait to be
	// acknowledged; rounded up to milliseconds, at most MaxGiveUp, 0: for ever.
	// When it has passed, a message that has not gone out is withdrawn, and one
	// that has is not sent again: its sender gets a GaveUp notice or, with
	// operations, their statuses, Dropped in the first case and Unknown in the
	// second. Sends only.
	GiveUpAfter time.Duration
	// Time is set by a receive: when the daemon took the message in.
	Time time.Time
	// Trace is set by a receive on a socket with SetRxTrace.
	Trace RxTrace
	// DontWait makes this call non-blocking: ErrWouldBlock, ErrCongested.
	DontWait bool
	// Peek makes a receive leave the message where it is.
	Peek bool
}

// plain reports that m is no more than a payload to send.
func (m *Message) plain() bool {
	return m.Op == nil && m.Atomic == nil && m.Cookie == 0 && m.From.Buf == nil && m.From.Len == 0 && !m.ZeroCopy && m.GiveUpAfter == 0 && m.DstInc == 0
}

// freed reports that a Buffer m names has been freed. tx.mu is held.
func (m *Message) freed() bool {
	if m == nil {
		return false
	}
	if b := m.From.Buf; b != nil && b.freed || m.Atomic != nil && m.Atomic.Local.Buf.freed {
		return true
	}
	return m.Op != nil && slices.ContainsFunc(m.Op.Local, func(g Segment) bool { return g.Buf.freed })
}

// MaxGiveUp is the longest GiveUpAfter, 49 days.
const MaxGiveUp = (1<<32 - 1) * time.Millisecond

// giveUpMs is d as the daemon wants it.
func giveUpMs(d time.Duration) uint32 { return uint32((d + time.Millisecond - 1) / time.Millisecond) }

// OpKind is what an operation does.
type OpKind uint8

// Operations of a Message.Op; Message.Atomic has the others.
const (
	Write OpKind = OpKind(shm.OpWrite) // local memory to the remote region
	Read  OpKind = OpKind(shm.OpRead)  // remote region to local memory
)

func (k OpKind) String() string {
	switch k {
	case Write:
		return "write"
	case Read:
		return "read"
	}
	return "op?"
}

// RDMA is a one-sided operation that a message carries.
type RDMA struct {
	Kind      OpKind
	Cookie    Cookie    // the remote region
	RemoteOff uint64    // offset in it, bytes
	Local     []Segment // 1 to 1024 pieces of local memory, none empty, 1 MiB in all
	Token     uint64    // comes back in the Completion
	Notify    bool      // queue a Completion when settled
	Report    bool      // queue a Completion if it is not a success
	// Silent: do not deliver the message to the remote socket. It counts only if
	// the message has no payload, and its other operation, if any, is silent too.
	Silent bool
}

// Segment is a piece of a Buffer. It belongs to the operation until the
// operation is locally complete.
type Segment struct {
	Buf *Buffer
	Off int
	Len int
}

// Status says how an operation ended.
type Status uint8

// Statuses. The first five have the numbers of RDS_RDMA_*; Unknown is rdsd's.
const (
	Success     Status = Status(shm.StatusSuccess)     // delivered with its message
	RemoteError Status = Status(shm.StatusRemoteError) // failed at the target, or refused: see Errno
	Canceled    Status = Status(shm.StatusCanceled)    // withdrawn
	Dropped     Status = Status(shm.StatusDropped)     // proven not delivered; the target bytes are undefined
	OtherError  Status = Status(shm.StatusOtherError)  // failed locally: see Errno
	Unknown     Status = Status(shm.StatusUnknown)     // not known, and never will be
)

func (s Status) String() string {
	switch s {
	case Success:
		return "success"
	case RemoteError:
		return "remote error"
	case Canceled:
		return "canceled"
	case Dropped:
		return "dropped"
	case OtherError:
		return "other error"
	case Unknown:
		return "unknown"
	}
	return "status?"
}

// Err is nil for Success, else ErrRemote, ErrCanceled, ErrDropped, ErrOther or
// ErrUnknown.
func (s Status) Err() error {
	switch s {
	case Success:
		return nil
	case RemoteError:
		return ErrRemote
	case Canceled:
		return ErrCanceled
	case Dropped:
		return ErrDropped
	case Unknown:
		return ErrUnknown
	}
	return ErrOther
}

// Completion is the one status of an operation.
type Completion struct {
	Token  uint64
	ID     uint64     // barrier id
	To     netip.Addr // destination host
	Status Status
	Errno  syscall.Errno // why, for RemoteError and OtherError decided on this host; 0 = none
}

// Err is Status.Err, with the errno when there is one: errors.Is finds both.
func (c Completion) Err() error {
	err := c.Status.Err()
	if err == nil || c.Errno == 0 {
		return err
	}
	return &statusError{err, c.Errno}
}

type statusError struct {
	status error
	errno  syscall.Errno
}

func (e *statusError) Error() string   { return e.status.Error() + ": " + e.errno.Error() }
func (e *statusError) Unwrap() []error { return []error{e.status, e.errno} }
func (e *statusError) Timeout() bool   { return false }
func (e *statusError) Temporary() bool { return false }

// NoticeKind is the kind of a Notice.
type NoticeKind uint8

// Notices.
const (
	Lost     NoticeKind = NoticeKind(shm.NoticeLost)     // Count sent messages were lost: the peer's daemon restarted
	NoSocket NoticeKind = NoticeKind(shm.NoticeNoSocket) // Count messages found no socket at To
	PeerDown NoticeKind = NoticeKind(shm.NoticePeerDown) // the connection to the host of To broke
	PeerUp   NoticeKind = NoticeKind(shm.NoticePeerUp)   // it is there (again)
	GaveUp   NoticeKind = NoticeKind(shm.NoticeGaveUp)   // Count messages to To reached their GiveUpAfter
	// Count messages with a Cookie, or Exposes, did not make their region usable
	// to To: the user's quota, the region or the table of the host of To has no
	// room for one more grant, or it is for one use and another host was granted it.
	// A message that this host's daemon found so was not
	// sent; one that the peer's daemon found so was, and its cookie is worth
	// nothing there. Release other regions, then send or Expose again.
	NotGranted NoticeKind = NoticeKind(shm.NoticeNotGranted)
	// The host of To is not reached, Reason says why. Messages wait; told again
	// when the reason changes, or after it was reached.
	Unreachable NoticeKind = NoticeKind(shm.NoticeUnreachable)
)

func (k NoticeKind) String() string {
	switch k {
	case Lost:
		return "lost"
	case NoSocket:
		return "no socket"
	case PeerDown:
		return "peer down"
	case PeerUp:
		return "peer up"
	case GaveUp:
		return "gave up"
	case NotGranted:
		return "not granted"
	case Unreachable:
		return "unreachable"
	}
	return "notice?"
}

// Notice tells a socket about a destination it sent to.
type Notice struct {
	Kind  NoticeKind
	To    netip.AddrPort // the zero AddrPort: several destinations, folded
	Count uint64         // messages, for Lost, NoSocket, GaveUp and NotGranted
	// Reason is set for Unreachable.
	Reason Reason
}
