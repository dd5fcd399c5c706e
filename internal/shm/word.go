package shm

import (
	"sync/atomic"
	"unsafe"
)

// at views the memory at off as a T.
func at[T any](mem []byte, off int) *T {
	return (*T)(unsafe.Pointer(unsafe.SliceData(mem[off : off+int(unsafe.Sizeof(*new(T)))])))
}

// array views the memory at off as n T.
func array[T any](mem []byte, off int, n uint32) []T {
	end := off + int(n)*int(unsafe.Sizeof(*new(T)))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem[off:end]))), n)
}

func index(mem []byte, off int) *position { return at[position](mem, off) }

// Each side stores a word of its own and then loads one of the other side: a producer stores its index and loads the
// announcement, a consumer stores its announcement and loads the index. One of the two loads has to find what the
// other side stored, or both sides sleep. So both stores have to be complete before the loads behind them.
//
// A Store of sync/atomic does not promise that in a program that is built with the race detector. To memory that Go
// has not allocated, as mapped memory, the detector stores with release order. On amd64 that is a plain store, and
// the processor may execute the load first. A Swap is complete in every build. On amd64 without the detector it is
// the same instruction as a Store.

// Announcement is the word by which a side says that it sleeps.
type Announcement struct{ atomic.Uint32 }

// Store announces v.
func (a *Announcement) Store(v uint32) { a.Swap(v) }

// position is a ring's index.
type position struct{ atomic.Uint64 }

// Store publishes v.
func (p *position) Store(v uint64) { p.Swap(v) }
