package engine

import (
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs/sim"
)

// wait lets ns of virtual time pass.
func (w *world) wait(ns int64) {
	w.t.Helper()
	for end := w.net.Now() + ns; ; w.net.Step() {
		for busy := true; busy; {
			busy = false
			for _, e := range w.es {
				busy = e.Turn(w.net.Now(), Wall(w.net.Now())) || busy
			}
		}
		if w.net.Now() >= end {
			return
		}
		if at, ok := w.net.NextEvent(); !ok || at > w.net.Now()+1_000_000_000 {
			w.net.At(min(end, w.net.Now()+1_000_000_000), func() {})
		}
	}
}

// leave ends a host's process and its connections.
func (w *world) leave(r *raw) {
	r.at.Close()
	w.run()
	for _, p := range r.e.peers.all {
		p.c.Reset(w.net.Now(), errAdmin)
		r.e.dirty.touch(p)
	}
	w.run()
}

// Hosts that come and go under ever new addresses find room, however many they
// are: those that are away make place, and none that is here does.
func TestPeersChurn(t *testing.T) {
	const table, hosts = 8, 30
	w := newWorld(t, hosts, Config{MaxPeers: table})
	srv := w.attach(0, smallParams())
	srv.bind(10)
	// One stays connected with nothing to do but an open destination.
	stays := w.attach(1, smallParams())
	s := stays.bind(9)
	stays.open(s, 0, 0, hostAddr(0), 10)
	stays.sendMsg(s, 0, 0, 10)
	answer := srv.bind(11)
	srv.open(answer, 0, 0, hostAddr(1), 9)
	srv.sendMsg(answer, 0, 0, 10)
	w.run()
	got := srv.read()
	for h := 2; h < hosts; h++ {
		r := w.attach(h, smallParams())
		s := r.bind(9)
		r.open(s, 0, 0, hostAddr(0), 10)
		r.sendMsg(s, 0, 0, 10)
		w.run()
		got += srv.read()
		w.leave(r)
		w.wait(15_000_000_000)
	}
	if got != hosts-1 {
		t.Errorf("%d of %d messages arrived", got, hosts-1)
	}
	e := w.es[0]
	if n := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}].lane(0).c.Stats().ConnReset; n != 0 {
		t.Errorf("the connection in use was broken off %d times", n)
	}
	w.wait(700_000_000_000)
	if n := len(e.peers.all); n != 1 {
		t.Errorf("%d peers are known after 11 minutes, want the one that is here", n)
	}
}

// One host that connects on every lane there is gets its share of the table.
// Under another address it gets no more than that, and a stranger finds room.
func TestLanesOfOneAddress(t *testing.T) {
	const table, hostile, lanes = 64, 5, 16
	w := newWorld(t, hostile+2, Config{MaxPeers: table, RecvBufs: 1024, SendBufs: 64})
	srv := w.attach(0, smallParams())
	srv.bind(10)
	for h := 1; h <= hostile; h++ {
		r := w.attach(h, smallParams())
		for lane := range uint8(lanes) {
			s := r.bind(uint16(100 + int(lane)))
			r.openLane(s, uint32(lane), hostAddr(0), 10, lane)
			r.sendMsg(s, uint32(lane), uint32(lane), 8)
		}
		w.wait(1_000_000_000)
	}
	e := w.es[0]
	if n := len(e.peers.all); n != hostile*leastLanes {
		t.Errorf("%d connections of %d addresses, want %d of each", n, hostile, leastLanes)
	}
	srv.read()
	r := w.attach(hostile+1, smallParams())
	s := r.bind(9)
	r.open(s, 0, 0, hostAddr(0), 10)
	r.sendMsg(s, 0, 0, 10)
	w.wait(1_000_000_000)
	if srv.read() == 0 {
		t.Error("a stranger finds no room")
	}
}

// Idle connections give way when the table fills up, those in use do not.
func TestIdleGiveWay(t *testing.T) {
	const table = 8
	w := newWorld(t, table+3, Config{MaxPeers: table})
	srv := w.attach(0, smallParams())
	srv.bind(10)
	got := 0
	send := func(h int) {
		r := w.attach(h, smallParams())
		s := r.bind(9)
		r.open(s, 0, 0, hostAddr(0), 10)
		r.sendMsg(s, 0, 0, 10)
	}
	for h := 1; h <= table; h++ {
		send(h)
		w.run()
		got += srv.read()
	}
	e := w.es[0]
	if got != table || len(e.peers.all) != table {
		t.Fatalf("%d messages, %d peers, want %d", got, len(e.peers.all), table)
	}
	w.wait(300_000_000_000)
	for h := table + 1; h < table+3; h++ {
		send(h)
		w.wait(5_000_000_000)
		if got += srv.read(); got != h {
			t.Errorf("%d messages of %d hosts, %d peers", got, h, len(e.peers.all))
		}
	}
}

