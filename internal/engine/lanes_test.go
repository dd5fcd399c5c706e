package engine

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs/sim"
)

// openLane opens a destination of a socket that uses lane.
func (r *raw) openLane(sock, slot uint32, to netip.Addr, port uint16, lane uint8) {
	r.w.t.Helper()
	r.put(func(e *shm.Entry) {
		*e.SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: sock, Slot: slot, Cell: slot, Port: port, Lane: lane, Addr: to.As16(), Gen: 1}
	})
}

// events takes what the engine has published.
func (r *raw) events() (out []shm.Entry) {
	c := r.seg.EventConsumer()
	for e := new(shm.Entry); c.Next(e); {
		out = append(out, *e)
	}
	c.Release()
	return out
}

// laneConn returns the connection of a lane, which must be the only one.
func laneConn(t *testing.T, e *Engine, lane uint8) (found conn.Info) {
	t.Helper()
	n := 0
	for _, i := range Conns(e) {
		if i.Lane == lane {
			found = i
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d connections of lane %d: %+v", n, lane, Conns(e))
	}
	return found
}

// lanePair is two hosts with a socket in lane 0 and one in lane 5 each, that
// know each other: slot n of a client leads from its socket n to the other's.
func lanePair(t *testing.T, cfg Config) (w *world, c [2]*raw, sock [2][2]uint32) {
	t.Helper()
	w = newWorld(t, 2, cfg)
	for h := range c {
		c[h] = w.attach(h, smallParams())
		sock[h] = [2]uint32{c[h].bind(10), c[h].bind(15)}
	}
	for h := range c {
		for n, lane := range []uint8{0, 5} {
			c[h].openLane(sock[h][n], uint32(n), hostAddr(1-h), uint16(10+5*n), lane)
			c[h].sendMsg(sock[h][n], uint32(n), uint32(n), 8)
		}
	}
	w.run()
	for h := range c {
		if ev := c[h].events(); len(ev) != 2 {
			t.Fatalf("host %d: %d messages arrived, want 2", h, len(ev))
		}
	}
	return w, c, sock
}

// TestLanesAreConnections: a lane is a connection of its own, the same one both
// ways, and one breaking is nothing to the other.
func TestLanesAreConnections(t *testing.T) {
	w, c, sock := lanePair(t, Config{})
	for _, e := range w.es {
		if n := len(Conns(e)); n != 2 {
			t.Fatalf("%d connections, want 2", n)
		}
		for _, lane := range []uint8{0, 5} {
			if i := laneConn(t, e, lane); !i.Ready || i.Stats.RecvQueued != 1 || i.Stats.SendMsgs != 2 { // its own, and BOUND
				t.Errorf("lane %d: ready %v, %d received, %d sent", lane, i.Ready, i.Stats.RecvQueued, i.Stats.SendMsgs)
			}
		}
		if n := len(e.peers.hosts); n != 1 {
			t.Errorf("%d peers, want 1", n)
		}
	}
	p := w.es[0].peers.all[0]
	if p.lane != 0 {
		t.Fatal("the first connection is not lane 0's")
	}
	p.c.Reset(w.net.Now(), errAdmin)
	w.es[0].dirty.touch(p)
	c[0].sendMsg(sock[0][0], 0, 2, 8)
	c[0].sendMsg(sock[0][1], 1, 3, 8)
	w.run()
	if i := laneConn(t, w.es[0], 0); i.Stats.ConnReset != 1 || !i.Ready {
		t.Errorf("lane 0: %d resets, ready %v", i.Stats.ConnReset, i.Ready)
	}
	if i := laneConn(t, w.es[0], 5); i.Stats.ConnReset != 0 {
		t.Errorf("lane 5: %d resets", i.Stats.ConnReset)
	}
	if ev := c[1].events(); len(ev) < 2 {
		t.Errorf("%d messages arrived", len(ev))
	}
	for _, ev := range c[0].events() {
		if ev.Kind() == uint8(shm.EvNotice) && ev.Notice().Sock == sock[0][1] {
			t.Errorf("lane 5 was told notice %d", ev.Notice().Notice)
		}
	}
	w.clean(c[:]...)
}

// TestLaneOfSocket: the lane of a socket is fixed by its first destination.
func TestLaneOfSocket(t *testing.T) {
	w := newWorld(t, 2, Config{})
	for _, to := range []netip.Addr{hostAddr(1), hostAddr(0)} { // on the same host, too
		r := w.attach(0, smallParams())
		s := r.bind(0)
		r.openLane(s, 0, to, 20, 5)
		r.openLane(s, 1, to, 21, 5)
		w.run()
		r.alive(true)
		r.openLane(s, 2, to, 22, 0)
		w.run()
		r.alive(false)
	}
	w.clean()
}

// TestBrokenLaneHoldsNobody: a lane that cannot connect, with messages waiting,
// leaves another lane's messages flowing.
func TestBrokenLaneHoldsNobody(t *testing.T) {
	w, c, sock := lanePair(t, Config{})
	lane0 := w.es[0].peers.all[0]
	w.net.Hook = func(p sim.Point) sim.Action { // whatever lane 0 tries breaks it
		if p.QP == lane0.c.to.(*byQP).qp || p.QP.Peer() == lane0.c.to.(*byQP).qp {
			return sim.Break
		}
		return sim.Pass
	}
	for id := range uint32(20) {
		c[0].sendMsg(sock[0][0], 0, 10+id, 1000)
		c[0].sendMsg(sock[0][1], 1, 40+id, 8)
	}
	got := 0
	for n := 0; n < 20 && got < 20; n++ {
		w.run()
		for _, ev := range c[1].events() {
			if ev.Kind() == uint8(shm.EvData) {
				got++
				c[1].gaveBack(ev.Event().RxID)
			}
		}
	}
	if i := laneConn(t, w.es[0], 5); i.Stats.ConnReset != 0 || i.Queued+i.Unacked != 0 {
		t.Errorf("lane 5: %d resets, %d queued, %d unacked", i.Stats.ConnReset, i.Queued, i.Unacked)
	}
	if i := laneConn(t, w.es[0], 0); i.Queued+i.Unacked < 20 {
		t.Errorf("lane 0: %d queued, %d unacked, want at least 20 in all", i.Queued, i.Unacked)
	}
	if got != 20 {
		t.Errorf("%d messages arrived, want 20", got)
	}
	w.net.Hook = nil
	w.clean(c[:]...)
}

// TestRevokeAcrossLanes: a key that was granted on one lane is used on another
// while it is taken back. The owner is told that the key is dead only when no
// operation can arrive any more, on whichever lane; so none breaks a connection.
func TestRevokeAcrossLanes(t *testing.T) {
	refused, done := 0, 0
	for seed := range int64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w, c, sock := lanePair(t, Config{})
			w.net.Timing.Post = sim.Range{Max: 500}
			w.net.Timing.Wire = sim.Range{Min: 1000, Max: 400_000}
			w.net.Timing.Local = sim.Range{}
			const n = 4096
			buf := c[0].must(&ipc.Alloc{Size: n}).(*ipc.AllocOK).Buffer
			reg := c[0].must(&ipc.Register{Sock: sock[0][0], Buffer: buf, Len: n,
				Access: abi.RightWrite}).(*ipc.RegisterOK)
			c[0].must(&ipc.Expose{Region: reg.Region, Addr: hostAddr(1)})
			w.run()
			local := c[1].must(&ipc.Alloc{Size: n}).(*ipc.AllocOK).Buffer
			dead := false
			for step, id := int64(0), uint32(0); step < 60; step++ {
				if step%2 == 0 && id < 24 {
					lane := id % 2
					c[1].put(func(e *shm.Entry) {
						*e.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: sock[1][lane], Slot: lane, MsgID: 10 + id}
					})
					c[1].put(func(e *shm.Entry) {
						*e.SubOp() = shm.SubOp{Op: abi.OpWrite, Flags: abi.FlagNotify, NSeg: 1, Region: local, Len: n,
							Cookie: reg.Cookie, OpID: uint64(id/2) + 1}
					})
					id++
				}
				if step == seed {
					if err := w.es[0].keys.release(w.es[0].keys.by[reg.Region], func(error) { dead = true }); err != nil {
						t.Fatal(err)
					}
				}
				w.turnAll()
				w.net.Step()
			}
			w.run()
			if !dead {
				t.Error("the key was not given back")
			}
			for _, e := range w.es {
				for _, lane := range []uint8{0, 5} {
					if i := laneConn(t, e, lane); i.Stats.ConnReset != 0 {
						t.Errorf("lane %d broke: %v", lane, i.LastError)
					}
				}
			}
			for range 4 {
				for _, ev := range c[1].events() {
					if ev.Kind() == uint8(shm.EvStatus) && ev.Status().Status == abi.StatusSuccess {
						done++
					} else if ev.Kind() == uint8(shm.EvStatus) {
						refused++
					}
				}
				w.run()
			}
			w.clean(c[:]...)
		})
	}
	if refused == 0 || done == 0 {
		t.Errorf("%d operations done, %d refused: the release never met them", done, refused)
	}
}

