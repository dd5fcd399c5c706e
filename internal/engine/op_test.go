package engine

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// opSide is one socket with a buffer, and what its client was told.
type opSide struct {
	*raw
	sock uint32
	port uint16
	buf  uint32
	mem  []byte

	nextID uint32
	opID   uint64
	msgs   []shm.Event
	told   []shm.EventStatus
	notes  []shm.EventNotice
	back   []uint32
}

func (w *world) opSide(host int, port uint16) *opSide {
	w.t.Helper()
	return w.opSideAs(host, port, 0)
}

// opSideAs is opSide of another user.
func (w *world) opSideAs(host int, port uint16, uid uint32) *opSide {
	w.t.Helper()
	p := smallParams()
	p.EventEntries, p.MaxRx = 256, 64
	r, err := w.attachAs(host, p, ipc.Cred{UID: uid, GID: uid})
	if err != nil {
		w.t.Fatal(err)
	}
	return opSideOf(r, port)
}

func opSideOf(r *raw, port uint16) *opSide {
	r.w.t.Helper()
	s := &opSide{raw: r, port: port}
	s.sock = s.bind(port)
	s.buf = s.must(&ipc.Alloc{Size: 64 << 10}).(*ipc.AllocOK).Buffer
	s.mem = s.cl.buffers[s.buf].mem
	return s
}

// expose registers n bytes at off and grants them to a socket.
func (s *opSide) expose(off, n uint64, rights abi.Rights, to *opSide) *ipc.RegisterOK {
	s.w.t.Helper()
	r := s.must(&ipc.Register{Sock: s.sock, Buffer: s.buf, Off: off, Len: n, Access: rights}).(*ipc.RegisterOK)
	s.must(&ipc.Expose{Region: r.Region, Addr: to.e.addrs.all[0].addr, Port: to.port})
	return r
}

// op is an operation on the first 8 bytes of this side's buffer.
func (s *opSide) op(kind abi.OpKind, cookie, off uint64) shm.SubOp {
	return shm.SubOp{Op: kind, Flags: abi.FlagNotify, NSeg: 1, Region: s.buf, Off: 0, Len: 8, Cookie: cookie, RemoteOff: off}
}

// args puts the operands of an atomic into the send arena.
func (s *opSide) args(op shm.SubOp, a shm.AtomicEntry) shm.SubOp {
	op.SegChunk = 16
	shm.PutAtomicEntry(s.send[16*shm.Unit:], a)
	return op
}

// submit sends a message to slot 0 with these operations and returns its id.
func (s *opSide) submit(sub shm.Sub, ops ...shm.SubOp) uint32 {
	s.w.t.Helper()
	sub.Kind, sub.Sock, sub.MsgID = shm.KindSend, s.sock, s.nextID
	s.nextID++
	if len(ops) > 0 {
		sub.Kind = shm.KindSendOp
	}
	if len(ops) > 1 {
		sub.Flags |= shm.SubTwoOps
	}
	s.put(func(e *shm.Entry) { *e.Sub() = sub })
	for _, op := range ops {
		s.opID++
		op.OpID, op.Token = s.opID, s.opID*10
		s.put(func(e *shm.Entry) { *e.SubOp() = op })
	}
	return sub.MsgID
}

// look takes in what the client was told.
func (s *opSide) look() {
	ev, ret := s.seg.EventConsumer(), s.seg.SendRetConsumer()
	var e shm.Entry
	for ev.Next(&e) {
		switch shm.EvKind(e.Kind()) {
		case shm.EvData:
			s.msgs = append(s.msgs, *e.Event())
		case shm.EvStatus:
			s.told = append(s.told, *e.Status())
		case shm.EvNotice:
			s.notes = append(s.notes, *e.Notice())
		}
	}
	for id, ok := ret.Take(); ok; id, ok = ret.Take() {
		s.back = append(s.back, id)
	}
	ev.Release()
	ret.Release()
}

// statuses are the statuses told, in the order of the ids; -1: none yet.
func (s *opSide) statuses() []int {
	s.look()
	out := make([]int, s.opID)
	for i := range out {
		out[i] = -1
	}
	for _, st := range s.told {
		if st.OpID == 0 { // of a message
			continue
		}
		if st.Token != st.OpID*10 || out[st.OpID-1] >= 0 {
			s.w.t.Errorf("status of %d twice, or token %d", st.OpID, st.Token)
		}
		out[st.OpID-1] = int(st.Status)
	}
	return out
}

