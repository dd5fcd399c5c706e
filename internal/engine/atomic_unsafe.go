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
