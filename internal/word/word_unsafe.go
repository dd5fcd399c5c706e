// Package word carries out atomics on words of memory that processes share, one at a time and as
// single instructions of the processor. So they are atomic towards other RDS atomics on the memory,
// and towards the atomics of processes that map it.
package word

import (
	"sync/atomic"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rdmaop"
)

// tries bounds how often an atomic is tried in one turn: a process that
// writes there without end must not hold up the caller.
const tries = 64

// Run carries out o on the 8 bytes of target, aligned, and returns what was
// there before; false: others wrote there at the same moment, again and again.
func Run(o *rdmaop.Op, target []byte) (old uint64, ok bool) {
	word := (*uint64)(unsafe.Pointer(unsafe.SliceData(target[:8])))
	if o.Kind == abi.OpFetchAdd && !o.Masked() {
		return atomic.AddUint64(word, o.Atomic.CompareAdd) - o.Atomic.CompareAdd, true
	}
	for range tries {
		old = atomic.LoadUint64(word)
		val := o.Apply(old)
		if val == old || atomic.CompareAndSwapUint64(word, old, val) {
			return old, true
		}
	}
	return 0, false
}

// rounds bounds how often a peer's atomic tries tries times. It has to run now.
const rounds = 64

// RunNow is Run for an atomic that cannot wait. If another process writes to
// target without end, that process's writes may be lost, as with verbs/soft.
func RunNow(o *rdmaop.Op, target []byte) (old uint64) {
	for range rounds {
		if old, ok := Run(o, target); ok {
			return old
		}
	}
	word := (*uint64)(unsafe.Pointer(unsafe.SliceData(target[:8])))
	old = atomic.LoadUint64(word)
	atomic.StoreUint64(word, o.Apply(old))
	return old
}

// Is reports whether an atomic can run on target: whether it is aligned in memory.
func Is(target []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(target)))%8 == 0
}
