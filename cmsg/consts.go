package cmsg

import "github.com/rdsd/rdsd/abi"

// The socket family and option level of RDS (linux/socket.h, linux/rds.h).
const (
	AFRDS  = 21  // AF_RDS, PF_RDS
	SOLRDS = 276 // SOL_RDS
)

// Socket options at level SOLRDS.
const (
	OptCancelSentTo  = 1  // RDS_CANCEL_SENT_TO: sockaddr
	OptGetMR         = 2  // RDS_GET_MR: GetMRArgs
	OptFreeMR        = 3  // RDS_FREE_MR: FreeMRArgs
	OptBarrier       = 4  // RDS_BARRIER: removed from the kernel
	OptRecvErr       = 5  // RDS_RECVERR: int
	OptCongMonitor   = 6  // RDS_CONG_MONITOR: int
	OptGetMRForDest  = 7  // RDS_GET_MR_FOR_DEST: GetMRForDestArgs
	OptTransport     = 8  // SO_RDS_TRANSPORT: int, Transport…
	OptRxPathLatency = 10 // SO_RDS_MSG_RXPATH_LATENCY: RxTraceOption
)

// Values of OptTransport.
const (
	TransportNone = -1 // RDS_TRANS_NONE
	TransportIB   = 0  // RDS_TRANS_IB
	TransportTCP  = 2  // RDS_TRANS_TCP
)

// ioctl requests of an RDS socket; the argument is one byte.
const (
	IoctlSetTOS = 0x89E0 // SIOCRDSSETTOS
	IoctlGetTOS = 0x89E1 // SIOCRDSGETTOS
)

// Limits.
const (
	MaxMessage       = abi.MaxMessage // bytes of a message, and of its RDMA operation
	MaxLocalSegments = abi.MaxSegs    // UIO_MAXIOV
	MaxZcopyCookies  = 8              // RDS_MAX_ZCOOKIES
	RxTraceMax       = 3              // RDS_MSG_RX_DGRAM_TRACE_MAX
)

// Positions of RxTraceOption and RxTrace.
const (
	RxHdrToDgramStart = 0 // RDS_MSG_RX_HDR_TO_DGRAM_START
	RxDgramReassemble = 1 // RDS_MSG_RX_DGRAM_REASSEMBLE
	RxDgramDelivered  = 2 // RDS_MSG_RX_DGRAM_DELIVERED
)

// Type of a control message at level SOLRDS (RDS_CMSG_*).
type Type int32

const (
	TypeRDMAArgs         Type = 1  // send: RDMAArgs
	TypeRDMADest         Type = 2  // send, receive: cookie, u64
	TypeRDMAMap          Type = 3  // send: GetMRArgs
	TypeRDMAStatus       Type = 4  // receive: Notify
	TypeCongUpdate       Type = 5  // receive: port mask, u64
	TypeAtomicFAdd       Type = 6  // send: AtomicArgs
	TypeAtomicCSwp       Type = 7  // send: AtomicArgs
	TypeMaskedAtomicFAdd Type = 8  // send: AtomicArgs
	TypeMaskedAtomicCSwp Type = 9  // send: AtomicArgs
	TypeRxPathLatency    Type = 11 // receive: RxTrace
	TypeZcopyCookie      Type = 12 // send: u32
	TypeZcopyCompletion  Type = 13 // receive: ZcopyCookies
)

// Flags of RDMAArgs, AtomicArgs, GetMRArgs and FreeMRArgs (RDS_RDMA_*).
// Unknown bits are ignored.
const (
	FlagReadWrite  uint64 = 0x0001                 // args: WRITE to the remote, clear: READ from it
	FlagFence             = uint64(abi.FlagFence)  // args: fence the message
	FlagInvalidate uint64 = 0x0004                 // map, get, free: invalidate at once
	FlagUseOnce    uint64 = 0x0008                 // map, get: free when the op's message arrives
	FlagDontWait   uint64 = 0x0010                 // no effect
	FlagNotifyMe          = uint64(abi.FlagNotify) // args, atomic: report the status
	FlagSilent            = uint64(abi.FlagSilent) // args, atomic: do not tell the peer
)

// Status values of Notify (RDS_RDMA_*).
const (
	StatusSuccess     = int32(abi.StatusSuccess)     // RDS_RDMA_SUCCESS
	StatusRemoteError = int32(abi.StatusRemoteError) // RDS_RDMA_REMOTE_ERROR
	StatusCanceled    = int32(abi.StatusCanceled)    // RDS_RDMA_CANCELED
	StatusDropped     = int32(abi.StatusDropped)     // RDS_RDMA_DROPPED
	StatusOtherError  = int32(abi.StatusOtherError)  // RDS_RDMA_OTHER_ERROR
)
