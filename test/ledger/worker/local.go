package worker

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/ledger/book"
)

// Local memory of a socket's operations: a piece of the largest size, pieces of 64 KiB, and words
// for the old values of atomics.
const (
	pieceSize = 64 << 10
	wordArea  = 512
)

// sizes is how much there is of each.
type sizes struct{ largest, pieces, words int }

func (z sizes) small() int { return z.largest + z.pieces*pieceSize } // offset behind the pieces

// sizes draws how much local memory the socket has. Only some can do long operations.
func (k *sock) sizes() sizes {
	switch {
	case k.crowd:
		return sizes{pieceSize, 2, 8}
	case k.w.cfg.Mix.Long > 0 && k.rng.IntN(2) == 0:
		return sizes{longest, 12, 48}
	default:
		return sizes{blockSize, 12, 48}
	}
}

// local is the memory and its uses. A piece belongs to an operation from its send until the
// high-water mark has passed it. Then the piece is spoiled at once, and must be unchanged when
// it is used again.
type local struct {
	buf *rds.Buffer
	sizes

	mu       sync.Mutex
	free     []rds.Segment          // pieces; guarded by mu
	freeWord []rds.Segment          // guarded by mu
	big      bool                   // the long piece is free; guarded by mu
	last     map[int]use            // by offset: the last use of a free piece; guarded by mu
	pending  map[netip.Addr][]use   // in the order of their ids; guarded by mu
	unknown  int                    // operations without a status; guarded by mu
	swaps    map[uint64]uint64      // last known values of the compare-and-swap words of regions; guarded by mu
	lent     map[uint32]rds.Segment // by zero-copy cookie: memory from which a message is sent, or nothing; guarded by mu
	marks    map[netip.Addr]uint64  // when last looked at; guarded by mu
}

// use is an operation that uses a piece.
type use struct {
	seq  uint64
	id   uint64
	seg  rds.Segment
	read bool
	word bool
	swap *swap // nil if the operation adds
}

// swap is a compare-and-swap of a region's word.
type swap struct{ region, compare, store uint64 }

func newLocal(c *rds.Client, z sizes) (*local, error) {
	buf, err := c.Alloc(z.small() + wordArea)
	if err != nil {
		return nil, err
	}
	l := &local{buf: buf, sizes: z, big: true, last: map[int]use{}, pending: map[netip.Addr][]use{}, marks: map[netip.Addr]uint64{}, lent: map[uint32]rds.Segment{}, swaps: map[uint64]uint64{}}
	spoilMemory(buf.Bytes())
	for i := range z.pieces {
		l.free = append(l.free, rds.Segment{Buf: buf, Off: z.largest + i*pieceSize, Len: pieceSize})
	}
	for i := range z.words {
		l.freeWord = append(l.freeWord, rds.Segment{Buf: buf, Off: z.small() + i*8, Len: 8})
	}
	return l, nil
}

// take returns a free piece of n bytes. ok is false if there is none. before is the operation
// that used the piece last, if it changed the piece afterwards.
func (l *local) take(n int) (s rds.Segment, before uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case n > pieceSize && n <= l.largest && l.big:
		s, l.big = rds.Segment{Buf: l.buf, Len: l.largest}, false
	case n == 0 && len(l.freeWord) > 0: // a word for an atomic
		s, l.freeWord = l.freeWord[0], l.freeWord[1:]
		n = 8
	case n > 0 && n <= pieceSize && len(l.free) > 0:
		s, l.free = l.free[0], l.free[1:]
	default:
		return s, 0, false
	}
	if u, used := l.last[s.Off]; used && !isSpoiled(l.bytes(u.seg)) {
		before = u.seq
	}
	delete(l.last, s.Off)
	s.Len = n
	return s, before, true
}

func (l *local) bytes(s rds.Segment) []byte { return l.buf.Bytes()[s.Off:][:s.Len] }

// give returns a piece that no operation has used.
func (l *local) give(s rds.Segment) {
	spoilMemory(l.bytes(s))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveLocked(s)
}

func (l *local) giveLocked(s rds.Segment) {
	switch whole := s; {
	case s.Off == 0:
		l.big = true
	case s.Off < l.small():
		whole.Len = pieceSize
		l.free = append(l.free, whole)
	default:
		l.freeWord = append(l.freeWord, s)
	}
}

// sent notes that an operation uses a piece.
func (l *local) sent(to netip.Addr, u use) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending[to] = append(l.pending[to], u)
	l.unknown++
}

// outstanding returns how many statuses and zero-copy cookies are to come.
func (l *local) outstanding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unknown + len(l.lent)
}

// lend notes that a cookie is to come back for a message. The message is sent from s, or was
// copied if s has no length.
func (l *local) lend(cookie uint32, s rds.Segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lent[cookie] = s
}

// back takes the memory of a cookie that came back, or of a message that was not sent. It spoils
// the memory, so that a daemon that still reads it sends wrong bytes.
func (l *local) back(cookie uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.lent[cookie]
	if delete(l.lent, cookie); ok && s.Len > 0 {
		spoilMemory(l.bytes(s))
		l.giveLocked(s)
	}
}

// next returns the operations that the marks pass next.
func (l *local) next() (refs []rds.OpRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for host, p := range l.pending {
		if len(p) > 0 {
			refs = append(refs, rds.OpRef{Addr: host, ID: p[0].id})
		}
	}
	return refs
}

// passed logs that the mark to host is at value. It logs the memory of the operations that the
// mark has passed, and spoils it.
func (l *local) passed(host netip.Addr, value uint64, note func(book.Record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if value != l.marks[host] {
		l.marks[host] = value
		note(book.Record{Kind: book.Mark, Peer: netip.AddrPortFrom(host, 0), A: value})
	}
	p := l.pending[host]
	for len(p) > 0 && p[0].id <= value {
		u := p[0]
		p = p[1:]
		b := l.bytes(u.seg)
		switch {
		case u.word:
			old := binary.LittleEndian.Uint64(b)
			note(book.Record{Kind: book.Local, Seq: u.seq, A: old, C: 1})
			l.learnLocked(u.swap, old)
		case u.read:
			note(book.Record{Kind: book.Local, Seq: u.seq, A: uint64(checksum(b))})
		}
		spoilMemory(b)
		l.last[u.seg.Off] = u
		l.giveLocked(u.seg)
	}
	l.pending[host] = p
}

// learnLocked notes the value that a compare-and-swap found. If the operation did not run, the
// value means nothing, and the next one fails to compare.
func (l *local) learnLocked(s *swap, old uint64) {
	switch {
	case s == nil:
	case old == s.compare:
		l.swaps[s.region] = s.store
	default:
		l.swaps[s.region] = old
	}
}

// expects returns the last known value of a region's compare-and-swap word.
func (l *local) expects(region uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.swaps[region]
}

// hosts returns the hosts to which operations went.
func (l *local) hosts() (all []netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.pending {
		all = append(all, h)
	}
	return all
}

// settled notes that an operation has its status.
func (l *local) settled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unknown--
}
