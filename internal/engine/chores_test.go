package engine

import (
	"github.com/rdsd/rdsd/internal/chores"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/shm"
)

// endless has e do a chore that takes all of each turn's budget, until the function
// that it returns is called.
func (e *Engine) endless() (end func()) {
	left := true
	c := &chores.Chore{One: func() bool { return left }}
	e.chores.Begin(c)
	return func() { left = false }
}

// TestBesideChores: what is not a chore goes on however long the chores are.
func TestBesideChores(t *testing.T) {
	t.Run("a message is given up", func(t *testing.T) {
		w := newWorld(t, 1, Config{})
		a := w.opSide(0, 10)
		a.open(a.sock, 0, 0, nobody(1), 20)
		end := w.es[0].endless()
		a.submit(shm.Sub{Len: 4, GiveUp: 10})
		w.pass(20*ms, w.es...)
		if n := a.gaveUp(); n != 1 {
			t.Errorf("%d messages are given up, want 1", n)
		}
		end()
		w.clean(a.raw)
	})
	t.Run("a place is given", func(t *testing.T) {
		w := quotaWorld(t, 1, func(q *config.Quota) { q[config.Destinations] = 1 })
		a := w.as(1000)
		s := a.bind(10)
		a.open(s, 0, 0, nobody(1), 20)
		a.open(s, 1, 1, hostAddr(0), 10)
		a.sendMsg(s, 0, 0, 8)
		a.sendMsg(s, 1, 1, 8)
		w.pass(ms, w.es...)
		end := w.es[0].endless()
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: s, Slot: 0} })
		for range 4 {
			w.pass(ms, w.es...)
		}
		end()
		if got := a.read(); got != 1 {
			t.Errorf("%d messages arrived by the place that came free, want 1", got)
		}
		w.clean(a)
	})
	t.Run("a socket takes messages again", func(t *testing.T) {
		w := shareWorld(t)
		full, empty := w.reader(1000, 10), w.reader(1000, 11)
		x := w.writer(20, full, empty)
		for !full.socket().forMemory.On() {
			if x.send(0, 1, 300_000) == 0 {
				t.Fatal("is never refused")
			}
		}
		if x.send(1, 30, 300_000); !empty.socket().forMemory.On() {
			t.Fatal("the other socket is not refused")
		}
		empty.read()
		x.at.Close() // or it would be refused again
		w.run()
		end := w.es[0].endless()
		full.at.Close()
		for range 4 {
			w.pass(ms, w.es...)
		}
		if empty.socket().forMemory.On() {
			t.Error("the other socket still waits for memory")
		}
		end()
		w.clean(empty.raw)
	})
	t.Run("a message that does not go on ends its connection", func(t *testing.T) {
		w := newWorld(t, 2, Config{})
		a, b := w.attach(0, smallParams()), w.attach(1, smallParams())
		from := a.bind(10)
		b.bind(20)
		a.open(from, 0, 0, hostAddr(1), 20)
		a.sendMsg(from, 0, 0, 10)
		w.run()
		e := w.es[1]
		p := e.peers.all[0]
		if _, _, v := hostOf(p).Begin(nil, &wire.Header{DPort: 20, SPort: 10, Len: 1 << 20}); v != conn.Accepted {
			t.Fatalf("verdict %v", v)
		}
		end := e.endless()
		for n := range int64(2) { // nothing of it has come since the first look
			e.Turn(w.net.Now()+(n+1)*2*unfinishedNs, Wall(w.net.Now()))
		}
		if p.c.State() == conn.Up {
			t.Error("the connection is up")
		}
		end()
	})
}

// TestCancelsInTurns: a short cancel does not wait for a long one.
func TestCancelsInTurns(t *testing.T) {
	const msgs = 10_000
	long := func(w *world) (r *raw, s uint32) {
		p := smallParams()
		p.SubEntries, p.MaxMsgs = 1<<10, 1<<14
		r = w.attach(0, p)
		s = r.bind(10)
		r.open(s, 0, 0, nobody(1), 20)
		for i := range uint32(msgs) {
			r.sendMsg(s, 0, i, 10)
			if i%1000 == 999 {
				w.run()
			}
		}
		return r, s
	}
	short := func(w *world) (r *raw, s uint32) {
		r = w.attach(0, smallParams())
		s = r.bind(11)
		r.open(s, 0, 0, nobody(1), 20)
		r.sendMsg(s, 0, 0, 10)
		w.run()
		return r, s
	}
	w := newWorld(t, 1, Config{})
	a, s := long(w)
	b, q := short(w)
	e := w.es[0]
	e.chores.Renew()
	e.tx.cancel(a.cl.sock(s).slots.Head.Of)
	e.tx.cancel(b.cl.sock(q).slots.Head.Of)
	e.Turn(w.net.Now(), Wall(w.net.Now()))
	if n, left := b.cl.sock(q).txs.N, a.cl.sock(s).txs.N; n != 0 || left < msgs/2 {
		t.Errorf("%d of one message are left, %d of %d", n, left, msgs)
	}
	w.clean(a, b)
}
