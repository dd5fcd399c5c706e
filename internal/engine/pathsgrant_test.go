package engine

import (
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// pathConn is the connection of engine 0 to host 1 in a path of lane 0, nil: none.
func (w *world) pathConn(path uint8) *peer { return w.hostOfPeer().lane(lanePath(0).in(path)) }

// meet has each of engine 0's sockets send a message of one byte.
func (w *world) meet(c [2]*raw, sock [2][pathSocks]uint32) {
	w.t.Helper()
	for n := range sock[0] {
		c[0].sendMsg(sock[0][n], uint32(n), uint32(n), 1)
	}
	w.run()
	if got := c[1].read(); got != pathSocks {
		w.t.Fatalf("host 1 received %d messages of %d", got, pathSocks)
	}
	c[0].events()
}

// What a process sends after Expose waits on other paths until the GRANT is acked, but no longer, and no
// other process does.
func TestPathsGrantAheadOfOthers(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	w.meet(c, sock)
	e := w.es[0]
	other := w.attach(0, smallParams())
	another := other.bind(304) // path 0, as port 100
	other.open(another, 0, 0, hostAddr(1), 100)
	w.run()
	w.net.Timing.Wire = sim.Range{Min: 20_000_000, Max: 20_000_000}
	first, was := w.pathConn(0), w.pathConn(0).c.Info().NextTx
	c[0].sendMsg(sock[0][4], 4, 30, 2) // port 104: path 0, ahead of Expose
	e.Turn(w.net.Now(), Wall(w.net.Now()))
	region := e.exposeOn(t, c[0], 201, 0) // path 1
	if w.hostOfPeer().exposing != 1 {
		t.Fatalf("messages wait for %d GRANTs, want 1", w.hostOfPeer().exposing)
	}
	if s := e.keys.by[region].sock; first.behindGrant(&txMsg{sock: s, nth: 1}) || !first.behindGrant(&txMsg{sock: s, nth: e.clock + 1}) {
		t.Error("what was submitted ahead of Expose waits, or what is submitted behind it does not")
	}
	c[0].sendMsg(sock[0][0], 0, 31, 3)
	other.sendMsg(another, 0, 0, 4)
	for n := 0; w.hostOfPeer().exposing > 0; n++ {
		if sent := first.c.Info().NextTx - was; sent > 2 {
			t.Fatalf("%d messages went out on path 0 ahead of the ack of the GRANT on path 1, want 2", sent)
		}
		w.turnAll()
		w.net.Step()
		if n > 10_000 {
			t.Fatal("the GRANT is not acked")
		}
	}
	w.run()
	w.run()
	if got := c[1].read(); got != 3 {
		t.Errorf("host 1 received %d messages, want 3", got)
	}
	if g := e.keys.by[region]; g == nil || g.exp.Grants() != 1 {
		t.Error("there is not one grant")
	}
}

// A GRANT that was made for a message with the cookie is one by Expose if Expose is called before its ack.
func TestPathsGrantExposedToo(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	w.meet(c, sock)
	e, h := w.es[0], w.hostOfPeer()
	w.net.Timing.Wire = sim.Range{Min: 20_000_000, Max: 20_000_000}
	r := e.keys.by[e.registerOn(c[0], sock[0][1])]
	if err := w.pathConn(1).expose(r, 10, byCookie); err != nil || h.exposing != 0 {
		t.Fatalf("%v, messages wait for %d GRANTs", err, h.exposing)
	}
	for range 2 {
		if err := e.keys.expose(r, hostAddr(1), 10); err != nil || h.exposing != 1 {
			t.Errorf("%v, messages wait for %d GRANTs, want 1", err, h.exposing)
		}
	}
	w.run()
	if h.exposing != 0 {
		t.Errorf("messages wait for %d GRANTs at the end", h.exposing)
	}
}

// registerOn registers memory of r's at one of its sockets, and returns the key.
func (e *Engine) registerOn(r *raw, sock uint32) uint32 {
	b := r.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK)
	return r.must(&ipc.Register{Sock: sock, Buffer: b.Buffer, Len: 64, Access: abi.RightWrite}).(*ipc.RegisterOK).Region
}

