package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
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
func (a *attacker) status(want uint8, errno unix.Errno, ops ...shm.SubOp) {
	a.w.t.Helper()
	a.look()
	from := len(a.told)
	a.submit(shm.Sub{}, ops...)
	a.w.run()
	if a.look(); len(a.told) != from+len(ops) {
		a.w.t.Fatalf("%d statuses of %d operations", len(a.told)-from, len(ops))
	}
	for _, st := range a.told[from:] {
		if st.Status != want && st.Status != shm.StatusDropped || st.Status == want && unix.Errno(st.Errno) != errno {
			a.w.t.Errorf("status %d, %v; want %d, %v", st.Status, unix.Errno(st.Errno), want, errno)
		}
	}
}

// opWith is an operation on a key of the attacker's own making.
func (a *attacker) opWith(kind uint8, cookie uint64, edit func(*shm.SubOp)) shm.SubOp {
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
	all := append(append(append(append(ringAttacks(), descriptorAttacks()...), opAttacks()...), controlAttacks()...), floodAttacks()...)
	t.Logf("%d attacks", len(all))
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) {
			q := config.NoQuota()
			q[config.Sockets], q[config.Destinations], q[config.Operations], q[config.RegisteredBytes] = evilSockets, evilDests, evilOps, evilBytes
			w := newWorld(t, 2, EngineConfig{HardCap: 256 << 10, OverflowBytes: 4 << 20,
				Policy: &config.Policy{Quotas: config.Quotas{User: q}, Owner: 500}})
			far, good, evil := w.opSide(1, 20), w.opSide(0, 30), w.opSideAs(0, 10, 1000)
			peer := w.opSide(1, 40)
			good.open(good.sock, 0, 0, hostAddr(1), 40)
			a := &attacker{opSide: evil, far: far, victim: good, mem8: evil.at.mem[1]}
			a.theirs = far.expose(0, 64, rdmaop.RightRead|rdmaop.RightWrite, good)
			ours := peer.expose(0, 64, rdmaop.RightWrite|rdmaop.RightAtomic, good)
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
			if c := w.es[0].Conns(); len(c) > 0 && c[0].Stats.ProtocolErrors > 0 {
				t.Error("the peer was harmed")
			}
			evil.at.Close()
			w.run()
			w.unharmed(good, peer, ours.Cookie, func() {})
			for _, x := range []*opSide{far, good, peer} {
				x.at.Close()
			}
			w.settle()
			w.es[0].dropUnused() // as when another peer needs the room
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
			for _, e := range w.es {
				e.Turn(w.net.Now(), w.net.Now())
			}
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
		add := g.args(g.op(shm.OpFetchAdd, cookie, 8), shm.AtomicEntry{CompareAdd: 1})
		add.Off = 16
		g.submit(shm.Sub{Len: 10}, g.op(shm.OpWrite, cookie, 0), add)
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
		if st.Status != shm.StatusSuccess {
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
				a.submit(shm.Sub{}, a.op(shm.OpWrite, 5, 0))
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
				a.w.es[0].Turn(a.w.net.Now(), a.w.net.Now())
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
			a.far.open(a.far.sock, 0, 0, hostAddr(0), 10)
			a.far.sendMsg(a.far.sock, 0, 0, 10)
			a.w.run()
			if a.look(); len(a.msgs) != 1 {
				a.w.t.Fatal("nothing to give back")
			}
			a.giveBack(a.msgs[0].RxID)
			a.giveBack(a.msgs[0].RxID)
		}, "returned twice"},
	}
}

func (a *attacker) giveBack(id uint32) {
	ret := a.seg.RecvRetProducer()
	ret.Put(id)
	ret.Publish()
	a.poke()
}

