package shm

import (
	"fmt"
	"math/bits"

	"github.com/rdsd/rdsd/abi"
)

const (
	minShift    = 6 // 64-byte chunks
	numClasses  = 10
	pageUnits   = PageSize / Unit       // chunks of the smallest class in a page
	windowUnits = WindowSize / Unit     // chunk numbers of a window
	windowPages = WindowSize / PageSize // 64: one word of bits
	maxSmall    = PageSize / 2
	noPage      = int32(-1)
	endOfList   = uint16(0xfffe)
	inUse       = uint16(0xffff)
	classNone   = uint8(0xff) // page is free
	classSpan   = uint8(0xfe) // first page of a span
	classInside = uint8(0xfd) // another page of a span
)

// Arena allocates payload chunks from windows of shared memory. Its state is private: the
// other side can overwrite the memory, but not the arena's state.
//
// Chunks of up to 32 KiB come from 64 KiB pages. A page holds chunks of one power of two.
// Longer chunks are spans of pages. The last chunk freed in a page is the first one given
// out again, and a page without chunks goes back to its window. So little memory is
// touched, and an idle owner uses none.
//
// An Arena belongs to one goroutine at a time. Alloc and Free take constant
// time and do not allocate.
type Arena struct {
	windows []window
	pages   []page            // of all windows
	partial [numClasses]int32 // pages with free chunks, a list per class
	inUse   int
}

// window is the private state of one window.
type window struct {
	mem  []byte
	free uint64 // one bit for each page, set if it is free
	// link chains the free chunks of a page. For each chunk it has the next free one, or
	// inUse. Indices are within the page.
	link []uint16
}

// page is the private state of one page.
type page struct {
	next, prev int32 // in the class's partial list
	used       uint16
	fresh      uint16 // chunks from this index on were never given out
	first      uint16 // free list
	class      uint8
	span       uint8 // of classSpan: number of pages
}

// NewArena returns an arena without windows.
func NewArena() *Arena {
	a := &Arena{}
	for i := range a.partial {
		a.partial[i] = noPage
	}
	return a
}

// AddWindow adds mem as the next window. It panics if mem is not WindowSize bytes long.
func (a *Arena) AddWindow(mem []byte) {
	if len(mem) != WindowSize {
		panic(fmt.Sprintf("shm: arena window of %d bytes, want %d", len(mem), WindowSize))
	}
	a.windows = append(a.windows, window{mem: mem, free: ^uint64(0), link: make([]uint16, windowUnits)})
	for range windowPages {
		a.pages = append(a.pages, page{class: classNone})
	}
}

// Windows is the number of windows.
func (a *Arena) Windows() int { return len(a.windows) }

// InUse is how many bytes are allocated, rounding included.
func (a *Arena) InUse() int { return a.inUse }

// classOf is the size class of n bytes, 1 to maxSmall.
func classOf(n int) uint8 {
	return uint8(max(bits.Len(uint(n-1)), minShift) - minShift)
}

// ChunkSize is how many bytes Alloc(n) takes, rounding included.
func ChunkSize(n int) int {
	switch {
	case n <= 0:
		return 0
	case n <= maxSmall:
		return 1 << (classOf(n) + minShift)
	}
	return (n + PageSize - 1) / PageSize * PageSize
}

// Alloc takes n bytes, 1 to abi.MaxMessage. The chunk is the memory's offset over
// all windows in Units. ok is false when there is no room, or n out of range.
func (a *Arena) Alloc(n int) (chunk uint32, ok bool) {
	if n <= 0 || n > maxSmall {
		return a.allocSpan(n)
	}
	c := classOf(n)
	pi := a.partial[c]
	if pi == noPage {
		if pi = a.takePages(1); pi == noPage {
			return 0, false
		}
		p := &a.pages[pi]
		*p = page{class: c, first: endOfList, next: noPage, prev: noPage}
		a.partial[c] = pi
	}
	p := &a.pages[pi]
	link := a.links(pi)
	i := p.first
	if i != endOfList {
		p.first = link[i]
	} else {
		i = p.fresh
		p.fresh++
	}
	link[i] = inUse
	p.used++
	if int(p.used) == pageUnits>>c {
		a.unlink(c, pi)
	}
	a.inUse += 1 << (c + minShift)
	return uint32(pi)*pageUnits + uint32(i)<<c, true
}

