package rds

import (
	"context"
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestWithdrawEnds: the withdrawal of an operation waits for a daemon that stands still for no longer than
// the operation is waited for.
func TestWithdrawEnds(t *testing.T) {
	d, a, b, local, _, r := rdmaPair(t, Options{})
	to := b.LocalAddrPort()
	mustSend(t, a, "opens the destination", b)
	d.do(func() { d.holdOps = true })
	id, err := a.Send(bg(), &Message{Addr: to, Op: &RDMA{Write: true, Cookie: r.Cookie(), Local: []Segment{{local, 0, 8}}, Notify: true}})
	if err != nil {
		t.Fatal(err)
	}
	d.do(func() {})
	d.mu.Lock() // the daemon takes nothing
	tx := &a.c.tx
	tx.mu.Lock()
	for tx.sub.Free() > 0 {
		*tx.sub.Reserve().Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.handle, Slot: a.dests[to].slot}
	}
	tx.unlock()
	ctx := &endsLate{Context: t.Context(), end: 4, late: 100, tooLate: d.mu.Unlock}
	a.withdraw(ctx, OpRef{to.Addr(), id})
	if ctx.asked >= ctx.late {
		t.Error("it waits until the daemon goes on")
	} else {
		d.mu.Unlock()
	}
	if ctx.asked < ctx.end {
		t.Error("the ring is full, and the withdrawal has ended")
	}
}

// endsLate is a context that has ended when it is asked for the end-th time.
type endsLate struct {
	context.Context
	asked, end, late int
	tooLate          func() // runs when it is asked for the late-th time
}

func (p *endsLate) Err() error {
	p.asked++
	if p.asked == p.late {
		p.tooLate()
	}
	if p.asked < p.end {
		return nil
	}
	return context.Canceled
}