// A planned restart between Expose and the ack does not let messages on other paths go ahead.
func TestPathsGrantAheadHandedOver(t *testing.T) {
	for _, met := range []bool{false, true} {
		w := newWorld(t, 0, Config{})
		w.es = append(w.es, w.boot(0, 1, Config{Paths: 4}))
		w.es = append(w.es, w.boot(1, 2, Config{Paths: 4}))
		owner, user := w.opSide(0, 201), w.opSide(1, 202)
		other := owner.bind(204) // path 0
		owner.open(owner.sock, 0, 0, hostAddr(1), user.port)
		owner.open(other, 1, 1, hostAddr(1), user.port)
		if met {
			owner.submit(shm.Sub{Len: 1})
			w.run()
			w.net.Timing.Wire = sim.Range{Min: 20_000_000, Max: 20_000_000}
		}
		owner.expose(0, 64, abi.RightWrite, user)
		path := uint8(b2u(met)) // 201 is in path 1, which is known then
		w.still(0)
		w.succeed(0, func(d verbs.Device) verbs.Device { return d }, Config{Paths: 4}, owner)
		h := w.hostOfPeer()
		if p := w.pathConn(path); h.exposing != 1 || p.exposes[owner.cl] == nil || p.exposes[owner.cl].Head.Of.number != 0 {
			t.Errorf("met %v: messages wait for %d GRANTs after the restart, want 1", met, h.exposing)
		}
		w.run()
		w.run()
		if h.exposing != 0 || !w.es[1].peers.all[0].granted() {
			t.Errorf("met %v: messages wait for %d GRANTs at the end", met, h.exposing)
		}
	}
}

// older is the device of a daemon that rejects what is in a further path, as one does that knows no paths.
type older struct {
	verbs.Device
	knows bool // it has been upgraded
	n     int  // requests that it has rejected
}

func (d *older) PollCM(ev []verbs.CMEvent) int {
	kept := ev[:0]
	for _, x := range ev[:d.Device.PollCM(ev)] {
		if x.Type == verbs.CMConnectRequest && !d.knows {
			if p, err := wire.ParsePrivate(x.Private, false); err == nil && p.Path != 0 {
				d.n++
				_ = d.Reject(x.Req, wire.Rejected(wire.NotSaid))
				continue
			}
		}
		kept = append(kept, x)
	}
	return len(kept)
}

// restartAs has host 1's daemon end, and its successor, which has forgotten all, come when f has been called.
// The successor takes only path 0 until it knows paths.
func (w *world) restartAs(c *[2]*raw, conf Config, f func()) (on *older) {
	w.t.Helper()
	_ = w.es[1].devices.rails[0].dev.Close()
	w.pass(100_000_000, w.es[0])
	f()
	w.pass(1_000_000, w.es[0])
	on = &older{Device: w.net.Device(hostAddr(1))}
	w.es[1] = w.bootOn(on, 1, 77, conf)
	c[1] = w.attach(1, smallParams())
	for n := range uint16(pathSocks) {
		c[1].bind(100 + n)
	}
	return on
}

