package soft

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// Atomics served to peers and those of a process on the same word lose nothing
// to each other.
func TestAtomicAgainstProcessor(t *testing.T) {
	mem := make([]byte, 64)
	word := (*uint64)(unsafe.Pointer(&mem[8]))
	const rounds = 20_000
	var wg sync.WaitGroup
	wg.Go(func() {
		for range rounds {
			atomic.AddUint64(word, 1)
		}
	})
	for range rounds {
		runAtomic(&iwarp.AtomicRequest{Op: iwarp.AtomicFetchAdd, Data: 1}, mem[8:])
	}
	wg.Wait()
	if *word != 2*rounds {
		t.Errorf("%d, want %d", *word, 2*rounds)
	}
}

// Memory that is not aligned as its address on the wire works, too.
func TestAtomicUnaligned(t *testing.T) {
	mem := make([]byte, 64)
	binary.NativeEndian.PutUint64(mem[3:], 41)
	if old := runAtomic(&iwarp.AtomicRequest{Op: iwarp.AtomicFetchAdd, Data: 1}, mem[3:]); old != 41 || binary.NativeEndian.Uint64(mem[3:]) != 42 {
		t.Errorf("found %d, left %d", old, binary.NativeEndian.Uint64(mem[3:]))
	}
}