func descriptorAttacks() []attack {
	message := func(edit func(*shm.Sub)) func(*attacker) {
		return func(a *attacker) { a.post(a.sub(edit)) }
	}
	open := func(edit func(*shm.SubDest)) func(*attacker) {
		return func(a *attacker) { a.post(a.dest(edit)) }
	}
	to := func(s string) func(*shm.SubDest) {
		return func(d *shm.SubDest) { d.Addr = netip.MustParseAddr(s).As16() }
	}
	return []attack{
		{"unknown kind", message(func(s *shm.Sub) { s.Kind = 99 }), "unknown descriptor kind 99"},
		{"kind 0", message(func(s *shm.Sub) { s.Kind = 0 }), "unknown descriptor kind 0"},
		{"operation without its descriptor", message(func(s *shm.Sub) { s.Kind = shm.KindSendOp }), "descriptor missing"},
		{"two operations, one descriptor", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Kind, s.Flags = shm.KindSendOp, shm.SubTwoOps }), a.op(shm.OpWrite, 5, 0))
		}, "descriptor missing"},
		{"two operations of a plain message", message(func(s *shm.Sub) { s.Flags = shm.SubTwoOps }), ""},
		{"flags nobody knows", message(func(s *shm.Sub) { s.Flags = 0xf8 }), ""},
		{"message id out of range", message(func(s *shm.Sub) { s.MsgID = 256 }), "message id 256"},
		{"message id at the end of numbers", message(func(s *shm.Sub) { s.MsgID = ^uint32(0) }), "message id"},
		{"message id in use", func(a *attacker) { m := a.sub(none[shm.Sub]); a.post(m, m) }, "out of range or in use"},
		{"payload outside the arena", message(func(s *shm.Sub) { s.Chunk = 1 << 30 }), "outside the send arena"},
		{"payload chunk that overflows", message(func(s *shm.Sub) { s.Chunk = ^uint32(0) }), "outside the send arena"},
		{"payload over the window's end", message(func(s *shm.Sub) { s.Chunk = shm.WindowSize/shm.Unit - 1; s.Len = shm.Unit + 1 }), "outside the send arena"},
		{"payload too long", message(func(s *shm.Sub) { s.Len = shm.MaxMessage + 1 }), "payload"},
		{"payload of 4 GiB", message(func(s *shm.Sub) { s.Len = ^uint32(0) }), "payload"},
		{"payload from no buffer", message(func(s *shm.Sub) { s.Flags, s.Buf = shm.SubFromBuf, 999 }), "outside buffer"},
		{"payload past its buffer", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Flags, s.Buf, s.Off = shm.SubFromBuf, a.buf, 64<<10-63 }))
		}, "outside buffer"},
		{"payload offset that overflows", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Flags, s.Buf, s.Off = shm.SubFromBuf, a.buf, ^uint64(0)-31 }))
		}, "outside buffer"},
		{"payload from a buffer that was freed", func(a *attacker) {
			b := a.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
			a.must(&ipc.Free{Buffer: b})
			a.post(a.sub(func(s *shm.Sub) { s.Flags, s.Buf = shm.SubFromBuf, b }))
		}, "outside buffer"},
		{"buffer freed under its payload", func(a *attacker) {
			b := a.must(&ipc.Alloc{Size: 1 << 19}).(*ipc.AllocOK).Buffer
			for range 20 {
				a.post(a.sub(func(s *shm.Sub) { s.Flags, s.Buf, s.Len = shm.SubFromBuf, b, 1<<19 }))
			}
			a.w.es[0].Turn(a.w.net.Now(), a.w.net.Now())
			a.call(&ipc.Free{Buffer: b}) // EBUSY, or freed once nobody reads it
		}, ""},
		{"socket that is not there", message(func(s *shm.Sub) { s.Sock = 77 }), ""},
		{"slot that is not open", message(func(s *shm.Sub) { s.Slot = 5 }), "slot 5 is not open"},
		{"slot out of range", message(func(s *shm.Sub) { s.Slot = 1 << 31 }), "is not open"},
		{"slot of another socket", func(a *attacker) {
			other := a.bind(11)
			a.post(a.sub(func(s *shm.Sub) { s.Sock = other }))
		}, "slot 0 is not open"},
		{"slot opened twice", open(func(d *shm.SubDest) { d.Slot = 0 }), "out of range or in use"},
		{"slot to open out of range", open(func(d *shm.SubDest) { d.Slot = 64 }), "out of range or in use"},
		{"cell out of range", open(func(d *shm.SubDest) { d.Cell = 1 << 31 }), "out of range or in use"},
		{"cell of another destination", open(func(d *shm.SubDest) { d.Addr = hostAddr(0).As16() }), "cell 0 belongs to another"},
		{"generation 0", open(func(d *shm.SubDest) { d.Gen = 0 }), "bad address"},
		{"no address", open(to("0.0.0.0")), "bad address"},
		{"multicast", open(to("224.0.0.1")), "bad address"},
		{"broadcast", open(to("255.255.255.255")), "bad address"},
		{"another family", open(to("fd00::1")), "bad address"},
		{"two lanes of one socket", open(func(d *shm.SubDest) { d.Lane = 7 }), "lane 7"},
		{"all lanes there are", func(a *attacker) {
			for lane := 1; lane < evilDests; lane++ {
				s := a.bind(uint16(100 + lane))
				a.post(a.dest(func(d *shm.SubDest) { d.Sock, d.Slot, d.Cell, d.Lane = s, uint32(lane), uint32(lane), uint8(lane*8) }),
					a.sub(func(m *shm.Sub) { m.Sock, m.Slot = s, uint32(lane) }))
			}
		}, ""},
		{"slot used again with messages on their way", func(a *attacker) {
			for i := range 40 {
				a.post(a.sub(none[shm.Sub]), shm.SubDest{Kind: shm.KindCloseDest, Slot: 0},
					a.dest(func(d *shm.SubDest) { d.Slot, d.Port = 0, uint16(20+i%2) }))
			}
			a.w.run()
			for a.far.look(); len(a.far.msgs) > 0; a.far.msgs = a.far.msgs[1:] {
				if m := a.far.msgs[0]; m.SrcPort == 10 && m.DstPort != 20 {
					a.w.t.Error("a message went astray")
				}
			}
		}, ""},
		{"close of a slot that is not open", func(a *attacker) {
			a.post(shm.SubDest{Kind: shm.KindCloseDest, Slot: 9}, shm.SubDest{Kind: shm.KindCloseDest, Slot: ^uint32(0)})
		}, ""},
		{"cancel of a slot that is not open", func(a *attacker) {
			a.post(shm.Sub{Kind: shm.KindCancel, Slot: 9}, shm.Sub{Kind: shm.KindCancel, Slot: ^uint32(0)})
		}, ""},
		{"the longest limit", message(func(s *shm.Sub) { s.GiveUp = ^uint32(0) }), ""},
		{"limits of a millisecond, to nobody", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Cell = nobody(1).As16(), 1 }))
			for range 100 {
				a.post(a.sub(func(s *shm.Sub) { s.Slot, s.GiveUp = 1, 1 }))
			}
			a.w.settle()
			if a.look(); len(a.back) != 100 {
				a.w.t.Errorf("%d of 100 messages came back", len(a.back))
			}
		}, ""},
		{"cookie of another client", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Cookie = a.theirs.Cookie }))
		}, ""},
	}
}

