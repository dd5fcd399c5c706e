package sim

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs"
)

// word is 8 bytes of a region that atomic operations use. All values that operations saw and
// left must fit one order (linearizability). A counted word also shows how often each operation
// has run.
type word struct {
	r       *region
	off     int
	counted bool // operation i adds 1 to the ith pair of bits, so the pair counts its runs
	init    uint64
	ops     []*op
	cpu     []cpuAdd
	n       int // of a counted word: how many operations were drawn
}

const (
	perCounted = 32 // as many as a word has pairs of bits
	perWord    = 24 // the linearizability check takes exponential time in the worst case
)

// cpuAdd is an addition by the processor of the word's owner.
type cpuAdd struct {
	at       int64
	add, old uint64
}

// atomicOp describes one atomic operation and what is known of its run.
type atomicOp struct {
	kind                             abi.OpKind
	add, noCarry                     uint64
	compare, swap, compared, swapped uint64 // compared and swapped are masks
	masked                           bool
	word                             *word

	call, ret int64 // ticks; ret 0: the initiator does not know whether the operation has ended
	old       uint64
	taken     bool // old is the value that came to local memory
}

// extended reports whether the operation needs a device with masked atomics.
func (a *atomicOp) extended() bool {
	return a.masked && a.compared&a.swapped != ^uint64(0) || a.noCarry != 0
}

func (a *atomicOp) describe(o *op) *rds.Atomic {
	return &rds.Atomic{CmpSwap: a.kind == abi.OpCmpSwap, Cookie: o.r.r.Cookie(), RemoteOff: uint64(o.off),
		Local: rds.Segment{Buf: o.local.buf, Off: o.loff, Len: 8},
		Add:   a.add, NoCarry: a.noCarry, Compare: a.compare, Swap: a.swap,
		Masked: a.masked, CompareMask: a.compared, SwapMask: a.swapped,
		Token: o.token, Notify: o.flags.Notify, Report: o.flags.Report, Silent: o.flags.Silent}
}

func (a *atomicOp) take(local []byte) { a.old, a.taken = binary.NativeEndian.Uint64(local), true }

// apply returns the value of a word after the operation, if v was its value before.
func (a *atomicOp) apply(v uint64) uint64 {
	switch {
	case a.kind == abi.OpFetchAdd && a.noCarry == 0:
		return v + a.add
	case a.kind == abi.OpFetchAdd:
		var sum, carry uint64
		for i := range 64 {
			s := v>>i&1 + a.add>>i&1 + carry
			sum |= s & 1 << i
			if carry = s >> 1; a.noCarry>>i&1 != 0 {
				carry = 0
			}
		}
		return sum
	case !a.masked:
		if v == a.compare {
			return a.swap
		}
	case (v^a.compare)&a.compared == 0:
		return v&^a.swapped | a.swap&a.swapped
	}
	return v
}

// value returns what the word holds, and set changes that. They need no atomic instructions
// because a run is one goroutine.
func (k *word) value() uint64 { return binary.NativeEndian.Uint64(k.r.bytes()[k.off:]) }
func (k *word) set(v uint64)  { binary.NativeEndian.PutUint64(k.r.bytes()[k.off:], v) }

// newWords divides r into words.
func (r *region) newWords() {
	for off := 0; off+8 <= r.n; off += 8 {
		k := &word{r: r, off: off, counted: r.w.rOp.IntN(2) == 0}
		switch {
		case k.counted:
			k.set(0)
		case r.w.rOp.IntN(2) == 0:
			k.set(uint64(r.w.rOp.IntN(4))) // small, so that comparisons hit
		}
		k.init = k.value()
		r.words = append(r.words, k)
	}
}

// draw chooses an operation on one of r's words. It returns nil if the word has had enough
// operations.
func (r *region) draw() *atomicOp {
	rnd := r.w.rOp
	k := pick(rnd, r.words...)
	a := &atomicOp{word: k}
	if k.counted {
		if k.n == perCounted {
			return nil
		}
		a.kind, a.add = abi.OpFetchAdd, 1<<(2*k.n)
		k.n++ // even if the send fails: no other operation may use this pair of bits
		return a
	}
	if len(k.ops)+len(k.cpu) >= perWord {
		return nil
	}
	near := uint64(rnd.IntN(4)) // a value that the word is likely to hold
	if rnd.IntN(4) == 0 {
		near = k.value()
	}
	mask := func() uint64 { return pick(rnd, 3, 1, 0xff00, ^uint64(0), 0, rnd.Uint64()) }
	switch rnd.IntN(6) {
	case 0, 1:
		a.kind, a.add = abi.OpFetchAdd, pick(rnd, 1, ^uint64(0), rnd.Uint64())
	case 2:
		a.kind, a.add, a.noCarry = abi.OpFetchAdd, pick(rnd, 1, ^uint64(0), rnd.Uint64()), pick(rnd, 1, 1<<63, 1<<31|1<<63, rnd.Uint64())
	case 3, 4:
		a.kind, a.compare, a.swap = abi.OpCmpSwap, near, uint64(rnd.IntN(4))
	default:
		a.kind, a.masked, a.compare, a.swap = abi.OpCmpSwap, true, near, pick(rnd, uint64(rnd.IntN(4)), rnd.Uint64())
		a.compared, a.swapped = mask(), mask()
	}
	return a
}

