package main

import (
	"strings"
	"testing"
)

// TestReadCompared checks that the server fails if a READ with status 0 has not read the bytes
// that the request's checksum is of.
func TestReadCompared(t *testing.T) {
	asked := make([]byte, 1000)
	fill(asked, 7)
	for _, k := range []struct {
		name string
		kind uint32
		read func(local []byte) // what the operation leaves in the server's memory
		want string             // of the error; "": none
	}{
		{"right", askRead, func(local []byte) { copy(local, asked) }, ""},
		{"nothing", askRead, func([]byte) {}, "did not read"},
		{"one byte wrong", askRead, func(local []byte) { copy(local, asked); local[999] ^= 1 }, "did not read"},
		{"a write", askWrite, func([]byte) {}, ""},
	} {
		t.Run(k.name, func(t *testing.T) {
			x := server{mem: make([]byte, 2*slotLen), open: map[uint64]operation{}, counts: map[string]int{}}
			x.open[5] = operation{ask: ask{Kind: k.kind, Size: 1000, Sum: sum(asked)}, slot: 1}
			k.read(x.local(1, 1000))
			err := x.status(5, 0)
			if k.want == "" && err != nil || k.want != "" && (err == nil || !strings.Contains(err.Error(), k.want)) {
				t.Errorf("got %v, want %q", err, k.want)
			}
		})
	}
}
