package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestUnfinishedMessages: a peer with sixty lanes begins a long message on each
// and finishes none. Another peer's messages to the same socket all arrive, the
// long ones too, and what was begun gives its memory back.
func TestUnfinishedMessages(t *testing.T) {
	const overflow = 16 << 20
	w := newWorld(t, 2, Config{OverflowBytes: overflow})
	e := w.es[1]
	a, b := w.attach(0, smallParams()), w.attach(1, smallParams())
	from := a.bind(10)
	s := b.cl.socks[b.bind(20)]
	type begun struct {
		p     *peer
		token any
	}
	var taken []begun
	for lane := range lanePath(60) {
		p, err := e.peers.peer(e.addrs.all[0], nobody(1), lane, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, token, v := hostOf(p).Begin(nil, &wire.Header{DPort: 20, SPort: 10, Len: 1 << 20}); v == conn.Accepted {
			taken = append(taken, begun{p, token})
		} else if v != conn.Refused {
			t.Fatalf("lane %d: %v", lane, v)
		}
	}
	if n := len(taken); n == 0 || n > overflow/4>>20 {
		t.Errorf("%d messages of 1 MiB begun, at most a quarter of %d MiB", n, overflow>>20)
	}
	a.open(from, 0, 0, hostAddr(1), 20)
	const whole = 6
	for id := range uint32(whole) {
		a.sendMsg(from, 0, id, 300_000)
	}
	w.run()
	if s.rcvMsgs != whole {
		t.Errorf("%d of %d messages of another peer arrived", s.rcvMsgs, whole)
	}
	for _, x := range taken {
		hostOf(x.p).Abort(nil, x.token)
	}
	if n := e.peers.hosts[remoteKey{hostAddr(1), nobody(1)}].unfinished; n != 0 || b.cl.unfinished != 0 || e.rx.unfinished.N != 0 {
		t.Errorf("left: %d bytes of the peer, %d of the arena, %d messages", n, b.cl.unfinished, e.rx.unfinished.N)
	}
	a.alive(true)
	b.alive(true)
}

// A message that goes no further ends its connection, one that goes on slowly
// does not.
func TestStalledMessage(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.attach(0, smallParams()), w.attach(1, smallParams())
	from := a.bind(10)
	b.bind(20)
	a.open(from, 0, 0, hostAddr(1), 20)
	a.sendMsg(from, 0, 0, 10)
	w.run()
	e := w.es[1]
	p := e.peers.all[0]
	_, token, v := hostOf(p).Begin(nil, &wire.Header{DPort: 20, SPort: 10, Len: 100_000})
	if v != conn.Accepted {
		t.Fatal(v)
	}
	m := token.(*rxMsg)
	for range 5 { // something of it comes in each period
		e.now += unfinishedNs
		m.missing = 100_000 // the connection knows nothing of this message: none is missing
		e.rx.endStalled()
		if p.c.State() != conn.Up {
			t.Fatal("the connection of a slow message ended")
		}
	}
	e.now += unfinishedNs
	e.rx.endStalled()
	if why := p.c.Info().LastError; !errors.Is(why, errUnfinished) {
		t.Errorf("the connection of a message that does not go on: %v, %v", p.c.State(), why)
	}
	if e.rx.unfinished.N != 0 {
		t.Error("it is looked at again")
	}
	hostOf(p).Abort(nil, token)
}

// TestWholeWithoutRoom: whoever sent a message in fragments learns which socket
// took it, wherever the message waits: in the receiver's event ring, in its arena
// because the event ring is full, or in the daemon's memory. What waits keeps its
// order.
func TestWholeWithoutRoom(t *testing.T) {
	w := newWorld(t, 2, Config{})
	e := w.es[1]
	b := w.attach(1, smallParams())
	s := b.cl.socks[b.bind(20)]
	p, err := e.peers.peer(e.addrs.all[0], nobody(1), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(n uint32) (any, *wire.Header) {
		t.Helper()
		h := &wire.Header{DPort: 20, SPort: 10, Len: n}
		_, token, v := hostOf(p).Begin(nil, h)
		if v != conn.Accepted {
			t.Fatal(v)
		}
		return token, h
	}
	whole := func(name string, token any, h *wire.Header, over int) {
		t.Helper()
		if met := hostOf(p).Commit(nil, h, token); met != s.inc || met == 0 {
			t.Errorf("%s: taken by socket %d, want %d", name, met, s.inc)
		}
		if s.over.N != over {
			t.Errorf("%s: %d messages wait, want %d", name, s.over.N, over)
		}
	}
	token, h := begin(40_001)
	late, lateH := begin(40_002) // whole when the ring is full
	whole("room", token, h, 0)
	for b.cl.ev.Reserve() != nil { // statuses, say
	}
	whole("full ring", late, lateH, 1)
	token, h = begin(40_003)
	whole("behind it", token, h, 2)

	var got []uint32
	for range 3 {
		w.run()
		for _, ev := range b.events() {
			if shm.EvKind(ev.Kind()) == shm.EvData {
				got = append(got, ev.Event().Len)
			}
		}
	}
	if !slices.Equal(got, []uint32{40_001, 40_002, 40_003}) || s.over.N != 0 {
		t.Errorf("messages of %d bytes came, %d wait", got, s.over.N)
	}
	b.alive(true)
}
