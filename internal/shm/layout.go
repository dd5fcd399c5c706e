// Package shm is the memory a client process and the daemon share: rings of
// fixed 64-byte descriptors, return rings of message ids, destination slots,
// and the arenas payloads live in. docs/ipc.md is the contract.
//
// Memory comes in as byte slices: mapped memfds in production, plain heap in
// tests under the race detector and in the simulator. All integers are in host
// order, little-endian (amd64, arm64). The daemon trusts nothing in it: indices
// have private copies, a descriptor is copied once and then checked.
package shm

import "github.com/rdsd/rdsd/abi"

const (
	// Magic and Version start the control segment.
	Magic   = 0x52445331 // "RDS1"
	Version = 3

	EntrySize = 64 // every descriptor

	// Unit is what offsets count in: a chunk is named by its offset over all
	// windows of one direction, and an arena is windows of WindowSize bytes.
	Unit       = 64
	WindowSize = 4 << 20
	PageSize   = 64 << 10 // an arena page holds chunks of one size class
)

// Kind of a submission descriptor (client to daemon).
type Kind uint8

const (
	KindSend      Kind = 1 // Sub
	KindSendOp    Kind = 2 // Sub, followed by one SubOp entry, two with SubTwoOps
	KindOpenDest  Kind = 3 // SubDest
	KindCloseDest Kind = 4 // SubDest: Slot only
	KindCancel    Kind = 5 // Sub: Sock, Slot: cancel all to the slot's destination
)

// Sub flags.
const (
	SubAckNow  uint8 = 1 // ask for an ack at once (send buffer half full)
	SubTwoOps  uint8 = 2 // KindSendOp: an RDMA operation, then an atomic
	SubFromBuf uint8 = 4 // the payload is Len bytes at Off of buffer Buf, not in the arena
)

// Sub submits a datagram. Result: MsgID comes back on the send-return ring
// when the payload is the client's again.
type Sub struct {
	Kind   Kind
	Flags  uint8
	_      uint16
	Sock   uint32 // SockHandle
	Slot   uint32 // destination slot
	MsgID  uint32 // client's message id, < MaxMsgs; in use until returned
	Chunk  uint32 // send arena, in Units; ignored when Len is 0
	Len    uint32
	Cookie uint64 // RDMA_DEST to attach (a cookie of this client), 0 = none
	Off    uint64 // SubFromBuf
	Buf    uint32 // SubFromBuf
	GiveUp uint32 // milliseconds after which the daemon stops trying, 0 = never
	DstInc uint32 // the incarnation of the destination socket that is meant, 0 = the one its slot has met
	_      [12]byte
}

// SubOp is an operation of the KindSendOp entry before it. Local memory is
// one segment inline (NSeg 1: Region, Off, Len) or a list of NSeg SegEntry in
// the send arena at SegChunk (part of the same message id's memory). An atomic
// has one inline segment of 8 bytes, and its operands, an AtomicEntry, at
// SegChunk.
type SubOp struct {
	Op        abi.OpKind
	_         uint8
	Flags     abi.OpFlags
	NSeg      uint16
	_         uint16
	Region    uint32 // local buffer id (Alloc)
	SegChunk  uint32
	Off       uint64 // in the local buffer
	Len       uint64 // bytes in all
	Cookie    uint64 // remote region
	RemoteOff uint64 // offset in the remote region
	Token     uint64 // user token, comes back in the status
	OpID      uint64 // barrier id: last issued of (socket, destination address) + 1
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

// SubDest opens or closes a destination slot.
type SubDest struct {
	Kind Kind
	_    [3]byte
	Sock uint32
	Slot uint32 // index in the slot table, chosen by the client
	Cell uint32 // barrier cell of (socket, address), chosen by the client
	Port uint16
	Lane uint8 // the socket's; the same for all its slots
	_    [5]byte
	Addr [16]byte // IPv4 as v4-mapped
	Gen  uint32   // comes back in Slot.Gen once the daemon has opened it
	_    [20]byte
}

// EvKind of an event descriptor (daemon to client).
type EvKind uint8

const (
	EvData    EvKind = 1 // Event: a message
	EvStatus  EvKind = 2 // EventStatus: an operation settled
	EvNotice  EvKind = 3 // EventNotice: a Notice
	EvBarrier EvKind = 4 // EventNotice: Cell: the armed id was reached
	EvRelief  EvKind = 5 // EventNotice: Slot: no longer congested
	EvCrowded EvKind = 6 // EventNotice: Slot: congested now
	EvOverrun EvKind = 7 // EventNotice: Sock: it is off its port and receives nothing more
)

// Event is an arrived message. RxID goes back on the receive-return ring when
// the payload has been copied out.
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
	RecvTime int64  // unix nanoseconds of the engine turn
}

// EventStatus is the one status of an operation.
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
	NoticeUnreachable uint8 = 6 // the host is not reached: Reason
	NoticeNotGranted  uint8 = 7 // Count times a cookie sent, or a region exposed, could not be granted
)

// Why a host is not reached, in EventNotice.Reason and Slot.Unreachable.
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

// Slot is one destination as the daemon publishes it; read-only to the client.
// Every field is written and read atomically. 64 bytes.
type Slot struct {
	Gen       uint32 // SubDest.Gen once open, 0 = closed
	Congested uint32 // 1: ENOBUFS
	State     uint32 // conn.State of the peer's connection
	Limits    uint32 // SlotLimits, the same as long as Gen
	// Unreachable is why the host is not reached (Reach...), 0: it is, or nobody
	// has tried. With ReachForbidden sends fail with EACCES.
	Unreachable uint32
	_           [44]byte
}

// SlotLimits: what the destination does not take. Bits.
type SlotLimits uint32

// SlotNoRDMA: messages only, without operations and cookies (EOPNOTSUPP).
const SlotNoRDMA SlotLimits = 1

// Cell is a barrier cell: one (socket, destination address). 64 bytes.
type Cell struct {
	HWM uint64 // locally complete up to here
	_   [56]byte
}

// WantSlot is what the client asks to be told about a slot, and WantCell about a
// cell: client-writable mirrors of the two tables. The daemon reads them after the
// fact it publishes.
type WantSlot struct {
	Relief uint32 // 1: send EvRelief when Congested falls; 2: EvCrowded when it rises; the daemon clears the bit
}
type WantCell struct {
	Armed uint64 // send EvBarrier when HWM reaches this id, 0 = none; the daemon clears it
}

// Params are the sizes of one client's shared memory, fixed at hello.
type Params struct {
	SubEntries   uint32 // power of two
	EventEntries uint32 // power of two
	MaxMsgs      uint32 // message ids and send-return ring entries, power of two
	MaxRx        uint32 // receive ids and receive-return ring entries, power of two
	Slots        uint32
	Cells        uint32
	SendWindows  uint32 // arena windows mapped at hello
	RecvWindows  uint32
}

// DefaultParams suit one busy process.
func DefaultParams() Params {
	return Params{SubEntries: 2048, EventEntries: 4096, MaxMsgs: 16384, MaxRx: 16384,
		Slots: 8192, Cells: 8192, SendWindows: 2, RecvWindows: 2}
}