// A lane that is dropped beside others leaves its sequences behind: what its
// connection had received is not received again.
func TestLaneForgotten(t *testing.T) {
	w, c, _ := lanePair(t, Config{})
	e := w.es[0]
	h := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
	p := h.lane(5)
	c[0].at.Close() // nothing leads there
	w.run()
	before := p.c.Info()
	p.c.Reset(w.net.Now(), errAdmin)
	e.dirty.touch(p)
	c[1].at.Close() // nor back: it stays down
	w.wait(90_000_000_000)
	if h.lane(5) != nil || h.lane(0) == nil {
		t.Fatalf("lanes %v, want only 0", h.lanes)
	}
	if got, want := h.past[5], (conn.Past{Peer: before.Instance, RxLast: before.LastRx, NextTx: before.NextTx}); got != want {
		t.Errorf("left behind %+v, want %+v", got, want)
	}
	again, err := e.peers.peer(h.local, h.addr, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	if i := again.c.Info(); i.LastRx != before.LastRx || i.NextTx < before.NextTx || i.Instance != before.Instance {
		t.Errorf("made anew: %s, before: %s", seqs(i), seqs(before))
	}
}

func seqs(i conn.Info) string {
	return fmt.Sprintf("received %d, next %d of %#x", i.LastRx, i.NextTx, i.Instance)
}

// exposeOn has a socket of r's at port grant memory to host 1 on a lane.
func (e *Engine) exposeOn(t *testing.T, r *raw, port uint16, lane uint8) uint32 {
	t.Helper()
	b := r.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK)
	reg := r.must(&ipc.Register{Sock: r.bind(port), Buffer: b.Buffer, Len: 64, Access: abi.RightWrite}).(*ipc.RegisterOK)
	e.keys.by[reg.Region].sock.lane = lane
	if err := e.keys.expose(e.keys.by[reg.Region], hostAddr(1), 10); err != nil {
		t.Fatal(err)
	}
	for _, p := range e.peers.all {
		e.dirty.touch(p)
	}
	return reg.Region
}

// A lane on which something was granted is forgotten as others are when all of it has
// been taken back, and an address that has nothing of ours makes place as soon.
func TestTakenBackIsForgotten(t *testing.T) {
	w, c, _ := lanePair(t, Config{})
	e := w.es[0]
	h := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
	owner := w.attach(0, smallParams())
	region := e.exposeOn(t, owner, 30, 5)
	w.run()
	if !h.lane(5).exposed() || h.lane(0).exposed() || !h.granted() {
		t.Fatal("nothing is granted on lane 5, or something on lane 0")
	}
	released := false
	if err := e.keys.release(e.keys.by[region], func(error) { released = true }); err != nil {
		t.Fatal(err)
	}
	w.run()
	if !released || h.lane(5).exposed() || h.granted() {
		t.Fatalf("released %v, exposed %v, granted %v", released, h.lane(5).exposed(), h.granted())
	}
	w.leave(c[0])
	w.leave(c[1])
	w.wait(90_000_000_000)
	if len(h.lanes) != 1 {
		t.Errorf("%d lanes are known after 90 s, want 1", len(h.lanes))
	}
}

// An address whose lanes are forgotten at once may be the only one there is.
func TestLastAddressForgotten(t *testing.T) {
	w, c, _ := lanePair(t, Config{})
	e := w.es[0]
	owner := w.attach(0, smallParams())
	for n, lane := range []uint8{0, 5} {
		e.exposeOn(t, owner, uint16(30+n), lane)
		if !e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}].lane(lanePath(lane)).exposed() {
			t.Fatalf("nothing is granted on lane %d", lane)
		}
	}
	w.run()
	w.leave(c[0])
	w.leave(c[1])
	w.wait(700_000_000_000)
	if len(e.peers.all)+len(e.peers.hosts)+len(e.peers.byKey) != 0 {
		t.Errorf("%d peers, %d addresses are known after 11 minutes", len(e.peers.all), len(e.peers.hosts))
	}
}

