// Package shm is the memory that a client process and the daemon share: rings of 64-byte
// descriptors, return rings of message ids, tables of destination slots, and arenas for
// payload. docs/ipc.md is the contract.
//
// Callers pass memory as byte slices: mapped memfds in the product, heap memory in tests
// under the race detector and in the simulator. Integers are in host order, little-endian
// (amd64, arm64). The daemon trusts nothing in this memory: it keeps private copies of
// indices, and copies a descriptor once before it checks it.
package shm

import "github.com/rdsd/rdsd/abi"

const (
	// Magic and Version start the control segment.
	Magic   = 0x52445331 // "RDS1"
	Version = 3

	EntrySize = 64 // of every descriptor

	// Unit is what offsets in arenas are counted in. A chunk is named by its offset over
	// all windows of one direction.
	Unit       = 64
	WindowSize = 4 << 20
	PageSize   = 64 << 10 // an arena page holds chunks of one size class
)

// Kind is the kind of a submission descriptor, from client to daemon.
type Kind uint8

const (
	KindSend      Kind = 1 // Sub
	KindSendOp    Kind = 2 // Sub, followed by one SubOp entry, two with SubTwoOps
	KindOpenDest  Kind = 3 // SubDest
	KindCloseDest Kind = 4 // SubDest: Slot only
	KindCancel    Kind = 5 // Sub: Sock, Slot: cancel all to the slot's destination; with NoSlot: MsgID alone
	KindRun       Kind = 6 // Sub: Sock, Slot, MsgID; Chunk, Len: a chunk with a run, see run.go
)

// NoSlot is the Slot of a KindCancel that withdraws the message MsgID alone, and only if the message
// has not gone out. A message that is withdrawn ends as at its limit. An older daemon does nothing.
const NoSlot = ^uint32(0)

// Sub flags.
const (
	SubAckNow  uint8 = 1 // ask for an ack at once (send buffer half full)
	SubTwoOps  uint8 = 2 // KindSendOp: an RDMA operation, then an atomic
	SubFromBuf uint8 = 4 // the payload is Len bytes at Off of buffer Buf, not in the arena
	SubNotify  uint8 = 8 // KindSend: tell how the message ended, see EventStatus
	// SubTraceparent says that the trace which the message belongs to, a wire.Traceparent, is
	// behind the payload in the send arena; with SubFromBuf it is at Chunk. A daemon that does
	// not know the flag sends the message without.
	SubTraceparent uint8 = 16
)

// Sub submits a datagram. The daemon returns MsgID on the send-return ring when the
// payload's memory belongs to the client again.
type Sub struct {
	Kind   Kind
	Flags  uint8
	_      uint16
	Sock   uint32 // SockHandle
	Slot   uint32 // destination slot
	MsgID  uint32 // the client's message id, below MaxMsgs; in use until it is returned
	Chunk  uint32 // send arena, in Units; ignored when Len is 0
	Len    uint32
	Cookie uint64 // RDMA_DEST to attach, of a region of this client; 0 for none
	Off    uint64 // SubFromBuf
	Buf    uint32 // SubFromBuf
	GiveUp uint32 // milliseconds after which the daemon stops trying, 0 = never
	DstInc uint32 // the incarnation that the message is for; 0 for the one that the slot is pinned to
	_      [12]byte
}

// SubOp is an operation of the KindSendOp entry before it. Its local memory is one inline
// segment (NSeg 1: Region, Off, Len), or a list of NSeg SegEntry at SegChunk in the send
// arena. The list is part of the memory of the same message id. An atomic has one inline
// segment of 8 bytes, and an AtomicEntry with its operands at SegChunk.
type SubOp struct {
	Op        abi.OpKind
	_         uint8
	Flags     abi.OpFlags
	NSeg      uint16
	_         uint16
	Region    uint32 // local buffer id (Alloc)
	SegChunk  uint32
	Off       uint64 // in the local buffer
	Len       uint64 // total bytes
	Cookie    uint64 // remote region
	RemoteOff uint64 // offset in the remote region
	Token     uint64 // the user's token, which the status returns
	OpID      uint64 // barrier id: one more than the last of this socket and destination address
}

// SegEntry is one local segment of a list, 24 bytes.
type SegEntry struct {
	Region uint32
	_      uint32
	Off    uint64
	Len    uint64
}

// AtomicEntry are the operands of an atomic, 32 bytes. abi.OpFetchAdd adds
// CompareAdd; each bit of CompareMask ends a field that the carry does not
// leave. abi.OpCmpSwap compares the bits of CompareMask and stores those of SwapMask.
// The plain forms are masks of 0 and of all ones.
type AtomicEntry struct {
	CompareAdd  uint64
	Swap        uint64
	CompareMask uint64
	SwapMask    uint64
}

// DestAnybody is a flag of SubDest: messages to the destination that name no incarnation go to
// whichever socket is bound at its port when they arrive (ipc.FeatureAnybody).
const DestAnybody uint8 = 1

// SubDest opens or closes a destination slot.
type SubDest struct {
	Kind  Kind
	_     [3]byte
	Sock  uint32
	Slot  uint32 // index in the slot table, chosen by the client
	Cell  uint32 // barrier cell of (socket, address), chosen by the client
	Port  uint16
	Lane  uint8 // the socket's lane, the same for all its slots
	Flags uint8 // DestAnybody
	_     [4]byte
	Addr  [16]byte // IPv4 as v4-mapped
	Gen   uint32   // the daemon publishes it as Slot.Gen once the slot is open
	_     [20]byte
}

// EvKind is the kind of an event descriptor, from daemon to client.
type EvKind uint8

