package engine

import (
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// TestBacklogRelief: a sender that waits for relief with nothing in progress has one row until the
// relief, for a destination of this host or of another. A congested destination that nobody waits for
// has none.
func TestBacklogRelief(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		w, a, b := opPair(t, hosts)
		l := w.looker(a.e)
		b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
		w.run()
		a.submit(shm.Sub{Len: 1200})
		w.run()
		rows := func() (out []ctl.BacklogInfo) {
			t.Helper()
			all, more, err := l.Backlog(l.view)
			if err != nil || more {
				t.Fatal(err, more)
			}
			for _, r := range all {
				if r.Direction == "send" {
					out = append(out, r)
				}
			}
			return out
		}
		if got := rows(); len(got) != 0 || a.cl.table.Slot(0).LoadCongested() != 1 {
			t.Fatalf("nobody waits: %+v, congested %d", got, a.cl.table.Slot(0).LoadCongested())
		}
		a.seg.WantSlot(0).SetRelief()
		w.pass(5*ms, a.e, b.e)
		since := a.cl.slots[0].congestedAt
		want := ctl.BacklogInfo{Direction: "send", Addr: a.e.addrs.all[0].addr, Port: 10, Dest: b.e.addrs.all[0].addr, DestPort: 20,
			Owner: a.cl.socks[shm.SockIndex(a.sock)].owner(), Congested: true, WaitsFor: ctl.WaitsForRelief, Oldest: time.Duration(a.e.now - since)}
		if since == 0 || want.Oldest < 5*ms {
			t.Errorf("%d hosts: congested since %d, it is %d", hosts, since, a.e.now)
		}
		if got := rows(); len(got) != 1 || got[0] != want {
			t.Errorf("%d hosts: %+v, want %+v", hosts, got, want)
		}
		if all, err := l.Sockets(); err != nil || len(all) == 0 || all[0].Port != 10 || all[0].Unrelieved != 1 || len(all) > 1 && all[1].Unrelieved != 0 {
			t.Errorf("sockets: %+v, %v", all, err)
		}
		v := l.view
		v.May = func(uint32) bool { return false }
		if got, more, err := l.Backlog(v); len(got) != 0 || more || err != nil {
			t.Errorf("of another user: %+v, %v, %v", got, more, err)
		}
		a.e.drains.setDrain(want.Dest, true)
		if got := rows(); len(got) != 1 || got[0].WaitsFor != ctl.WaitsForOperator {
			t.Errorf("drained: %+v", got)
		}
		a.e.drains.setDrain(want.Dest, false)
		b.look()
		b.gaveBack(b.msgs[0].RxID)
		w.run()
		if got := rows(); len(got) != 0 {
			t.Errorf("after the relief: %+v", got)
		}
		if all, err := l.Sockets(); err != nil || all[0].Unrelieved != 0 {
			t.Errorf("sockets after the relief: %+v, %v", all, err)
		}
		w.clean2(a, b)
	}
}

// TestBacklogReliefRestart: after a planned restart the age of a congestion begins anew.
func TestBacklogReliefRestart(t *testing.T) {
	w, a, b := opPair(t, 2)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
	w.run()
	a.submit(shm.Sub{Len: 1200})
	w.run()
	a.seg.WantSlot(0).SetRelief()
	w.still(0)
	w.succeed(0, func(d verbs.Device) verbs.Device { return d }, Config{}, a)
	began := a.e.now
	w.pass(5*ms, a.e, b.e)
	l := w.looker(a.e)
	all, _, err := l.Backlog(l.view)
	if err != nil || len(all) != 1 || all[0].WaitsFor != ctl.WaitsForRelief || began == 0 || all[0].Oldest != time.Duration(a.e.now-began) {
		t.Errorf("%+v, %v: the restart was at %d, it is %d", all, err, began, a.e.now)
	}
}
