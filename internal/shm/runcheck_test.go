package shm

import (
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
)

// stateOf is a run's state word from its three numbers, whether they fit together or not.
func stateOf(length, datagrams, payload int) RunState {
	return RunState(length) | RunState(datagrams)<<runBits | RunState(payload)<<(2*runBits)
}

// TestRunCheck: each number that a state says has its bounds, and they depend on nothing
// but the state and the chunk. On the bound a state is taken, one step beyond it is not.
func TestRunCheck(t *testing.T) {
	const most = frames.MaxLen
	full := most / frames.Head
	for _, x := range []struct {
		name string
		s    RunState
		size int
		ok   bool
	}{
		{"one empty datagram", stateOf(4, 1, 0), RunHead + 4, true},
		{"in a chunk that is one byte short", stateOf(4, 1, 0), RunHead + 3, false},
		{"in a chunk of the head alone", stateOf(4, 1, 0), RunHead, false},
		{"no datagrams", stateOf(0, 0, 0), RunHead, false},
		{"no datagrams, but bytes", stateOf(8, 0, 8), MaxRun, false},
		{"datagrams without bytes", stateOf(0, 1, 0), MaxRun, false},
		{"datagrams that only just have their lengths", stateOf(40, 10, 0), MaxRun, true},
		{"one more than have", stateOf(40, 11, 0), MaxRun, false},
		{"payload of all bytes", stateOf(12, 1, 8), MaxRun, true},
		{"payload of one more", stateOf(12, 1, 9), MaxRun, false},
		{"all padding that can be", stateOf(12, 1, 5), MaxRun, true},
		{"more padding than that", stateOf(12, 1, 4), MaxRun, false},
		{"all padding of two datagrams", stateOf(16, 2, 2), MaxRun, true},
		{"more than that", stateOf(16, 2, 1), MaxRun, false},
		{"the longest run", stateOf(most, 1, most-4), MaxRun, true},
		{"the longest run of empty datagrams", stateOf(most, full, 0), MaxRun, true},
		{"longer than any", stateOf(most+4, 1, most), MaxRun, false},
		{"longer than any, in a chunk to match", stateOf(most+4, 1, most), MaxRun + 4, false},
		{"short, in too long a chunk", stateOf(4, 1, 0), MaxRun + 1, false},
		{"closed", stateOf(4, 1, 0) | RunClosed, MaxRun, false},
		{"closed and nothing else", RunClosed, MaxRun, false},
		{"asks for an ack", stateOf(4, 1, 0) | RunAckNow, MaxRun, true},
		{"asks for an ack of nothing", RunAckNow, MaxRun, false},
		{"all numbers at their ends", stateOf(runMask, runMask, runMask), MaxRun, false},
	} {
		if err := x.s.Check(x.size); (err == nil) != x.ok {
			t.Errorf("%s: state %#x in %d bytes: %v, want it taken: %v", x.name, uint64(x.s), x.size, err, x.ok)
		}
	}
}

// FuzzRunState: whatever a client writes into a state, what Check takes lies within the
// chunk and within the bounds of a run, so that the daemon needs to look at nothing else.
func FuzzRunState(f *testing.F) {
	f.Add(uint64(stateOf(12, 1, 8)), 256)
	f.Add(^uint64(0), MaxRun)
	f.Fuzz(func(t *testing.T, word uint64, size int) {
		s := RunState(word)
		if s.Check(size) != nil {
			return
		}
		n, length, payload := s.Datagrams(), s.Len(), s.Payload()
		if size > MaxRun || RunHead+length > size || length > frames.MaxLen {
			t.Errorf("%d bytes of frames in %d", length, size)
		}
		if n < 1 || n > length/frames.Head || payload > length-frames.Head*n {
			t.Errorf("%d datagrams of %d bytes in %d", n, payload, length)
		}
		if s&RunClosed != 0 {
			t.Error("a closed run is taken")
		}
	})
}