// Free frees the chunk that Alloc(n) returned. It panics if the chunk is not allocated.
func (a *Arena) Free(chunk uint32, n int) {
	pi := int32(chunk / pageUnits)
	if n <= 0 || n > abi.MaxMessage || int(pi) >= len(a.pages) {
		panic(fmt.Sprintf("shm: free of chunk %d, %d bytes, outside the arena", chunk, n))
	}
	if n > maxSmall {
		a.freeSpan(chunk, n)
		return
	}
	p := &a.pages[pi]
	c := classOf(n)
	i := uint16(chunk % pageUnits >> c)
	link := a.links(pi)
	if p.class != c || uint32(i)<<c != chunk%pageUnits || link[i] != inUse {
		panic(fmt.Sprintf("shm: free of chunk %d, %d bytes, that is not in use", chunk, n))
	}
	a.inUse -= 1 << (c + minShift)
	link[i] = p.first
	p.first = i
	if int(p.used) == pageUnits>>c {
		a.pushPartial(c, pi)
	}
	if p.used--; p.used == 0 {
		a.unlink(c, pi)
		a.givePages(pi, 1)
	}
}

// Valid reports whether n bytes (at least 1) at chunk lie within one window.
func (a *Arena) Valid(chunk uint32, n int) bool {
	in := int(chunk%windowUnits) * Unit
	return int(chunk/windowUnits) < len(a.windows) && n > 0 && n <= WindowSize-in
}

// Bytes is the memory of n bytes at chunk. It panics unless Valid.
func (a *Arena) Bytes(chunk uint32, n int) []byte {
	if !a.Valid(chunk, n) {
		panic(fmt.Sprintf("shm: chunk %d, %d bytes, outside the arena's %d windows", chunk, n, len(a.windows)))
	}
	in := int(chunk%windowUnits) * Unit
	return a.windows[chunk/windowUnits].mem[in : in+n : in+n]
}

// links is the part of the window's link that belongs to page pi.
func (a *Arena) links(pi int32) []uint16 {
	at := int(pi) % windowPages * pageUnits
	return a.windows[int(pi)/windowPages].link[at : at+pageUnits]
}

func (a *Arena) pushPartial(c uint8, pi int32) {
	p := &a.pages[pi]
	p.next, p.prev = a.partial[c], noPage
	if p.next != noPage {
		a.pages[p.next].prev = pi
	}
	a.partial[c] = pi
}

func (a *Arena) unlink(c uint8, pi int32) {
	p := &a.pages[pi]
	if p.prev != noPage {
		a.pages[p.prev].next = p.next
	} else {
		a.partial[c] = p.next
	}
	if p.next != noPage {
		a.pages[p.next].prev = p.prev
	}
}

// takePages takes k consecutive free pages of one window. It returns noPage if there are
// none.
func (a *Arena) takePages(k int) int32 {
	for w := range a.windows {
		win := &a.windows[w]
		if win.free == 0 {
			continue
		}
		if i := findSpan(win.free, k); i < windowPages {
			win.free &^= spanMask(k) << i
			return int32(w*windowPages + i)
		}
	}
	return noPage
}

func (a *Arena) givePages(pi int32, k int) {
	for i := range k {
		a.pages[int(pi)+i].class = classNone
	}
	a.windows[int(pi)/windowPages].free |= spanMask(k) << (int(pi) % windowPages)
}

func spanMask(k int) uint64 { return uint64(1)<<k - 1 }

// findSpan returns the lowest i such that bits i to i+k-1 of free are set. It returns 64 or
// more if there is none.
func findSpan(free uint64, k int) int {
	// After each step, bit i says that have bits from i on are set.
	for have := 1; have < k; {
		step := min(have, k-have)
		free &= free >> step
		have += step
	}
	return bits.TrailingZeros64(free)
}

// allocSpan allocates whole pages.
func (a *Arena) allocSpan(n int) (chunk uint32, ok bool) {
	if n <= 0 || n > abi.MaxMessage {
		return 0, false
	}
	k := (n + PageSize - 1) / PageSize
	pi := a.takePages(k)
	if pi == noPage {
		return 0, false
	}
	a.takeSpan(pi, k)
	return uint32(pi) * pageUnits, true
}

// takeSpan makes k pages from pi on a span that is in use.
func (a *Arena) takeSpan(pi int32, k int) {
	a.windows[int(pi)/windowPages].free &^= spanMask(k) << (int(pi) % windowPages)
	for i := range k {
		a.pages[int(pi)+i].class = classInside
	}
	a.pages[pi].class, a.pages[pi].span = classSpan, uint8(k)
	a.inUse += k * PageSize
}

func (a *Arena) freeSpan(chunk uint32, n int) {
	pi := int32(chunk / pageUnits)
	k := (n + PageSize - 1) / PageSize
	if p := &a.pages[pi]; chunk%pageUnits != 0 || p.class != classSpan || int(p.span) != k {
		panic(fmt.Sprintf("shm: free of chunk %d, %d bytes, that is not in use", chunk, n))
	}
	a.inUse -= k * PageSize
	a.givePages(pi, k)
}
