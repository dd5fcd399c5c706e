package engine

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// TestLongIsTheUse: an operation in pieces is the one use of a region from its first piece on.
// At every point of its life a message of another socket, in another lane, tries to use the
// region as well, sometimes behind something that ends the operation or disturbs it. Only one of
// the two is delivered, and the region does not change from then on.
func TestLongIsTheUse(t *testing.T) {
	for name, amid := range map[string]func(*longRun){
		"alone": func(*longRun) {},
		"reset": (*longRun).reset,
		"withdrawn": func(x *longRun) {
			x.a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: x.a.sock} })
			x.step()
		},
		"time is up": func(x *longRun) {
			for _, m := range x.a.cl.msgs {
				if m != nil && m.nops > 0 {
					m.slot.way.end(m, msg.Withdrawn)
				}
			}
		},
		"paused":                 func(x *longRun) { x.pause(0, false) },
		"replaced":               func(x *longRun) { x.pause(0, true) },
		"the target is replaced": func(x *longRun) { x.pause(1, true) },
	} {
		for _, hosts := range []int{2, 1} {
			for _, two := range []bool{false, true} {
				if hosts == 2 || name == "alone" || name == "withdrawn" {
					t.Run(fmt.Sprintf("%s, %d hosts, two operations %v", name, hosts, two), func(t *testing.T) { longIsTheUse(t, name, hosts, two, amid) })
				}
			}
		}
	}
}

func longIsTheUse(t *testing.T, name string, hosts int, two bool, amid func(*longRun)) {
	saw := map[abi.Status]int{}
	for turns, over := 0, false; !over && !t.Failed(); turns++ {
		x := newLongOnce(t, hosts, 3)
		x.submitLong(two)
		for range turns {
			x.step()
		}
		x.a.look()
		over = len(x.a.back) == 2
		op := x.a.cl.msgs[1]
		began := over || op != nil && op.opv[0].State() > rdmaop.StateQueued
		amid(x)
		x.other.submit(shm.Sub{Len: 3}, x.other.op(abi.OpWrite, x.r.Cookie, 0))
		var delivered []byte
		for range 300 {
			x.step()
			if got := x.lens(); got[len(got)-1] > 1 && delivered == nil {
				delivered = bytes.Clone(x.b.mem)
			}
		}
		x.w.run()
		long, short := x.a.statuses()[0], x.other.statuses()[0]
		uses := slices.DeleteFunc(x.lens(), func(n uint32) bool { return n == 1 })
		switch {
		case long < 0, short < 0, len(uses) > 1, x.other.hwm() != 1, x.a.hwm() != x.a.opID:
			t.Errorf("after %d turns: statuses %d and %d, marks %d and %d, %d messages used the region", turns, long, short, x.a.hwm(), x.other.hwm(), len(uses))
		case delivered != nil && !bytes.Equal(delivered, x.b.mem):
			t.Errorf("after %d turns: the region changed after message %d was delivered", turns, uses[0])
		case began && short != int(abi.StatusRemoteError), short == int(abi.StatusRemoteError) && x.other.told[0].Errno != uint32(unix.EINVAL):
			t.Errorf("after %d turns: the second use: status %d, errno %d", turns, short, x.other.told[0].Errno)
		}
		saw[abi.Status(long)]++
	}
	if saw[abi.StatusSuccess] == 0 || len(saw) == 1 && name != "alone" {
		t.Errorf("statuses %v", saw)
	}
}

// TestUseEndsAtTarget: a region for one use does not change any more once its one message was
// delivered, although the initiator's daemon, as one of an earlier version, has not kept the key to the
// operation in pieces that it has begun.
func TestUseEndsAtTarget(t *testing.T) {
	delivered := 0
	for turns := range 20 {
		x := newLongOnce(t, 2, 12)
		x.submitLong(false)
		for range turns {
			x.step()
		}
		x.forgetsUse()
		x.other.submit(shm.Sub{Len: 3}, x.other.op(abi.OpWrite, x.r.Cookie, 0))
		var mem []byte
		for range 400 {
			x.step()
			if got := x.lens(); got[len(got)-1] > 1 && mem == nil {
				mem = bytes.Clone(x.b.mem)
				delivered++
			}
		}
		x.w.run()
		if mem != nil && !bytes.Equal(mem, x.b.mem) {
			t.Errorf("after %d turns: the region changed after a message was delivered", turns)
		}
	}
	if delivered < 10 {
		t.Errorf("in %d of 20 cases a message was delivered", delivered)
	}
}

