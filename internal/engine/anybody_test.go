package engine

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// openAnybody leads slot to whichever socket is bound at port when a message arrives.
func (r *raw) openAnybody(sock, slot, cell uint32, to netip.Addr, port uint16) {
	r.w.t.Helper()
	r.put(func(e *shm.Entry) {
		*e.SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: sock, Slot: slot, Cell: cell, Port: port, Flags: shm.DestAnybody, Addr: to.As16(), Gen: 1}
	})
}

// anyPair is opPair with a destination that leads to anybody.
func anyPair(t *testing.T, hosts int, cfg Config) (w *world, a, b *opSide) {
	w = newWorld(t, hosts, cfg)
	a, b = w.opSide(0, 10), w.opSide(hosts-1, 20)
	a.openAnybody(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
	return w, a, b
}

// lens are the lengths of the messages that came to s, in order.
func (s *opSide) lens() (all []uint32) {
	s.look()
	for _, m := range s.msgs {
		all = append(all, m.Len)
	}
	return all
}

// TestAnybody: what is on its way to a port goes to whichever socket is bound when it arrives, however
// often the port is bound anew. What finds nobody comes back, and is no tie either. Nobody is asked
// who has accepted a message.
func TestAnybody(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := anyPair(t, hosts, Config{})
		a.submit(shm.Sub{Len: 1})
		w.run()
		sides := []*raw{a.raw, b.raw}
		sent := 1
		for range 8 {
			for n := range uint32(3) {
				a.submit(shm.Sub{Len: 10 + n})
			}
			a.submit(shm.Sub{Len: 40_000})
			sent += 4
			b = w.successor(b)
			sides = append(sides, b.raw)
			w.run()
			if got := b.lens(); !slices.Equal(got, []uint32{10, 11, 12, 40_000}) || a.noSocket() != 0 {
				t.Fatalf("%d hosts: lengths %d came to the next owner, %d told", hosts, got, a.noSocket())
			}
		}
		b.must(&ipc.CloseSock{Sock: b.sock})
		a.submit(shm.Sub{Len: 2})
		a.submit(shm.Sub{Len: 3})
		w.run()
		x := w.opSide(hosts-1, b.port)
		a.submit(shm.Sub{Len: 1})
		w.run()
		sides = append(sides, x.raw)
		a.submit(shm.Sub{Len: 4})
		a.submit(shm.Sub{Len: 5})
		x = w.successor(x)
		sides = append(sides, x.raw)
		w.run()
		if got := x.lens(); !slices.Equal(got, []uint32{4, 5}) || a.noSocket() != 2 || len(a.back) != sent+5 {
			t.Errorf("%d hosts: lengths %d came, %d told, %d of %d ids back", hosts, got, a.noSocket(), len(a.back), sent+5)
		}
		if hosts == 2 { // but for the NOSOCKs of two
			if n := b.e.peers.all[0].c.Stats().SendMsgs; n != 2 {
				t.Errorf("the receiving daemon has sent %d messages", n)
			}
		}
		w.clean(sides...)
	}
}

// TestAnybodyAtOnce: no message waits for the answer to another, and none comes twice over broken
// connections and restarts of the peer.
func TestAnybodyAtOnce(t *testing.T) {
	w, a, b := anyPair(t, 2, Config{})
	var got []uint32
	for i := range uint32(4) {
		for n := range uint32(5) {
			a.submit(shm.Sub{Len: 5*i + n})
		}
		w.turnAll()
		if sl := a.cl.slots[0]; sl.asks != nil || sl.q.N != 0 {
			t.Errorf("%d messages wait for an answer", sl.q.N)
		}
		for range 3 * i {
			w.net.Step()
			w.turnAll()
		}
		a.e.peers.all[0].c.Reset(w.net.Now(), errAdmin)
		b.look() // what a socket has not read is lost with it
		x := w.successor(b)
		w.run()
		got = append(got, b.lens()...)
		b = x
	}
	got = append(got, b.lens()...)
	slices.Sort(got)
	if n := len(got); n != len(slices.Compact(got)) || n+int(a.noSocket()) != 20 || len(a.back) != 20 {
		t.Errorf("%d came, %d told, %d ids back", n, a.noSocket(), len(a.back))
	}
	a.e.peers.all[0].c.Reset(w.net.Now(), errAdmin)
	b.e.Shutdown()
	w.pass(20*ms, a.e)
	w.es[1] = w.boot(1, 99, Config{})
	y := w.opSide(1, 20)
	told := a.noSocket()
	a.submit(shm.Sub{Len: 2})
	for range 20 {
		w.run()
	}
	sides := []*raw{a.raw, y.raw}
	for range 3 { // the pin is not renewed to one that meets
		a.submit(shm.Sub{Len: 3})
		a.submit(shm.Sub{Len: 4})
		y = w.successor(y)
		sides = append(sides, y.raw)
		w.run()
		if n := y.lens(); !slices.Equal(n, []uint32{3, 4}) || a.noSocket() != told {
			t.Errorf("after the restart lengths %d came, %d told", n, a.noSocket()-told)
		}
	}
	w.clean(sides...)
}

