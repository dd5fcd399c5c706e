// Package verbs is the contract every RDMA provider of rdsd fulfils: reliable
// connected (RC) queue pairs, completion queues, shared receive queues, memory
// regions and a connection manager, in the terms and with the numeric values
// of libibverbs, so that a hardware provider needs no translation.
//
// # Ownership
//
// A Device and everything made from it belongs to one goroutine, its owner:
// there are no locks on the data path. Only the methods that say so may be
// called from elsewhere. Nothing here blocks. A software provider moves bytes
// only inside Device.Progress and the Post calls, on the owner's thread.
//
// # Memory
//
// An SGE addresses memory inside a registered region by the region's own
// address space: RegMR's iova is the address of its first byte (for local and
// for remote use). No pointer crosses the interface.
package verbs

import "net/netip"

// DeviceAttr has the limits and capabilities of a device.
type DeviceAttr struct {
	Name          string // "soft", "sim", or the RDMA device's name
	MaxMsg        uint32 // longest message of one work request, bytes
	MaxSendWR     int    // per QP
	MaxRecvWR     int    // per QP or SRQ
	MaxSGE        int    // per send or receive work request
	MaxReadSGE    int    // per RDMA READ
	MaxInline     int
	MaxReadDepth  int // READ + ATOMIC in flight per QP, each direction
	MaxPrivate    int // private data bytes in Connect
	Caps          Caps
	PageAlignedMR bool // RegMR wants page-aligned memory
}

// Caps are the capabilities in which providers differ.
type Caps uint32

const (
	CapOrderedCQ    Caps = 1 << iota // send completions arrive in post order
	CapImm                           // SEND/WRITE_WITH_IMM
	CapAtomics                       // CMP_AND_SWP, FETCH_AND_ADD
	CapMaskedAtomic                  // masked forms
	CapRNR                           // a SEND without a posted receive waits instead of failing
	CapRestrictedMR                  // AccessRestricted and MR.Allow work
	CapRemoteAck                     // AckRemote works
	CapRNRRetry                      // QPInitAttr.RNRRetry bounds that wait
	CapInvalidate                    // LOCAL_INV, SEND_WITH_INV
	CapMW                            // memory windows of both types, BIND_MW
	CapPlacedCQ                      // with AckLocal, too, a successful completion says that the peer's device has the data (InfiniBand, RoCE)
)

// Device is one RDMA device with its connection manager.
type Device interface {
	Attr() DeviceAttr
	// AllocPD makes a protection domain.
	AllocPD() (PD, error)
	// CreateCQ makes a completion queue of at least cqe entries.
	CreateCQ(cqe int) (CQ, error)
	// Progress moves bytes: flushes what was posted, receives, places and
	// completes. It never blocks, handles at most about 256 KiB per QP and
	// reports whether it did anything. Hardware providers return false.
	Progress() bool
	// FD returns a descriptor that polls readable (epoll, level-triggered)
	// when Progress, PollCM or an armed CQ has work, or -1 (sim).
	FD() int
	// Flush writes out what Post left buffered; Progress implies it.
	Flush()

	// Listen starts accepting connections on addr. It may block briefly and
	// is called at start-up. Errors name the address (EADDRINUSE, ...).
	Listen(addr netip.AddrPort) (Listener, error)
	// Connect starts a connection of qp (state INIT) and returns at once; the
	// outcome is a CMEvent for qp: Established, Rejected, Unreachable or
	// ConnectError. local's port may be 0.
	Connect(qp QP, p ConnectParam) error
	// Accept answers request id with qp (state INIT); the outcome is a
	// CMEvent Established or ConnectError for qp. Until Established, qp may
	// already receive. Sends may be posted at once, and leave when allowed.
	Accept(id RequestID, qp QP, private []byte) error
	// Reject refuses request id with up to 148 bytes of private data.
	Reject(id RequestID, private []byte) error
	// PollCM takes up to len(ev) connection events; it never blocks.
	PollCM(ev []CMEvent) int
	// PollAsync takes up to len(ev) asynchronous events; it never blocks. A
	// device keeps them, and its FD reports them, from the first call on: who
	// never asks never has to. Events of an object that is destroyed go with
	// it.
	PollAsync(ev []AsyncEvent) int

	// Close destroys the device and all that was made from it: outstanding
	// work requests complete no more; descriptors are closed.
	Close() error
}

// Listener is a listening address of a Device.
type Listener interface {
	Addr() netip.AddrPort
	Close() error
}

