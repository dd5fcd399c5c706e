package worker

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"github.com/rdsd/rdsd/e2e/ledger/book"
	"github.com/rdsd/rdsd/rds"
)

// Local memory of a socket's operations: pieces of 64 KiB, one for a longest
// operation, and words for old values of atomics.
const (
	pieces    = 12
	pieceSize = 64 << 10
	words     = 48
	localSize = blockSize + pieces*pieceSize + words*8
)

// local is the memory, and who uses it. A piece is an operation's from its send
// until the high-water mark has passed it; then it is spoiled at once, and must
// still be so when it is used again.
type local struct {
	buf *rds.Buffer

	mu       sync.Mutex
	free     []rds.Segment         // pieces; guarded by mu
	freeWord []rds.Segment         // guarded by mu
	big      bool                  // the long piece is free; guarded by mu
	last     map[int]use           // by offset: who used a free piece last; guarded by mu
	pending  map[netip.Addr][]use  // in the order of their ids; guarded by mu
	unknown  int                   // operations without a status; guarded by mu
	marks    map[netip.Addr]uint64 // last seen; guarded by mu
}

// use is an operation on a piece.
type use struct {
	seq  uint64
	id   uint64
	seg  rds.Segment
	read bool
	word bool
}

func newLocal(c *rds.Client) (*local, error) {
	buf, err := c.Alloc(localSize)
	if err != nil {
		return nil, err
	}
	l := &local{buf: buf, big: true, last: map[int]use{}, pending: map[netip.Addr][]use{}, marks: map[netip.Addr]uint64{}}
	spoilMemory(buf.Bytes())
	for i := range pieces {
		l.free = append(l.free, rds.Segment{Buf: buf, Off: blockSize + i*pieceSize, Len: pieceSize})
	}
	for i := range words {
		l.freeWord = append(l.freeWord, rds.Segment{Buf: buf, Off: blockSize + pieces*pieceSize + i*8, Len: 8})
	}
	return l, nil
}

// take finds a free piece of n bytes; ok is false if there is none. before is
// the operation that used it last, if it changed the piece afterwards.
func (l *local) take(n int) (s rds.Segment, before uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case n > pieceSize && l.big:
		s, l.big = rds.Segment{Buf: l.buf, Len: blockSize}, false
	case n == 0 && len(l.freeWord) > 0: // a word
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

// give takes a piece back that no operation has used.
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
	case s.Off < blockSize+pieces*pieceSize:
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

func (l *local) outstanding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unknown
}

// next are the operations that the marks pass next.
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

// passed writes down that the mark to host is at value, and what is in the
// memory of the operations it has passed, and spoils that.
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
			note(book.Record{Kind: book.Local, Seq: u.seq, A: binary.LittleEndian.Uint64(b), C: 1})
		case u.read:
			note(book.Record{Kind: book.Local, Seq: u.seq, A: uint64(checksum(b))})
		}
		spoilMemory(b)
		l.last[u.seg.Off] = u
		l.giveLocked(u.seg)
	}
	l.pending[host] = p
}

// hosts are those to which operations went.
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