const (
	EvData    EvKind = 1 // Event: a message
	EvStatus  EvKind = 2 // EventStatus: an operation settled, or a message ended
	EvNotice  EvKind = 3 // EventNotice: a Notice
	EvBarrier EvKind = 4 // EventNotice: Cell: the armed id was reached
	EvRelief  EvKind = 5 // EventNotice: Slot: no longer congested
	EvCrowded EvKind = 6 // EventNotice: Slot: congested now
	EvOverrun EvKind = 7 // EventNotice: Sock: the socket lost its port and receives nothing more
)

// Event flags.
const (
	// EventRun says that Len bytes at Chunk are a run, which the daemon has checked. When
	// another quarter of these bytes was read, the client may put RxID|RxStep on the
	// receive-return ring, so that senders get room before it has read all.
	EventRun uint8 = 1
	// EventTraceparent says that a valid wire.Traceparent follows the Len bytes at Chunk.
	EventTraceparent uint8 = 2
)

// Event is a received message. The client returns RxID on the receive-return ring when it
// has copied the payload.
type Event struct {
	Kind     EvKind
	Flags    uint8
	DstPort  uint16
	Sock     uint32
	RxID     uint32
	Chunk    uint32 // receive arena, in Units
	Len      uint32
	SrcInc   uint32
	SrcAddr  [16]byte
	SrcPort  uint16
	_        uint16
	Assembly uint32 // ns from the header's arrival to RecvTime, at most 2^32-1
	Cookie   uint64 // RDMA_DEST, 0 = none
	RecvTime int64  // unix nanoseconds, when the daemon had the whole message
}

// EventStatus is the one status of an operation, or of a message with SubNotify. That of a
// message has OpID 0, and the message id as its Token.
type EventStatus struct {
	Kind   EvKind
	Status abi.Status
	_      uint16
	Sock   uint32
	Cell   uint32
	Errno  uint32 // reason for REMOTE_ERROR / OTHER_ERROR decided locally, 0 = none
	Token  uint64
	OpID   uint64
	_      [32]byte
}

// Notices.
const (
	NoticeLost        uint8 = 1 // Count sent datagrams lost by a restart of the peer
	NoticeNoSocket    uint8 = 2 // Count messages found no socket at the destination
	NoticePeerDown    uint8 = 3
	NoticePeerUp      uint8 = 4
	NoticeGaveUp      uint8 = 5 // Count messages without operations reached their limit (Sub.GiveUp)
	NoticeUnreachable uint8 = 6 // the host is not reached, see Reason
	NoticeNotGranted  uint8 = 7 // Count times a cookie sent, or a region exposed, could not be granted
)

// The reasons why a host is not reached, in EventNotice.Reason and Slot.Unreachable.
const (
	ReachForbidden uint8 = 1 // by the policy of this host
	ReachNoRoute   uint8 = 2 // the network does not lead there
	ReachRefused   uint8 = 3 // nothing listens there
	ReachTimeout   uint8 = 4 // nothing answers
	ReachRejected  uint8 = 5 // the peer's daemon rejects us
	ReachOther     uint8 = 6
)

// EventNotice is a notice about a destination.
type EventNotice struct {
	Kind   EvKind
	Notice uint8
	Port   uint16
	Sock   uint32
	Slot   uint32
	Cell   uint32
	Count  uint64
	Addr   [16]byte
	Reason uint8 // of NoticeUnreachable
	_      [23]byte
}

// Slot is one destination as the daemon publishes it. The client can only read it. Each
// field is written and read atomically. 64 bytes.
type Slot struct {
	Gen       uint32 // SubDest.Gen once open, 0 = closed
	Congested uint32 // 1: ENOBUFS
	State     uint32 // conn.State of the peer's connection
	Limits    uint32 // SlotLimits, which change only with Gen
	// Unreachable is why the host is not reached (Reach...). It is 0 if the host is
	// reached, or if nobody tries. With ReachForbidden, sends fail with EACCES.
	Unreachable uint32
	_           [44]byte
}

// SlotLimits are bits that say what the destination does not take.
type SlotLimits uint32

// SlotNoRDMA says that the destination takes no operations and no cookies (EOPNOTSUPP).
const SlotNoRDMA SlotLimits = 1

// Cell is a barrier cell, for one socket and destination address. 64 bytes.
type Cell struct {
	HWM uint64 // all operations up to this id are locally complete
	_   [56]byte
}

// WantSlot is which events the client wants for a slot, and WantCell for a cell. Both
// mirror the daemon's tables, and the client writes them. The daemon reads them after it
// has published the change.
type WantSlot struct {
	Relief uint32 // bits: 1 asks for EvRelief when Congested falls, 2 for EvCrowded when it rises; the daemon clears them
}
type WantCell struct {
	Armed uint64 // asks for EvBarrier when HWM reaches this id, 0 for none; the daemon clears it
}

// Params are the sizes of one client's shared memory, fixed at hello.
type Params struct {
	SubEntries   uint32 // power of two
	EventEntries uint32 // power of two
	MaxMsgs      uint32 // message ids and send-return ring entries, power of two
	MaxRx        uint32 // receive ids, power of two; the receive-return ring has RunSteps entries for each
	Slots        uint32
	Cells        uint32
	SendWindows  uint32 // arena windows mapped at hello
	RecvWindows  uint32
}

// DefaultParams are enough for one busy process. The submission ring has an entry for each slot, so
// each destination can have a run there that the daemon has not taken, and datagrams join it.
func DefaultParams() Params {
	return Params{SubEntries: 8192, EventEntries: 4096, MaxMsgs: 16384, MaxRx: 16384,
		Slots: 8192, Cells: 8192, SendWindows: 2, RecvWindows: 2}
}
