// Package abi has the numbers on which applications, the daemon and its peers agree:
// kinds, flags and statuses of operations, rights of regions, and the limits of messages and operations.
//
// Those that the Linux kernel has are its numbers (RDS_RDMA_* and RDS_MAX_MSG_SIZE of
// linux/rds.h). They also lie in the memory that a process shares with the daemon, so
// none may change without a new version of that (docs/ipc.md).
//
// Not covered by docs/stability.md: any release may change this package.
package abi

// Limits of messages and operations.
const (
	// MaxMessage is the longest payload of a message in bytes: RDS_MAX_MSG_SIZE. An
	// application that sends a longer one gets EMSGSIZE.
	MaxMessage = 1 << 20
	// MaxTransfer is the most bytes that one operation moves, and EMSGSIZE beyond it.
	MaxTransfer = 1 << 30
	// MaxRDMA is the most bytes of an operation that go to a peer in one piece:
	// also RDS_MAX_MSG_SIZE. The daemon cuts a longer operation into such pieces.
	MaxRDMA = 1 << 20
	// MaxSegs is the most local segments of one operation: UIO_MAXIOV, and EMSGSIZE
	// beyond it.
	MaxSegs = 1024
)

// OpKind is what an operation does. The kernel has a type of control message for each
// kind; an operation of no kind below is refused with EINVAL.
type OpKind uint8

// Kinds of operations.
const (
	OpWrite    OpKind = 1 // local segments to the remote region: RDS_CMSG_RDMA_ARGS with RDS_RDMA_READWRITE
	OpRead     OpKind = 2 // remote region to the local segments: RDS_CMSG_RDMA_ARGS
	OpFetchAdd OpKind = 3 // adds to 8 bytes; the old value goes to the local segment: RDS_CMSG_ATOMIC_FADD
	OpCmpSwap  OpKind = 4 // compares and swaps 8 bytes; the old value goes to the local segment: RDS_CMSG_ATOMIC_CSWP
)

func (k OpKind) String() string {
	switch k {
	case OpWrite:
		return "WRITE"
	case OpRead:
		return "READ"
	case OpFetchAdd:
		return "FETCH_ADD"
	case OpCmpSwap:
		return "CMP_SWAP"
	}
	return "invalid kind"
}

// Atomic reports whether k is an atomic operation.
func (k OpKind) Atomic() bool { return k == OpFetchAdd || k == OpCmpSwap }

// OpFlags are the flags of an operation. Bits without a name below are ignored, as in
// the kernel.
type OpFlags uint16

// Flags of operations.
const (
	FlagFence  OpFlags = 0x0002 // behind earlier reads: RDS_RDMA_FENCE. It has no effect: every message waits for them
	FlagNotify OpFlags = 0x0020 // the status is wanted: RDS_RDMA_NOTIFY_ME
	FlagSilent OpFlags = 0x0040 // the peer's socket is not told: RDS_RDMA_SILENT
	FlagReport OpFlags = 0x1000 // the status is wanted unless it is SUCCESS. The kernel has no such flag: its RDS_RECVERR is for all operations of a socket
	FlagOwner  OpFlags = 0x2000 // the region has to be of the socket that the message is for. The kernel has no such flag
)

// Rights are what peers may do with a region. A process asks for them when it registers
// the region, and a GRANT tells the peer of them.
type Rights uint32

// Rights of a region. At least one of the first three is needed.
const (
	RightRead   Rights = 1 << 0 // reads
	RightWrite  Rights = 1 << 1 // writes
	RightAtomic Rights = 1 << 2 // atomics
	UseOnce     Rights = 1 << 3 // the region ends with the first message that has operations on it
	// PageOffset is no right and has no effect: the libraries of release 0.2.0 ask for it.
	PageOffset Rights = 1 << 4
	// Open is no right: everybody who shows the cookie may use the region. It is for the
	// daemon alone: no GRANT has it.
	Open Rights = 1 << 5

	// AnyRight is all kinds of operations.
	AnyRight = RightRead | RightWrite | RightAtomic
)

// Status is what became of an operation. The first five are the kernel's; UNKNOWN is
// rdsd's. Package rds has an error for each, with the errno named here.
type Status uint8

// Statuses of operations.
const (
	// StatusSuccess: the message was acked, so its data is in place. RDS_RDMA_SUCCESS.
	StatusSuccess Status = 0
	// StatusRemoteError: refused by the target, or with an errno by this side before it
	// was posted. RDS_RDMA_REMOTE_ERROR; EIO.
	StatusRemoteError Status = 1
	// StatusCanceled: withdrawn; it may or may not have run. RDS_RDMA_CANCELED;
	// ECANCELED.
	StatusCanceled Status = 2
	// StatusDropped: the message was not delivered and never will be. RDS_RDMA_DROPPED;
	// EPIPE.
	StatusDropped Status = 3
	// StatusOtherError: ended by an error of this side or of the transport.
	// RDS_RDMA_OTHER_ERROR; EIO.
	StatusOtherError Status = 4
	// StatusUnknown: the peer was lost before the outcome was known. ETIME.
	StatusUnknown Status = 5
)

func (s Status) String() string {
	switch s {
	case StatusSuccess:
		return "SUCCESS"
	case StatusRemoteError:
		return "REMOTE_ERROR"
	case StatusCanceled:
		return "CANCELED"
	case StatusDropped:
		return "DROPPED"
	case StatusOtherError:
		return "OTHER_ERROR"
	case StatusUnknown:
		return "UNKNOWN"
	}
	return "invalid status"
}
