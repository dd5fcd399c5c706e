package sim

import (
	"bytes"
	"math/bits"
	"math/rand/v2"

	"github.com/rdsd/rdsd/rds"
)

// memPool lends the memory of daemons and processes to one run after the other.
// A run gives back nothing before its end, so that memory of a dead process can
// be looked at as long as the run lasts.
type memPool struct {
	free [64][][]byte // by the length's power of two
	out  [][]byte
}

// dirty is the size from which memory is lent as the last run left it: pools of
// buffers and arenas, in which nobody may look for zeros. Rings and tables are
// smaller.
const dirty = 1 << 20

func (p *memPool) get(n int) []byte {
	if p == nil {
		return make([]byte, n)
	}
	class := bits.Len(uint(max(n, 4096) - 1))
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

// end takes back what the run had.
func (p *memPool) end() {
	if p == nil {
		return
	}
	// The first one lent is the first one to be lent again: it is warm.
	for i := len(p.out) - 1; i >= 0; i-- {
		class := bits.Len(uint(len(p.out[i]) - 1))
		p.free[class] = append(p.free[class], p.out[i])
		p.out[i] = nil
	}
	p.out = p.out[:0]
}

// noise is what payload and regions are filled with; spoilt and spent are what
// is left behind where nothing may be written any more.
var (
	noise  = makeNoise()
	spoilt = bytes.Repeat([]byte{poison}, 1<<20)
	spent  = bytes.Repeat([]byte{poison + 1}, 1<<20+64)
)

const (
	poison = 0xdb
	starts = 1 << 14 // few enough for small messages to find their noise in the cache
)

func makeNoise() []byte {
	b := make([]byte, starts+1<<20+4096)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// content is the n bytes that belong to id. They are not to be written to.
func content(id uint64, n int) []byte {
	at := id * 0x9e3779b97f4a7c15 >> (64 - 14)
	return noise[at : at+uint64(n) : at+uint64(n)]
}

// differ is the first index at which two slices of one length differ, -1 if
// they do not.
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

// memory is a Buffer of a process, carved from the front, never reused.
type memory struct {
	buf  *rds.Buffer
	b    []byte
	used int
}

const (
	memorySize = 256 << 10
	guard      = 40 // odd enough that regions begin anywhere in a page
)

// carve takes n bytes with guards around them, at a multiple of align. nil: the
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
