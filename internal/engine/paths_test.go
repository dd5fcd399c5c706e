package engine

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// pathSocks is how many sockets each host has in the tests of paths, from port 100 on.
const pathSocks = 8

// pathPair is two hosts that want so many paths each. Slot n of a client leads from its socket n to the
// other's.
func pathPair(t *testing.T, paths ...int) (w *world, c [2]*raw, sock [2][pathSocks]uint32) {
	t.Helper()
	w = newWorld(t, 0, Config{})
	for h := range c {
		w.es = append(w.es, w.boot(h, uint64(h)+1, Config{Paths: paths[h]}))
		c[h] = w.attach(h, smallParams())
		for n := range sock[h] {
			sock[h][n] = c[h].bind(uint16(100 + n))
		}
	}
	for h := range c {
		for n := range sock[h] {
			c[h].open(sock[h][n], uint32(n), uint32(n), hostAddr(1-h), uint16(100+n))
		}
	}
	return w, c, sock
}

// hostOfPeer is what engine 0 knows of host 1.
func (w *world) hostOfPeer() *remote { return w.es[0].peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}] }

// A socket is in the path that its port says, of as many as both daemons want, also for what it sends before they
// have met. The path is one connection for both directions.
func TestPathsSpread(t *testing.T) {
	for _, tc := range []struct{ here, there, want int }{{4, 4, 4}, {8, 3, 3}, {3, 8, 3}, {1, 8, 1}, {8, 1, 1}} {
		w, c, sock := pathPair(t, tc.here, tc.there)
		for h := range c {
			for n := range sock[h] {
				c[h].sendMsg(sock[h][n], uint32(n), uint32(n), 8)
			}
		}
		w.run()
		for h, e := range w.es {
			if got := c[h].read(); got != pathSocks {
				t.Errorf("%d and %d paths: host %d received %d messages of %d", tc.here, tc.there, h, got, pathSocks)
			}
			if n := len(Conns(e)); n != tc.want {
				t.Errorf("%d and %d paths: %d connections, want %d", tc.here, tc.there, n, tc.want)
			}
			for _, p := range e.peers.all {
				own := 0
				for n := range pathSocks {
					own += int(b2u((100+n)%tc.want == int(p.path)))
				}
				if s := p.c.Stats(); int(s.RecvQueued) != own || p.slots.N != own || !p.c.Ready() {
					t.Errorf("%d and %d paths: path %d has %d destinations and received %d messages, want %d", tc.here, tc.there, p.path, p.slots.N, s.RecvQueued, own)
				}
			}
		}
	}
}

// A path that breaks stops only its sockets, and nobody else is notified.
func TestPathBreaks(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	for n := range sock[0] {
		c[0].sendMsg(sock[0][n], uint32(n), uint32(n), 8)
	}
	w.run()
	c[0].events()
	h := w.hostOfPeer()
	if n, known := ResetPeers(w.es[0], hostAddr(1), nil, new(uint8(1))); n != 1 || !known {
		t.Errorf("%d connections were reset, want 1", n)
	}
	if _, known := ResetPeers(w.es[0], hostAddr(1), new(uint8(0)), new(uint8(4))); known {
		t.Error("there is a path 4")
	}
	w.run()
	for _, ev := range c[0].events() {
		if n := ev.Notice(); n.Kind == shm.EvNotice && n.Notice == shm.NoticePeerDown && n.Slot%4 != 1 {
			t.Errorf("the destination of port %d is notified of the break of path 1", 100+n.Slot)
		}
	}
	for _, p := range h.lanes {
		if n := p.c.Stats().ConnReset; n != uint64(b2u(p.path == 1)) {
			t.Errorf("path %d was reset %d times", p.path, n)
		}
	}
}

// A GRANT that was made before the paths were known is there before the messages of its socket.
func TestPathsGrantAhead(t *testing.T) {
	w, c, _ := pathPair(t, 4, 4)
	e, h := w.es[0], w.hostOfPeer
	owner := w.attach(0, smallParams())
	region := e.exposeOn(t, owner, 201, 0) // path 1
	sock := e.keys.by[region].sock.handle
	owner.open(sock, 0, 0, hostAddr(1), 101)
	owner.sendMsg(sock, 0, 0, 8)
	if e.keys.by[region] == nil || h().exposing != 1 {
		t.Fatalf("messages wait for %d GRANTs, want 1", h().exposing)
	}
	other := lanePath(0).in(1)
	for n := range 2000 {
		w.turnAll()
		if p := h().lane(other); p != nil && p.c.Info().NextTx > 1 && h().exposing > 0 {
			t.Fatalf("after %d turns path 1 sends while the GRANT on path 0 is not acked", n)
		}
		if !w.net.Step() {
			break
		}
	}
	w.run()
	if n := h().exposing; n != 0 || c[1].read() != 1 {
		t.Errorf("messages wait for %d GRANTs at the end", n)
	}
}

