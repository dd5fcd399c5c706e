package lists

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type element struct {
	in Link[element]
}

// TestListModel compares a list with a slice.
func TestListModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var l List[element]
		var want []*element
		all := make([]element, 20)
		for step := range 2000 {
			x := &all[rng.IntN(len(all))]
			at := slices.Index(want, x)
			if x.in.On() != (at >= 0) {
				t.Fatalf("seed %d, step %d: On is %v", seed, step, x.in.On())
			}
			switch op := rng.IntN(5); {
			case at >= 0 && op < 3:
				l.Del(&x.in)
				want = slices.Delete(want, at, at+1)
			case at >= 0 && op == 3:
				l.TurnOver()
				want = append(want[1:], want[0])
			case at >= 0:
				if got := l.Pop(); got != want[0] {
					t.Fatalf("seed %d, step %d: popped another", seed, step)
				}
				want = want[1:]
			case op < 3:
				l.Add(&x.in, x)
				want = append(want, x)
			default:
				l.AddFront(&x.in, x)
				want = slices.Insert(want, 0, x)
			}
			var got []*element
			for n := l.Head; n != nil; n = n.Next {
				got = append(got, n.Of)
			}
			if !slices.Equal(got, want) || l.N != len(want) || l.N > 0 && l.Tail.Of != want[l.N-1] {
				t.Fatalf("seed %d, step %d: the list has %d, want %d", seed, step, l.N, len(want))
			}
		}
		for range want {
			l.Pop()
		}
		if l.Pop() != nil || l.Head != nil || l.Tail != nil {
			t.Fatalf("seed %d: an empty list has elements", seed)
		}
	}
}
