package engine

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// attack is something no correct client does, over its shared memory or its
// control calls. Those that need a process of their own are in
// attack_process_test.go, those on their own scale in attack_*_test.go.
type attack struct {
	name string
	do   func(*attacker)
	end  string // its session ends with this in the reason; "": it does not end
}

// attacker is a hostile client of an ordinary user: a socket, a buffer, slot 0
// open to a socket of another host.
type attacker struct {
	*opSide
	mem8   []byte // its segment
	far    *opSide
	victim *opSide // the other client of its host
	theirs *ipc.RegisterOK
	open0  shm.SubDest
}

// Indices in the segment, in lines of 128 bytes.
const (
	lineDaemonAsleep = iota + 1
	lineClientAsleep
	lineSubTail
	lineSubHead
	lineEventTail
	lineEventHead
	lineSendRetTail
	lineSendRetHead
	lineRecvRetTail
	lineRecvRetHead
)

// word is an index of the segment.
func (a *attacker) word(line int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&a.mem8[line*128]))
}

// put publishes descriptors.
func (a *attacker) post(entries ...any) {
	for _, x := range entries {
		a.put(func(e *shm.Entry) {
			switch x := x.(type) {
			case shm.Sub:
				*e.Sub() = x
			case shm.SubOp:
				*e.SubOp() = x
			case shm.SubDest:
				*e.SubDest() = x
			}
		})
	}
	a.poke()
}

func (a *attacker) poke() { a.at.RingDaemon() }

// sub is a good message, for the attack to spoil.
func (a *attacker) sub(edit func(*shm.Sub)) shm.Sub {
	s := shm.Sub{Kind: shm.KindSend, Sock: a.sock, MsgID: a.nextID, Len: 64}
	a.nextID++
	edit(&s)
	return s
}

// dest is a good destination in slot 1.
func (a *attacker) dest(edit func(*shm.SubDest)) shm.SubDest {
	d := a.open0
	d.Slot = 1
	edit(&d)
	return d
}

// refused makes a control call that must fail with errno.
func (a *attacker) refused(req ipc.Request, errno unix.Errno) {
	a.w.t.Helper()
	if _, err := a.call(req); err != errno && !strings.Contains(fmt.Sprint(err), errno.Error()) {
		a.w.t.Errorf("%T %+v: %v, want %v", req, req, err, errno)
	}
}

// status submits operations, which must end with this status and errno.
func (a *attacker) status(want abi.Status, errno unix.Errno, ops ...shm.SubOp) {
	a.w.t.Helper()
	a.look()
	from := len(a.told)
	a.submit(shm.Sub{}, ops...)
	a.w.run()
	if a.look(); len(a.told) != from+len(ops) {
		a.w.t.Fatalf("%d statuses of %d operations", len(a.told)-from, len(ops))
	}
	for _, st := range a.told[from:] {
		if st.Status != want && st.Status != abi.StatusDropped || st.Status == want && unix.Errno(st.Errno) != errno {
			a.w.t.Errorf("status %d, %v; want %d, %v", st.Status, unix.Errno(st.Errno), want, errno)
		}
	}
}

// opWith is an operation on a key of the attacker's own making.
func (a *attacker) opWith(kind abi.OpKind, cookie uint64, edit func(*shm.SubOp)) shm.SubOp {
	o := a.args(a.op(kind, cookie, 0), shm.AtomicEntry{CompareAdd: 1})
	edit(&o)
	return o
}

func none[T any](*T) {}

const (
	evilSockets, evilDests, evilOps = 40, 30, 20
	evilBytes                       = 1 << 20
)

