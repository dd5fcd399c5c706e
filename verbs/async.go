package verbs

// AsyncType is the kind of an asynchronous event (values of ibv_event_type).
type AsyncType uint8

const (
	AsyncCQErr       AsyncType = 0  // CQ: overflow; the queue takes no more
	AsyncQPFatal     AsyncType = 1  // QP: went to ERR for an internal reason or because the peer broke the protocol
	AsyncQPReqErr    AsyncType = 2  // QP: the peer made a request that it may not make
	AsyncQPAccessErr AsyncType = 3  // QP: a remote request failed its access checks
	AsyncCommEst     AsyncType = 4  // QP: the first message of an accepted connection arrived
	AsyncSQDrained   AsyncType = 5  // QP in SQD: the requests that were begun are done
	AsyncDeviceFatal AsyncType = 8  // the device
	AsyncSRQErr      AsyncType = 14 // SRQ
	AsyncSRQLimit    AsyncType = 15 // SRQ: fewer receives left than SRQ.Limit
	AsyncQPLastWQE   AsyncType = 16 // QP in ERR: it takes no more receives from its SRQ
	asyncTypes                 = 17
)

// String returns the name that libibverbs gives the event.
func (t AsyncType) String() string {
	name := [asyncTypes]string{
		AsyncCQErr: "CQ error", AsyncQPFatal: "local work queue catastrophic error", AsyncQPReqErr: "invalid request local work queue error",
		AsyncQPAccessErr: "local access violation work queue error", AsyncCommEst: "communication established",
		AsyncSQDrained: "send queue drained", AsyncDeviceFatal: "local catastrophic error", AsyncSRQErr: "SRQ catastrophic error",
		AsyncSRQLimit: "SRQ limit reached", AsyncQPLastWQE: "last WQE reached",
	}
	if t >= asyncTypes || name[t] == "" {
		return "unknown"
	}
	return name[t]
}

// AsyncEvent is an asynchronous event of one object.
type AsyncEvent struct {
	Type AsyncType
	QP   QP
	CQ   CQ
	SRQ  SRQ
	Err  error // AsyncQPFatal, AsyncQPReqErr, AsyncQPAccessErr: why
}

// RNRRetry says how often a SEND is tried again at a peer that has no receive
// posted. After the last try it fails with RNR_RETRY_EXC. The peer's MinRNRTimer is
// the time between two tries. The zero value is libibverbs' 7, which sets no limit.
type RNRRetry int8

const (
	RNRForever RNRRetry = 0  // without limit, as is 7
	RNRNever   RNRRetry = -1 // libibverbs' 0: fail at once
)

// Limit returns the number of tries after the first one. It returns false if there
// is no limit.
func (r RNRRetry) Limit() (int, bool) {
	switch {
	case r == RNRNever:
		return 0, true
	case r == RNRForever || r == 7:
		return 0, false
	}
	return int(r), true
}

// Valid reports whether r is RNRNever or 0 to 7.
func (r RNRRetry) Valid() bool { return r >= RNRNever && r <= 7 }

// RNRTimer is the 5-bit code for how long a responder without a posted receive asks
// the requester to wait (ibv_qp_attr.min_rnr_timer). 0 is the longest time, 655 ms.
type RNRTimer uint8

// Valid reports whether t is a valid code.
func (n RNRTimer) Valid() bool { return n < 32 }

// Ns returns the time in nanoseconds.
func (n RNRTimer) Ns() int64 {
	const ten = 10_000 // of the InfiniBand specification's table, in units of 10 us
	return ten * [32]int64{
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
		256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	}[n&31]
}

// QPStats are counters of a QP since it was made.
type QPStats struct {
	Sent     uint64 // send requests transmitted, READs and atomics included
	Received uint64 // messages delivered to a receive
	RNR      uint64 // messages that found no receive posted

	// Bytes of memory here that RDMA WRITEs of the peer have written, and READs of the peer have read. 0
	// where the device does not tell.
	Written, Read uint64
}
