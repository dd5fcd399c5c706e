package engine

import (
	"fmt"
	"github.com/rdsd/rdsd/internal/chores"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestReleasedTakeTurns: operations that have waited for a port, or for several, take turns with
// others when it has room. As many bytes of them are under way as of any, and an operation of
// another socket waits for those only.
func TestReleasedTakeTurns(t *testing.T) {
	for name, size := range map[string]uint64{"short": 64 << 10, "long": 8 << 20} {
		for _, refused := range []bool{false, true} {
			for _, replaced := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, submitted after the port refused %v, replaced %v", name, refused, replaced), func(t *testing.T) {
					releasedTakeTurns(t, size, refused, replaced)
				})
			}
		}
	}
}

func releasedTakeTurns(t *testing.T, size uint64, refused, replaced bool) {
	const senders = 4
	total := uint64(16 << 20)
	cfg := Config{HardCap: 1}
	w := newWorld(t, 2, cfg)
	b, c := w.opSide(1, 20), w.opSide(1, 21)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
	b.buf = b.must(&ipc.Alloc{Size: size}).(*ipc.AllocOK).Buffer
	other := w.opSide(0, 9)
	other.open(other.sock, 0, 0, hostAddr(1), c.port)
	small := c.expose(0, 8, abi.RightWrite, other)
	sides := []*opSide{other}
	raws := []*raw{b.raw, c.raw, other.raw}
	var ops []shm.SubOp
	for i := range uint16(senders) {
		a := w.opSide(0, 10+i)
		a.buf = a.must(&ipc.Alloc{Size: size}).(*ipc.AllocOK).Buffer
		a.open(a.sock, 0, 0, hostAddr(1), b.port)
		r := b.expose(0, size, abi.RightWrite, a)
		op := a.op(abi.OpWrite, r.Cookie, 0)
		op.Len = size
		sides, raws, ops = append(sides, a), append(raws, a.raw), append(ops, op)
	}
	sides[1].submit(shm.Sub{Len: 900})
	sides[1].submit(shm.Sub{Len: 800}) // is refused
	other.submit(shm.Sub{Len: 1})
	if refused {
		w.settle()
	}
	for i, a := range sides[1:] {
		for range total / senders / size {
			a.submit(shm.Sub{Len: 1}, ops[i])
		}
		if total/senders < size {
			a.submit(shm.Sub{Len: 1}, ops[i])
		}
	}
	w.settle()
	if replaced {
		x := &longRun{T: t, w: w}
		x.pauseFor(0, cfg, sides...)
		w.settle()
	}
	p := w.es[0].peers.all[0]
	if n := p.c.OpsUnderWay(); n != 0 || !p.c.Stopped(b.port) {
		t.Fatalf("%d bytes are under way to a port that refuses", n)
	}
	b.datagrams()
	moved := p.c.Stats().SendRDMABytes
	other.submit(shm.Sub{Len: 2}, other.op(abi.OpWrite, small.Cookie, 0))
	most, ahead := uint64(0), -1
	for n := 0; ; n++ {
		for _, e := range w.es {
			e.Turn(w.net.Now(), Wall(w.net.Now()))
			most = max(most, p.c.OpsUnderWay())
		}
		w.net.Step()
		b.datagrams()
		done := 0
		for _, a := range sides[1:] {
			done += len(slices.DeleteFunc(a.statuses(), func(s int) bool { return s < 0 }))
		}
		if other.statuses()[0] == 0 && ahead < 0 {
			ahead = int((p.c.Stats().SendRDMABytes - moved) >> 20)
		}
		if done == len(sides[1:])*int(sides[1].opID) && ahead >= 0 {
			break
		}
		if n > 200_000 {
			t.Fatalf("%d operations are done, that of the other socket behind %d MiB", done, ahead)
		}
	}
	if most > opsWindow+max(64<<10, min(size, uint64(abi.MaxRDMA))) || ahead > 4 {
		t.Errorf("%d bytes were under way, the other socket waited for %d MiB", most, ahead)
	}
	w.clean(raws...)
}

