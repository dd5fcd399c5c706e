package rds

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
)

// MaxMessage is the largest payload, bytes.
const MaxMessage = abi.MaxMessage

// Cookie names a registered region to remote initiators. It has the region's key,
// and the offset of its first byte in the upper 32 bits. 0 names no region.
type Cookie uint64

// Message is one datagram to send, with up to MaxMessage bytes, and what goes with it. It can be
// used again for the next send.
type Message struct {
	// Payload is the data. It is copied. Nil and empty send an empty message.
	Payload []byte
	// From is the data, instead of Payload, where it lies in a Buffer. It is not copied: it
	// must not change until the message is acknowledged or withdrawn, which ZeroCopy
	// reports.
	From Segment
	// Addr is the destination.
	Addr netip.AddrPort
	// DstInc is the incarnation of the socket that the message is meant for, for
	// example the SrcInc of the message that it answers. If that socket is no longer
	// bound, the message is delivered to nobody, and the sender gets a NoSocket
	// notice or the status Dropped. 0 means the socket that took this socket's first
	// message to Addr.
	DstInc uint32
	// Cookie is sent along and grants its region to Addr, ahead of the message. It must be of a
	// live region of this client.
	Cookie Cookie
	// Op is an operation that runs ahead of this message: when the message is
	// delivered, the data of the operation is there.
	Op *RDMA
	// Atomic is an atomic operation that runs ahead of this message, and behind Op
	// if there is one.
	Atomic *Atomic
	// OpID and AtomicID are set by the send: the barrier ids of Op and Atomic, or 0.
	OpID, AtomicID uint64
	// ZeroCopy makes ZeroCopyDone return ZeroCopyCookie once the message is
	// acknowledged or withdrawn: the memory named by From is then the caller's
	// again.
	ZeroCopy       bool
	ZeroCopyCookie uint32
	// GiveUpAfter limits how long the message may wait to be acknowledged once it is
	// queued. It is rounded up to milliseconds and is at most 49 days; 0 sets no
	// limit. After that time a message that was not sent is withdrawn, and one that
	// was sent is not sent again. The sender gets a GaveUp notice. If the message
	// has operations, it gets their statuses instead: Dropped if the message was not
	// sent, else Unknown.
	GiveUpAfter time.Duration
	// Notify queues a Completion with Token when it is known what became of the message, which
	// has no operations: see Status. It takes the place of the notices GaveUp and NotGranted, and
	// NoSocket and Lost come as well. A daemon of an older version cannot: EOPNOTSUPP.
	Notify bool
	Token  uint64
	// Traceparent is the trace that the message belongs to, the value of a traceparent header of
	// W3C Trace Context: 00-<trace id>-<parent id>-<flags>. "" is none, a malformed one
	// ErrInvalid. The receiver finds it in its Received if both daemons know it and Payload is
	// at most MaxMessage less 26 bytes. Else, at a Linux kernel and over RDS/TCP, the message
	// arrives without it.
	Traceparent string
}

// Received is one datagram that was received. The caller sets Payload, a receive the rest.
// It can be used again for the next receive.
type Received struct {
	Payload []byte         // the buffer to receive into
	N       int            // how many bytes were copied into Payload
	Len     int            // the message's full length; what is beyond N is lost
	Addr    netip.AddrPort // the source
	// SrcInc is the incarnation of the socket at Addr that sent the message. A later socket
	// at the same port has another incarnation. It is 0 if the peer is a Linux kernel, which
	// has none.
	SrcInc uint32
	Cookie Cookie    // of a region of the sender, if the message carried one
	Time   time.Time // when the message reached this host's daemon, by this host's wall clock
	// Traceparent is that of the sender's Message, well formed, or "" if none came.
	Traceparent string
}

// plain reports that m is only a payload to send.
func (m *Message) plain() bool {
	return m.Op == nil && m.Atomic == nil && m.Cookie == 0 && m.From.Buf == nil && m.From.Len == 0 && !m.ZeroCopy && !m.Notify && m.Traceparent == "" && m.GiveUpAfter == 0 && m.DstInc == 0
}

// freed reports that a Buffer that m names has been freed. tx.mu is held.
func (m *Message) freed() bool {
	if m == nil {
		return false
	}
	if b := m.From.Buf; b != nil && b.freed || m.Atomic != nil && m.Atomic.Local.Buf.freed {
		return true
	}
	return m.Op != nil && slices.ContainsFunc(m.Op.Local, func(g Segment) bool { return g.Buf.freed })
}