// RequestID names an incoming connection request until it is answered.
type RequestID uint64

// ConnectParam says how Device.Connect connects.
type ConnectParam struct {
	Local, Remote netip.AddrPort
	Private       []byte // copied
	TimeoutNs     int64  // whole set-up; 0: the provider's default (5 s)
}

// CMEventType: what happened to a connection.
type CMEventType uint8

const (
	CMConnectRequest CMEventType = iota + 1 // passive: Req, Local, Remote, Private
	CMEstablished                           // QP, Private (active side: the reply's)
	CMRejected                              // QP, Private
	CMUnreachable                           // QP, Err: no answer, refused, no route
	CMConnectError                          // QP, Err: anything else during set-up
	CMDisconnected                          // QP: peer closed, reset, timed out or Terminate; the QP is in ERR
)

// CMEvent is one event of the connection manager. Private is the event's own
// copy.
type CMEvent struct {
	Type          CMEventType
	QP            QP
	Req           RequestID
	Local, Remote netip.AddrPort
	Private       []byte
	Err           error
}

// PD is a protection domain: a QP reaches only MRs of its own PD.
type PD interface {
	// RegMR registers mem under [iova, iova+len(mem)). mem must stay mapped
	// until Dereg returns. EINVAL: empty, wrap-around, unknown rights, an iova
	// with AccessZeroBased, or remote write or atomic access without
	// AccessLocalWrite; ENOMEM: no key free.
	RegMR(mem []byte, iova uint64, access Access) (MR, error)
	CreateQP(attr QPInitAttr) (QP, error)
	CreateSRQ(maxWR, maxSGE int) (SRQ, error)
	// AllocMW makes a memory window, unbound. EOPNOTSUPP: no CapMW.
	AllocMW(t MWType) (MW, error)
	// Dealloc fails with EBUSY while a QP, SRQ, MR or MW of it lives.
	Dealloc() error
}

// Access are the rights of a memory region (values of ibv_access_flags; the
// high bits are ours).
type Access uint64

const (
	AccessLocalWrite   Access = 1
	AccessRemoteWrite  Access = 2
	AccessRemoteRead   Access = 4
	AccessRemoteAtomic Access = 8
	AccessMWBind       Access = 16 // memory windows may be bound to the region
	// AccessZeroBased: addresses are offsets from the start of the memory, for
	// SGEs and for the peer. RegMR wants iova 0 with it; in BindMW.Access it
	// makes the window zero-based, whatever its region is.
	AccessZeroBased Access = 32

	// AccessPrivate promises that nothing but the owner thread writes the
	// memory while a work request uses it, so that a checksum needs no
	// private copy first.
	AccessPrivate Access = 1 << 40
	// AccessRestricted limits remote access to QPs whose PeerKey was allowed
	// with MR.Allow (CapRestrictedMR).
	AccessRestricted Access = 1 << 41
)

// PeerKey names the peer a QP leads to, for AccessRestricted regions.
type PeerKey uint64

// MR is a memory region.
type MR interface {
	LKey() uint32
	RKey() uint32
	IOVA() uint64
	Len() uint64
	// Allow and Disallow change which peers may use the rkey; effective at
	// once for requests not yet begun.
	Allow(PeerKey)
	Disallow(PeerKey)
	// Rereg makes the region stand for other memory, address and rights, as
	// RegMR would, under new keys: LKey and RKey change, and the old ones are
	// dead as after Dereg. On error the region is what it was. Errors are
	// RegMR's, and EBUSY while a window is bound to it.
	Rereg(mem []byte, iova uint64, access Access) error
	// Dereg ends the registration at once: when it returns the provider never
	// touches the memory again. Work requests that still name it fail. EBUSY:
	// a memory window is bound to it.
	Dereg() error
}

// CQ is a completion queue.
type CQ interface {
	// Poll takes up to len(wc) completions in order; fewer means empty.
	Poll(wc []WC) int
	// ReqNotify arms the queue for one event: the next completion added, or
	// with solicitedOnly the next receive of a solicited message or the next
	// completion with an error. The event disarms the queue and keeps the
	// device's FD readable until Notified has taken it. Arming twice is arming
	// once, and any widens solicited. Completions already in the queue make no
	// event, so to wait without losing one: arm, poll until empty, flush, block
	// on the FD, progress, and if Notified begin again.
	ReqNotify(solicitedOnly bool) error
	// Notified takes the event, if it has come.
	Notified() bool
	// Cap is the granted number of entries, at least what was asked for. A
	// completion that finds the queue full is lost: AsyncCQErr is raised, the
	// queue takes no more, and its queue pairs move to ERR with AsyncQPFatal.
	Cap() int
	// Resize makes the queue hold at least cqe entries (ibv_resize_cq); Cap
	// tells. Completions in it stay. EINVAL, without a change: fewer than are
	// in it, less than one, or more than the device can.
	Resize(cqe int) error
	// Destroy fails with EBUSY while a QP uses the queue. An event not taken
	// goes with it.
	Destroy() error
}