// TestTakenBack: operations and pieces that the connection has not posted when their port stops
// wait in their destinations again, in order, and are done once when the port has room.
func TestTakenBack(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		w := newWorld(t, 2, Config{HardCap: 1, MaxPiece: 64})
		b := w.opSide(1, 20)
		b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
		for i := range b.mem {
			b.mem[i] = byte(i*7 + i>>8)
		}
		sides, raws := []*opSide{}, []*raw{b.raw}
		const senders, size = 8, 1000
		for i := range uint16(senders) {
			a := w.opSide(0, 10+i)
			a.open(a.sock, 0, 0, hostAddr(1), b.port)
			sides, raws = append(sides, a), append(raws, a.raw)
		}
		r := b.must(&ipc.Register{Sock: b.sock, Buffer: b.buf, Off: 0, Len: size, Access: abi.RightRead}).(*ipc.RegisterOK)
		b.must(&ipc.Expose{Region: r.Region, Addr: hostAddr(0)})
		for _, a := range sides {
			a.submit(shm.Sub{Len: 1})
		}
		w.settle()
		b.all()
		sides[0].submit(shm.Sub{Len: 900})
		w.settle()
		for i, a := range sides {
			n := uint32(800)
			for k := range uint32(12) {
				op := a.op(abi.OpRead, r.Cookie, 0)
				if op.Len = 40; k == 5 {
					op.Len = size
				}
				a.submit(shm.Sub{Len: n + k}, op)
				n = uint32(10 * (i + 1))
			}
		}
		p := w.es[0].peers.all[0]
		for x := (&longRun{T: t, w: w}); !p.c.Stopped(b.port); x.step() {
		}
		if n := p.c.Queued(); n != 0 || p.waiting == 0 {
			t.Errorf("the connection has %d bytes of work for a stopped port, %d messages wait", n, p.waiting)
		}
		want := abi.StatusSuccess
		if withdrawn {
			want = abi.StatusCanceled
			for _, a := range sides {
				a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock} })
			}
		}
		got := map[uint16][]uint32{}
		for range 100 {
			w.run()
			b.look()
			for _, m := range b.msgs {
				got[m.SrcPort] = append(got[m.SrcPort], m.Len)
				b.gaveBack(m.RxID)
			}
			b.msgs = nil
			w.pass(ms, w.es...)
		}
		for i, a := range sides {
			for k, st := range a.statuses() {
				if st != int(want) && st != 0 {
					t.Errorf("withdrawn %v: operation %d of socket %d: status %d", withdrawn, k, i, st)
				}
			}
			if a.hwm() != a.opID || !withdrawn && (len(got[a.port]) != 12+int(b2u(i == 0)) || string(a.mem[:size]) != string(b.mem[:size])) {
				t.Errorf("withdrawn %v: socket %d: mark %d, messages %v", withdrawn, i, a.hwm(), got[a.port])
			}
			if l := got[a.port]; !slices.IsSorted(l[min(len(l), 2):]) {
				t.Errorf("withdrawn %v: socket %d: messages %v", withdrawn, i, l)
			}
		}
		if n := p.c.OpsUnderWay(); n != 0 || p.paused.N+p.flows.n > 0 {
			t.Errorf("withdrawn %v: %d bytes are under way", withdrawn, n)
		}
		w.clean(raws...)
	}
}

// TestReleaseLooksInParts: a port that is released has the engine look at all destinations that
// wait, because they may wait for this one, and not at more in a turn than chores may.
func TestReleaseLooksInParts(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.opSide(0, 10), w.opSide(1, 20)
	a.open(a.sock, 0, 0, hostAddr(1), b.port)
	a.submit(shm.Sub{Len: 1})
	w.settle()
	e := w.es[0]
	p := e.peers.all[0]
	const n = 10 * chores.Budget
	slots := make([]slot, n)
	for i := range slots {
		sl := &slots[i]
		sl.way, sl.asks = p, &txMsg{}
		p.paused.Add(&sl.paused, sl)
	}
	p.released--
	before := e.chores.All
	e.tx.lookReleased(p)
	if looked := e.chores.All - before; looked > chores.Budget+chores.Slice || p.paused.Left() == 0 {
		t.Errorf("looked at %d of %d destinations in a turn", looked, n)
	}
	for range n {
		w.pass(ms, e)
	}
	if p.paused.Left() != 0 || e.chores.Open() > 0 {
		t.Errorf("%d destinations are not looked at", p.paused.Left())
	}
	for i := range slots {
		p.paused.Del(&slots[i].paused)
	}
	b.all()
	w.clean(a.raw, b.raw)
}