func (s *opSide) hwm() uint64 { return s.cl.table.Cell(0).LoadHWM() }

// opPair is an initiator whose slot 0 leads to the target.
func opPair(t *testing.T, hosts int) (w *world, a, b *opSide) {
	w = newWorld(t, hosts, Config{})
	a, b = w.opSide(0, 10), w.opSide(hosts-1, 20)
	a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
	return w, a, b
}

func (w *world) clean2(a, b *opSide) {
	w.t.Helper()
	w.clean(a.raw, b.raw)
}

const ones = ^uint64(0)

// TestAtomics: every form does at the target what it should and returns what
// was there before; across hosts and on one.
func TestAtomics(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		r := b.expose(64, 64, abi.RightAtomic, a)
		w.run()
		word := b.mem[64+8:]
		for i, c := range []struct {
			kind      abi.OpKind
			args      shm.AtomicEntry
			old, want uint64
		}{
			{abi.OpFetchAdd, shm.AtomicEntry{CompareAdd: 5}, 37, 42},
			{abi.OpFetchAdd, shm.AtomicEntry{CompareAdd: 1, CompareMask: 1 << 31}, 1<<40 | 1<<32 - 1, 1 << 40},
			{abi.OpCmpSwap, shm.AtomicEntry{CompareAdd: 7, Swap: 9, CompareMask: ones, SwapMask: ones}, 7, 9},
			{abi.OpCmpSwap, shm.AtomicEntry{CompareAdd: 7, Swap: 9, CompareMask: ones, SwapMask: ones}, 8, 8},
			{abi.OpCmpSwap, shm.AtomicEntry{CompareAdd: 0xff07, Swap: 9, CompareMask: 0xff, SwapMask: 0xff}, 0xab07, 0xab09},
		} {
			binary.NativeEndian.PutUint64(word, c.old)
			a.submit(shm.Sub{}, a.args(a.op(c.kind, r.Cookie, 8), c.args))
			w.run()
			if st := a.statuses(); st[i] != int(abi.StatusSuccess) || a.hwm() != uint64(i+1) {
				t.Errorf("%d hosts, case %d: status %d, HWM %d", hosts, i, st[i], a.hwm())
			}
			got, old := binary.NativeEndian.Uint64(word), binary.NativeEndian.Uint64(a.mem)
			if got != c.want || old != c.old {
				t.Errorf("%d hosts, case %d: %#x at the target, %#x came back; want %#x, %#x", hosts, i, got, old, c.want, c.old)
			}
		}
		if b.look(); len(b.msgs) != 5 {
			t.Errorf("%d hosts: %d messages", hosts, len(b.msgs))
		}
		w.clean2(a, b)
	}
}

