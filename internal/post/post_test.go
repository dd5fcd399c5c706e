package post

import (
	"slices"
	"testing"
)

// TestBox: closures run in the order in which they were left, those that a closure leaves in the next
// run. A closed box takes none.
func TestBox(t *testing.T) {
	rung, ran := 0, []int{}
	b := Box{Wake: func() { rung++ }}
	b.Add(func() {
		ran = append(ran, 1)
		b.Add(func() { ran = append(ran, 3) })
	})
	b.Add(func() { ran = append(ran, 2) })
	if !b.Has() || !b.Run() || !slices.Equal(ran, []int{1, 2}) || rung != 3 {
		t.Errorf("ran %v, rung %d times", ran, rung)
	}
	if !b.Run() || b.Run() || !slices.Equal(ran, []int{1, 2, 3}) {
		t.Errorf("ran %v", ran)
	}
	b.Add(func() { ran = append(ran, 4) })
	if b.Close(); b.Add(func() {}) || b.Run() && len(ran) != 3 {
		t.Errorf("a closed box runs %v", ran)
	}
}
