package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// attachUser attaches a process of a user.
func (w *world) attachUser(host int, uid uint32, p shm.Params) *raw {
	w.t.Helper()
	r, err := w.attachAs(host, p, ipc.Cred{UID: uid, GID: uid})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// TestRotaShares: accounts share by bytes, whatever number of sockets and destinations one has and however large its
// messages are, and so do the sockets of one.
func TestRotaShares(t *testing.T) {
	const quantum, largest, rounds = 1000, 50_000, 60_000
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := rota{pool: &lists.Pool[taker]{}}
		var all []*slot
		got, of := map[*account]int{}, map[*socket]int{}
		for n := range 3 {
			a := &account{}
			for range 1 + n*n*10 {
				s := &socket{cl: &Client{acct: a}}
				for range 1 + rng.IntN(3) {
					sl := &slot{sock: s}
					all = append(all, sl)
					r.enter(sl)
				}
			}
		}
		for range rounds {
			sl := r.pick(quantum, nil, 0)
			if sl == nil {
				continue // more than maxPassed sockets have no credit
			}
			n := 1 + rng.IntN(largest)
			sl.spend(n)
			got[sl.sock.cl.acct] += n
			of[sl.sock] += n
		}
		for x, n := range got {
			for y, m := range got {
				if n-m > m/100 {
					t.Errorf("seed %d: account %p got %d bytes, %p %d", seed, x, n, y, m)
				}
			}
		}
		for x, n := range of {
			for y, m := range of {
				if x.cl.acct == y.cl.acct && n-m > m/100 {
					t.Errorf("seed %d: a socket got %d bytes, another one of its account %d", seed, n, m)
				}
			}
		}
		for _, sl := range all {
			sl.leaveRota()
			sl.leaveRota()
		}
		if r.n+r.pool.Out+len(r.byAcct)+len(r.bySock)+r.accounts.N > 0 || r.first() != nil {
			t.Errorf("seed %d: nobody takes turns, and something is left: %+v", seed, r)
		}
	}
}

// TestRotaAllocates: to begin and to end turns allocates nothing.
func TestRotaAllocates(t *testing.T) {
	r := rota{pool: &lists.Pool[taker]{}}
	var all []*slot
	for range 20 {
		a := &account{}
		for range 20 {
			all = append(all, &slot{sock: &socket{cl: &Client{acct: a}}})
		}
	}
	if n := testing.AllocsPerRun(1000, func() {
		for _, sl := range all {
			r.enter(sl)
		}
		for _, sl := range all {
			sl.leaveRota()
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRotas: a socket may take turns in several rotas, which it begins and ends in any order.
func TestRotas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	rotas := make([]rota, 3)
	var pool lists.Pool[taker]
	var all []*slot
	for range 3 {
		a := &account{}
		for range 3 {
			s := &socket{cl: &Client{acct: a}}
			for range 4 {
				all = append(all, &slot{sock: s})
			}
		}
	}
	in := map[*slot]*rota{}
	for i := range rotas {
		rotas[i].pool = &pool
	}
	for range 20_000 {
		sl := all[rng.IntN(len(all))]
		if in[sl] != nil {
			sl.leaveRota()
			delete(in, sl)
		} else {
			in[sl] = &rotas[rng.IntN(len(rotas))]
			in[sl].enter(sl)
		}
		n := 0
		for i := range rotas {
			r := &rotas[i]
			socks, accts := map[*socket]bool{}, map[*account]bool{}
			r.each(func(sl *slot) {
				if n++; in[sl] != r {
					t.Fatal("a destination takes turns where it does not")
				}
				socks[sl.sock], accts[sl.sock.cl.acct] = true, true
			})
			got := 0
			for a := r.accounts.Head; a != nil; a = a.Next {
				got += a.Of.socks.N
			}
			if got != len(socks) || r.accounts.N != len(accts) {
				t.Fatalf("%d sockets of %d accounts have turns, want %d of %d", got, r.accounts.N, len(socks), len(accts))
			}
		}
		if n != len(in) {
			t.Fatalf("%d destinations take turns, want %d", n, len(in))
		}
	}
	for _, sl := range all {
		sl.leaveRota()
	}
	if pool.Out != 0 {
		t.Errorf("%d records are left", pool.Out)
	}
}

// TestUsersTakeTurns: what a message waits for at a connection does not grow with the sockets, destinations and barrier
// cells of another user, nor with the destinations of another socket of its own user.
func TestUsersTakeTurns(t *testing.T) {
	const n, size, most = 400, 256 << 10, 4 << 20
	for _, c := range []struct {
		name    string
		sockets int
		uid     uint32
	}{{"another user, one socket", 1, 1001}, {"another user, many sockets", n, 1001}, {"the same user, one socket", 1, 1000}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 2, Config{})
			r, r2, to := w.attachUser(0, 1000, largeParams()), w.attachUser(0, c.uid, smallParams()), w.attach(1, smallParams())
			to.bind(21)
			s2 := r2.bind(9)
			r2.open(s2, 0, 0, hostAddr(1), 21)
			r2.sendMsg(s2, 0, 0, 1)
			w.run()
			to.read()
			socks := make([]uint32, c.sockets)
			for i := range socks {
				socks[i] = r.bind(uint16(100 + i))
			}
			for i := range uint32(n) {
				r.put(func(d *shm.Entry) {
					*d.SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: socks[i%uint32(c.sockets)], Slot: i, Cell: i, Port: uint16(1000 + i),
						Addr: hostAddr(1).As16(), Gen: 1, Flags: shm.DestAnybody}
				})
				r.sendMsg(socks[i%uint32(c.sockets)], i, i, size)
			}
			for !r.cl.sub.Empty() {
				w.es[0].tx.pollClient(r.cl)
			}
			p := w.es[0].peers.all[0]
			if p.waiting < n/2 {
				t.Fatalf("only %d messages wait", p.waiting)
			}
			before := p.c.Stats().SendBytes
			r2.sendMsg(s2, 0, 1, 1)
			for to.read() == 0 {
				if w.turnAll(); !w.net.Step() {
					t.Fatal("it never comes")
				}
			}
			if ahead := p.c.Stats().SendBytes - before; ahead > most {
				t.Errorf("%d bytes went first, %d at most", ahead, most)
			}
		})
	}
}