// TestOpsRefused: what may not be posted ends with its errno and is never
// posted; a sibling with it.
func TestOpsRefused(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		all := abi.RightRead | abi.RightWrite | abi.RightAtomic
		good := b.expose(0, 64, all, a)
		plain := b.expose(64, 64, abi.RightWrite|abi.RightRead, a)
		odd := b.expose(132, 64, all, a)
		w.run()
		plus := func(o shm.SubOp) shm.SubOp { return a.args(o, shm.AtomicEntry{CompareAdd: 1}) }
		add := plus(a.op(abi.OpFetchAdd, good.Cookie, 0))
		write := a.op(abi.OpWrite, good.Cookie, 8)
		with := func(o shm.SubOp, f func(*shm.SubOp)) shm.SubOp { f(&o); return o }
		cases := []struct {
			name string
			ops  []shm.SubOp
			bad  int
			want unix.Errno
		}{
			{"no atomic right", []shm.SubOp{plus(a.op(abi.OpFetchAdd, plain.Cookie, 0))}, 0, unix.EACCES},
			{"unknown key", []shm.SubOp{plus(a.op(abi.OpCmpSwap, 0x77, 0))}, 0, unix.EINVAL},
			{"beyond the region", []shm.SubOp{plus(a.op(abi.OpFetchAdd, good.Cookie, 64))}, 0, unix.ERANGE},
			{"remote unaligned", []shm.SubOp{plus(a.op(abi.OpFetchAdd, good.Cookie, 4))}, 0, unix.EINVAL},
			{"region unaligned", []shm.SubOp{plus(a.op(abi.OpFetchAdd, odd.Cookie, 0))}, 0, unix.EINVAL},
			{"local unaligned", []shm.SubOp{with(add, func(o *shm.SubOp) { o.Off = 4 })}, 0, unix.EFAULT},
			{"16 bytes", []shm.SubOp{with(add, func(o *shm.SubOp) { o.Len = 16 })}, 0, unix.EINVAL},
			{"two segments", []shm.SubOp{with(add, func(o *shm.SubOp) { o.NSeg = 2 })}, 0, unix.EINVAL},
			{"operands outside the arena", []shm.SubOp{with(add, func(o *shm.SubOp) { o.SegChunk = 1 << 30 })}, 0, unix.EFAULT},
			{"operands over the window's end", []shm.SubOp{with(add, func(o *shm.SubOp) { o.SegChunk = shm.WindowSize / shm.Unit })}, 0, unix.EFAULT},
			{"no such kind", []shm.SubOp{with(write, func(o *shm.SubOp) { o.Op = 9 })}, 0, unix.EINVAL},
			{"no such buffer", []shm.SubOp{with(add, func(o *shm.SubOp) { o.Region = 99 })}, 0, unix.EFAULT},
			{"the second has no right", []shm.SubOp{write, plus(a.op(abi.OpFetchAdd, plain.Cookie, 0))}, 1, unix.EACCES},
			{"the first has no key", []shm.SubOp{with(write, func(o *shm.SubOp) { o.Cookie = 5 }), add}, 0, unix.EINVAL},
			{"an atomic first", []shm.SubOp{add, write}, 0, unix.EINVAL},
			{"two writes", []shm.SubOp{write, write}, 1, unix.EINVAL},
		}
		binary.NativeEndian.PutUint64(a.mem, ones)
		for _, c := range cases {
			from := len(a.told)
			id := a.submit(shm.Sub{}, c.ops...)
			w.run()
			a.alive(true)
			a.look()
			told := a.told[from:]
			if len(told) != len(c.ops) || !slices.Contains(a.back, id) || a.hwm() != a.opID {
				t.Fatalf("%d hosts, %s: %d statuses, HWM %d of %d, returned %v", hosts, c.name, len(told), a.hwm(), a.opID, a.back)
			}
			for _, st := range told {
				i := int(st.OpID - (a.opID - uint64(len(c.ops)) + 1))
				status, errno := abi.StatusDropped, unix.Errno(0)
				if i == c.bad {
					status, errno = abi.StatusRemoteError, c.want
				}
				if st.Status != status || unix.Errno(st.Errno) != errno {
					t.Errorf("%d hosts, %s: operation %d: status %d, %v; want %d, %v", hosts, c.name, i, st.Status, unix.Errno(st.Errno), status, errno)
				}
			}
		}
		if b.look(); len(b.msgs) != 0 || slices.ContainsFunc(b.mem, func(x byte) bool { return x != 0 }) {
			t.Errorf("%d hosts: %d messages, or the target was touched", hosts, len(b.msgs))
		}
		w.clean2(a, b)
	}
}

