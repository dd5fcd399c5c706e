package engine

import (
	"sync/atomic"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rdmaop"
)

// Atomics between sockets of this host run here, one at a time and as single instructions
// of the processor. So they are atomic towards other RDS atomics on the memory, and towards
// the atomics of processes that map it.

// atomicTries bounds how often an atomic is tried in one turn: a process that
// writes there without end must not hold up the engine.
const atomicTries = 64

// runAtomic carries out o on the 8 bytes of target, aligned, and returns what was
// there before; false: others wrote there at the same moment, again and again.
func runAtomic(o *rdmaop.Op, target []byte) (old uint64, ok bool) {
	word := (*uint64)(unsafe.Pointer(unsafe.SliceData(target[:8])))
	if o.Kind == abi.OpFetchAdd && !o.Masked() {
		return atomic.AddUint64(word, o.Atomic.CompareAdd) - o.Atomic.CompareAdd, true
	}
	for range atomicTries {
		old = atomic.LoadUint64(word)
		val := o.Apply(old)
		if val == old || atomic.CompareAndSwapUint64(word, old, val) {
			return old, true
		}
	}
	return 0, false
}

// atomicRounds bounds how often a peer's atomic tries atomicTries times. It has to run now.
const atomicRounds = 64

// runAtomicNow is runAtomic for an atomic that cannot wait. If another process writes to
// target without end, that process's writes may be lost, as with verbs/soft.
func runAtomicNow(o *rdmaop.Op, target []byte) (old uint64) {
	for range atomicRounds {
		if old, ok := runAtomic(o, target); ok {
			return old
		}
	}
	word := (*uint64)(unsafe.Pointer(unsafe.SliceData(target[:8])))
	old = atomic.LoadUint64(word)
	atomic.StoreUint64(word, o.Apply(old))
	return old
}

// isWord reports whether an atomic can run on target: whether it is aligned in memory.
func isWord(target []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(target)))%8 == 0
}
