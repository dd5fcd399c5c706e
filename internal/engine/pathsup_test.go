package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// A destination that moves to a new path after the end of its connection is notified when the path is up. A destination
// that was opened at the new path before its first time up is not.
func TestPathsUpOnlyToMoved(t *testing.T) {
	w, c, sock := pathPair(t, 8, 4) // port 100: path 0
	c[0].sendMsg(sock[0][1], 1, 1, 8)
	w.run()
	_ = w.es[1].devices.rails[0].dev.Close()
	w.pass(100_000_000, w.es[0])
	c[0].sendMsg(sock[0][1], 1, 8, 8)
	w.es[1] = w.boot(1, 77, Config{Paths: 8}) // port 100: path 4
	c[1] = w.attach(1, smallParams())
	for n := range sock[1] {
		c[1].bind(uint16(100 + n))
	}
	opened := false
	for n := 0; n < 1_000_000 && !opened; n++ {
		w.turnAll()
		if p := w.pathConn(4); p != nil && p.slots.N > 0 && !p.isUp {
			c[0].open(sock[0][0], 20, 20, hostAddr(1), 20)
			w.turnAll()
			opened = w.es[0].clients.all[0].slots[20].way == p && !p.isUp
			break
		}
		if !w.net.Step() {
			w.net.At(w.net.Now()+1_000_000, func() {})
		}
	}
	if !opened {
		t.Fatal("no destination was opened at path 4 before that was up")
	}
	c[0].sendMsg(sock[0][0], 0, 30, 8)
	ups := map[uint32]uint32{}
	for range 3 {
		for _, ev := range c[0].events() {
			if n := ev.Notice(); n.Kind == shm.EvNotice && n.Notice == shm.NoticePeerUp {
				ups[n.Slot] += uint32(n.Count)
			}
		}
		w.wait(1_000_000_000)
	}
	if ups[0] != 1 || ups[20] != 0 {
		t.Errorf("the destination that was there before is notified of %d times up, and the new one of %d, want 1 and 0", ups[0], ups[20])
	}
}

// A socket that has its turn with several destinations moves on with all of them, while its former connection may take more.
func TestPathsTurnMoves(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	w.meet(c, sock)
	const n = 5 // port 105: path 1 of 4, path 0 of 3, which ends what it has ahead of path 1
	c[0].open(sock[0][n], 20, n, hostAddr(1), 102)
	c[0].sendMsg(sock[0][n], 20, 250, 1) // it has met its socket
	w.run()
	c[1].read()
	_ = w.es[1].devices.rails[0].dev.Close()
	w.pass(100_000_000, w.es[0])
	p := w.pathConn(1)
	const sent = 9
	for id := range uint32(sent) { // those of port 101, in the same path, are more than the connection takes ahead
		from, slot := sock[0][1], uint32(1)
		if id >= 5 {
			from, slot = sock[0][n], n+15*(id%2)
		}
		c[0].sendMsg(from, slot, 20+id, 60_000)
	}
	w.pass(1_000_000, w.es[0])
	if a := p.flows.accounts; a.N != 1 || a.Head.Of.socks.N != 2 || p.flows.n != 3 {
		t.Fatalf("%d accounts take turns, with %d destinations, want one with three of two sockets", a.N, p.flows.n)
	}
	w.es[1] = w.boot(1, 77, Config{Paths: 3, RecvBufs: 4096})
	c[1] = w.attach(1, smallParams())
	for port := range uint16(pathSocks) {
		c[1].bind(100 + port)
	}
	got := 0
	for n := 0; n < 100 && got < sent; n++ {
		w.pass(20_000_000, w.es...)
		got += c[1].read()
	}
	if got != sent || p.flows.n > 0 {
		t.Errorf("%d messages arrived of %d", got, sent)
	}
}
