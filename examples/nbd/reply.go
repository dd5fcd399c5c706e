package main

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// The context of block status, and its number.
const (
	metaAllocation   = "base:allocation"
	metaAllocationID = 1

	stateHole = 3 // no storage is allocated, and it reads as zeros
)

// Structured replies. Each reply here is one chunk.
const (
	chunkDone   = 1 // flag: the last chunk
	chunkData   = 1
	chunkStatus = 5
	chunkError  = 1<<15 + 1
)

// reply is the header of a reply.
type reply struct {
	cookie uint64
	e      errno
	chunk  uint16 // the type of a structured reply without error; 0 for a simple one
	offset uint64 // of a READ
}

// append appends the header of a reply with n bytes of data.
func (r *reply) append(b []byte, n int) []byte {
	be := binary.BigEndian
	if r.chunk == 0 {
		b = be.AppendUint32(b, magicAnswer)
		b = be.AppendUint32(b, uint32(r.e))
		return be.AppendUint64(b, r.cookie)
	}
	kind, length := r.chunk, n
	switch {
	case r.e != eOK:
		kind, length = chunkError, 6
	case kind == chunkData:
		length += 8
	}
	b = be.AppendUint32(b, magicChunk)
	b = be.AppendUint16(b, chunkDone)
	b = be.AppendUint16(b, kind)
	b = be.AppendUint64(b, r.cookie)
	b = be.AppendUint32(b, uint32(length))
	switch {
	case r.e != eOK:
		b = be.AppendUint32(b, uint32(r.e))
		b = be.AppendUint16(b, 0) // no text
	case kind == chunkData:
		b = be.AppendUint64(b, r.offset)
	}
	return b
}

// statusOf returns the data of a reply to BLOCK_STATUS.
func statusOf(es []store.Extent, one bool) []byte {
	be := binary.BigEndian
	b := be.AppendUint32(nil, metaAllocationID)
	for _, e := range es {
		b = be.AppendUint32(b, uint32(e.Length))
		state := uint32(0)
		if e.Hole {
			state = stateHole
		}
		if b = be.AppendUint32(b, state); one {
			break
		}
	}
	return b
}

// parseMeta parses the data of LIST_META_CONTEXT and SET_META_CONTEXT: the export's name and
// the queries.
func parseMeta(b []byte) (name string, queries []string, err error) {
	word := func() (n uint32) {
		if len(b) < 4 {
			err = fmt.Errorf("%d bytes where 4 are wanted", len(b))
			return 0
		}
		n, b = binary.BigEndian.Uint32(b), b[4:]
		return n
	}
	text := func() (s string) {
		n := word()
		if err == nil && uint64(n) > uint64(len(b)) {
			err = fmt.Errorf("a text of %d bytes in %d", n, len(b))
		}
		if err != nil {
			return ""
		}
		s, b = string(b[:n]), b[n:]
		return s
	}
	name = text()
	for n := word(); n > 0 && err == nil; n-- {
		queries = append(queries, text())
	}
	if err == nil && len(b) > 0 {
		err = fmt.Errorf("%d bytes too many", len(b))
	}
	return name, queries, err
}

// asksFor reports whether queries want the context of block status. LIST has wildcards.
func asksFor(queries []string, list bool) bool {
	if list && len(queries) == 0 {
		return true
	}
	for _, q := range queries {
		if q == metaAllocation || list && q != "" && strings.HasSuffix(q, ":") && strings.HasPrefix(metaAllocation, q) {
			return true
		}
	}
	return false
}
