// Package verbs is the interface between rdsd and RDMA providers: reliable connected
// (RC) queue pairs, completion queues, shared receive queues, memory regions and a
// connection manager. Its terms and numeric values are those of libibverbs, so that
// a hardware provider needs no translation. Its providers are verbs/soft (iWARP over
// TCP), verbs/ibv (RDMA adapters) and verbs/sim (in memory, for tests).
// verbs/verbstest checks that a provider keeps the rules below.
//
// # Ownership
//
// A Device and everything made from it belongs to one goroutine, its owner: the data
// path has no locks. Other goroutines may call only the methods whose comment says
// so. No call blocks. A software provider moves bytes only inside Device.Progress
// and the Post calls.
//
// # Memory
//
// An SGE names memory by an address in the address space of a registered region.
// That space begins at RegMR's iova, for local and for remote use. No pointer
// crosses the interface.
//
// Not covered by docs/stability.md: any release may change this package.
package verbs

import (
	"errors"
	"net/netip"
)

// DeviceAttr are the limits and capabilities of a device.
type DeviceAttr struct {
	Name          string // "soft", "sim", or the RDMA device's name
	MaxMsg        uint32 // longest message of one work request, bytes
	MaxSendWR     int    // per QP
	MaxRecvWR     int    // per QP or SRQ
	MaxSGE        int    // per send or receive work request
	MaxReadSGE    int    // per RDMA READ
	MaxInline     int
	MaxReadDepth  int // READs and atomics in flight per QP, in each direction
	MaxPrivate    int // bytes of private data in Connect
	Caps          Caps
	PageAlignedMR bool // RegMR wants page-aligned memory
}

// Caps are the capabilities in which providers differ.
type Caps uint32

const (
	CapOrderedCQ     Caps = 1 << iota // send completions arrive in post order
	CapImm                            // SEND/WRITE_WITH_IMM
	CapAtomics                        // CMP_AND_SWP, FETCH_AND_ADD
	CapMaskedAtomic                   // masked forms
	CapRNR                            // a SEND that finds no posted receive waits instead of failing
	CapRestrictedMR                   // AccessRestricted and MR.Allow work
	CapRemoteAck                      // AckRemote works
	CapRNRRetry                       // QPInitAttr.RNRRetry bounds that wait
	CapInvalidate                     // LOCAL_INV, SEND_WITH_INV
	CapMW                             // memory windows of both types, BIND_MW
	CapPlacedCQ                       // a successful completion says that the peer's device has the data, even with AckLocal (InfiniBand, RoCE)
	CapGlobalAtomics                  // atomics are atomic towards the instructions of the processor, too (IBV_ATOMIC_GLOB)
	CapAnyIOVA                        // a region's iova need not have the offset in the page that its memory has
)

// Device is one RDMA device with its connection manager. Only its owner's thread may use it.
type Device interface {
	Attr() DeviceAttr
	// AllocPD makes a protection domain.
	AllocPD() (PD, error)
	// CreateCQ makes a completion queue of at least cqe entries.
	CreateCQ(cqe int) (CQ, error)
	// Progress moves bytes: it sends what was posted, and receives, places and
	// completes. It never blocks, handles at most about 256 KiB per QP, and reports
	// whether it did anything. Hardware providers return false.
	Progress() bool
	// FD returns a descriptor that is readable (epoll, level-triggered) when
	// Progress, PollCM or an armed CQ has something to do. It returns -1 if the
	// provider has none (sim).
	FD() int
	// Flush sends what Post left buffered. Progress does so as well.
	Flush()

	// Listen starts to accept connections on addr. It may block for a short time and
	// is called at start-up. Errors name the address (EADDRINUSE, ...).
	Listen(addr netip.AddrPort) (Listener, error)
	// Connect starts to connect qp, which is in INIT, and returns at once. The
	// outcome is a CMEvent for qp: Established, Rejected, Unreachable or
	// ConnectError. The port of p.Local may be 0.
	Connect(qp QP, p ConnectParam) error
	// Accept answers request id with qp, which is in INIT. The outcome is a CMEvent
	// for qp: Established or ConnectError. qp may receive before Established. Sends
	// may be posted at once; they leave when the protocol allows.
	Accept(id RequestID, qp QP, private []byte) error
	// Reject refuses request id with up to 148 bytes of private data.
	Reject(id RequestID, private []byte) error
	// PollCM takes up to len(ev) connection events and returns how many it took. It
	// never blocks.
	PollCM(ev []CMEvent) int
	// PollAsync takes up to len(ev) asynchronous events and returns how many it
	// took. It never blocks. From its first call on, the device keeps such events
	// and its FD reports them; a consumer that never calls PollAsync need not care.
	// The events of an object are dropped when the object is destroyed.
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
	TimeoutNs     int64  // whole set-up, at most; 0: the provider's default (5 s)
	MaxSegment    int    // most bytes of a TCP segment, in both directions; 0: what the route permits. Of no meaning without TCP
}

// CMEventType says what happened to a connection. The comment of each value names
// the fields of CMEvent that it sets.
type CMEventType uint8

