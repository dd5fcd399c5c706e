package sim

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// wordRun is a word whose operations a test case makes up.
type wordRun struct{ *word }

func newWordRun(counted bool, init uint64) wordRun {
	w := &world{net: &sim.Network{}}
	r := &region{w: w, e: &endpoint{h: &host{}}, n: 8, off: guard, mem: &memory{b: make([]byte, 8+2*guard)}}
	k := &word{r: r, counted: counted, init: init}
	k.set(init)
	return wordRun{k}
}

// carry lets messages carry the operations.
func (k wordRun) carry() {
	k.r.w.net.Attr.Caps = verbs.CapAtomics | verbs.CapMaskedAtomic | verbs.CapGlobalAtomics
}

// add adds an operation that ended as end and errno say.
func (k wordRun) add(a atomicOp, end rds.Status, errno bool, call, ret int64, old uint64) {
	a.word, a.call, a.old, a.taken = k.word, call, old, end == rds.Success
	o := &op{w: k.r.w, e: &endpoint{h: &host{}}, token: uint64(len(k.ops) + 1), a: &a, r: k.r}
	o.fate = &rds.Completion{Status: end}
	if errno {
		o.fate.Errno = 22
	}
	if end == rds.Success {
		a.ret = ret
	}
	o.a = &a
	o.m = &message{ops: []*op{o}}
	k.ops = append(k.ops, o)
	k.r.w.ticks = max(k.r.w.ticks, call, ret)
}

// TestWordCheck checks that the checkers of words find wrong histories and accept right ones.
func TestWordCheck(t *testing.T) {
	plus := func(n uint64) atomicOp { return atomicOp{kind: abi.OpFetchAdd, add: n} }
	swap := func(a, b uint64) atomicOp { return atomicOp{kind: abi.OpCmpSwap, compare: a, swap: b} }
	for _, c := range []struct {
		name  string
		do    func(k wordRun)
		count bool
		final uint64
		want  string
	}{
		{"nobody", func(wordRun) {}, false, 5, ""},
		{"nobody, and it changed", func(wordRun) {}, false, 6, "access"},
		{"own additions", func(k wordRun) { k.cpu = append(k.cpu, cpuAdd{1, 2, 5}) }, false, 7, ""},
		{"one after the other", func(k wordRun) {
			k.add(plus(1), rds.Success, false, 1, 2, 5)
			k.add(swap(6, 9), rds.Success, false, 3, 4, 6)
		}, false, 9, ""},
		{"one after the other, turned", func(k wordRun) {
			k.add(plus(1), rds.Success, false, 1, 2, 6)
			k.add(plus(1), rds.Success, false, 3, 4, 5)
		}, false, 7, "linearizable"},
		{"at once, turned", func(k wordRun) {
			k.add(plus(1), rds.Success, false, 1, 4, 6)
			k.add(plus(1), rds.Success, false, 2, 3, 5)
		}, false, 7, ""},
		{"the same value twice", func(k wordRun) {
			k.add(plus(1), rds.Success, false, 1, 4, 5)
			k.add(plus(1), rds.Success, false, 2, 3, 5)
		}, false, 7, "linearizable"},
		{"a lost update", func(k wordRun) { k.add(plus(1), rds.Success, false, 1, 2, 5) }, false, 5, "linearizable"},
		{"dropped, has run", func(k wordRun) { k.add(plus(1), rds.Dropped, false, 1, 2, 0) }, false, 6, ""},
		{"dropped, has not run", func(k wordRun) { k.add(plus(1), rds.Dropped, false, 1, 2, 0) }, false, 5, ""},
		{"dropped, ran twice", func(k wordRun) { k.add(plus(1), rds.Dropped, false, 1, 2, 0) }, false, 7, "linearizable"},
		{"carried, dropped, has not run", func(k wordRun) { k.carry(); k.add(plus(1), rds.Dropped, false, 1, 2, 0) }, false, 5, ""},
		{"carried, dropped, has run", func(k wordRun) { k.carry(); k.add(plus(1), rds.Dropped, false, 1, 2, 0) }, false, 6, "linearizable"},
		{"carried, one after the other", func(k wordRun) {
			k.carry()
			k.add(plus(1), rds.Success, false, 1, 2, 5)
			k.add(swap(6, 9), rds.Success, false, 3, 4, 6)
		}, false, 9, ""},
		{"unknown, seen by the next", func(k wordRun) {
			k.add(plus(1), rds.Unknown, false, 1, 2, 0)
			k.add(plus(1), rds.Success, false, 3, 4, 6)
		}, false, 7, ""},
		{"before it was sent", func(k wordRun) {
			k.add(plus(1), rds.Success, false, 1, 2, 7)
			k.add(plus(2), rds.Unknown, false, 3, 4, 0)
		}, false, 8, "linearizable"},
		{"refused, has run", func(k wordRun) { k.add(plus(1), rds.RemoteError, true, 1, 2, 0) }, false, 6, "linearizable"},

		{"counted", func(k wordRun) {
			k.add(plus(1), rds.Success, false, 1, 2, 0)
			k.add(plus(1<<2), rds.Dropped, false, 3, 4, 0)
			k.add(plus(1<<4), rds.RemoteError, true, 5, 6, 0)
		}, true, 1 | 1<<2, ""},
		{"counted, twice", func(k wordRun) { k.add(plus(1), rds.Unknown, false, 1, 2, 0) }, true, 2, "never twice"},
		{"counted, not at all", func(k wordRun) { k.add(plus(1), rds.Success, false, 1, 2, 0) }, true, 0, "never twice"},
		{"counted, refused", func(k wordRun) { k.add(plus(1), rds.RemoteError, true, 1, 2, 0) }, true, 1, "never twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			init := uint64(5)
			if c.count {
				init = 0
			}
			k := newWordRun(c.count, init)
			c.do(k)
			k.set(c.final)
			if got := ruleOf(k.check); got != c.want {
				t.Errorf("broken rule %q, want %q", got, c.want)
			}
		})
	}
}

