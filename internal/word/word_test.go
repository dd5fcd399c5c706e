package word

import (
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rdmaop"
)

// TestAtomicAgainstProcessor: atomics the engine runs and those of a process on
// the same word lose nothing to each other.
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
	done := 0
	ops := []*rdmaop.Op{
		{Kind: abi.OpFetchAdd, Atomic: rdmaop.AtomicArgs{CompareAdd: 1}},
		{Kind: abi.OpFetchAdd, Atomic: rdmaop.AtomicArgs{CompareAdd: 1 << 40, CompareMask: 1 << 39}},
	}
	for i := 0; done < rounds; i++ {
		if _, ok := Run(ops[i%2], mem[8:]); ok {
			done++
		} else {
			i-- // the same one again
		}
	}
	wg.Wait()
	if low, high := *word&(1<<40-1), *word>>40; low != rounds+rounds/2 || high != rounds/2 {
		t.Errorf("%d and %d, want %d and %d", low, high, rounds+rounds/2, rounds/2)
	}
}