func opAttacks() []attack {
	refused := func(kind uint8, errno unix.Errno, edit func(*attacker, *shm.SubOp)) func(*attacker) {
		return func(a *attacker) {
			own := a.far.expose(0, 64, rdmaop.RightRead|rdmaop.RightWrite|rdmaop.RightAtomic, a.opSide)
			a.w.run()
			a.status(shm.StatusRemoteError, errno, a.opWith(kind, own.Cookie, func(o *shm.SubOp) { edit(a, o) }))
		}
	}
	list := func(n int, each shm.SegEntry) func(*attacker, *shm.SubOp) {
		return func(a *attacker, o *shm.SubOp) {
			o.NSeg, o.SegChunk = uint16(n), 128
			for i := range n {
				e := each
				e.Region = a.buf
				shm.PutSegEntry(a.send[128*shm.Unit+i*shm.SegEntrySize:], e)
			}
		}
	}
	opID := func(id uint64) func(*attacker) {
		return func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Kind = shm.KindSendOp }), a.opWith(shm.OpWrite, 5, func(o *shm.SubOp) { o.OpID = id }))
		}
	}
	return []attack{
		{"operation id skipped", opID(2), "operation id"},
		{"operation id 0", opID(0), "operation id"},
		{"operation id at the end of numbers", opID(^uint64(0)), "operation id"},
		{"two operations, one id", func(a *attacker) {
			a.post(a.sub(func(s *shm.Sub) { s.Kind, s.Flags = shm.KindSendOp, shm.SubTwoOps }),
				a.opWith(shm.OpWrite, 5, func(o *shm.SubOp) { o.OpID = 1 }), a.opWith(shm.OpFetchAdd, 5, func(o *shm.SubOp) { o.OpID = 1 }))
		}, "operation id"},
		{"an atomic, then a write", func(a *attacker) {
			own := a.far.expose(0, 64, rdmaop.RightWrite|rdmaop.RightAtomic, a.opSide)
			a.w.run()
			a.status(shm.StatusRemoteError, unix.EINVAL, a.opWith(shm.OpFetchAdd, own.Cookie, none[shm.SubOp]), a.op(shm.OpWrite, own.Cookie, 8))
		}, ""},
		{"guessed key", refused(shm.OpWrite, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.Cookie ^= 0x5a5a }), ""},
		{"guessed offset in the key", refused(shm.OpWrite, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.Cookie += 1 << 32 }), ""},
		{"stolen key", refused(shm.OpRead, unix.EACCES, func(a *attacker, o *shm.SubOp) { o.Cookie = a.theirs.Cookie }), ""},
		{"every key near a stolen one", func(a *attacker) {
			for i := range uint64(evilOps) {
				cookie := a.theirs.Cookie&^0xffffffff | (a.theirs.Cookie+i+1)&0xffffffff
				a.status(shm.StatusRemoteError, unix.EINVAL, a.op(shm.OpWrite, cookie, 0))
			}
		}, ""},
		{"beyond the region", refused(shm.OpWrite, unix.ERANGE, func(_ *attacker, o *shm.SubOp) { o.RemoteOff = 57 }), ""},
		{"remote offset that overflows", refused(shm.OpWrite, unix.ERANGE, func(_ *attacker, o *shm.SubOp) { o.RemoteOff = ^uint64(0) - 3 }), ""},
		{"no such operation", refused(255, unix.EINVAL, func(*attacker, *shm.SubOp) {}), ""},
		{"no segments", refused(shm.OpWrite, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.NSeg = 0 }), ""},
		{"65535 segments", refused(shm.OpWrite, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.NSeg = 65535 }), ""},
		{"segment list outside the arena", refused(shm.OpWrite, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.NSeg, o.SegChunk = 2, ^uint32(0) }), ""},
		{"segment list over the window's end", refused(shm.OpWrite, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.NSeg, o.SegChunk = 3, shm.WindowSize/shm.Unit-1 }), ""},
		{"segments that do not add up", refused(shm.OpWrite, unix.EINVAL, list(3, shm.SegEntry{Len: 4})), ""},
		{"segments whose sum overflows", refused(shm.OpWrite, unix.EINVAL, list(2, shm.SegEntry{Len: 1<<63 + 4})), ""},
		{"segment past its buffer", refused(shm.OpWrite, unix.EFAULT, list(2, shm.SegEntry{Off: 64<<10 - 2, Len: 4})), ""},
		{"segment offset that overflows", refused(shm.OpWrite, unix.EFAULT, list(2, shm.SegEntry{Off: ^uint64(0) - 2, Len: 4})), ""},
		{"local length of everything", refused(shm.OpWrite, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.Len = ^uint64(0) }), ""},
		{"local memory of no buffer", refused(shm.OpWrite, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.Region = 1 << 31 }), ""},
		{"operands outside the arena", refused(shm.OpFetchAdd, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.SegChunk = ^uint32(0) }), ""},
		{"atomic of a list", refused(shm.OpCmpSwap, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.NSeg = 2 }), ""},
		{"atomic of 16 bytes", refused(shm.OpFetchAdd, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.Len = 16 }), ""},
		{"atomic at an odd place", refused(shm.OpFetchAdd, unix.EINVAL, func(_ *attacker, o *shm.SubOp) { o.RemoteOff = 1 }), ""},
		{"atomic into an odd place", refused(shm.OpFetchAdd, unix.EFAULT, func(_ *attacker, o *shm.SubOp) { o.Off = 1 }), ""},
		{"every operation flag", func(a *attacker) {
			own := a.far.expose(0, 64, rdmaop.RightWrite, a.opSide)
			a.w.run()
			a.status(shm.StatusSuccess, 0, a.opWith(shm.OpWrite, own.Cookie, func(o *shm.SubOp) { o.Flags = 0xffff }))
		}, ""},
		{"use-once key, at once and again", func(a *attacker) {
			own := a.far.expose(0, 64, rdmaop.RightWrite|rdmaop.UseOnce, a.opSide)
			a.w.run()
			for range 10 {
				a.submit(shm.Sub{}, a.op(shm.OpWrite, own.Cookie, 0))
			}
			a.w.run()
			n := 0
			for _, st := range a.statuses() {
				if st == int(shm.StatusSuccess) {
					n++
				}
			}
			if n != 1 {
				a.w.t.Errorf("a use-once key served %d operations", n)
			}
		}, ""},
	}
}

