package rdmaop

import (
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/verbs"
)

func attr(maxSGE, maxReadSGE int, maxMsg uint32) *verbs.DeviceAttr {
	return &verbs.DeviceAttr{MaxSGE: maxSGE, MaxReadSGE: maxReadSGE, MaxMsg: maxMsg, Caps: verbs.CapAtomics | verbs.CapMaskedAtomic}
}

func newOp(k abi.OpKind, segs ...Seg) *Op {
	o := &Op{Kind: k, Cookie: MakeCookie(0xabcd, 0x123), RemoteOff: 0x1000, Segs: segs}
	if k.Atomic() {
		o.RemoteOff += 5 // aligned
	}
	for _, s := range segs {
		o.Len += uint64(s.Len)
	}
	return o
}

func TestAppendWRs(t *testing.T) {
	s := func(addr uint64, n uint32) Seg { return Seg{LKey: 7, Addr: addr, Len: n} }
	type wr struct {
		remote uint64
		sizes  []uint32
	}
	const base = 0x1123 // cookie offset + RemoteOff
	for _, c := range []struct {
		name string
		op   *Op
		attr *verbs.DeviceAttr
		want []wr
	}{
		{"one segment", newOp(abi.OpWrite, s(0, 100)), attr(4, 1, 1<<20), []wr{{base, []uint32{100}}}},
		{"one byte", newOp(abi.OpWrite, s(9, 1)), attr(1, 1, 1), []wr{{base, []uint32{1}}}},
		{"fits the SGEs", newOp(abi.OpWrite, s(0, 1), s(10, 2), s(20, 3)), attr(3, 1, 1<<20),
			[]wr{{base, []uint32{1, 2, 3}}}},
		{"cut by SGEs", newOp(abi.OpWrite, s(0, 1), s(10, 2), s(20, 3)), attr(2, 1, 1<<20),
			[]wr{{base, []uint32{1, 2}}, {base + 3, []uint32{3}}}},
		{"a READ has its own SGE limit", newOp(abi.OpRead, s(0, 1), s(10, 2), s(20, 3)), attr(4, 1, 1<<20),
			[]wr{{base, []uint32{1}}, {base + 1, []uint32{2}}, {base + 3, []uint32{3}}}},
		{"cut by message size", newOp(abi.OpWrite, s(0, 25)), attr(4, 1, 10),
			[]wr{{base, []uint32{10}}, {base + 10, []uint32{10}}, {base + 20, []uint32{5}}}},
		{"exactly the message size", newOp(abi.OpWrite, s(0, 20)), attr(4, 1, 10),
			[]wr{{base, []uint32{10}}, {base + 10, []uint32{10}}}},
		{"a segment over the border", newOp(abi.OpWrite, s(0, 8), s(100, 8)), attr(4, 1, 10),
			[]wr{{base, []uint32{8, 2}}, {base + 10, []uint32{6}}}},
		{"the longest segment", newOp(abi.OpWrite, s(0, MaxSegLen)), attr(4, 1, 1<<31),
			[]wr{{base, []uint32{MaxSegLen}}}},
		{"a device without limits", newOp(abi.OpWrite, s(0, MaxSegLen), s(1<<32, MaxSegLen)), attr(4, 1, math.MaxUint32),
			[]wr{{base, []uint32{MaxSegLen, MaxSegLen - 1}}, {base + math.MaxUint32, []uint32{1}}}},
		{"atomic", newOp(abi.OpFetchAdd, s(16, 8)), attr(4, 1, 1<<20), []wr{{base + 5, []uint32{8}}}},
	} {
		var sges []verbs.SGE
		got := c.op.AppendWRs(nil, &sges, c.attr)
		if n := c.op.WRCount(c.attr.MaxSGE, c.attr.MaxReadSGE, c.attr.MaxMsg); n != len(got) {
			t.Errorf("%s: WRCount %d, but %d requests", c.name, n, len(got))
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %d requests, want %d", c.name, len(got), len(c.want))
			continue
		}
		for i, w := range c.want {
			g := got[i]
			if g.RemoteAddr != w.remote || g.RKey != 0xabcd || g.Flags != 0 || g.WRID != 0 || len(g.SGL) != len(w.sizes) {
				t.Errorf("%s: request %d is %+v, want %+v", c.name, i, g, w)
				continue
			}
			for j, n := range w.sizes {
				if g.SGL[j].Length != n || g.SGL[j].LKey != 7 {
					t.Errorf("%s: request %d piece %d is %+v, want %d bytes", c.name, i, j, g.SGL[j], n)
				}
			}
		}
	}
}

