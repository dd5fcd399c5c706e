package worker

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
)

// header begins every message that is long enough for it.
type header struct {
	life  uint32
	flags uint32
	seq   uint64
}

const (
	headerSize = 16
	writeSize  = headerSize + 16 // of a message with a write: also region, offset, length
	offerSize  = headerSize + 40 // of a message with an offer
	blockSize  = 1 << 20
	longest    = 8 << 20 // of a long operation
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// newBlock returns the block from which contents are cut.
func newBlock(seed uint64) []byte {
	b := make([]byte, blockSize+longest)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b
}

// content returns what the operation of message seq of life moves. n is at most longest.
func (w *Worker) content(life uint32, seq uint64, n int) []byte {
	at := (uint64(life)*2654435761 + seq*40503) % blockSize
	return w.block[at:][:n]
}

// short returns the content of a message without a header. It shows the length of the message,
// but not which message it is.
func (w *Worker) short(n int) []byte { return w.block[n*16:][:n] }

func (h header) put(b []byte) {
	binary.LittleEndian.PutUint32(b, h.life)
	binary.LittleEndian.PutUint32(b[4:], h.flags)
	binary.LittleEndian.PutUint64(b[8:], h.seq)
}

func parseHeader(b []byte) header {
	return header{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])}
}

// written says what the write of a message wrote.
type written struct {
	region   uint64
	off, len uint32
}

func (x written) put(b []byte) {
	binary.LittleEndian.PutUint64(b, x.region)
	binary.LittleEndian.PutUint32(b[8:], x.off)
	binary.LittleEndian.PutUint32(b[12:], x.len)
}

func parseWritten(b []byte) written {
	return written{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])}
}

const spoil = 0xdb

// spoilMemory overwrites memory that nobody else may use any more.
func spoilMemory(b []byte) {
	for i := range b {
		b[i] = spoil
	}
}

// isSpoiled reports whether b is as spoilMemory left it.
func isSpoiled(b []byte) bool {
	for _, c := range b {
		if c != spoil {
			return false
		}
	}
	return true
}
