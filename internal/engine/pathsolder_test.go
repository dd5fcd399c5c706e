package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
)

// A daemon that knows no paths comes in place of one that does. A socket in a further path finds that out by path 0,
// which nothing else uses: its message arrives, and it is not told that the host is not reached.
func TestPathsOlderDaemon(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	w.meet(c, sock)
	on := w.restartAs(&c, Config{}, func() { c[0].sendMsg(sock[0][3], 3, 30, 5) })
	for range 5 {
		w.wait(1_000_000_000)
		for _, ev := range c[0].events() {
			if n := ev.Notice(); n.Kind == shm.EvNotice && n.Notice == shm.NoticeUnreachable && w.es[1] != nil && n.Reason == shm.ReachRejected {
				t.Errorf("the destination of port %d is told that the host rejects it", 100+n.Slot)
			}
		}
	}
	if got := c[1].read(); got != 1 || on.n == 0 {
		t.Errorf("%d messages arrived, want 1, and %d requests were rejected", got, on.n)
	}
	h := w.hostOfPeer()
	if n := on.n; h.paths != 1 {
		t.Errorf("%d paths, want 1", h.paths)
	} else if w.wait(60_000_000_000); on.n != n {
		t.Errorf("%d more requests in a path that the peer does not have", on.n-n)
	}
	for _, p := range h.lanes {
		if p.path > 0 && p.slots.N+p.paused.N+p.ctls > 0 {
			t.Errorf("something leads to path %d", p.path)
		}
	}
}

// Path 0 is tried once for each rejection of another: when nothing is to be sent any more, nobody tries.
func TestPathsRejected(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	w.meet(c, sock)
	denied := func(netip.Addr) error { return fmt.Errorf("%w: a test", ErrNotAllowed) }
	w.restartAs(&c, Config{Paths: 4, Allowed: denied, Silent: func() bool { return true }}, func() { c[0].sendMsg(sock[0][3], 3, 30, 5) })
	w.wait(10_000_000_000)
	told := false
	for _, ev := range c[0].events() {
		n := ev.Notice()
		told = told || n.Kind == shm.EvNotice && n.Notice == shm.NoticeUnreachable && n.Slot == 3 && n.Reason == shm.ReachRejected
	}
	first := w.pathConn(0)
	if tried := w.es[1].st.C[stats.BadHandshakes]; !told || tried < 4 || first.c.Ready() {
		t.Errorf("the socket is told: %v, after %d attempts", told, tried)
	}
	c[0].at.Close()
	w.wait(5_000_000_000)
	tried := w.es[1].st.C[stats.BadHandshakes]
	if w.wait(60_000_000_000); w.es[1].st.C[stats.BadHandshakes] != tried || first.knocks || first.c.State() != conn.Down || !first.idle() {
		t.Errorf("%d attempts more when nobody has anything to send", w.es[1].st.C[stats.BadHandshakes]-tried)
	}
}