// forgetsUse has the initiator's daemon take the key for one that nobody uses.
func (x *longRun) forgetsUse() {
	x.Helper()
	g := x.w.es[0].peers.all[0].grants
	g.Clear()
	r := x.w.es[1].keys.by[uint32(x.r.Cookie)]
	for _, port := range []uint16{x.a.port, x.other.port} {
		if err := g.Add(rdmaop.Grant{Cookie: x.r.Cookie, Len: r.n, Rights: r.rights, Port: port, Owner: rdmaop.Owner{Port: x.b.port}, Region: r.number}); err != nil {
			x.Fatal(err)
		}
	}
}

// newLongOnce exposes memory of b, of more than so many pieces, for one use to a and to another
// socket of its host.
func newLongOnce(t *testing.T, hosts, pieces int) *longRun {
	t.Helper()
	w := newWorld(t, hosts, oncePieces)
	x := &longRun{T: t, w: w, a: w.opSide(0, 10), b: w.opSide(hosts-1, 20), other: w.opSide(0, 11)}
	n := uint64(pieces*oncePieces.MaxPiece + 1000)
	if hosts == 1 { // several turns' work
		n = longLen
	}
	if n > uint64(len(x.a.mem)) {
		for _, s := range []*opSide{x.a, x.b} {
			s.buf = s.must(&ipc.Alloc{Size: n + 64}).(*ipc.AllocOK).Buffer
			s.mem = s.cl.buffers[s.buf].mem
		}
	}
	for i := range x.a.mem {
		x.a.mem[i] = byte(i*7 + i>>13)
	}
	addr := x.b.e.addrs.all[0].addr
	x.a.open(x.a.sock, 0, 0, addr, x.b.port)
	x.other.openLane(x.other.sock, 0, addr, x.b.port, 5)
	x.r = x.b.expose(0, n+8-n%8, abi.RightWrite|abi.RightAtomic|abi.UseOnce, x.a)
	x.b.must(&ipc.Expose{Region: x.r.Region, Addr: hostAddr(0), Port: x.other.port})
	x.op = x.a.op(abi.OpWrite, x.r.Cookie, 0)
	x.op.Len = n
	x.a.submit(shm.Sub{Len: 1})
	x.other.submit(shm.Sub{Len: 1})
	w.run()
	return x
}

var oncePieces = Config{MaxPiece: 4096}

// submitLong sends the operation, or it and an atomic behind it.
func (x *longRun) submitLong(two bool) {
	ops := []shm.SubOp{x.op}
	if two {
		n := x.op.Len
		add := x.a.op(abi.OpFetchAdd, x.r.Cookie, n-n%8)
		add.Off = uint64(len(x.a.mem) - 8)
		ops = append(ops, x.a.args(add, shm.AtomicEntry{CompareAdd: 1}))
	}
	x.a.submit(shm.Sub{Len: 2}, ops...)
}

// step has each engine do a turn, and the next event happen.
func (x *longRun) step() {
	for _, e := range x.w.es {
		e.Turn(x.w.net.Now(), Wall(x.w.net.Now()))
	}
	x.w.net.Step()
}

// pause has the engine of a host stand still, and it or another one go on.
func (x *longRun) pause(host int, replaced bool) {
	x.Helper()
	var sides []*opSide
	if replaced {
		if sides = []*opSide{x.a, x.other}; host == 1 {
			sides = []*opSide{x.b}
		}
	}
	x.pauseFor(host, oncePieces, sides...)
}

// pauseFor is pause, in which another engine takes the place of that of these sides, if there
// are any.
func (x *longRun) pauseFor(host int, cfg Config, sides ...*opSide) {
	x.Helper()
	e := x.w.es[host]
	e.Halt()
	for n := 0; !e.Halted(); n++ {
		if x.w.pass(ms/4, x.w.es...); n > 10_000 {
			x.Fatal("never stands still")
		}
	}
	if len(sides) > 0 {
		x.w.follow(host, func(d verbs.Device) verbs.Device { return d }, cfg, sides...)
	}
	x.w.es[host].Resume()
}
