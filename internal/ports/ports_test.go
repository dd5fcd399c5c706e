package ports

import (
	"slices"
	"testing"
)

// TestTable: what is bound is found, counted, and passed over by the search for a free port.
func TestTable(t *testing.T) {
	var table Table[int]
	all := make([]int, 1<<16)
	for p := range all {
		all[p] = p
		table.Set(uint16(p), &all[p])
	}
	if _, ok := table.NextFree(0); ok || table.Len() != len(all) {
		t.Errorf("full with %d, and one is free: %v", table.Len(), ok)
	}
	for _, p := range []uint16{2, 700, 65535} {
		table.Set(p, nil)
		table.Set(p, nil)
	}
	for from, want := range map[uint16]uint16{0: 2, 2: 2, 3: 700, 700: 700, 701: 65535, 65535: 65535} {
		if p, ok := table.NextFree(from); !ok || p != want {
			t.Errorf("from %d: %d, want %d", from, p, want)
		}
	}
	var seen []int
	table.Each(2, 1, func(p *int) { seen = append(seen, *p) })
	want := slices.DeleteFunc(slices.Clone(all[512:768]), func(p int) bool { return p == 700 })
	if table.Get(700) != nil || *table.Get(701) != 701 || table.Len() != len(all)-3 || !slices.Equal(seen, want) {
		t.Errorf("%d are bound, page 2 has %v", table.Len(), seen)
	}
}
