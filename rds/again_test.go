package rds

import (
	"context"
	"errors"
	"os"
	"testing"
)

// TestSendAgain: a datagram that could go into the run of the one before it is still checked as
// any other.
func TestSendAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		cause func(d *fakeDaemon, sl *fakeSlot, a *Socket)
		size  int
		want  error
	}{
		"nothing in the way": {func(*fakeDaemon, *fakeSlot, *Socket) {}, runMax, nil},
		"no part of a run":   {func(*fakeDaemon, *fakeSlot, *Socket) {}, runMax + 1, nil},
		"deadline":           {func(_ *fakeDaemon, _ *fakeSlot, a *Socket) { a.wdl.expired.Store(true) }, 1, os.ErrDeadlineExceeded},
		"congested":          {func(d *fakeDaemon, sl *fakeSlot, _ *Socket) { d.setSlotCongested(sl, true) }, 1, ErrCongested},
		"forbidden":          {func(d *fakeDaemon, sl *fakeSlot, _ *Socket) { d.table.Slot(sl.idx).StoreUnreachable(uint32(forbidden)) }, 1, forbidden},
		"relieved": {func(d *fakeDaemon, sl *fakeSlot, a *Socket) {
			d.setSlotCongested(sl, true)
			a.lastDest.look()
			d.setSlotCongested(sl, false)
		}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d, a, b := pair(t, Options{})
			d.recording(t)
			mustSend(t, a, "0", b)
			wantTaken(t, d, 1)
			to := a.lastDest
			to.run = outRun{size: mostRun}
			mustSend(t, a, "1", b)
			tt.cause(d, d.slots[to.slot], a)
			if _, err := a.Send(DontWait, &Message{Payload: make([]byte, tt.size), Addr: to.to}); !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			switch {
			case to.parked != (tt.want == ErrCongested):
				t.Errorf("the destination counts as congested: %v", to.parked)
			case tt.want != nil:
				wantTaken(t, d, 1)
			case tt.size > runMax:
				wantTaken(t, d, 1, 0)
			default:
				wantTaken(t, d, 2)
			}
		})
	}
}

// TestRecvAgain: a receive in the middle of a run ends as any other does where there is a reason.
func TestRecvAgain(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tt := range map[string]struct {
		ctx   context.Context
		cause func(b *Socket, on bool)
		want  error
	}{
		"deadline": {bg(), func(b *Socket, on bool) { b.rdl.expired.Store(on) }, os.ErrDeadlineExceeded},
		"closed":   {bg(), func(b *Socket, on bool) { b.closed.Store(on) }, ErrClosed},
		"canceled": {canceled, func(*Socket, bool) {}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			d, a, b := pair(t, Options{})
			sendRun(t, d, a, b, "1", "2", "3")
			mustRecv(t, b, "1")
			tt.cause(b, true)
			m := Received{Payload: make([]byte, 1)}
			if err := b.Recv(tt.ctx, &m); !errors.Is(err, tt.want) || m.N != 0 {
				t.Errorf("%v with %q, want %v", err, m.Payload[:m.N], tt.want)
			}
			tt.cause(b, false)
			wantReceived(t, b, "2", "3")
		})
	}
}