// vanish turns both hosts until host 0 has delivered what r sends to port 10 there. Then only host 0
// turns, and host 1 never hears which socket took the message.
func (w *world) vanish(srv, r *raw) (es []*Engine) {
	w.t.Helper()
	s := r.bind(9)
	r.open(s, 0, 0, hostAddr(0), 10)
	r.sendMsg(s, 0, 0, 10)
	sends := 0
	w.net.Hook = func(p sim.Point) sim.Action {
		if p.Host == hostAddr(1) && p.Kind == sim.BeforeSendDelivered {
			if sends++; sends > 1 { // all but HELLO
				return sim.Break
			}
		}
		return sim.Pass
	}
	for n := 0; srv.read() == 0; n++ {
		w.es[1].Turn(w.net.Now(), Wall(w.net.Now()))
		w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
		if !w.net.Step() {
			w.net.At(w.net.Now()+ms, func() {})
		}
		if n > 100000 {
			w.t.Fatal("nothing arrived")
		}
	}
	es, w.es = w.es, w.es[:1]
	return es
}

// A host that is gone with an answer unacked is forgotten as others are. If it comes back, its
// message is lost for it, and does not arrive again.
func TestOwedIsForgotten(t *testing.T) {
	w := newWorld(t, 2, Config{})
	srv, r := w.attach(0, smallParams()), w.attach(1, smallParams())
	srv.bind(10)
	es := w.vanish(srv, r)
	w.wait(500_000_000_000)
	e := w.es[0]
	if len(e.peers.all) != 1 || e.peers.all[0].c.Info().Queued != 1 {
		t.Fatalf("%d peers, the one that is away is owed nothing", len(e.peers.all))
	}
	failed := e.peers.all[0].c.Stats().ConnectFailed
	w.wait(200_000_000_000)
	if len(e.peers.all) != 0 || failed > 50 {
		t.Errorf("%d peers are known after 11 minutes, of %d attempts to connect", len(e.peers.all), failed)
	}
	w.es, w.net.Hook = es, nil
	w.wait(40_000_000_000)
	if n := srv.read(); n != 0 {
		t.Errorf("%d messages arrived again", n)
	}
	lost := 0
	for _, ev := range r.events() {
		if n := ev.Notice(); ev.Kind() == uint8(shm.EvNotice) && n.Notice == shm.NoticeLost {
			lost += int(n.Count)
		}
	}
	if lost != 1 {
		t.Errorf("%d messages reported as lost, want 1", lost)
	}
	w.clean(srv, r)
}

// A key that is taken back on a lane that was down for long is asked for: others could use it.
func TestRevokeOnLaneLongDown(t *testing.T) {
	w, c, _ := lanePair(t, Config{})
	e := w.es[0]
	h := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
	owner := w.attach(0, smallParams())
	region := e.exposeOn(t, owner, 30, 5)
	w.run()
	h.lane(5).c.Reset(w.net.Now(), errAdmin)
	w.wait(2 * 30_000_000_000)
	if h.lane(5).c.State() != conn.Down || !h.lane(0).c.Ready() {
		t.Fatalf("lane 5 is %v, lane 0 ready %v", h.lane(5).c.State(), h.lane(0).c.Ready())
	}
	released := false
	if err := e.keys.release(e.keys.by[region], func(error) { released = true }); err != nil {
		t.Fatal(err)
	}
	w.run()
	if i := h.lane(0).c.Info(); !released || i.Stats.ConnReset != 0 {
		t.Errorf("released %v, lane 0 broken off %d times", released, i.Stats.ConnReset)
	}
	w.clean(append(c[:], owner)...)
}

// An address gets so many answers unacked, on however many lanes it asks. When it is gone, it is soon
// forgotten with them.
func TestAnswersOfOneAddress(t *testing.T) {
	w, c, _ := lanePair(t, Config{})
	e := w.es[0]
	h := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
	c[0].at.Close()
	w.run()
	w.es = w.es[:1]
	body := (&wire.Revoke{RKey: 77, Lanes: 1}).Append(nil)
	for n := range maxCtl + 100 {
		hostOf(h.lanes[n%len(h.lanes)]).Internal(nil, wire.TypeRevoke, body)
	}
	if n := e.pools.ctls.Out; n != maxCtl || h.answers != n {
		t.Errorf("%d answers wait, %d are counted, want %d", n, h.answers, maxCtl)
	}
	w.wait(100_000_000_000)
	if n := e.pools.ctls.Out; n != 0 || len(e.peers.all) != 0 {
		t.Errorf("after 100 s %d answers wait, of %d peers", n, len(e.peers.all))
	}
}