// The daemon of the peer comes back and wants another number of paths. What had not gone out to the one before goes to it,
// in the order in which it was sent, and nothing waits in a path that is no more.
func TestPathsOfAnotherDaemon(t *testing.T) {
	for _, paths := range []int{1, 2, 8} {
		w, c, sock := pathPair(t, 4, 4)
		for n := range sock[0] {
			c[0].sendMsg(sock[0][n], uint32(n), uint32(n), 8)
		}
		w.run()
		_ = w.es[1].devices.rails[0].dev.Close()
		w.pass(100_000_000, w.es[0])
		for _, p := range w.hostOfPeer().lanes {
			if p.c.State() == conn.Up {
				t.Fatalf("path %d is up to a host that is gone", p.path)
			}
		}
		for n := range sock[0] {
			for i := range 2 {
				c[0].sendMsg(sock[0][n], uint32(n), uint32(8+2*n+i), 8+i)
			}
		}
		w.pass(1_000_000, w.es[0])
		w.es[1] = w.boot(1, 77, Config{Paths: paths})
		c[1] = w.attach(1, smallParams())
		for n := range sock[1] {
			c[1].bind(uint16(100 + n))
		}
		got, downs, ups := map[uint16][]uint32{}, [pathSocks]int{}, [pathSocks]int{}
		for range 10 {
			w.wait(1_000_000_000)
			for _, ev := range c[0].events() {
				n := ev.Notice()
				downs[n.Slot%pathSocks] += int(n.Count) * int(b2u(n.Kind == shm.EvNotice && n.Notice == shm.NoticePeerDown))
				ups[n.Slot%pathSocks] += int(n.Count) * int(b2u(n.Kind == shm.EvNotice && n.Notice == shm.NoticePeerUp))
			}
			for _, ev := range c[1].events() {
				if m := ev.Event(); m.Kind == shm.EvData {
					got[m.SrcPort] = append(got[m.SrcPort], m.Len)
					c[1].gaveBack(m.RxID)
				}
			}
			c[1].took()
		}
		for n := range uint16(pathSocks) {
			if l := got[100+n]; len(l) != 2 || l[0] != 8 || l[1] != 9 {
				t.Errorf("%d paths: of port %d arrived messages of %d bytes, want 8 and 9", paths, 100+n, l)
			}
		}
		for n := range downs {
			if downs[n] != 1 || ups[n] != 1 {
				t.Errorf("%d paths: port %d is told of %d ends of its connection and %d connections, want 1 and 1", paths, 100+n, downs[n], ups[n])
			}
		}
		for _, p := range w.hostOfPeer().lanes {
			if i := p.c.Info(); i.Queued+i.Unacked+p.paused.N+p.flows.n > 0 || p.moving {
				t.Errorf("%d paths: path %d is %v and has %d messages", paths, p.path, i.State, i.Queued+i.Unacked)
			}
		}
	}
}

// A request in a path that the peer does not have makes no connection.
func TestPathOfNoUse(t *testing.T) {
	w, _, _ := pathPair(t, 4, 4)
	for path, bad := range map[uint8]bool{0: true, 7: false, 8: true, 255: true} {
		b := wire.AppendPrivate(nil, &wire.Private{Src: hostAddr(1), Dst: hostAddr(0), Major: 3, Minor: 1, Path: path, Ext: wire.ExtPath})
		if _, err := wire.ParsePrivate(b, false); (err != nil) != bad {
			t.Errorf("path %d: %v", path, err)
		}
	}
	w.run()
}

// An older daemon, which knows one path, cannot take over while there are several.
func TestPathsHandedOverToOlder(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	c[0].sendMsg(sock[0][1], 1, 0, 8)
	w.run()
	w.still(0)
	for v := handover.Oldest; v <= handover.Newest; v++ {
		s := handover.Write(v)
		x := &crossing{Engine: w.es[0], s: s}
		x.section(handover.TagRemotes, x.handOverRemotes)
		if refused := errors.Is(s.Err(), ErrPaths); refused != (v < 7) {
			t.Errorf("version %d: %v", v, s.Err())
		}
	}
	if p := w.hostOfPeer().lane(lanePath(0).in(1)); p.c.State() != conn.Down {
		t.Errorf("path 1 is %v", p.c.State())
	}
}

// Nor can it take over while a peer may have learned from this daemon that there are several.
func TestPathsOfferedToOlder(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	c[0].sendMsg(sock[0][1], 1, 0, 8)
	for n := 0; n < 1000 && (w.hostOfPeer() == nil || !w.hostOfPeer().attached()); n++ {
		w.turnAll()
		w.net.Step()
	}
	h := w.hostOfPeer()
	if !h.attached() || h.paths != 0 {
		t.Fatalf("no handshake is in progress: %d paths", h.paths)
	}
	w.es[0].Halt()
	for n := 0; n < 1000 && !w.es[0].Halted(); n++ { // the peer does not turn: its HELLO does not come
		w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
		w.net.Step()
	}
	if !w.es[0].Halted() || h.paths != 0 {
		t.Fatalf("stands still: %v, %d paths", w.es[0].Halted(), h.paths)
	}
	s := handover.Write(6)
	x := &crossing{Engine: w.es[0], s: s}
	x.section(handover.TagRemotes, x.handOverRemotes)
	if !errors.Is(s.Err(), ErrPaths) {
		t.Errorf("an older daemon takes over: %v", s.Err())
	}
	w.succeed(0, func(d verbs.Device) verbs.Device { return d }, Config{Paths: 2}, &opSide{raw: c[0]})
	if h := w.hostOfPeer(); h.wantsPaths != 4 {
		t.Errorf("the next daemon wants %d paths, its peer may know of 4", h.wantsPaths)
	}
}

// TestPathsAfterOlder: a daemon that takes over from one that knows one path wants one of the peers that may have met that one, as
// the same instance. One of several sockets' paths would otherwise be one that the peer does not know.
func TestPathsAfterOlder(t *testing.T) {
	x := newParting(t)
	cfg := partingConfig
	cfg.Paths = 4
	e, _ := x.heirOf(0, x.old, cfg)
	if err := adoptPeers(e, peersIn(t, x.old, 6)); err != nil {
		t.Fatal(err)
	}
	for _, h := range e.peers.hosts {
		if h.wantsPaths != 1 || h.paths != 1 {
			t.Errorf("%v: %d paths of %d", h.addr, h.paths, h.wantsPaths)
		}
	}
}