// Grants that waited for a peer are made anew, once each, in the paths of its next daemon: there is one
// GRANT of a key, on the path of the region's socket if Expose has made it, else on that of its message. Those that
// the connection had announced which met that daemon first are its grants, too.
func TestPathsGrantMoves(t *testing.T) {
	for _, tc := range []struct{ before, after int }{{4, 1}, {4, 2}, {1, 4}, {2, 4}, {3, 8}, {4, 3}} {
		w, c, sock := pathPair(t, 8, tc.before)
		w.meet(c, sock)
		e := w.es[0]
		var exposed, carried *region
		old := e.keys.by[e.registerOn(c[0], sock[0][1])]
		if err := e.keys.expose(old, hostAddr(1), 101); err != nil {
			t.Fatal(err)
		}
		w.run()
		on := w.restartAs(&c, Config{Paths: tc.after}, func() {
			exposed = e.keys.by[e.registerOn(c[0], sock[0][3])]
			carried = e.keys.by[e.registerOn(c[0], sock[0][3])]
			if err := e.keys.expose(exposed, hostAddr(1), 103); err != nil {
				t.Fatal(err)
			}
			for n := range sock[0] {
				c[0].put(func(en *shm.Entry) {
					*en.Sub() = shm.Sub{Kind: shm.KindSend, Sock: sock[0][n], Slot: uint32(n), MsgID: uint32(20 + n), Len: 1, Cookie: carried.cookie * uint64(b2u(n == 3))}
				})
			}
		})
		w.wait(1_000_000_000)
		on.knows = tc.after > 1
		w.wait(3_000_000_000)
		if got := c[1].read(); got != pathSocks {
			t.Errorf("%d to %d paths: %d messages arrived, want %d", tc.before, tc.after, got, pathSocks)
		}
		h := w.hostOfPeer()
		want, more := w.pathConn(uint8(103%tc.after)), 0
		if tc.before == 1 { // path 0 had both
			want, more = w.pathConn(0), 1
		}
		for i, r := range []*region{exposed, carried} {
			if n := r.exp.Grants(); n != 1+i*more || !r.exp.Granted(want.key, 103) {
				t.Errorf("%d to %d paths: %d grants, on the path of the port: %v", tc.before, tc.after, n, r.exp.Granted(want.key, 103))
			}
		}
		if old.exp.Grants() != 0 {
			t.Errorf("%d to %d paths: what the former daemon was granted is granted still", tc.before, tc.after)
		}
		if c[0].cl.acct.grants != 2+more || h.exposing != 0 {
			t.Errorf("%d to %d paths: the user has %d grants and messages wait for %d GRANTs", tc.before, tc.after, c[0].cl.acct.grants, h.exposing)
		}
		released := 0
		for _, r := range []*region{exposed, carried} {
			if err := e.keys.release(r, func(error) { released++ }); err != nil {
				t.Fatal(err)
			}
		}
		w.run()
		if released != 2 || c[0].cl.acct.grants != 0 {
			t.Errorf("%d to %d paths: %d regions of 2 are released, %d grants are left", tc.before, tc.after, released, c[0].cl.acct.grants)
		}
		for _, p := range h.lanes {
			if i := p.c.Info(); int(p.path) >= max(tc.after, 1) && (i.State != conn.Down || i.Queued+i.Unacked > 0 || p.c.NextTimeout() != 0) {
				t.Errorf("%d to %d paths: path %d is %v and has %d messages", tc.before, tc.after, p.path, i.State, i.Queued+i.Unacked)
			}
		}
	}
}

// A key that was given back does not cost all connections when one of them has stalled.
func TestPathsFlushStalls(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	w.meet(c, sock)
	e, h := w.es[0], w.hostOfPeer()
	r := e.keys.by[e.exposeOn(t, c[0], 200, 0)] // path 0
	w.run()
	released := false
	if err := e.keys.release(r, func(error) { released = true }); err != nil {
		t.Fatal(err)
	}
	stalled := w.pathConn(1)
	for n := 0; !r.flushing(h); n++ {
		if n > 10_000 {
			t.Fatal("the key is not flushed")
		}
		w.turnAll()
		w.net.Step()
	}
	for _, f := range slices.Clone(r.flush) {
		if f.lane != stalled { // the others have confirmed
			hostOf(f.lane).Internal(nil, wire.TypeRevoked, (&wire.Revoke{RKey: r.id, Lanes: 1}).Append(nil))
		}
	}
	if released || !r.flushing(h) {
		t.Fatal("path 1 is not waited for")
	}
	w.pass(e.cfg.RevokeTimeout+2_000_000_000, e) // host 1 stands still
	for _, p := range h.lanes {
		if n := p.c.Stats().ConnReset; n != uint64(b2u(p == stalled)) {
			t.Errorf("path %d was broken off %d times", p.path, n)
		}
	}
	if !released {
		t.Error("the region is not released")
	}
}
