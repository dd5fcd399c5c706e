package engine

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/shm"
)

// reasons takes what r is told of hosts that are not reached.
func (r *raw) reasons() (out []uint8) {
	for _, e := range r.events() {
		if n := e.Notice(); n.Kind == shm.EvNotice && n.Notice == shm.NoticeUnreachable {
			out = append(out, n.Reason)
		}
	}
	return out
}

func (r *raw) wantReason(slot uint32, why uint8, notices int) {
	r.w.t.Helper()
	got := r.reasons()
	if len(got) != notices || notices > 0 && got[0] != why {
		r.w.t.Errorf("told %v, want %d notices with %d", got, notices, why)
	}
	if word := r.cl.table.Slot(slot).LoadUnreachable(); word != uint32(why) {
		r.w.t.Errorf("the slot says %d, want %d", word, why)
	}
}

// A host that is not reached is told once, however often it is tried, and again
// when the reason changes. A destination that is opened meanwhile knows, too.
func TestUnreachableTold(t *testing.T) {
	w := newWorld(t, 2, Config{})
	r, srv := w.attach(0, smallParams()), w.attach(1, smallParams())
	srv.bind(10)
	s := r.bind(9)
	w.net.Faults.Unreachable = 1e6
	r.open(s, 0, 0, hostAddr(1), 10)
	w.wait(1_000_000_000)
	r.wantReason(0, 0, 0) // nothing was sent: nobody tried
	r.sendMsg(s, 0, 0, 10)
	w.wait(1_000_000_000)
	r.wantReason(0, shm.ReachNoRoute, 1)
	w.wait(20_000_000_000)
	r.wantReason(0, shm.ReachNoRoute, 0)
	r.open(s, 1, 0, hostAddr(1), 11)
	w.wait(100_000_000)
	r.wantReason(1, shm.ReachNoRoute, 1)

	w.net.Faults.Unreachable, w.net.Faults.Refuse = 0, 1e6
	w.wait(3_000_000_000)
	r.wantReason(0, shm.ReachRefused, 2) // two destinations
	failed := make(chan error, 1)
	if _, err := w.es[0].Ping(hostAddr(1), 0, make(chan struct{}, 1), func(err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	w.wait(3_000_000_000)
	select {
	case err := <-failed:
		if reachOf(err) != shm.ReachRefused {
			t.Errorf("the ping ended with %v", err)
		}
	default:
		t.Error("the ping still waits")
	}

	w.net.Faults.Refuse = 0
	w.wait(3_000_000_000)
	r.wantReason(0, 0, 0)
	if srv.read() != 1 {
		t.Error("the message did not arrive")
	}
}

// A host that policy forbids is told as soon as it is a destination, and reached
// when the policy changes. A ping there fails at once.
func TestForbiddenTold(t *testing.T) {
	forbidden := ErrNotAllowed
	w := newWorld(t, 2, Config{Allowed: func(netip.Addr) error { return forbidden }})
	r, srv := w.attach(0, smallParams()), w.attach(1, smallParams())
	srv.bind(10)
	s := r.bind(9)
	r.open(s, 0, 0, hostAddr(1), 10)
	r.sendMsg(s, 0, 0, 10)
	w.run()
	r.wantReason(0, shm.ReachForbidden, 1)
	if _, err := w.es[0].Ping(hostAddr(1), 0, nil, nil); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("ping: %v", err)
	}
	w.wait(10_000_000_000)
	r.wantReason(0, shm.ReachForbidden, 0)
	forbidden = nil
	w.es[0].peers.allowedAnew(w.es[0].peers.all[0])
	w.wait(1_000_000_000)
	r.wantReason(0, 0, 0)
	if srv.read() != 1 {
		t.Error("the message did not arrive")
	}
	forbidden = ErrNotAllowed
	w.es[0].peers.allowedAnew(w.es[0].peers.all[0])
	w.wait(1_000_000_000)
	r.wantReason(0, shm.ReachForbidden, 1)
}

// A host whose own request is on its way is reached, however often it says so. One that
// rejects otherwise is not.
func TestCrossedUntold(t *testing.T) {
	w := newWorld(t, 2, Config{})
	r := w.attach(0, smallParams())
	s := r.bind(9)
	r.open(s, 0, 0, hostAddr(1), 10)
	r.sendMsg(s, 0, 0, 10)
	w.run()
	e := w.es[0]
	for range 5 {
		e.peers.unreached(e.peers.all[0], conn.ErrCrossed)
	}
	r.wantReason(0, 0, 0)
	for range 2 {
		e.peers.unreached(e.peers.all[0], conn.ErrRejected)
	}
	w.run()
	r.wantReason(0, shm.ReachRejected, 1)
}