// maxGiveUp is the longest GiveUpAfter, 49 days.
const maxGiveUp = (1<<32 - 1) * time.Millisecond

// giveUpMs returns d in the unit of the daemon.
func giveUpMs(d time.Duration) uint32 { return uint32((d + time.Millisecond - 1) / time.Millisecond) }

// RDMA is a one-sided operation that a message carries.
//
// One of more than 1 MiB goes to the other host in pieces, and other sockets'
// operations go between them. It is one operation all the same: it has one id and one status,
// and its message is delivered behind the last piece, and only if all pieces were successful.
// After another status than Success any of its bytes may have been moved.
type RDMA struct {
	Write     bool      // local memory to the remote region; otherwise the remote region to local memory
	Cookie    Cookie    // the remote region
	RemoteOff uint64    // offset in the region, bytes
	Local     []Segment // 1 to 1024 pieces of local memory, none of them empty, at most 1 GiB together
	Token     uint64    // comes back in the Completion
	Notify    bool      // queue a Completion when settled
	Report    bool      // queue a Completion if it is not a success
	// Silent: do not deliver the message to the remote socket. It counts only if
	// the message has no payload, and its other operation, if any, is silent too.
	Silent bool
	// OwnerOnly: the region has to be one of the socket that the message is for. If it is
	// of another socket of that host, the operation ends with RemoteError, EACCES. It is for
	// cookies that the other side says: such a cookie may name a third party's memory.
	OwnerOnly bool
}

// Segment is a piece of a Buffer, Len bytes at offset Off. It belongs to an operation until the
// operation is locally complete, or to a message until its zero-copy cookie has come back.
//
// Of s, a slice of Buf.Bytes(), Off is cap(Buf.Bytes()) - cap(s), unless a third index has cut the capacity.
type Segment struct {
	Buf      *Buffer
	Off, Len int
}

// Status says how an operation, or a message with Notify, ended. It is an error, that of a call that waited for the
// operation: errors.Is(err, rds.Dropped). Success of a message says that it is acknowledged.
type Status uint8

// Statuses, and the errnos that they are. The first five have the numbers of RDS_RDMA_*; Unknown is rdsd's.
const (
	Success     Status = Status(abi.StatusSuccess)     // delivered with its message
	RemoteError Status = Status(abi.StatusRemoteError) // failed at the target, or refused before it was posted: see Errno. EIO
	Canceled    Status = Status(abi.StatusCanceled)    // withdrawn: CancelSentTo, Close. ECANCELED
	Dropped     Status = Status(abi.StatusDropped)     // proven not delivered; the target bytes are undefined. Send it again. EPIPE
	OtherError  Status = Status(abi.StatusOtherError)  // failed locally: see Errno. EIO
	// Unknown: not known, and never will be. The peer's daemon restarted, a time limit
	// passed, or the message gave up after it was sent. ETIME.
	Unknown Status = Status(abi.StatusUnknown)
)

var statuses = map[Status]struct {
	text  string
	errno syscall.Errno
}{
	Success: {"success", 0}, RemoteError: {"remote error", syscall.EIO}, Canceled: {"canceled", syscall.ECANCELED},
	Dropped: {"dropped", syscall.EPIPE}, OtherError: {"other error", syscall.EIO}, Unknown: {"unknown", syscall.ETIME},
}

// Error returns the status in a word or two.
func (s Status) Error() string {
	if x, ok := statuses[s]; ok {
		return x.text
	}
	return "status?"
}

// Unwrap returns the errno of a status that is not Success.
func (s Status) Unwrap() error {
	if x := statuses[s]; x.errno != 0 {
		return x.errno
	}
	return nil
}

// Completion is the status of an operation, or of a message. Each has one. It is queued if the
// operation or message asked for it: Notify, or Report.
type Completion struct {
	Token  uint64     // that of the operation or message
	ID     uint64     // barrier id of the operation, 0: of a message
	To     netip.Addr // destination host
	Status Status
	Errno  syscall.Errno // the reason, for a RemoteError or OtherError that this host found; ECONNREFUSED, for Dropped: no socket; else 0
}

// Err returns nil for Success. Otherwise errors.Is finds Status in the error, and Errno if
// there is one. It finds NoSocket if no socket was there.
func (c Completion) Err() error {
	if c.Status == Success {
		return nil
	}
	return &statusError{c.Status, c.Errno}
}