// TestInstanceOfLanes: of lanes that name different instances of a peer's
// daemon the one that was begun later is believed, and grants of the old
// instance end once.
func TestInstanceOfLanes(t *testing.T) {
	e := newWorld(t, 1, Config{}).es[0]
	var p [2]*peer
	for i, lane := range []lanePath{0, 5} {
		var err error
		if p[i], err = e.peers.peer(e.addrs.all[0], hostAddr(1), lane, nil); err != nil {
			t.Fatal(err)
		}
		p[i].begun = e.peers.tick()
	}
	grant := func(rkey uint32) {
		t.Helper()
		if err := p[0].grants.Add(rdmaop.Grant{Cookie: uint64(rkey), Len: 1, Rights: abi.RightRead}); err != nil {
			t.Fatal(err)
		}
	}
	step := func(i int, inst uint64, believed bool, grants int) {
		t.Helper()
		if got := hostOf(p[i]).Instance(nil, inst); got != believed {
			t.Errorf("lane %d names instance %d: believed %v", p[i].lane, inst, got)
		}
		if n := p[0].grants.Len(); n != grants {
			t.Errorf("lane %d names instance %d: %d grants left, want %d", p[i].lane, inst, n, grants)
		}
	}
	step(0, 100, true, 0)
	grant(1)
	step(1, 100, true, 1)
	// A restart, seen by lane 0 first.
	p[0].begun = e.peers.tick()
	step(0, 200, true, 0)
	grant(2)
	// Lane 5 was begun before that: the old instance's last word.
	step(1, 100, false, 1)
	step(1, 300, false, 1)
	// Begun anew it meets the same as lane 0, and ends nothing.
	p[1].begun = e.peers.tick()
	step(1, 200, true, 1)
	// The next restart, seen by lane 5 first.
	p[1].begun = e.peers.tick()
	step(1, 400, true, 0)
	step(0, 200, false, 0)
}