// TestTwoOps: an RDMA operation, then an atomic, then the message; two ids, two
// statuses, one mark behind both.
func TestTwoOps(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		all := abi.RightRead | abi.RightWrite | abi.RightAtomic
		data, flag := b.expose(0, 64, all, a), b.expose(64, 64, all, a)
		w.run()
		for i, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead} {
			copy(a.mem, "from a!!")
			copy(b.mem, "from b!!")
			binary.NativeEndian.PutUint64(b.mem[64:], 5)
			add := a.args(a.op(abi.OpFetchAdd, flag.Cookie, 0), shm.AtomicEntry{CompareAdd: 2})
			add.Off = 16
			if i == 1 { // both on one region
				add.Cookie, add.RemoteOff = data.Cookie, 8
				binary.NativeEndian.PutUint64(b.mem[8:], 5)
			}
			copy(a.send, "hello")
			a.submit(shm.Sub{Len: 5}, a.op(kind, data.Cookie, 0), add)
			w.run()
			if got := a.statuses(); !slices.Equal(got[2*i:], []int{0, 0}) || a.hwm() != uint64(2*i+2) {
				t.Errorf("%d hosts, kind %d: statuses %v, HWM %d", hosts, kind, got, a.hwm())
			}
			want := "from a!!"
			if kind == abi.OpRead {
				want = "from b!!"
			}
			at := 64 - 56*i
			if string(a.mem[:8]) != want || string(b.mem[:8]) != want || binary.NativeEndian.Uint64(b.mem[at:]) != 7 ||
				binary.NativeEndian.Uint64(a.mem[16:]) != 5 {
				t.Errorf("%d hosts, kind %d: %q, %q, %v, %v", hosts, kind, a.mem[:8], b.mem[:8], b.mem[at:at+8], a.mem[16:24])
			}
			if b.look(); len(b.msgs) != i+1 {
				t.Fatalf("%d hosts: %d messages", hosts, len(b.msgs))
			}
		}
		w.clean2(a, b)
	}
}

// TestSilent: an operation is silent only if all of the message are, the
// payload is empty and no cookie is attached.
func TestSilent(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		r := b.expose(0, 64, abi.RightWrite|abi.RightAtomic, a)
		w.run()
		silent := func(o shm.SubOp) shm.SubOp { o.Flags |= abi.FlagSilent | abi.FlagFence; return o }
		write := a.op(abi.OpWrite, r.Cookie, 0)
		add := a.args(a.op(abi.OpFetchAdd, r.Cookie, 8), shm.AtomicEntry{CompareAdd: 1})
		want := 0
		for _, c := range []struct {
			name  string
			n     uint32
			ops   []shm.SubOp
			heard bool
		}{
			{"one, silent", 0, []shm.SubOp{silent(write)}, false},
			{"one, silent, with payload", 3, []shm.SubOp{silent(write)}, true},
			{"one, not silent", 0, []shm.SubOp{write}, true},
			{"both silent", 0, []shm.SubOp{silent(write), silent(add)}, false},
			{"the first only", 0, []shm.SubOp{silent(write), add}, true},
			{"the second only", 0, []shm.SubOp{write, silent(add)}, true},
		} {
			a.submit(shm.Sub{Len: c.n}, c.ops...)
			w.run()
			if c.heard {
				want++
			}
			if b.look(); len(b.msgs) != want || a.hwm() != a.opID || slices.Max(a.statuses()) != 0 {
				t.Errorf("%d hosts, %s: %d messages, want %d; statuses %v", hosts, c.name, len(b.msgs), want, a.statuses())
			}
			want = len(b.msgs)
		}
		if n := binary.NativeEndian.Uint64(b.mem[8:]); n != 3 {
			t.Errorf("%d hosts: %d atomics ran, want 3", hosts, n)
		}
		w.clean2(a, b)
	}
}

// TestCancelStatus: a cancelled operation's status is told at once; the mark
// waits for its work requests.
func TestCancelStatus(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.expose(0, 64, abi.RightRead|abi.RightAtomic, a)
	a.submit(shm.Sub{})
	w.run()
	a.submit(shm.Sub{}, a.op(abi.OpRead, r.Cookie, 0), a.args(a.op(abi.OpFetchAdd, r.Cookie, 8), shm.AtomicEntry{CompareAdd: 1}))
	a.e.Turn(w.net.Now(), Wall(w.net.Now()))
	a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock} })
	a.e.Turn(w.net.Now(), Wall(w.net.Now()))
	canceled := int(abi.StatusCanceled)
	if st := a.statuses(); !slices.Equal(st, []int{canceled, canceled}) || a.hwm() != 0 || len(a.back) != 1 {
		t.Errorf("at once: statuses %v, HWM %d, returned %v", st, a.hwm(), a.back)
	}
	w.run()
	if st := a.statuses(); !slices.Equal(st, []int{canceled, canceled}) || a.hwm() != 2 || len(a.back) != 2 {
		t.Errorf("in the end: statuses %v, HWM %d, returned %v", st, a.hwm(), a.back)
	}
	w.clean2(a, b)
}
