package verbs

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

// AckMode says what the completion of a SEND or WRITE means on a software provider.
type AckMode uint8

const (
	// AckRemote: the data has been placed in the peer's memory, as in InfiniBand.
	AckRemote AckMode = iota
	// AckLocal: the local buffers are free again, and the transport will deliver the
	// data (RFC 5040 section 5.5 rule 9). Package conn uses this mode and learns of
	// delivery by its own acks.
	AckLocal
)

// QPInitAttr are the attributes of PD.CreateQP. The granted capacities may be
// larger; see QP.Cap.
type QPInitAttr struct {
	SendCQ, RecvCQ CQ
	SRQ            SRQ // nil: the QP's own receive queue
	Cap            QPCap
	SQSigAll       bool // every send request is signaled (sq_sig_all)
	Ack            AckMode
	CRC            CRCMode
	Peer           PeerKey
	Access         Access // rights that remote requests may use at all; 0: none
	RNRRetry       RNRRetry
	MinRNRTimer    RNRTimer
	Context        any // returned by QP.Context
}

// CRCMode says whether the soft provider asks for the CRC32C of MPA. The checksum is
// used in both directions if either side asks for it.
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
	// ReadDepth is how many READs and atomics may be in flight as initiator, and are
	// served as responder. Once the connection is Established, QP.Cap has the
	// negotiated initiator depth.
	ReadDepth int
	// Caps is set in QP.Cap only: the device's capabilities, without those that the
	// peer lacks once the connection is Established.
	Caps Caps
}

// QP is a reliable connected queue pair. A new one is in INIT. Receives may be
// posted at once, sends from Connect or Accept on.
type QP interface {
	Num() uint32
	State() QPState
	Cap() QPCap
	Context() any
	Stats() QPStats
	// PostSend posts the list in order and stops at the first request that fails an
	// immediate check. n requests were posted and will run; err is about wr[n]. wr
	// and its SGLs may be reused when PostSend returns; the data must stay until the
	// completion, except with SendInline. In ERR requests are accepted and flushed.
	//
	// EINVAL: an unknown opcode or flag, too many SGEs, too much inline data, or a
	// QP that is not in RTS, ERR, or on its way there by Connect or Accept. ENOMEM:
	// the send queue is full.
	PostSend(wr []SendWR) (n int, err error)
	// PostRecv posts receives; EINVAL on a QP with an SRQ.
	PostRecv(wr []RecvWR) (n int, err error)
	// Modify changes the state in the ways that are left to the owner: any state to
	// ERR (as ToError) and to RESET, RESET to INIT, RTS to SQD and back, and each of
	// these to itself. Connect and Accept do the rest of the way to RTS. EINVAL,
	// without a change: any other transition.
	//
	// RESET cuts the connection, discards all work requests without completions, and
	// makes the QP as new. Completions that are in a CQ stay. The QP takes no
	// receives until it is in INIT again. In SQD requests are accepted but not
	// begun; AsyncSQDrained is raised when those that were begun are done.
	Modify(to QPState) error
	// ToError moves the QP to ERR, as ibv_modify_qp does: the connection is cut, and
	// every outstanding work request completes with WCWRFlushErr. Once those
	// completions are polled the provider touches no buffer of the QP any more.
	// Calling it again has no effect.
	ToError()
	// Disconnect ends the connection in order: everything posted is sent first, then
	// the stream is closed and the QP moves to ERR. It also ends SQD. It has no time
	// limit, and the peer may take nothing or post no receives; ToError ends the
	// wait.
	Disconnect()
	// Destroy frees the QP. Work requests still outstanding complete no more.
	Destroy() error
}