// TestRestartSeenByOneLane: the peer's daemon starts anew; the lane that goes
// on first meets the new one, and the other is broken off with the old one's.
func TestRestartSeenByOneLane(t *testing.T) {
	w, c, sock := lanePair(t, Config{})
	e := w.es[0]
	old := laneConn(t, e, 5).Instance
	w.net.Timing.Learn = sim.Range{Min: 50_000_000, Max: 60_000_000} // lane 5 does not notice
	lane0 := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}].lane(0)
	w.net.Crash(hostAddr(1))
	w.es[1] = w.boot(1, 77, Config{})
	far := w.attach(1, smallParams())
	s := far.bind(10)
	far.openLane(s, 0, hostAddr(0), 10, 0)
	far.sendMsg(s, 0, 0, 8)
	for i := 0; i < 100_000 && !(lane0.c.Ready() && lane0.instance != old); i++ {
		for _, x := range w.es {
			x.Turn(w.net.Now(), Wall(w.net.Now()))
		}
		w.net.Step()
	}
	if lane0.instance != 77 {
		t.Fatalf("lane 0 knows instance %d", lane0.instance)
	}
	if i := laneConn(t, e, 5); i.Ready {
		t.Errorf("lane 5 is still with instance %d", i.Instance)
	}
	c[0].sendMsg(sock[0][1], 1, 9, 8)
	w.run()
	if i := laneConn(t, e, 5); !i.Ready || i.Instance != 77 {
		t.Errorf("lane 5: ready %v, instance %d: %v", i.Ready, i.Instance, i.LastError)
	}
	if n := e.st.C[stats.PeerRestarts]; n != 1 {
		t.Errorf("%d restarts counted, want 1", n)
	}
	w.clean(c[0], far)
}

// TestLongTransferHoldsNobody: behind 1 MiB messages in one lane another lane's
// message does not wait.
func TestLongTransferHoldsNobody(t *testing.T) {
	w, c, sock := lanePair(t, Config{})
	w.net.Timing.Gap = sim.Range{Min: 20_000, Max: 20_000} // a slow wire: 32 KiB take that long
	const long = 1 << 20
	c[1].must(&ipc.SetRcvBuf{Sock: sock[1][0], Bytes: 8 * long})
	for id := range uint32(3) {
		c[0].sendMsg(sock[0][0], 0, 10+id, long)
	}
	c[0].sendMsg(sock[0][1], 1, 20, 8)
	var order []uint32
	for n := 0; len(order) < 4 && n < 1_000_000; n++ {
		w.turnAll()
		w.net.Step()
		for _, ev := range c[1].events() {
			if ev.Kind() == uint8(shm.EvData) {
				order = append(order, ev.Event().Len)
				c[1].gaveBack(ev.Event().RxID)
			}
		}
	}
	if len(order) != 4 || order[0] != 8 {
		t.Errorf("messages arrived in the order of these lengths: %v; want the short one first", order)
	}
	w.clean(c[:]...)
}

// TestPeersUp: the number of connections that are up is right when an attempt
// is reset, which was none of them.
func TestPeersUp(t *testing.T) {
	w, c, sock := lanePair(t, Config{})
	e := w.es[0]
	p := e.peers.all[0]
	again := false
	for n := 0; n < 10_000 && !again; n++ {
		if p.c.State() == conn.Up {
			p.c.Reset(w.net.Now(), errAdmin)
			e.dirty.touch(p)
			c[0].sendMsg(sock[0][p.lane/5], uint32(p.lane/5), 2, 8) // it is to come up again
		}
		w.turnAll()
		if p.c.State() == conn.Connecting {
			p.c.Reset(w.net.Now(), errAdmin)
			e.dirty.touch(p)
			again = true
		}
		if !w.net.Step() {
			w.net.At(w.net.Now()+1_000_000, func() {})
		}
	}
	w.run()
	up := uint64(0)
	for _, i := range Conns(e) {
		if i.State == conn.Up {
			up++
		}
	}
	if n := e.st.C[stats.PeersUp]; n != up || up == 0 || !again {
		t.Errorf("%d peers are counted as up, %d are; an attempt was reset: %v", n, up, again)
	}
}
