package verbs

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

// SGE is a piece of local memory. Addr is in the address space of the region that
// LKey names. A Length of zero is refused with EINVAL (libibverbs takes it for 2^31
// bytes): to send no bytes, use an empty list.
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
	// Inline is the data of a SEND or WRITE with SendInline, instead of an SGL.
	// PostSend copies it, and it needs no region. An SGL with SendInline is copied
	// as well, but names its memory by key.
	Inline []byte
	Atomic AtomicArgs
	Bind   *BindMW // BIND_MW; may be reused when PostSend returns
}

// AtomicArgs are the operands of an atomic request. FETCH_AND_ADD adds CompareAdd.
// CMP_AND_SWP compares with CompareAdd and stores Swap. The masked forms (Masked is
// true) use the masks.
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

// WC is a work completion. After an error only WRID, Status, QPNum and VendorErr are
// valid. ByteLen is valid for receives, READs and atomics.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Op        WCOpcode
	Flags     WCFlags
	QPNum     uint32
	ByteLen   uint32
	Imm       uint32 // with WCWithImm the immediate data, with WCWithInv the rkey that was invalidated
	VendorErr uint32
}
