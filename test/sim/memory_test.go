package sim

import (
	"bytes"
	"math/bits"
	"math/rand/v2"

	"github.com/rdsd/rdsd/rds"
)

// memPool lends memory for daemons and processes to one run after another. A process gives nothing
// back before the run ends, so the memory of a dead process can be looked at until then.
type memPool struct {
	free [64][][]byte // index: the length's power of two
	out  [][]byte
	lent int // bytes of out

	again map[int][][]byte // what the run has given back, by length
}

// mostLent bounds what a run is lent, bytes. A run of many planned restarts would be lent the pools of
// all its engines. What is more than that is the garbage collector's.
const mostLent = 256 << 20

// dirty is the size from which memory is lent as the last run left it. Blocks of this size are
// pools of buffers and arenas, in which no code may expect zeros. Rings and tables are smaller.
const dirty = 1 << 20

func (p *memPool) get(n int) []byte {
	if p == nil {
		return make([]byte, n)
	}
	if l := p.again[n]; len(l) > 0 {
		m := l[len(l)-1]
		if p.again[n] = l[:len(l)-1]; n < dirty {
			clear(m)
		}
		return m
	}
	class := bits.Len(uint(max(n, 4096) - 1))
	if p.lent+1<<class > mostLent {
		return make([]byte, n)
	}
	p.lent += 1 << class
	var m []byte
	if k := len(p.free[class]); k > 0 {
		m = p.free[class][k-1]
		p.free[class] = p.free[class][:k-1]
		if n < dirty {
			clear(m[:n])
		}
	} else {
		m = make([]byte, 1<<class)
	}
	p.out = append(p.out, m)
	return m[:n:n]
}

// back takes back what the run was lent and uses no more: the pools of a daemon that another one
// has taken over from.
func (p *memPool) back(all [][]byte) {
	if p == nil {
		return
	}
	if p.again == nil {
		p.again = map[int][][]byte{}
	}
	for _, m := range all {
		p.again[len(m)] = append(p.again[len(m)], m)
	}
}

// end takes back all that the run was lent.
func (p *memPool) end() {
	if p == nil {
		return
	}
	// What was lent first is lent first again, because it is in the cache.
	for i := len(p.out) - 1; i >= 0; i-- {
		class := bits.Len(uint(len(p.out[i]) - 1))
		p.free[class] = append(p.free[class], p.out[i])
		p.out[i] = nil
	}
	p.out, p.lent, p.again = p.out[:0], 0, nil
}

// noise is the content of payload and regions. spoilt and spent are written where nothing may
// write any more.
var (
	noise  = makeNoise()
	spoilt = bytes.Repeat([]byte{poison}, 1<<20)
	spent  = bytes.Repeat([]byte{poison + 1}, 1<<20+64)
)

const (
	poison = 0xdb
	starts = 1 << 14 // few enough that the noise of small messages stays in the cache
)

func makeNoise() []byte {
	b := make([]byte, starts+1<<20+4096)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// content returns the n bytes that belong to id. The caller must not write to them.
func content(id uint64, n int) []byte {
	at := id * 0x9e3779b97f4a7c15 >> (64 - 14)
	return noise[at : at+uint64(n) : at+uint64(n)]
}

// differ returns the first index at which two slices of one length differ, or -1.
func differ(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// memory is a Buffer of a process. Pieces of it are carved from the front and never reused.
type memory struct {
	buf  *rds.Buffer
	b    []byte
	used int
}

const (
	memorySize = 256 << 10
	guard      = 40 // odd enough for regions to begin anywhere in a page
)

// carve returns n bytes at a multiple of align, with guards around them. It returns nil if the
// user's quota is used up.
func (c *client) carve(n, align int) (m *memory, off int) {
	for _, m = range c.mem {
		off = (m.used + guard + align - 1) / align * align
		if len(m.b) >= off+n+guard {
			m.used = off + n + guard
			return m, off
		}
	}
	if m = c.alloc(max(memorySize, n+2*guard+align)); m == nil {
		return nil, 0
	}
	off = (guard + align - 1) / align * align
	m.used = off + n + guard
	return m, off
}
