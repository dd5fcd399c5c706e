package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/stats"
)

// countOp counts an operation that is submitted.
func (tx *sender) countOp(o *txOp) {
	e := tx.e
	e.st.C[stats.SendRDMA]++
	switch o.Kind {
	case abi.OpWrite:
		e.st.C[stats.RDMAWrites]++
		e.st.C[stats.SendRDMABytes] += o.Len
	case abi.OpRead:
		e.st.C[stats.RDMAReads]++
		e.st.C[stats.RecvRDMABytes] += o.Len
	}
}

// countOps counts n more or fewer operations of t that have not settled.
func (tx *sender) countOps(t *txMsg, n int) {
	t.sock.ops += n
	tx.queued.ops += n
	tx.e.users.operations(t.sock.cl, n)
}

// countStatus counts how an operation ended.
func (tx *sender) countStatus(s abi.Status, o msg.Outcome) {
	c := stats.OpFailed
	switch {
	case o == msg.OpRefused:
		c = stats.OpRefused
	case s == abi.StatusSuccess:
		c = stats.OpSuccess
	case s == abi.StatusCanceled:
		c = stats.OpCanceled
	case s == abi.StatusDropped:
		c = stats.OpDropped
	case s == abi.StatusUnknown:
		c = stats.OpUnknown
	}
	tx.e.st.C[c]++
}