func TestOpcodes(t *testing.T) {
	const ones = ^uint64(0)
	for _, c := range []struct {
		name   string
		kind   abi.OpKind
		in     AtomicArgs
		opcode verbs.Opcode
		args   verbs.AtomicArgs
		rights abi.Rights
		needs  verbs.Caps
	}{
		{"write", abi.OpWrite, AtomicArgs{}, verbs.OpRDMAWrite, verbs.AtomicArgs{}, abi.RightWrite, 0},
		{"read", abi.OpRead, AtomicArgs{}, verbs.OpRDMARead, verbs.AtomicArgs{}, abi.RightRead, 0},
		{"masks of no atomic", abi.OpRead, AtomicArgs{CompareMask: 1}, verbs.OpRDMARead, verbs.AtomicArgs{}, abi.RightRead, 0},
		{"fetch and add", abi.OpFetchAdd, AtomicArgs{CompareAdd: 3}, verbs.OpAtomicFetchAdd,
			verbs.AtomicArgs{CompareAdd: 3}, abi.RightAtomic, verbs.CapAtomics},
		{"masked fetch and add", abi.OpFetchAdd, AtomicArgs{CompareAdd: 3, CompareMask: 8}, verbs.OpAtomicFetchAdd,
			verbs.AtomicArgs{CompareAdd: 3, CompareAddMask: 8, Masked: true}, abi.RightAtomic, verbs.CapAtomics | verbs.CapMaskedAtomic},
		{"compare and swap", abi.OpCmpSwap, AtomicArgs{3, 4, ones, ones}, verbs.OpAtomicCmpAndSwp,
			verbs.AtomicArgs{CompareAdd: 3, Swap: 4}, abi.RightAtomic, verbs.CapAtomics},
		{"compare of a part", abi.OpCmpSwap, AtomicArgs{3, 4, ones - 1, ones}, verbs.OpAtomicCmpAndSwp,
			verbs.AtomicArgs{CompareAdd: 3, Swap: 4, CompareAddMask: ones - 1, SwapMask: ones, Masked: true},
			abi.RightAtomic, verbs.CapAtomics | verbs.CapMaskedAtomic},
		{"swap of a part", abi.OpCmpSwap, AtomicArgs{3, 4, ones, 1 << 63}, verbs.OpAtomicCmpAndSwp,
			verbs.AtomicArgs{CompareAdd: 3, Swap: 4, CompareAddMask: ones, SwapMask: 1 << 63, Masked: true},
			abi.RightAtomic, verbs.CapAtomics | verbs.CapMaskedAtomic},
		{"masks of 0", abi.OpCmpSwap, AtomicArgs{}, verbs.OpAtomicCmpAndSwp, verbs.AtomicArgs{Masked: true},
			abi.RightAtomic, verbs.CapAtomics | verbs.CapMaskedAtomic},
	} {
		o := newOp(c.kind, Seg{LKey: 1, Addr: 8, Len: 8})
		o.Atomic = c.in
		for _, caps := range []verbs.Caps{0, verbs.CapAtomics, verbs.CapMaskedAtomic, verbs.CapAtomics | verbs.CapMaskedAtomic} {
			a := attr(4, 4, 1<<20)
			a.Caps = caps
			var sges []verbs.SGE
			wrs := o.AppendWRs(nil, &sges, a)
			if caps&c.needs != c.needs {
				if len(wrs) != 0 || o.Supported(caps) {
					t.Errorf("%s with caps %#x: %d requests, supported %v", c.name, caps, len(wrs), o.Supported(caps))
				}
				continue
			}
			if len(wrs) != 1 || wrs[0].Op != c.opcode || wrs[0].Atomic != c.args || !o.Supported(caps) {
				t.Errorf("%s with caps %#x: %+v", c.name, caps, wrs)
			}
		}
		if o.Fenced() != (c.kind != abi.OpWrite) || o.Rights() != c.rights {
			t.Errorf("%s: fenced %v, rights %d", c.name, o.Fenced(), o.Rights())
		}
	}
}