// A peer is forgotten once, whoever asks for it, and one that has a grant is not forgotten as new.
func TestPathsDroppedOnce(t *testing.T) {
	w := newWorld(t, 1, Config{Paths: 4})
	e := w.es[0]
	var all []*peer
	for path := range uint8(3) {
		p, err := e.peers.peer(e.addrs.all[0], hostAddr(1), lanePath(0).in(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	left := e.devices.recvLeft
	for range 2 {
		e.peers.dropIfNew(all[0])
	}
	if len(e.peers.all) != 2 || !slices.Contains(e.peers.all, all[1]) || !slices.Contains(e.peers.all, all[2]) {
		t.Errorf("%d connections are left, want those of paths 1 and 2", len(e.peers.all))
	}
	if got := e.devices.recvLeft - left; got != all[0].c.to.(*byQP).credits+1 {
		t.Errorf("%d receive buffers were given back", got)
	}
	all[1].allowance.lanes[all[1]] = 1
	if e.peers.dropIfNew(all[1]); all[1].gone {
		t.Error("a connection with a grant was forgotten as new")
	}
	delete(all[1].allowance.lanes, all[1])
}

// What a closed destination has sent waits for room for the connection of its path.
func TestPathsClosedWithoutRoom(t *testing.T) {
	w := newWorld(t, 0, Config{})
	w.es = append(w.es, w.boot(0, 1, Config{Paths: 4, MaxPeers: 4}))
	w.es = append(w.es, w.boot(1, 2, Config{Paths: 4}))
	a, b := w.attach(0, smallParams()), w.attach(1, smallParams())
	b.bind(20)
	s, other := a.bind(101), a.bind(100)
	a.open(s, 0, 0, hostAddr(1), 20)
	a.open(other, 1, 1, hostAddr(1), 20) // keeps path 0
	for n := range uint32(3) {
		a.open(other, 2+n, 2+n, nobody(int(n)), 20)
	}
	a.sendMsg(s, 0, 1, 5)
	a.put(func(e *shm.Entry) { *e.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: s, Slot: 0} })
	w.run()
	w.wait(100_000_000)
	if h := w.hostOfPeer(); b.read() != 0 || h.paths != 4 || len(h.lanes) != 1 || !w.es[0].dests.nowhere.paths {
		t.Fatalf("%d paths, %d connections of %d, want 4 and 1 and no message", h.paths, len(h.lanes), len(w.es[0].peers.all))
	}
	w.still(0)
	w.succeed(0, func(d verbs.Device) verbs.Device { return d }, Config{Paths: 4, MaxPeers: 4}, &opSide{raw: a})
	for n := range uint32(3) {
		a.put(func(e *shm.Entry) { *e.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: other, Slot: 2 + n} })
	}
	w.pass(100_000_000, w.es...)
	if got := b.read(); got != 1 || len(w.hostOfPeer().lanes) != 2 || w.es[0].dests.nowhere.at() != 0 {
		t.Errorf("%d messages arrived on %d connections, want 1 on 2", got, len(w.hostOfPeer().lanes))
	}
	w.clean(a, b)
}

// A connection that no path has, with something for a former instance of the peer's daemon, ends that when another one is met. An
// older daemon would never take it.
func TestPathsFurtherEnds(t *testing.T) {
	w, c, sock := pathPair(t, 4, 1)
	w.meet(c, sock)
	e := w.es[0]
	p, err := e.peers.peer(e.addrs.all[0], hostAddr(1), lanePath(0).in(3), nil)
	if err != nil {
		t.Fatal(err)
	}
	e.peers.sendRevoke(p, wire.TypeRevoked, 7, 1)
	for n := 0; n < 1000 && p.c.Info().Unacked == 0; n++ {
		w.turnAll()
		w.net.Step()
	}
	if p.c.Info().Unacked != 1 {
		t.Fatalf("%d messages are on their way in path 3, want 1", p.c.Info().Unacked)
	}
	on := w.restartAs(&c, Config{}, func() { c[0].sendMsg(sock[0][4], 4, 40, 5) }) // port 104: path 0
	w.wait(5_000_000_000)
	if got := c[1].read(); got != 1 {
		t.Errorf("%d messages arrived, want 1", got)
	}
	n := on.n
	if w.wait(60_000_000_000); on.n != n || p.c.Info().Queued+p.c.Info().Unacked > 0 {
		t.Errorf("%d more requests in a path that the peer does not have", on.n-n)
	}
	// A REVOKE that is made for it later ends, too.
	if p.gone || p.c.Instance() == 0 {
		t.Fatalf("gone %v, of instance %d", p.gone, p.c.Instance())
	}
	e.peers.sendRevoke(p, wire.TypeRevoke, 8, 1)
	w.wait(5_000_000_000)
	n = on.n
	if w.wait(60_000_000_000); on.n != n || p.c.Info().Queued+p.c.Info().Unacked > 0 {
		t.Errorf("%d more requests for a REVOKE, %d of it wait", on.n-n, p.c.Info().Queued)
	}
}