// TestAttacks does each attack on a daemon of its own, beside another client
// with traffic of its own. Expected is the attacker's end; that nobody else
// notices; and that nothing is left of it.
func TestAttacks(t *testing.T) {
	all := slices.Concat(ringAttacks(), descriptorAttacks(), runAttacks(), opAttacks(), controlAttacks(), floodAttacks())
	t.Logf("%d attacks", len(all))
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) {
			q := config.NoQuota()
			q[config.Sockets], q[config.Destinations], q[config.Operations], q[config.RegisteredBytes] = evilSockets, evilDests, evilOps, evilBytes
			w := newWorld(t, 2, Config{HardCap: 256 << 10, OverflowBytes: 4 << 20,
				Policy: &config.Policy{Quotas: config.Quotas{User: q}, Owner: 500}})
			far, good, evil := w.opSide(1, 20), w.opSide(0, 30), w.opSideAs(0, 10, 1000)
			peer := w.opSide(1, 40)
			good.open(good.sock, 0, 0, hostAddr(1), 40)
			a := &attacker{opSide: evil, far: far, victim: good, mem8: evil.at.mem[1]}
			a.theirs = far.expose(0, 64, abi.RightRead|abi.RightWrite, good)
			ours := peer.expose(0, 64, abi.RightWrite|abi.RightAtomic, good)
			a.open0 = shm.SubDest{Kind: shm.KindOpenDest, Sock: evil.sock, Port: 20, Addr: hostAddr(1).As16(), Gen: 1}
			a.post(a.open0)
			w.run()
			w.unharmed(good, peer, ours.Cookie, func() {})
			violations := w.es[0].st.C[stats.ClientViolations]
			w.unharmed(good, peer, ours.Cookie, func() { x.do(a) })
			a.ended(x.end)
			if n := w.es[0].st.C[stats.ClientViolations] - violations; (n == 1) != (x.end != "") {
				t.Errorf("%d violations counted", n)
			}
			if c := Conns(w.es[0]); len(c) > 0 && c[0].Stats.ProtocolErrors > 0 {
				t.Error("the peer was harmed")
			}
			evil.at.Close()
			w.run()
			w.unharmed(good, peer, ours.Cookie, func() {})
			for _, x := range []*opSide{far, good, peer} {
				x.at.Close()
			}
			w.settle()
			w.es[0].peers.dropUnused() // as when another peer needs the room
			w.clean()
		})
	}
}

// settle turns the engines for 20 ms of virtual time, however little moves.
func (w *world) settle() {
	w.t.Helper()
	for range 20 {
		at := w.net.Now() + 1_000_000
		for w.net.At(at, func() {}); w.net.Now() < at; w.net.Step() {
			w.turnAll()
		}
	}
	w.run()
}

// unharmed has g send datagrams and operations to p, the attack among them; all
// must arrive and succeed.
func (w *world) unharmed(g, p *opSide, cookie uint64, attack func()) {
	w.t.Helper()
	g.look()
	p.look()
	msgs, told, back := len(p.msgs), len(g.told), len(g.back)
	send := func() {
		g.submit(shm.Sub{Len: 100})
		add := g.args(g.op(abi.OpFetchAdd, cookie, 8), shm.AtomicEntry{CompareAdd: 1})
		add.Off = 16
		g.submit(shm.Sub{Len: 10}, g.op(abi.OpWrite, cookie, 0), add)
	}
	send()
	attack()
	w.settle()
	send()
	w.settle()
	g.look()
	p.look()
	if n := len(p.msgs) - msgs; n != 4 {
		w.t.Errorf("%d of 4 messages of another client arrived", n)
	}
	if n := len(g.back) - back; n != 4 {
		w.t.Errorf("%d of 4 messages of another client came back", n)
	}
	if n := len(g.told) - told; n != 4 {
		w.t.Errorf("%d of 4 statuses of another client", n)
	}
	for _, st := range g.told[told:] {
		if st.Status != abi.StatusSuccess {
			w.t.Errorf("an operation of another client ended with %d", st.Status)
		}
	}
	g.alive(true)
	p.alive(true)
}

// ended wants the attacker's session to have ended because of why.
func (a *attacker) ended(why string) {
	a.w.t.Helper()
	switch {
	case why == "":
		if a.cl.dead {
			<-a.at.Gone()
			a.w.t.Errorf("its session ended: %v", a.at.Reason())
		}
	case !a.cl.dead:
		a.w.t.Errorf("its session goes on, want the end with %q", why)
	default:
		<-a.at.Gone()
		if got := fmt.Sprint(a.at.Reason()); !strings.Contains(got, why) {
			a.w.t.Errorf("its session ended with %q, want %q", got, why)
		}
	}
}

