package capture

import (
	"encoding/binary"
	"sync/atomic"
)

// record is the head of an entry of the ring. Its data follow it, padded to 8 bytes.
type record struct {
	stream uint32
	dir    uint8 // 1: out
	kind   kind
	flags  uint8
	total  uint32 // of a frame that begins: how long it is
	gap    uint64 // of a frame that begins: bytes of this direction that were dropped ahead of it
	at     int64
	n      uint32 // bytes of data
}

// Flags of a record.
const (
	begins = 1 << iota // a frame
	ends
	opens  // a connection: its data are the addresses
	inward // ... that the remote end has made
)

const recordLen = 40

// ring is a queue of records with one writer and one reader.
type ring struct {
	mem  []byte
	w, r atomic.Uint64
}

func newRing(n int) ring { return ring{mem: make([]byte, n&^7)} }

// put appends a record with data a and b; false: there is no room.
func (q *ring) put(rec *record, a, b []byte) bool {
	n := len(a) + len(b)
	w := q.w.Load()
	if uint64(len(q.mem))-(w-q.r.Load()) < uint64(recordLen+n+7) {
		return false
	}
	var h [recordLen]byte
	binary.LittleEndian.PutUint32(h[0:], rec.stream)
	h[4], h[5], h[6] = rec.dir, byte(rec.kind), rec.flags
	binary.LittleEndian.PutUint32(h[8:], rec.total)
	binary.LittleEndian.PutUint32(h[12:], uint32(n))
	binary.LittleEndian.PutUint64(h[16:], rec.gap)
	binary.LittleEndian.PutUint64(h[24:], uint64(rec.at))
	at := q.copyIn(w, h[:])
	at = q.copyIn(at, a)
	at = q.copyIn(at, b)
	q.w.Store((at + 7) &^ 7)
	return true
}

// copyIn copies b to position at, and returns the position behind it.
func (q *ring) copyIn(at uint64, b []byte) uint64 {
	n := copy(q.mem[at%uint64(len(q.mem)):], b)
	copy(q.mem, b[n:])
	return at + uint64(len(b))
}

// take takes the next record, and appends its data to buf; false: there is none.
func (q *ring) take(rec *record, buf []byte) ([]byte, bool) {
	r := q.r.Load()
	if r == q.w.Load() {
		return buf, false
	}
	h := q.copyOut(nil, r, recordLen)
	*rec = record{stream: binary.LittleEndian.Uint32(h[0:]), dir: h[4], kind: kind(h[5]), flags: h[6], total: binary.LittleEndian.Uint32(h[8:]),
		n: binary.LittleEndian.Uint32(h[12:]), gap: binary.LittleEndian.Uint64(h[16:]), at: int64(binary.LittleEndian.Uint64(h[24:]))}
	buf = q.copyOut(buf, r+recordLen, int(rec.n))
	q.r.Store((r + recordLen + uint64(rec.n) + 7) &^ 7)
	return buf, true
}

func (q *ring) copyOut(buf []byte, at uint64, n int) []byte {
	from := int(at % uint64(len(q.mem)))
	first := min(n, len(q.mem)-from)
	buf = append(buf, q.mem[from:from+first]...)
	return append(buf, q.mem[:n-first]...)
}