func controlAttacks() []attack {
	refused := func(errno unix.Errno, reqs ...ipc.Request) func(*attacker) {
		return func(a *attacker) {
			for _, r := range reqs {
				a.refused(r, errno)
			}
		}
	}
	region := func(a *attacker) *ipc.RegisterOK {
		return a.victim.must(&ipc.Register{Sock: a.victim.sock, Buffer: a.victim.buf, Len: 8, Access: ipc.AccessRead}).(*ipc.RegisterOK)
	}
	return []attack{
		{"sockets that are not its own", refused(unix.EBADF, &ipc.CloseSock{Sock: 1}, &ipc.CloseSock{Sock: ^uint32(0)},
			&ipc.SetRcvBuf{Sock: 1, Bytes: 1}, &ipc.Register{Sock: 1, Buffer: 1, Len: 1, Access: 1}), ""},
		{"no receive buffer", refused(unix.EINVAL, &ipc.SetRcvBuf{}), ""},
		{"regions that are not its own", func(a *attacker) {
			r := region(a)
			a.refused(&ipc.Release{Region: r.Region}, unix.EINVAL)
			a.refused(&ipc.Expose{Region: r.Region, Addr: hostAddr(0), Port: a.port}, unix.EINVAL)
			a.victim.must(&ipc.Release{Region: r.Region})
		}, ""},
		{"buffers that are not there", refused(unix.EINVAL, &ipc.Free{Buffer: 99}, &ipc.Free{Buffer: ^uint32(0)}), ""},
		{"registrations outside their buffer", func(a *attacker) {
			for _, r := range []ipc.Register{{Off: 64 << 10, Len: 1}, {Off: ^uint64(0), Len: 2}, {Len: ^uint64(0)}, {Len: 0}, {Off: 1, Len: 64 << 10}} {
				r.Sock, r.Buffer, r.Access = a.sock, a.buf, ipc.AccessRead
				a.refused(&r, unix.EINVAL)
			}
		}, ""},
		{"rights that do not exist", func(a *attacker) {
			for _, access := range []uint32{0, 16, 33, ^uint32(0), ipc.AccessUseOnce} {
				a.refused(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: access}, unix.EINVAL)
			}
		}, ""},
		{"buffers of all sizes", refused(unix.EINVAL, &ipc.Alloc{}, &ipc.Alloc{Size: 1 << 62}, &ipc.Alloc{Size: ^uint64(0)}), ""},
		{"addresses that are not the host's", refused(unix.EADDRNOTAVAIL, &ipc.Bind{Addr: hostAddr(1)}, &ipc.Bind{Addr: nobody(3)}), ""},
		{"ports that are not for sockets", refused(unix.EINVAL, &ipc.Bind{Addr: hostAddr(0), Port: 1}), ""},
		{"a port that is taken", refused(unix.EADDRINUSE, &ipc.Bind{Addr: hostAddr(0), Port: 30}), ""},
		{"grants to addresses nobody can have", func(a *attacker) {
			r := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: ipc.AccessRead}).(*ipc.RegisterOK)
			for _, addr := range []string{"0.0.0.0", "224.0.0.1", "255.255.255.255", "fd00::1"} {
				a.refused(&ipc.Expose{Region: r.Region, Addr: netip.MustParseAddr(addr)}, unix.EINVAL)
			}
		}, ""},
		{"a buffer freed under its region", func(a *attacker) {
			a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: ipc.AccessRead})
			a.refused(&ipc.Free{Buffer: a.buf}, unix.EBUSY)
		}, ""},
		{"a region registered, granted and released again and again", func(a *attacker) {
			for range 300 {
				r := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: ipc.AccessRead}).(*ipc.RegisterOK)
				a.must(&ipc.Expose{Region: r.Region, Addr: hostAddr(1), Port: 20})
				if err := a.w.es[0].release(a.w.es[0].regions[r.Region], func(error) {}); err != nil {
					a.w.t.Fatal(err)
				}
			}
		}, ""},
		{"grants to a host that is not there, taken back at once", func(a *attacker) {
			for range 100 {
				r := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: ipc.AccessRead}).(*ipc.RegisterOK)
				a.must(&ipc.Expose{Region: r.Region, Addr: nobody(1), Port: 20})
				a.w.es[0].Turn(a.w.net.Now(), a.w.net.Now()) // it is being connected to
				a.must(&ipc.Release{Region: r.Region})
			}
			if n := a.w.es[0].ctls.out; n > 5 {
				a.w.t.Errorf("%d internal messages wait", n)
			}
		}, ""},
		{"a socket closed with its ring full", func(a *attacker) {
			for a.seg.SubProducer().Free() > 0 && a.nextID < 250 {
				a.put(func(e *shm.Entry) { *e.Sub() = a.sub(none[shm.Sub]) })
			}
			a.must(&ipc.CloseSock{Sock: a.sock})
		}, ""},
		{"a second Hello, and answers as requests", func(a *attacker) {
			if _, err := a.w.es[0].serve(a.cl, &ipc.Hello{}); err == nil {
				a.w.t.Error("a second Hello was answered")
			}
		}, ""},
	}
}

