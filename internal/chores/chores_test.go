package chores

import (
	"testing"

	"github.com/rdsd/rdsd/internal/lists"
)

// TestTurns: a turn looks at no more than its budget for all chores, which take turns. What is no chore
// gets a slice however many chores there are.
func TestTurns(t *testing.T) {
	var all Chores
	done := [3]int{}
	for i := range done {
		all.Begin(&Chore{One: func() bool { done[i]++; return done[i] <= 2*Budget }})
	}
	if all.Open() != len(done) || done != [3]int{} {
		t.Fatalf("without a budget %d chores are open, %v units are done", all.Open(), done)
	}
	turns := 0
	for ; all.Open() > 0; turns++ {
		if all.Renew(); !all.Run() || done[0]-done[2] > Slice || done[0] < done[2] {
			t.Fatalf("%v units in turn %d", done, turns)
		}
		besides := 0
		all.Besides(func() bool { besides++; return true })
		if all.Open() > 0 && besides != Slice {
			t.Errorf("%d units besides the chores, want %d", besides, Slice)
		}
	}
	if want := len(done)*2 + 1; turns != want {
		t.Errorf("%d turns, want %d", turns, want)
	}
}

// TestRounds: each element that was on the list is looked at once.
func TestRounds(t *testing.T) {
	type element struct{ looked int }
	var r Rounds[element]
	var links [5]lists.Link[element]
	of := [5]element{}
	for i := range of {
		r.Add(&links[i], &of[i])
	}
	for r.Begin(); r.Left() > 0; {
		r.Next().looked++
	}
	for i := range of {
		if of[i].looked != 1 {
			t.Errorf("element %d was looked at %d times", i, of[i].looked)
		}
	}
	if r.Next() != nil {
		t.Error("one more")
	}
}
