package verbs

import "fmt"

// String returns the name that libibverbs gives the opcode, without IBV_WR_.
func (op Opcode) String() string {
	switch op {
	case OpRDMAWrite:
		return "RDMA_WRITE"
	case OpRDMAWriteWithImm:
		return "RDMA_WRITE_WITH_IMM"
	case OpSend:
		return "SEND"
	case OpSendWithImm:
		return "SEND_WITH_IMM"
	case OpRDMARead:
		return "RDMA_READ"
	case OpAtomicCmpAndSwp:
		return "ATOMIC_CMP_AND_SWP"
	case OpAtomicFetchAdd:
		return "ATOMIC_FETCH_AND_ADD"
	case OpLocalInv:
		return "LOCAL_INV"
	case OpBindMW:
		return "BIND_MW"
	case OpSendWithInv:
		return "SEND_WITH_INV"
	}
	return fmt.Sprintf("opcode %d", uint8(op))
}

// String returns the name that libibverbs gives the state, without IBV_QPS_.
func (s QPState) String() string {
	if s > QPErr {
		return fmt.Sprintf("state %d", uint8(s))
	}
	return [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}[s]
}