func floodAttacks() []attack {
	return []attack{
		{"more sockets than it may have", func(a *attacker) {
			for range evilSockets - 1 {
				a.must(&ipc.Bind{Addr: hostAddr(0)})
			}
			for range 100 {
				a.refused(&ipc.Bind{Addr: hostAddr(0)}, unix.ENOBUFS)
			}
			a.victim.must(&ipc.Bind{Addr: hostAddr(0)})
		}, ""},
		{"more memory than it may have", func(a *attacker) {
			for range 100 {
				a.refused(&ipc.Alloc{Size: evilBytes}, unix.ENOBUFS)
			}
			a.victim.must(&ipc.Alloc{Size: evilBytes})
		}, ""},
		{"more destinations than it may have", func(a *attacker) {
			for i := uint32(1); i < 64; i++ {
				a.post(a.dest(func(d *shm.SubDest) { d.Slot, d.Port = i, uint16(1000+i) }))
				a.post(a.sub(func(s *shm.Sub) { s.Slot = i }))
			}
			a.w.run()
			if n := a.cl.acct.dests; n > evilDests {
				a.w.t.Errorf("%d destinations", n)
			}
		}, ""},
		{"more operations than it may have", func(a *attacker) {
			own := a.far.expose(0, 64, rdmaop.RightWrite, a.opSide)
			a.w.run()
			for range 60 {
				a.submit(shm.Sub{}, a.op(shm.OpWrite, own.Cookie, 0))
			}
			a.w.run()
			refused := 0
			for _, st := range a.statuses() {
				if st == int(shm.StatusRemoteError) {
					refused++
				}
			}
			if refused != 60-evilOps {
				a.w.t.Errorf("%d operations refused, want %d", refused, 60-evilOps)
			}
		}, ""},
		{"messages nobody reads", func(a *attacker) {
			for range 200 {
				a.post(a.sub(func(s *shm.Sub) { s.Len = 60_000 }))
			}
		}, ""},
		{"empty messages nobody reads", func(a *attacker) {
			for range 240 {
				a.post(a.sub(func(s *shm.Sub) { s.Len = 0 }))
			}
		}, ""},
		{"messages to itself it does not read", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Port, d.Cell = hostAddr(0).As16(), a.port, 1 }))
			for range 200 {
				a.post(a.sub(func(s *shm.Sub) { s.Slot, s.Len = 1, 60_000 }))
			}
		}, ""},
		{"messages to the victim's sockets", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Port, d.Cell = hostAddr(0).As16(), 30, 1 }))
			for range 100 {
				a.post(a.sub(func(s *shm.Sub) { s.Slot = 1 }))
			}
		}, ""},
		{"cancels without end", func(a *attacker) {
			a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Cell = nobody(2).As16(), 1 }))
			for range 20 {
				a.post(a.sub(func(s *shm.Sub) { s.Slot = 1 }))
			}
			for range 200 {
				a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Slot: 1} })
			}
		}, ""},
		{"slots opened and closed without end", func(a *attacker) {
			for i := range 60 {
				a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Cell, d.Port = nobody(i).As16(), uint32(1+i), 9 }),
					shm.SubDest{Kind: shm.KindCloseDest, Slot: 1})
			}
		}, ""},
		{"statuses it never takes", func(a *attacker) {
			for range 2000 {
				if free := slices.Index(a.cl.msgs, nil); free >= 0 {
					a.nextID = uint32(free)
					a.submit(shm.Sub{}, a.op(shm.OpWrite, 5, 0))
				}
				a.w.es[0].Turn(a.w.net.Now(), a.w.net.Now())
				for sr, ok := a.seg.SendRetConsumer(), true; ok; sr.Release() {
					_, ok = sr.Take()
				}
			}
			if n := a.cl.pendOps.n; n > int(a.cl.params.MaxMsgs) {
				a.w.t.Errorf("%d statuses wait in the daemon", n)
			}
		}, ""},
		{"notices it never takes", func(a *attacker) {
			for i := range 1000 {
				a.nextID %= 250
				a.post(a.dest(func(d *shm.SubDest) { d.Addr, d.Port, d.Cell = hostAddr(0).As16(), uint16(1000+i), 1 }),
					a.sub(func(s *shm.Sub) { s.Slot = 1 }), shm.SubDest{Kind: shm.KindCloseDest, Slot: 1})
				a.w.es[0].Turn(a.w.net.Now(), a.w.net.Now())
				a.w.es[0].Turn(a.w.net.Now(), a.w.net.Now())
				for sr, ok := a.seg.SendRetConsumer(), true; ok; sr.Release() {
					_, ok = sr.Take()
				}
			}
			if n := a.cl.pendNote.n; n > 2*len(a.cl.slots)+1 {
				a.w.t.Errorf("%d destinations with notices wait in the daemon", n)
			}
			a.w.run()
			told := uint64(0)
			for range 100 { // what was folded is told, too
				for a.look(); len(a.notes) > 0; a.notes = a.notes[1:] {
					told += a.notes[0].Count
				}
				a.w.settle()
			}
			if told != 1000 {
				a.w.t.Errorf("%d of 1000 messages to nobody were told", told)
			}
		}, ""},
	}
}
