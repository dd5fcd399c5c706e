package main

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// TestExtents: holes are found where they were made, and the answer has what there is room for.
func TestExtents(t *testing.T) {
	const page, n = 64 << 10, 3 * store.MaxMore
	e, path := newExport(t, make([]byte, n*page))
	for i := 0; i < n; i += 2 {
		if err := unix.Fallocate(e.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(i*page), page); err != nil {
			t.Skipf("the file system of %s makes no holes: %v", path, err)
		}
	}
	get := func(off uint64, length uint32) []store.Extent {
		t.Helper()
		var a store.Message
		if f := e.extents(&store.Message{Kind: store.KindMap, Block: off, Length: length}, &a); f != nil {
			t.Fatal(f)
		}
		return a.Extents
	}
	if got, want := get(100, page), []store.Extent{{Length: page - 100, Hole: true}, {Length: 100}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	all := get(0, n*page)
	if len(all) != store.MaxMore {
		t.Errorf("%d extents, want %d", len(all), store.MaxMore)
	}
	for i, x := range all {
		if (x != store.Extent{Length: page, Hole: i%2 == 0}) {
			t.Fatalf("extent %d: %+v", i, x)
		}
	}
	var a store.Message
	wantStatus(t, "beyond the end", e.extents(&store.Message{Kind: store.KindMap, Block: n*page - 1, Length: 2}, &a), store.StatusRange)
}