// TestMaskedAtomics checks apply, which the ledger trusts, against examples from the device's
// documentation and plain arithmetic.
func TestMaskedAtomics(t *testing.T) {
	for _, c := range []struct {
		name string
		a    atomicOp
		in   uint64
		want uint64
	}{
		{"no boundary", atomicOp{kind: abi.OpFetchAdd, add: 1}, ^uint64(0), 0},
		{"boundary at the top", atomicOp{kind: abi.OpFetchAdd, add: 1, noCarry: 1 << 63}, ^uint64(0), 0},
		{"two halves", atomicOp{kind: abi.OpFetchAdd, add: 1<<32 | 1, noCarry: 1<<31 | 1<<63}, 0xffffffff, 1 << 32},
		{"every bit", atomicOp{kind: abi.OpFetchAdd, add: 0xf0, noCarry: ^uint64(0)}, 0xff, 0x0f},
		{"equal", atomicOp{kind: abi.OpCmpSwap, compare: 3, swap: 4}, 3, 4},
		{"not equal", atomicOp{kind: abi.OpCmpSwap, compare: 3, swap: 4}, 2, 2},
		{"equal under the mask", atomicOp{kind: abi.OpCmpSwap, masked: true, compare: 0xff03, compared: 0xff, swap: 0x1234, swapped: 0xff00}, 0x7703, 0x1203},
		{"not equal under the mask", atomicOp{kind: abi.OpCmpSwap, masked: true, compare: 2, compared: 2, swap: 1, swapped: 1}, 4, 4},
		{"nothing compared", atomicOp{kind: abi.OpCmpSwap, masked: true, swap: 9, swapped: ^uint64(0)}, 4, 9},
	} {
		if got := c.a.apply(c.in); got != c.want {
			t.Errorf("%s: %#x becomes %#x, want %#x", c.name, c.in, got, c.want)
		}
	}
}