// SRQ is a shared receive queue. The order in which receives are consumed is
// the provider's choice.
type SRQ interface {
	// PostRecv queues receives; n were queued. ENOMEM: full.
	PostRecv(wr []RecvWR) (n int, err error)
	// Limit arms AsyncSRQLimit for once: it is raised when fewer than n
	// receives are left, at once if that is so already. 0 disarms. EINVAL:
	// more than the queue holds.
	Limit(n int) error
	// Cap is how many receives may be outstanding: posted, or taken and not
	// complete.
	Cap() int
	// Resize changes Cap (ibv_modify_srq with IBV_SRQ_MAX_WR). EINVAL, without
	// a change: fewer than are outstanding or than the limit armed, less than
	// one, or more than DeviceAttr.MaxRecvWR.
	Resize(maxWR int) error
	// Destroy fails with EBUSY while a QP uses the queue.
	Destroy() error
}

// QPState is a queue pair's state (values of ibv_qp_state).
type QPState uint8

const (
	QPReset QPState = iota
	QPInit
	QPRTR
	QPRTS
	QPSQD
	QPSQE
	QPErr
)

// AckMode says what a SEND or WRITE completion means on a software provider.
type AckMode uint8

const (
	// AckRemote: the data has been placed at the remote (RC as in InfiniBand).
	AckRemote AckMode = iota
	// AckLocal: the local buffers are free again and the transport will
	// deliver (RFC 5040 5.5 rule 9). conn uses this and settles by RDS acks.
	AckLocal
)

// QPInitAttr are the attributes of PD.CreateQP. Granted capacities may be
// larger; QP.Cap tells.
type QPInitAttr struct {
	SendCQ, RecvCQ CQ
	SRQ            SRQ // nil: the QP's own receive queue
	Cap            QPCap
	SQSigAll       bool // every send request is signaled (sq_sig_all)
	Ack            AckMode
	CRC            CRCMode
	Peer           PeerKey
	Access         Access // rights remote requests may use at all; 0 = none
	RNRRetry       RNRRetry
	MinRNRTimer    RNRTimer
	Context        any // returned by QP.Context
}

// CRCMode asks for MPA's CRC32C on the soft provider. It is used in both
// directions if either side wants it.
type CRCMode uint8

const (
	CRCOn CRCMode = iota
	CRCOff
)

// QPCap are the capacities of a QP.
type QPCap struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInline              int
	// ReadDepth: READ and ATOMIC requests in flight as initiator, and served
	// as responder. After Established: the negotiated initiator depth.
	ReadDepth int
	// Caps, of QP.Cap only, are the device's capabilities, without those that
	// the peer turned out to lack once the connection is Established.
	Caps Caps
}

// QP is a reliable connected queue pair. It is made in INIT: receives may be
// posted at once, sends from Connect or Accept on.
type QP interface {
	Num() uint32
	State() QPState
	Cap() QPCap
	Context() any
	Stats() QPStats
	// PostSend posts the list in order and stops at the first request that
	// fails immediate checks: n were posted and will run, err is about wr[n].
	// wr and its SGLs may be reused when it returns; the data may not until
	// the completion (SendInline excepted). EINVAL: bad opcode or flags, too
	// many SGEs, inline too long, QP not in RTS or ERR (or on its way there by
	// Connect/Accept); ENOMEM: send queue full. In ERR requests are accepted
	// and flushed.
	PostSend(wr []SendWR) (n int, err error)
	// PostRecv posts receives; EINVAL on a QP with an SRQ.
	PostRecv(wr []RecvWR) (n int, err error)
	// Modify changes the state as its owner may: any to ERR (ToError) and to
	// RESET, RESET to INIT, RTS to SQD and back, and each of them to itself.
	// The rest of the way to RTS is Connect's and Accept's. EINVAL, without a
	// change: any other transition.
	//
	// RESET cuts the connection, discards all work requests without
	// completions, and makes the QP as new; completions already in a CQ stay.
	// It takes no receives until it is in INIT again. In SQD requests are
	// accepted but not begun; when those begun are done AsyncSQDrained is
	// raised.
	Modify(to QPState) error
	// ToError moves the QP to ERR, as ibv_modify_qp does: the connection is
	// cut, every outstanding work request completes with WCWRFlushErr, and
	// once those completions are polled the provider touches no buffer of the
	// QP any more. Idempotent.
	ToError()
	// Disconnect ends the connection in order: what was posted is sent first,
	// then the stream is closed and the QP moves to ERR. It ends SQD. There is
	// no time limit: a peer may take nothing, or post no receives; ToError ends
	// the wait.
	Disconnect()
	// Destroy frees the QP. Work requests still outstanding complete no more.
	Destroy() error
}

