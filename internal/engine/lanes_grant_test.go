package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs/sim"
)

// TestGrantInItsLane: a GRANT goes on the lane of the socket that owns the
// region, ahead of what that socket sends later.
func TestGrantInItsLane(t *testing.T) {
	w, c, _ := lanePair(t, Config{Silence: -1}) // a probe would be counted
	e := w.es[0]
	b, err := e.AddBuffer(c[0].cl, make([]byte, 4096), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		port uint16
		lane uint8
	}{{10, 0}, {15, 5}} {
		was := [2]uint64{laneConn(t, e, 0).Stats.SendMsgs, laneConn(t, e, 5).Stats.SendMsgs}
		r, err := e.keys.register(e.addrs.all[0].ports.Get(tc.port), c[0].cl.buffers[b], 0, 4096, abi.RightRead)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.keys.expose(r, hostAddr(1), 20); err != nil {
			t.Fatal(err)
		}
		e.dirty.touch(e.peers.all[0])
		e.dirty.touch(e.peers.all[1])
		w.run()
		for i, lane := range []uint8{0, 5} {
			sent := laneConn(t, e, lane).Stats.SendMsgs - was[i]
			if want := uint64(b2u(lane == tc.lane)); sent != want {
				t.Errorf("a GRANT of lane %d: %d messages on lane %d, want %d", tc.lane, sent, lane, want)
			}
		}
	}
	w.clean(c[:]...)
}

// TestRevokeOfFormer: a REVOKE on several lanes that waits for a daemon which has gone is one by itself for the next: that
// would wait for the others, which its predecessor has heard, and keep the key for ever.
func TestRevokeOfFormer(t *testing.T) {
	w, _, _ := lanePair(t, Config{})
	e := w.es[0]
	p := e.peers.all[0]
	e.peers.sendRevoke(p, wire.TypeRevoke, 77, 2)
	e.dirty.touch(p)
	e.peers.voidGrants(p.remote)
	w.run()
	if n := w.es[1].peers.all[0].grants.Len(); n != 0 {
		t.Errorf("the next daemon keeps %d keys", n)
	}
}

// TestReleaseWhileAway: a GRANT that was posted on a connection that broke is not
// posted again once its region has been released. The REVOKE on another lane may
// be there before it, and the peer would then believe in the key until the REVOKE
// of the GRANT's own lane came.
func TestReleaseWhileAway(t *testing.T) {
	w, c, sock := lanePair(t, Config{})
	const n = 4096
	buf := c[0].must(&ipc.Alloc{Size: n}).(*ipc.AllocOK).Buffer
	reg := c[0].must(&ipc.Register{Sock: sock[0][1], Buffer: buf, Len: n, Access: abi.RightWrite}).(*ipc.RegisterOK)
	local := c[1].must(&ipc.Alloc{Size: n}).(*ipc.AllocOK).Buffer
	w.net.Timing.Wire = sim.Range{Min: 20_000_000, Max: 20_000_000} // what is posted is lost by the reset
	c[0].must(&ipc.Expose{Region: reg.Region, Addr: hostAddr(1)})
	for id := range uint32(4) { // each in a SEND of its own, behind the GRANT
		c[0].sendMsg(sock[0][1], 1, 20+id, 60_000)
	}
	e := w.es[0]
	e.Turn(w.net.Now(), Wall(w.net.Now()))
	for _, p := range e.peers.all {
		p.c.Reset(w.net.Now(), errAdmin)
	}
	for h := e.peers.all[0].remote; h.attached(); {
		e.Turn(w.net.Now(), Wall(w.net.Now()))
		w.net.Step()
	}
	released := false
	if err := e.keys.release(e.keys.by[reg.Region], func(error) { released = true }); err != nil || !released {
		t.Fatalf("release: %v, at once: %v", err, released)
	}
	w.net.Timing.Wire = sim.Range{Min: 1000, Max: 1000}
	resets := [2]uint64{laneConn(t, e, 0).Stats.ConnReset, laneConn(t, e, 5).Stats.ConnReset}
	statuses := 0
	c[1].sendMsg(sock[1][1], 1, 9, 8)                   // has lane 5 connect, too
	for id, step := uint32(0), 0; step < 1000; step++ { // while the lanes come back, the other lane tries to use the key
		if step%2 == 0 && id < 120 {
			c[1].put(func(e *shm.Entry) {
				*e.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: sock[1][0], MsgID: 10 + id}
			})
			c[1].put(func(e *shm.Entry) {
				*e.SubOp() = shm.SubOp{Op: abi.OpWrite, Flags: abi.FlagNotify, NSeg: 1, Region: local, Len: 8, Cookie: reg.Cookie, OpID: uint64(id) + 1}
			})
			id++
		}
		w.turnAll()
		w.net.Step()
		for _, ev := range c[1].events() {
			if ev.Kind() != uint8(shm.EvStatus) {
				continue
			}
			if st := ev.Status(); st.Status != abi.StatusRemoteError || st.Errno == 0 {
				t.Fatalf("step %d: operation %d has the status %d, errno %d, want an errno of its own daemon", step, st.OpID, st.Status, st.Errno)
			}
			statuses++
		}
	}
	if statuses != 120 {
		t.Errorf("%d operations were refused, want 120", statuses)
	}
	if n := w.es[1].st.C[stats.GrantsReceived]; n != 0 {
		t.Errorf("%d GRANTs of a region that was released arrived", n)
	}
	for i, lane := range []uint8{0, 5} {
		if now := laneConn(t, e, lane).Stats.ConnReset; now != resets[i] {
			t.Errorf("lane %d broke off %d times more", lane, now-resets[i])
		}
	}
}