const (
	CMConnectRequest CMEventType = iota + 1 // a peer wants to connect: Req, Local, Remote, Private, Segment
	CMEstablished                           // QP; on the active side also Private, of the reply
	CMRejected                              // QP, Private, and Err if the provider of the peer rejects
	CMUnreachable                           // QP, Err: no answer, connection refused, or no route
	CMConnectError                          // QP, Err: any other failure during set-up
	CMDisconnected                          // QP, Err: the peer closed or reset the connection, timed out, or sent Terminate; the QP is in ERR
)

// ErrEnded is the Err of a CMDisconnected of a connection that the peer ended in order.
var ErrEnded = errors.New("the peer ended the connection")

// ErrForbidden is part of the Err of a CMRejected if the peer's policy forbids this host, ErrIdentity if the peer does
// not accept what this host has proved to be, and ErrBusy if the peer is to be asked again later.
var (
	ErrForbidden = errors.New("the peer does not allow this host")
	ErrIdentity  = errors.New("the peer does not accept this host's certificate")
	ErrBusy      = errors.New("the peer takes no more TLS handshakes now")
)

// CMEvent is one event of the connection manager. Its Private is a copy of its own.
type CMEvent struct {
	Type          CMEventType
	QP            QP
	Req           RequestID
	Local, Remote netip.AddrPort
	Private       []byte
	Segment       int // most bytes of a TCP segment to the peer, 0: not known
	Err           error
}

// ErrLarge is part of the Err of a CMUnreachable if the set-up has failed although the peer's host is connected, because
// large packets do not pass.
var ErrLarge = errors.New("large packets do not pass (the MTU of the path, or filtered ICMP)")

// OverTCP is a QP whose bytes go by TCP.
type OverTCP interface {
	// Path returns what TCP knows of the way to the peer. It is a system call.
	Path() Path
}

// Path is what TCP knows of the way to a peer.
type Path struct {
	Acked  uint64 // bytes that the peer's TCP has acknowledged
	Stuck  bool   // more than a full segment is not acknowledged, and TCP has sent the first of it three times or more
	Passes bool   // something that was sent after the first of it has arrived
	Again  bool   // TCP has sent something of this connection again, were it only the request to connect
}

// PD is a protection domain. A QP reaches only the MRs of its own PD.
type PD interface {
	// RegMR registers mem under the addresses [iova, iova+len(mem)). mem must stay
	// mapped until Dereg returns, and Touched says so. EINVAL: mem is empty, the addresses wrap around,
	// rights are not known, iova is not 0 with AccessZeroBased, or remote write or
	// atomic access is asked for without AccessLocalWrite. ENOMEM: no key is free.
	RegMR(mem []byte, iova uint64, access Access) (MR, error)
	CreateQP(attr QPInitAttr) (QP, error)
	CreateSRQ(maxWR, maxSGE int) (SRQ, error)
	// AllocMW makes a memory window that is not bound. EOPNOTSUPP: the device lacks
	// CapMW.
	AllocMW(t MWType) (MW, error)
	// Dealloc fails with EBUSY while a QP, SRQ, MR or MW of it lives.
	Dealloc() error
}

// Keyed is a PD that can register memory under a key that somebody else chose: another
// device of the same owner, so that peers of both may be told one key, or the same device in
// a former process, so that peers go on with the key that they have. So a region with
// rights for peers, or a window, and a region without, of whichever devices, never have keys that differ in the
// lowest 8 bits only: what a new process has registered is not in the way. A PD of an adapter that
// chooses all keys itself is not Keyed.
type Keyed interface {
	// RegMRKey is RegMR under the given RKey. EEXIST: a region of the device has it, or
	// one that differs in the lowest 8 bits only. EINVAL: as for RegMR, or the key is below
	// 256.
	RegMRKey(mem []byte, iova uint64, access Access, key uint32) (MR, error)
}

// Access are the rights of a memory region. The low bits have the values of
// ibv_access_flags; the high bits are of this package.
type Access uint64

const (
	AccessLocalWrite   Access = 1
	AccessRemoteWrite  Access = 2
	AccessRemoteRead   Access = 4
	AccessRemoteAtomic Access = 8
	AccessMWBind       Access = 16 // memory windows may be bound to the region
	// AccessZeroBased makes addresses offsets from the start of the memory, in SGEs
	// and for the peer. RegMR then wants an iova of 0. In BindMW.Access it makes the
	// window zero-based, whatever its region is.
	AccessZeroBased Access = 32

	// AccessPrivate promises that only the owner thread writes the memory while a
	// work request uses it. A provider then needs no private copy to compute a
	// checksum.
	AccessPrivate Access = 1 << 40
	// AccessRestricted limits remote access to the peers that were allowed with
	// MR.Allow, by the PeerKey of their QPs. It needs CapRestrictedMR.
	AccessRestricted Access = 1 << 41
)

// PeerKey names the peer that a QP leads to, for AccessRestricted regions.
type PeerKey uint64

