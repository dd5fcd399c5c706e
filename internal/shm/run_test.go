package shm

import (
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
)

// TestRunState: a state counts what was appended, and Check takes what can be.
func TestRunState(t *testing.T) {
	var s RunState
	payload, size := 0, 0
	for n, p := range []int{0, 1, 2, 3, 4, 1000, 0, 64} {
		s = s.Append(p)
		payload += p
		size += frames.Size(p)
		if s.Datagrams() != n+1 || s.Payload() != payload || s.Len() != size {
			t.Fatalf("after %d datagrams: %d of %d bytes in %d", n+1, s.Datagrams(), s.Payload(), s.Len())
		}
		if err := s.Check(RunHead + size); err != nil {
			t.Error(err)
		}
		if err := (s | RunAckNow).Check(RunHead + size); err != nil {
			t.Error(err)
		}
		if s.Check(RunHead+size-1) == nil {
			t.Errorf("%d bytes of frames fit %d", size, size-1)
		}
	}
	for name, c := range map[string]RunState{
		"no datagrams":          0,
		"closed":                s | RunClosed,
		"too many datagrams":    s + 8<<runBits<<6,
		"too much payload":      s + 30<<(2*runBits),
		"too little payload":    s - 30<<(2*runBits),
		"a bit without meaning": s | 1<<61,
		"everything":            ^RunState(0),
	} {
		if c.Check(MaxRun) == nil {
			t.Errorf("%s: state %#x is taken", name, uint64(c))
		}
	}
}

// TestRunWord: what is appended after the run was closed is refused, so that nobody
// believes it sent.
func TestRunWord(t *testing.T) {
	w := RunWord(make([]byte, Unit))
	one := RunState(0).Append(7)
	w.Open(one)
	two := one.Append(9)
	if !w.Replace(one, two) || w.Load() != two {
		t.Fatalf("state is %#x, want %#x", uint64(w.Load()), uint64(two))
	}
	if got := w.Close(); got != two {
		t.Errorf("the run held %#x, want %#x", uint64(got), uint64(two))
	}
	if w.Replace(two, two.Append(1)) || w.Load() != RunClosed {
		t.Error("a closed run was appended to")
	}
}
