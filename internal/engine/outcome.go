package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/rdmaop"
)

// outcome has the application told how t ended, a message without operations whose status it
// wants (shm.SubNotify). From here on a settled operation without a barrier id stands for t. Its
// status is told, waits for room and goes over as that of any other.
func (tx *sender) outcome(t *txMsg, o msg.Outcome) {
	op := tx.e.pools.ops.Get()
	op.Reset()
	op.Flags, op.Token = abi.FlagNotify, uint64(t.id)
	t.opv[0], t.nops = op, 1
	events := []rdmaop.Event{{Type: rdmaop.EvQueue}}
	if o != msg.Withdrawn && o != msg.Cancelled && o != msg.OpRefused { // it went out
		events = append(events, rdmaop.Event{Type: rdmaop.EvPost}, rdmaop.Event{Type: rdmaop.EvLocal})
	}
	for _, ev := range events {
		if _, err := op.Step(ev); err != nil {
			tx.opTrace(t, err)
		}
	}
	if _, err := op.Step(settlement(&t.m, t.errno, o, op.State())); err != nil {
		tx.opTrace(t, err)
	}
	tx.e.clients.report(t, op)
}