// Opcode of a send work request (values of ibv_wr_opcode).
type Opcode uint8

const (
	OpRDMAWrite        Opcode = 0
	OpRDMAWriteWithImm Opcode = 1
	OpSend             Opcode = 2
	OpSendWithImm      Opcode = 3
	OpRDMARead         Opcode = 4
	OpAtomicCmpAndSwp  Opcode = 5
	OpAtomicFetchAdd   Opcode = 6
	OpLocalInv         Opcode = 7
	OpBindMW           Opcode = 8
	OpSendWithInv      Opcode = 9
)

// SendFlags of a send work request (values of ibv_send_flags).
type SendFlags uint8

const (
	SendFence     SendFlags = 1
	SendSignaled  SendFlags = 2
	SendSolicited SendFlags = 4
	SendInline    SendFlags = 8
)

// SGE is a piece of local memory: Addr is in the address space of the region
// LKey names. A zero Length is refused with EINVAL (in libibverbs it means
// 2^31 bytes): send zero bytes with an empty list.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR is a send work request.
type SendWR struct {
	WRID       uint64
	Op         Opcode
	Flags      SendFlags
	Imm        uint32 // WITH_IMM: immediate data; WITH_INV, LOCAL_INV: the rkey to invalidate
	RKey       uint32
	RemoteAddr uint64
	SGL        []SGE
	// Inline is the data of a SEND or WRITE with SendInline, in place of an
	// SGL. PostSend copies it; it needs no region. An SGL with SendInline is
	// copied as well, but names memory as SGEs do, by key.
	Inline []byte
	Atomic AtomicArgs
	Bind   *BindMW // BIND_MW; may be reused when PostSend returns
}

// AtomicArgs: FETCH_AND_ADD adds CompareAdd; CMP_AND_SWP compares with
// CompareAdd and stores Swap. The masks are used by the masked forms
// (Masked true).
type AtomicArgs struct {
	CompareAdd, Swap         uint64
	CompareAddMask, SwapMask uint64
	Masked                   bool
}

// RecvWR is a receive work request.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}

// WCStatus of a completion (values of ibv_wc_status).
type WCStatus uint8

const (
	WCSuccess        WCStatus = 0
	WCLocLenErr      WCStatus = 1
	WCLocQPOpErr     WCStatus = 2
	WCLocProtErr     WCStatus = 4
	WCWRFlushErr     WCStatus = 5
	WCMWBindErr      WCStatus = 6
	WCBadRespErr     WCStatus = 7
	WCLocAccessErr   WCStatus = 8
	WCRemInvReqErr   WCStatus = 9
	WCRemAccessErr   WCStatus = 10
	WCRemOpErr       WCStatus = 11
	WCRetryExcErr    WCStatus = 12
	WCRNRRetryExcErr WCStatus = 13
	WCRemAbortErr    WCStatus = 16
	WCFatalErr       WCStatus = 19
	WCGeneralErr     WCStatus = 21
)

// WCOpcode of a completion (values of ibv_wc_opcode).
type WCOpcode uint8

const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCBindMW          WCOpcode = 5
	WCLocalInv        WCOpcode = 6
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
)

// WCFlags of a completion (values of ibv_wc_flags).
type WCFlags uint8

const (
	WCWithImm WCFlags = 2
	WCWithInv WCFlags = 8
)

// WC is a work completion. On error only WRID, Status, QPNum and VendorErr
// mean anything. ByteLen is valid for receives, READ and atomics.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Op        WCOpcode
	Flags     WCFlags
	QPNum     uint32
	ByteLen   uint32
	Imm       uint32 // with WCWithImm the immediate data, with WCWithInv the rkey invalidated
	VendorErr uint32
}
