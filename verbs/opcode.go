package verbs

// Atomic reports whether op is an atomic.
func (op Opcode) Atomic() bool { return op == OpAtomicCmpAndSwp || op == OpAtomicFetchAdd }

// Reads reports whether op has a response with data: whether it is a READ or an atomic.
func (op Opcode) Reads() bool { return op == OpRDMARead || op.Atomic() }

// Completion is the opcode of op's completion.
func (op Opcode) Completion() WCOpcode {
	switch op {
	case OpRDMAWrite, OpRDMAWriteWithImm:
		return WCRDMAWrite
	case OpRDMARead:
		return WCRDMARead
	case OpAtomicCmpAndSwp:
		return WCCompSwap
	case OpAtomicFetchAdd:
		return WCFetchAdd
	case OpLocalInv:
		return WCLocalInv
	case OpBindMW:
		return WCBindMW
	}
	return WCSend
}