// TestUsersTakeTurnsHere: the same for copies on this host.
func TestUsersTakeTurnsHere(t *testing.T) {
	const n, size = 1000, 64 << 10
	w := newWorld(t, 1, Config{})
	r := w.attachUser(0, 1000, largeParams())
	a, b := opSideOf(r, 10), w.opSide(0, 20)
	g := b.expose(0, size, abi.RightWrite, a)
	x, y := w.opSideAs(0, 30, 1001), w.opSide(0, 40)
	yg := y.expose(0, 8, abi.RightWrite, x)
	x.open(x.sock, 0, 0, hostAddr(0), 40)
	for i := range uint32(n) {
		r.open(a.sock, i, i, hostAddr(0), 20)
		op := a.op(abi.OpWrite, g.Cookie, 0)
		op.Len, op.OpID = size, 1
		r.put(func(d *shm.Entry) { *d.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: a.sock, Slot: i, MsgID: i} })
		r.put(func(d *shm.Entry) { *d.SubOp() = op })
		for !r.cl.sub.Empty() {
			w.es[0].tx.pollClient(r.cl)
		}
	}
	before := w.es[0].st.C[stats.LocalRDMABytes]
	op := x.op(abi.OpWrite, yg.Cookie, 0)
	x.submit(shm.Sub{}, op)
	for x.statuses()[0] < 0 {
		w.turnAll()
	}
	if ahead := w.es[0].st.C[stats.LocalRDMABytes] - before; ahead > 2*copySlices*copySlice {
		t.Errorf("%d bytes were copied first, %d at most", ahead, 2*copySlices*copySlice)
	}
}

// TestPassedOver: a flush passes over a bounded number of an account's sockets whose operations have to wait, and the
// next one goes on behind them.
func TestPassedOver(t *testing.T) {
	const n = 3 * maxPassed
	w := newWorld(t, 2, Config{})
	r := w.attachUser(0, 1000, largeParams())
	a, b := opSideOf(r, 10), w.opSide(1, 20)
	g := b.expose(0, 64<<10, abi.RightRead, a)
	if err := b.exposeTo(g, 0, 0); err != nil {
		t.Fatal(err)
	}
	w.run()
	for i := range uint32(n) {
		s := r.bind(uint16(100 + i))
		r.open(s, i, i, hostAddr(1), 20)
		op := a.op(abi.OpRead, g.Cookie, 0)
		op.Len, op.OpID = 64<<10, 1
		r.put(func(d *shm.Entry) { *d.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: s, Slot: i, MsgID: i} })
		r.put(func(d *shm.Entry) { *d.SubOp() = op })
		for !r.cl.sub.Empty() {
			w.es[0].tx.pollClient(r.cl)
		}
	}
	w.es[0].tx.feed(w.es[0].peers.all[0])
	f := &w.es[0].peers.all[0].flows
	if f.n < 2*maxPassed {
		t.Fatalf("only %d destinations wait for their turn", f.n)
	}
	for range 2 * n / maxPassed {
		was := int(f.first().idx)
		if w.es[0].tx.feed(w.es[0].peers.all[0]) {
			t.Fatal("an operation went on that had to wait")
		}
		if passed := (int(f.first().idx) - was + f.n) % f.n; passed != maxPassed {
			t.Fatalf("a flush passed over %d sockets of %d, from %d, want %d", passed, f.n, was, maxPassed)
		}
	}
}
