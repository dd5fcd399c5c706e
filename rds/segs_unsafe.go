package rds

import (
	"unsafe"

	"github.com/rdsd/rdsd/internal/shm"
)

const segEntrySize = int(unsafe.Sizeof(shm.SegEntry{}))

// writeSegs writes a segment list for the daemon; b is aligned as all chunks
// are.
func writeSegs(b []byte, local []Segment) {
	_ = b[:len(local)*segEntrySize]
	for i := range local {
		g := &local[i]
		*(*shm.SegEntry)(unsafe.Pointer(&b[i*segEntrySize])) = shm.SegEntry{Region: g.Buf.id, Off: uint64(g.Off), Len: uint64(g.Len)}
	}
}