// MR is a memory region.
type MR interface {
	LKey() uint32
	RKey() uint32
	IOVA() uint64
	Len() uint64
	// Allow and Disallow change which peers may use the rkey. They take effect at
	// once for requests that have not begun.
	Allow(PeerKey)
	Disallow(PeerKey)
	// Rereg makes the region stand for other memory, addresses and rights, as RegMR
	// would. LKey and RKey change; the old keys are invalid, as after Dereg. Errors
	// are those of RegMR, and EBUSY while a window is bound to the region or a thread
	// of the device touches it. After an error the region is unchanged.
	Rereg(mem []byte, iova uint64, access Access) error
	// Dereg ends the registration: when it returns, the provider never touches the
	// memory again, unless the MR is Touched. Work requests that still name the region
	// fail. EBUSY: a memory window is bound to it.
	Dereg() error
}

// Served counts the bytes of some memory that RDMA WRITEs of peers have written, and READs of peers
// have read. Whoever progresses the device owns it.
type Served struct {
	Written, Read uint64
	In            *Served // counts the same, and more; nil: none
}

// Add counts bytes in s and in what it is in.
func (s *Served) Add(written, read uint64) {
	for ; s != nil; s = s.In {
		s.Written += written
		s.Read += read
	}
}

// Metered is an MR of a device that sees the requests of peers, as a device in software does.
type Metered interface {
	MR
	// CountIn has s count from now on. nil ends that.
	CountIn(s *Served)
}

// Touched is an MR of a device whose threads may touch its memory for a while after Dereg, for messages that are on
// their way.
type Touched interface {
	MR
	// Untouched calls f when no thread touches the memory: before it returns, or in Progress, PollCM, Close, the Destroy
	// of a QP or its Modify to RESET. What was registered may be unmapped from then on. f destroys and resets no QP.
	Untouched(f func())
}

// Threaded is a device whose threads touch memory.
type Threaded interface {
	Device
	// Threads returns what its threads have done so far.
	Threads() ThreadStats
}

// Releaser is a QP of such a device.
type Releaser interface {
	QP
	// Releasing reports whether the QP is in ERR and a thread has something of it. Destroy would wait for that.
	Releasing() bool
}

// ThreadStats are what threads of a device have done.
type ThreadStats struct {
	Calls uint64 // system calls that moved data
	// Slow is how many times a thread has taken more than a millisecond for a piece of its work, one at which it
	// still is included. Memory whose pages somebody takes away does that.
	Slow uint64
}

// Untouched calls f when no thread of the device touches the memory of m, which was deregistered: see Touched.
func Untouched(m MR, f func()) {
	if t, ok := m.(Touched); ok {
		t.Untouched(f)
		return
	}
	f()
}

// CQ is a completion queue.
type CQ interface {
	// Poll takes up to len(wc) completions in order and returns how many it took.
	// Fewer than len(wc) means that the queue is empty.
	Poll(wc []WC) int
	// ReqNotify arms the queue for one event: the next completion that is added, or
	// with solicitedOnly the next receive of a solicited message or the next
	// completion with an error. The event disarms the queue, and the device's FD
	// stays readable until Notified has taken the event. Arming an armed queue
	// changes nothing, except that false widens solicitedOnly.
	//
	// Completions that are in the queue already make no event. To wait without
	// losing one: arm, poll until empty, flush, block on the FD, progress, and begin
	// again if Notified.
	ReqNotify(solicitedOnly bool) error
	// Notified takes the event and reports whether there was one.
	Notified() bool
	// Cap is the granted number of entries, at least what was asked for. A
	// completion that finds the queue full is lost: AsyncCQErr is raised, the
	// queue takes no more, and its queue pairs move to ERR with AsyncQPFatal.
	Cap() int
	// Resize makes the queue hold at least cqe entries (ibv_resize_cq); see Cap.
	// Completions in it stay. EINVAL: cqe is below the number of completions in it,
	// below one, or above what the device can. The queue is then unchanged.
	Resize(cqe int) error
	// Destroy fails with EBUSY while a QP uses the queue. An event not taken
	// goes with it.
	Destroy() error
}

// SRQ is a shared receive queue. The provider chooses the order in which receives
// are used.
type SRQ interface {
	// PostRecv queues receives; n were queued. ENOMEM: full.
	PostRecv(wr []RecvWR) (n int, err error)
	// Limit arms AsyncSRQLimit once: the event is raised when fewer than n receives
	// are left, or at once if that is so already. 0 disarms. EINVAL: n is more than
	// the queue holds.
	Limit(n int) error
	// Cap is how many receives may be outstanding: posted, or taken and not
	// complete.
	Cap() int
	// Resize changes Cap (ibv_modify_srq with IBV_SRQ_MAX_WR). EINVAL: maxWR is
	// below the number of outstanding receives, below the armed limit, below one, or
	// above DeviceAttr.MaxRecvWR. The queue is then unchanged.
	Resize(maxWR int) error
	// Destroy fails with EBUSY while a QP uses the queue.
	Destroy() error
}