// bitwise is Apply, a bit at a time, from the words of the specification.
func bitwise(o *Op, old uint64) (val uint64) {
	a, carry := &o.Atomic, uint64(0)
	same := true
	for i := range 64 {
		b := func(w uint64) uint64 { return w >> i & 1 }
		switch o.Kind {
		case abi.OpFetchAdd:
			sum := b(old) + b(a.CompareAdd) + carry
			val |= sum & 1 << i
			if carry = sum >> 1; b(a.CompareMask) == 1 {
				carry = 0
			}
		case abi.OpCmpSwap:
			same = same && (b(a.CompareMask) == 0 || b(old) == b(a.CompareAdd))
			if b(a.SwapMask) == 1 {
				val |= b(a.Swap) << i
			} else {
				val |= b(old) << i
			}
		}
	}
	if o.Kind == abi.OpCmpSwap && !same {
		return old
	}
	return val
}

func TestApply(t *testing.T) {
	const ones = ^uint64(0)
	for _, c := range []struct {
		kind      abi.OpKind
		args      AtomicArgs
		old, want uint64
	}{
		{abi.OpFetchAdd, AtomicArgs{CompareAdd: 1}, 41, 42},
		{abi.OpFetchAdd, AtomicArgs{CompareAdd: 1}, ones, 0},
		{abi.OpFetchAdd, AtomicArgs{CompareAdd: 1 | 1<<32, CompareMask: 1<<31 | 1<<63}, ones, 0},
		{abi.OpFetchAdd, AtomicArgs{CompareAdd: 1, CompareMask: 1 << 31}, 1<<32 - 1, 0},
		{abi.OpFetchAdd, AtomicArgs{CompareAdd: ones, CompareMask: ones}, ones, 0},
		{abi.OpCmpSwap, AtomicArgs{7, 9, ones, ones}, 7, 9},
		{abi.OpCmpSwap, AtomicArgs{7, 9, ones, ones}, 8, 8},
		{abi.OpCmpSwap, AtomicArgs{0xff07, 9, 0xff, 0xff}, 0xab07, 0xab09},
		{abi.OpCmpSwap, AtomicArgs{7, 9, 0, ones}, 8, 9},
		{abi.OpCmpSwap, AtomicArgs{7, 9, ones, 0}, 7, 7},
	} {
		o := &Op{Kind: c.kind, Atomic: c.args}
		if got := o.Apply(c.old); got != c.want {
			t.Errorf("%v %+v of %#x: %#x, want %#x", c.kind, c.args, c.old, got, c.want)
		}
	}
	replay(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 6))
		for range 2000 {
			o := &Op{Kind: abi.OpFetchAdd + abi.OpKind(r.IntN(2)), Atomic: AtomicArgs{r.Uint64(), r.Uint64(), r.Uint64() & r.Uint64(), r.Uint64()}}
			old := r.Uint64()
			if r.IntN(2) == 0 { // a comparison that holds
				old = old&^o.Atomic.CompareMask | o.Atomic.CompareAdd&o.Atomic.CompareMask
			}
			if got, want := o.Apply(old), bitwise(o, old); got != want {
				t.Errorf("%v %+v of %#x: %#x, want %#x", o.Kind, o.Atomic, old, got, want)
			}
		}
	})
}

// TestChainCoversOp cuts random operations and checks that the requests are
// the segments, byte for byte and in order, within every limit.
func TestChainCoversOp(t *testing.T) {
	replay(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		for range 500 {
			kind := abi.OpWrite + abi.OpKind(r.IntN(2))
			var segs []Seg
			for i := range 1 + r.IntN(20) {
				segs = append(segs, Seg{LKey: uint32(i + 1), Addr: uint64(r.IntN(1 << 20)), Len: 1 + uint32(r.IntN(300))})
			}
			o := newOp(kind, segs...)
			a := attr(1+r.IntN(5), 1+r.IntN(3), 1+uint32(r.IntN(500)))
			sges := make([]verbs.SGE, 3, 4) // others' pieces stay
			dst := make([]verbs.SendWR, 2)
			wrs := o.AppendWRs(dst, &sges, a)[2:]
			limit := a.MaxSGE
			if kind == abi.OpRead {
				limit = a.MaxReadSGE
			}
			remote := uint64(0x1123)
			seg, used := 0, uint32(0)
			total := 0
			for _, wr := range wrs {
				if wr.RemoteAddr != remote || len(wr.SGL) == 0 || len(wr.SGL) > limit {
					t.Errorf("request at %#x with %d pieces, want %#x", wr.RemoteAddr, len(wr.SGL), remote)
				}
				var n uint32
				for _, e := range wr.SGL {
					s := segs[seg]
					if e.Length == 0 || e.LKey != s.LKey || e.Addr != s.Addr+uint64(used) || used+e.Length > s.Len {
						t.Errorf("piece %+v at %d of segment %+v", e, used, s)
						return
					}
					n += e.Length
					total++
					if used += e.Length; used == s.Len {
						seg, used = seg+1, 0
					}
				}
				if n > a.MaxMsg {
					t.Errorf("%d bytes in a request, limit %d", n, a.MaxMsg)
				}
				remote += uint64(n)
			}
			if seg != len(segs) || remote != 0x1123+o.Len || len(sges) != 3+total {
				t.Errorf("%d of %d segments, remote up to %#x, %d pieces", seg, len(segs), remote, len(sges))
			}
			if n := o.WRCount(a.MaxSGE, a.MaxReadSGE, a.MaxMsg); n != len(wrs) {
				t.Errorf("WRCount %d, %d requests", n, len(wrs))
			}
			if t.Failed() {
				return
			}
		}
	})
}