type statusError struct {
	status Status
	errno  syscall.Errno
}

func (e *statusError) Error() string {
	if e.errno == 0 {
		return "outcome: " + e.status.Error()
	}
	if e.nobody() {
		return "outcome: " + e.status.Error() + ": " + NoSocket.Error()
	}
	if text := refusals[e.errno]; text != "" && e.status == RemoteError {
		return "outcome: " + e.status.Error() + ": " + e.errno.Error() + ": " + text
	}
	return "outcome: " + e.status.Error() + ": " + e.errno.Error()
}

// refusals say why this host's daemon refused an operation.
var refusals = map[syscall.Errno]string{
	syscall.EINVAL: "the cookie is of no region, or of one that was never granted to this host: its owner has not sent it, has released the region, or it was used; or its host has started again; or an atomic is not aligned",
	syscall.EACCES: "the region is not granted to this socket's port (its owner sends it the cookie, or exposes the region), or not with the right for this operation",
	syscall.ERANGE: "the operation reaches beyond the end of the region",
}

func (e *statusError) Unwrap() []error {
	switch {
	case e.errno == 0:
		return []error{e.status}
	case e.nobody():
		return []error{e.status, NoSocket}
	}
	return []error{e.status, e.errno}
}

// nobody reports that the message found no socket.
func (e *statusError) nobody() bool { return e.status == Dropped && e.errno == syscall.ECONNREFUSED }

func (e *statusError) Timeout() bool   { return false }
func (e *statusError) Temporary() bool { return false }

// NoticeKind is the kind of a Notice. It is an error, that of a CloseWait:
// errors.Is(err, rds.NoSocket).
type NoticeKind uint8

// Notices, and the errnos that they are. PeerDown, PeerUp and Unreachable are none.
const (
	Lost     NoticeKind = NoticeKind(shm.NoticeLost)     // Count sent messages were lost: the peer's daemon restarted. EPIPE
	NoSocket NoticeKind = NoticeKind(shm.NoticeNoSocket) // Count messages found no socket at To. ECONNREFUSED
	PeerDown NoticeKind = NoticeKind(shm.NoticePeerDown) // the connection to the host of To broke
	PeerUp   NoticeKind = NoticeKind(shm.NoticePeerUp)   // the connection to the host of To is complete again after it had broken
	GaveUp   NoticeKind = NoticeKind(shm.NoticeGaveUp)   // Count messages to To reached their GiveUpAfter. EPIPE
	// NotGranted: Count messages with a Cookie, or calls of Expose, did not make
	// their region usable to To. The user's quota, the region, or the table of To's host has no
	// room for one more grant, or the region is for one use and was granted to
	// another host. If this host's daemon found that, the message was not sent. If
	// the peer's daemon found it, the message was delivered, and its cookie is
	// useless there. Release other regions, then send or Expose again. EPIPE.
	NotGranted NoticeKind = NoticeKind(shm.NoticeNotGranted)
	// Unreachable: the host of To is not reached, for Reason. Messages wait. The
	// notice comes again when the reason changes, and when a host that had been reached is not
	// reached any more.
	Unreachable NoticeKind = NoticeKind(shm.NoticeUnreachable)
)

var kinds = map[NoticeKind]struct {
	text  string
	errno syscall.Errno // of messages that were not delivered
}{
	Lost: {"lost", syscall.EPIPE}, NoSocket: {"no socket", syscall.ECONNREFUSED}, PeerDown: {"peer down", 0}, PeerUp: {"peer up", 0},
	GaveUp: {"gave up", syscall.EPIPE}, NotGranted: {"not granted", syscall.EPIPE}, Unreachable: {"unreachable", 0},
}

// Error returns the kind in a word or two.
func (k NoticeKind) Error() string {
	if x, ok := kinds[k]; ok {
		return x.text
	}
	return "notice?"
}

// Unwrap returns the errno of a kind that counts messages.
func (k NoticeKind) Unwrap() error {
	if x := kinds[k]; x.errno != 0 {
		return x.errno
	}
	return nil
}

// Notice tells a socket what happened at a destination that it sent to.
type Notice struct {
	Kind  NoticeKind
	To    netip.AddrPort // the destination; the zero AddrPort stands for several destinations
	Count uint64         // number of messages, for Lost, NoSocket, GaveUp and NotGranted
	// Reason is set for Unreachable.
	Reason Reason
}