// TestAnybodyRefused: what a full socket has refused, and the messages behind it, go to the next one at its port.
func TestAnybodyRefused(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := anyPair(t, hosts, Config{HardCap: 1})
		b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
		for n := range uint32(5) {
			a.submit(shm.Sub{Len: 2000 + n})
		}
		w.run()
		first := b.lens()
		if len(first) == 0 || len(first) == 5 {
			t.Fatalf("%d hosts: %d came to a socket with room for one", hosts, len(first))
		}
		x := w.successor(b)
		for range 5 {
			w.run()
		}
		if got := append(first, x.lens()...); !slices.Equal(got, []uint32{2000, 2001, 2002, 2003, 2004}) || a.noSocket() != 0 {
			t.Errorf("%d hosts: lengths %d came, %d told", hosts, got, a.noSocket())
		}
		w.clean(a.raw, b.raw, x.raw)
	}
}

// TestAnybodyInPieces: a message of which a part has arrived when its socket is closed goes to the next one, in its order.
func TestAnybodyInPieces(t *testing.T) {
	w, a, b := anyPair(t, 2, Config{})
	a.submit(shm.Sub{})
	w.run()
	a.submit(shm.Sub{Len: 400_000})
	a.submit(shm.Sub{Len: 1})
	for n := 0; b.cl.socks[b.sock].partials.N == 0; n++ {
		if n > 10_000 {
			t.Fatal("it never arrives")
		}
		w.turnAll()
		if !w.net.Step() {
			w.net.At(w.net.Now()+ms/100, func() {})
		}
	}
	x := w.successor(b)
	for range 5 {
		w.run()
	}
	if got := x.lens(); !slices.Equal(got, []uint32{400_000, 1}) || a.noSocket() != 0 {
		t.Errorf("lengths %d came, %d told", got, a.noSocket())
	}
	w.clean(a.raw, b.raw, x.raw)
}

// TestAnybodyNamed: a message that names a socket, or whose operation is on memory of a socket at its
// port, is for that one alone.
func TestAnybodyNamed(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := anyPair(t, hosts, Config{})
		r := b.expose(0, 64, abi.RightWrite, a)
		w.run()
		inc := b.cl.socks[b.sock].inc
		a.submit(shm.Sub{Len: 1, DstInc: inc})
		a.submit(shm.Sub{Len: 2}, a.op(abi.OpWrite, r.Cookie, 0))
		w.run()
		if got := b.lens(); !slices.Equal(got, []uint32{1, 2}) {
			t.Errorf("%d hosts: lengths %d came", hosts, got)
		}
		a.submit(shm.Sub{Len: 3}, a.op(abi.OpWrite, r.Cookie, 0))
		a.submit(shm.Sub{Len: 4, DstInc: inc})
		a.submit(shm.Sub{Len: 5, Flags: shm.SubNotify})
		x := w.successor(b)
		w.run()
		want := abi.StatusDropped
		if hosts == 1 { // the key has ended before the operation begins
			want = abi.StatusRemoteError
		}
		st := a.statuses()
		if got := x.lens(); !slices.Equal(got, []uint32{5}) || a.noSocket() == 0 || st[0] != int(abi.StatusSuccess) || st[1] != int(want) {
			t.Errorf("%d hosts: lengths %d came, %d told, statuses %d", hosts, got, a.noSocket(), st)
		}
		for _, s := range a.told {
			if s.OpID == 0 && s.Status != abi.StatusSuccess {
				t.Errorf("%d hosts: the message has %+v", hosts, s)
			}
		}
		w.clean(a.raw, b.raw, x.raw)
	}
}

// TestAnybodyCancelled: messages of such a destination are withdrawn and end at their limit as others.
func TestAnybodyCancelled(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := anyPair(t, hosts, Config{HardCap: 1})
		b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
		a.submit(shm.Sub{Len: 2000})
		a.submit(shm.Sub{Len: 2001, GiveUp: 10})
		a.submit(shm.Sub{Len: 2002})
		w.run()
		for range 5 {
			w.wait(10 * ms)
		}
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock, Slot: 0} })
		w.run()
		x := w.successor(b)
		a.submit(shm.Sub{Len: 1})
		w.run()
		if got := x.lens(); !slices.Equal(got, []uint32{1}) || a.noSocket() != 0 || len(a.back) != 4 {
			t.Errorf("%d hosts: lengths %d came, %d ids back", hosts, got, len(a.back))
		}
		w.clean(a.raw, b.raw, x.raw)
	}
}

// TestAnybodyOlder: a daemon that did not know such destinations has had one meet a socket, and the
// daemon after it has it lead to anybody again.
func TestAnybodyOlder(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.opSide(0, 10), w.opSide(0, 20)
	a.openAnybody(a.sock, 0, 0, hostAddr(0), b.port)
	w.run()
	w.still(0)
	e := w.es[0]
	*a.cl.slots[0].pin = pin{life: anybody, inc: b.cl.socks[b.sock].inc, gone: true, told: true, at: 3}
	h := &handedOver{world: w, all: []*opSide{a, b}}
	heirs, state := h.stateOf(e)
	e = h.next()
	if err := heirs.Adopt(e, state); err != nil {
		t.Fatal(err)
	}
	w.es[0] = e
	for _, s := range h.all {
		s.e, s.cl = e, s.at.cl
	}
	e.Resume()
	a.submit(shm.Sub{Len: 1})
	w.run()
	x := w.successor(b)
	a.submit(shm.Sub{Len: 2})
	w.run()
	if got := append(b.lens(), x.lens()...); !slices.Equal(got, []uint32{1, 2}) || a.noSocket() != 0 {
		t.Errorf("lengths %d came, %d told", got, a.noSocket())
	}
	w.clean(a.raw, b.raw, x.raw)
}