func TestValidate(t *testing.T) {
	eight := Seg{Addr: 8, Len: 8}
	edit := func(o *Op, f func(*Op)) *Op { f(o); return o }
	for _, c := range []struct {
		name string
		op   *Op
		want unix.Errno
	}{
		{"write", newOp(abi.OpWrite, eight), 0},
		{"atomic", newOp(abi.OpCmpSwap, eight), 0},
		{"segment to the end of the address space", newOp(abi.OpWrite, Seg{Addr: math.MaxUint64 - 7, Len: 8}), 0},
		{"1024 segments", newOp(abi.OpWrite, make1(1024)...), 0},
		{"1025 segments", newOp(abi.OpWrite, make1(1025)...), unix.EINVAL},
		{"no kind", newOp(0, eight), unix.EINVAL},
		{"unknown kind", newOp(5, eight), unix.EINVAL},
		{"no segment", newOp(abi.OpWrite), unix.EINVAL},
		{"empty segment", newOp(abi.OpWrite, eight, Seg{Addr: 8}), unix.EINVAL},
		{"segment too long", newOp(abi.OpWrite, Seg{Len: MaxSegLen + 1}), unix.EINVAL},
		{"segment wraps around", newOp(abi.OpWrite, Seg{Addr: math.MaxUint64 - 6, Len: 8}), unix.EINVAL},
		{"Len below the sum", edit(newOp(abi.OpWrite, eight), func(o *Op) { o.Len-- }), unix.EINVAL},
		{"Len above the sum", edit(newOp(abi.OpWrite, eight), func(o *Op) { o.Len++ }), unix.EINVAL},
		{"atomic from an odd local address", newOp(abi.OpFetchAdd, Seg{Addr: 12, Len: 8}), unix.EFAULT},
		{"atomic at an odd remote address", edit(newOp(abi.OpFetchAdd, eight), func(o *Op) { o.RemoteOff += 4 }), unix.EINVAL},
		{"atomic of a region at an odd address", edit(newOp(abi.OpFetchAdd, eight), func(o *Op) { o.Cookie = MakeCookie(1, 0x1004) }), unix.EINVAL},
		{"atomic at an even address of it", edit(newOp(abi.OpFetchAdd, eight), func(o *Op) { o.Cookie = MakeCookie(1, 0x1004); o.RemoteOff = 4 }), 0},
		{"atomic of 4 bytes", newOp(abi.OpFetchAdd, Seg{Len: 4}), unix.EINVAL},
		{"atomic in two segments", newOp(abi.OpFetchAdd, Seg{Len: 4}, Seg{Len: 4}), unix.EINVAL},
		{"remote range wraps around", edit(newOp(abi.OpWrite, eight), func(o *Op) { o.RemoteOff = math.MaxUint64 - 0x123 - 7 }), unix.ERANGE},
		{"remote address wraps around", edit(newOp(abi.OpWrite, eight), func(o *Op) { o.RemoteOff = math.MaxUint64 }), unix.ERANGE},
	} {
		if got := c.op.Validate(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func make1(n int) []Seg {
	s := make([]Seg, n)
	for i := range s {
		s[i].Len = 1
	}
	return s
}

func TestCookie(t *testing.T) {
	if c := MakeCookie(0x89abcdef, 0x01234567); c != 0x0123456789abcdef {
		t.Errorf("MakeCookie: %#x", c)
	}
	if k := (&Op{Cookie: 0x0123456789abcdef}).RKey(); k != 0x89abcdef {
		t.Errorf("RKey: %#x", k)
	}
}