func ringAttacks() []attack {
	set := func(line int, v uint64) func(*attacker) {
		return func(a *attacker) { a.w.run(); a.word(line).Store(v); a.poke() }
	}
	back := func(line int) func(*attacker) {
		return func(a *attacker) { a.w.run(); a.word(line).Add(^uint64(0)); a.poke() }
	}
	return []attack{
		{"submission tail a ring ahead", set(lineSubTail, 1<<40), "submission ring"},
		{"submission tail one too far", func(a *attacker) { a.w.run(); a.word(lineSubTail).Add(257); a.poke() }, "submission ring"},
		{"submission tail back", back(lineSubTail), "submission ring"},
		{"submission tail at the end of numbers", set(lineSubTail, ^uint64(0)), "submission ring"},
		{"a ring of zeroes published", func(a *attacker) { a.w.run(); a.word(lineSubTail).Add(256); a.poke() }, "kind 0"},
		{"receive-return tail ahead", set(lineRecvRetTail, 1<<40), "ring index"},
		{"receive-return tail back", set(lineRecvRetTail, ^uint64(0)), "ring index"},
		{"event head past the tail", func(a *attacker) {
			a.word(lineEventHead).Store(1 << 40)
			for range 300 { // the daemon looks when the ring seems to fill
				a.nextID %= 250
				a.submit(shm.Sub{}, a.op(abi.OpWrite, 5, 0))
				if a.w.run(); a.cl.dead {
					return
				}
			}
		}, "ring index"},
		{"send-return head past the tail", func(a *attacker) {
			a.word(lineSendRetHead).Store(1 << 40)
			for range 600 { // the daemon looks when the ring seems to fill
				a.nextID %= 250
				a.post(a.sub(none[shm.Sub]))
				if a.w.run(); a.cl.dead {
					return
				}
			}
		}, "ring index"},
		{"the daemon's own indices overwritten", func(a *attacker) {
			for _, line := range []int{lineSubHead, lineEventTail, lineSendRetTail, lineRecvRetHead} {
				a.word(line).Store(0xdeadbeef)
			}
			a.post(a.sub(none[shm.Sub]))
		}, ""},
		{"the header overwritten", func(a *attacker) {
			for i := range 48 {
				a.mem8[i] = 0xff
			}
			a.post(a.sub(none[shm.Sub]))
		}, ""},
		{"sleep words scribbled over", func(a *attacker) {
			for i := range uint64(200) {
				a.word(lineDaemonAsleep).Store(i * 77)
				a.word(lineClientAsleep).Store(^i)
				a.poke()
				a.w.es[0].Turn(a.w.net.Now(), Wall(a.w.net.Now()))
			}
		}, ""},
		{"doorbell rung for nothing", func(a *attacker) {
			for range 10_000 {
				a.poke()
			}
		}, ""},
		{"every want set", func(a *attacker) {
			for i := range a.cl.params.Cells {
				a.seg.WantCell(i).StoreArmed(^uint64(0) - uint64(i))
			}
			for i := range a.cl.params.Slots {
				a.seg.WantSlot(i).SetRelief()
			}
			a.post(a.sub(none[shm.Sub]))
		}, ""},
		{"receive id never told", func(a *attacker) { a.giveBack(3) }, "receive id 3"},
		{"receive id out of range", func(a *attacker) { a.giveBack(1 << 31) }, "receive id"},
		{"receive id twice", func(a *attacker) {
			id := a.came(shm.Sub{Len: 10})
			a.giveBack(id)
			a.giveBack(id)
		}, "returned twice"},
		{"a step of a message that is no run", func(a *attacker) { a.giveBack(a.came(shm.Sub{Len: 3000}) | shm.RxStep) }, "receive id"},
		{"a step too many of a run", func(a *attacker) {
			id := a.came(shm.Sub{Kind: shm.KindRun})
			for range shm.RunSteps {
				a.giveBack(id | shm.RxStep)
			}
		}, "receive id"},
		{"a step of a run that was given back", func(a *attacker) {
			id := a.came(shm.Sub{Kind: shm.KindRun})
			a.giveBack(id)
			a.giveBack(id | shm.RxStep)
		}, "receive id"},
		{"a run twice, with steps", func(a *attacker) {
			id := a.came(shm.Sub{Kind: shm.KindRun})
			a.giveBack(id | shm.RxStep)
			a.giveBack(id)
			a.giveBack(id)
		}, "receive id"},
		{"a step of an id out of range", func(a *attacker) { a.giveBack(1<<30 | shm.RxStep) }, "receive id"},
		{"a step of an id never told", func(a *attacker) { a.giveBack(3 | shm.RxStep) }, "receive id"},
	}
}

// came has the attacker told of a message, or of a run, from another host, and returns its
// receive id.
func (a *attacker) came(sub shm.Sub) (id uint32) {
	a.far.open(a.far.sock, 0, 0, hostAddr(0), 10)
	if sub.Kind == shm.KindRun {
		a.far.submitRun(1000, 1000, 1000)
	} else {
		a.far.submit(sub)
	}
	a.w.run()
	if a.look(); len(a.msgs) != 1 {
		a.w.t.Fatal("nothing to give back")
	}
	return a.msgs[0].RxID
}

func (a *attacker) giveBack(id uint32) {
	ret := a.seg.RecvRetProducer()
	ret.Put(id)
	ret.Publish()
	a.poke()
}