// addHere has the processor of the region's owner add to one of its words.
func (r *region) addHere() {
	w := r.w
	k := pick(w.rOp, r.words...)
	if k.counted || len(k.ops)+len(k.cpu) >= perWord || r.revoked {
		return
	}
	add := uint64(1 + w.rOp.IntN(3))
	k.cpu = append(k.cpu, cpuAdd{w.tick(), add, k.value()})
	k.set(k.value() + add)
}

// did says whether an operation has run, as far as its status and message show.
type did int

const (
	maybe did = iota
	has
	hasNot
)

func (o *op) did() did {
	switch {
	case o.m.unposted():
		return hasNot
	case o.m.delivered, o.a.ret != 0:
		return has
	}
	for _, x := range o.m.ops {
		if x.fate != nil && x.fate.Status == rds.Success {
			return has
		}
	}
	if o.carried() && o.fate != nil && never(o.fate.Status) {
		return hasNot
	}
	return maybe
}

// resulted reports whether the value before the operation certainly came to local memory. The
// result of a carried atomic is no longer taken when the message has been withdrawn, though the
// message may be delivered.
func (o *op) resulted() bool {
	return !o.carried() || o.fate != nil && o.fate.Status == rds.Success
}

// carried reports whether the message carries the atomic, so that the atomic runs if and only if
// the message is accepted.
func (o *op) carried() bool {
	const all = verbs.CapAtomics | verbs.CapMaskedAtomic | verbs.CapGlobalAtomics
	return o.a != nil && o.r.e.h != o.e.h && o.w.net.Attr.Caps&all == all
}

// check checks the final value of a counted word: each operation has run at most once, and
// exactly once if its status says so. It also checks that the values that the operations
// returned fit one order.
func (k *word) check() {
	final := k.value()
	if k.counted {
		for _, o := range k.ops {
			times := (final - k.init) / o.a.add & 3
			if d := o.did(); times > 1 || times == 0 && d == has || times == 1 && d == hasNot {
				broken("never twice", "operation %d at %d of region %d ran %d times, by its status and message: %v", o.token, k.off, k.r.id, times,
					[...]string{"perhaps", "once", "not at all"}[d])
			}
		}
	}
	if len(k.ops) == 0 {
		for _, c := range k.cpu {
			final -= c.add
		}
		if final != k.init {
			broken("access", "the word at %d of region %d is %#x, want %#x: nobody used it", k.off, k.r.id, final, k.init)
		}
		return
	}
	h := k.history(final)
	if r := porcupine.CheckOperationsTimeout(atomicModel(k.init), h, 5*time.Second); r == porcupine.Illegal {
		var text strings.Builder
		for _, x := range h {
			fmt.Fprintf(&text, "\n  %d to %d: %v", x.Call, x.Return, x.Output)
			if a := x.Input.(*atomicOp); a != nil {
				fmt.Fprintf(&text, " %v add %#x no carry %#x compare %#x/%#x swap %#x/%#x", a.kind, a.add, a.noCarry, a.compare, a.compared, a.swap, a.swapped)
			}
		}
		broken("linearizable", "the word at %d of region %d was %#x in the beginning and %#x at the end; call, return, value before: %s",
			k.off, k.r.id, k.init, final, text.String())
	}
}

// before is the value before an operation, if it is known.
type before struct {
	known bool
	value uint64
}

// history returns the word's operations for the linearizability checker. An operation that may
// not have run returns after the last entry, which reads the final value.
func (k *word) history(final uint64) (h []porcupine.Operation) {
	end := k.r.w.ticks + 1
	n := 0
	add := func(a *atomicOp, call, ret int64, out before) {
		h = append(h, porcupine.Operation{ClientId: n, Input: a, Call: call, Return: ret, Output: out})
		n++
	}
	for _, o := range k.ops {
		switch a := o.a; o.did() {
		case has:
			ret := a.ret
			if ret == 0 {
				ret = end + 1
			}
			add(a, a.call, ret, before{a.taken && o.resulted(), a.old})
		case maybe:
			add(a, a.call, end+1, before{})
		}
	}
	for _, c := range k.cpu {
		add(&atomicOp{kind: abi.OpFetchAdd, add: c.add}, c.at, c.at, before{true, c.old})
	}
	add(nil, end, end, before{true, final})
	return h
}

func atomicModel(init uint64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return init },
		Step: func(state, input, output any) (bool, any) {
			v, out := state.(uint64), output.(before)
			if out.known && out.value != v {
				return false, state
			}
			if a := input.(*atomicOp); a != nil {
				v = a.apply(v)
			}
			return true, v
		},
	}
}
