package lists

import (
	"cmp"
	"slices"
	"testing"
)

func TestSort(t *testing.T) {
	for _, rows := range [][]int{nil, {1}, {3, 1, 2}, {2, 2, 1, 9, 0, 5, 5}} {
		want := slices.Sorted(slices.Values(rows))
		if Sort(rows, cmp.Compare); !slices.Equal(rows, want) {
			t.Errorf("%v, want %v", rows, want)
		}
	}
}
