package main

import (
	"encoding/binary"
	"fmt"
)

// Sizes of ping data, as in rping.
const (
	minSize = 23
	maxSize = 64<<10 - 1
)

// infoLen is the length of the protocol's only message: u64 address, u32 rkey,
// u32 size, big-endian. The fields of the server's messages have no meaning.
const infoLen = 16

// info says where a piece of the client's memory is.
type info struct {
	addr uint64
	rkey uint32
	size uint32
}

func (i info) put(b []byte) {
	binary.BigEndian.PutUint64(b, i.addr)
	binary.BigEndian.PutUint32(b[8:], i.rkey)
	binary.BigEndian.PutUint32(b[12:], i.size)
}

// parseInfo parses a client's message. limit is the largest size that the server takes (-S).
func parseInfo(b []byte, limit int) (info, error) {
	if len(b) != infoLen {
		return info{}, fmt.Errorf("client sent %d bytes, want %d", len(b), infoLen)
	}
	i := info{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
	if i.size == 0 || int64(i.size) > int64(limit) {
		return info{}, fmt.Errorf("client's buffer has %d bytes, want 1 to %d (-S)", i.size, limit)
	}
	return i, nil
}

// fill makes the data of ping n as rping does: a title, then letters, and a zero byte at
// the end. Each ping starts one letter further than the ping before.
func fill(b []byte, n int) {
	const first, last = 'A', 'z'
	at := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	for c := n % (last - first + 1); at < len(b); at++ {
		b[at] = byte(first + c)
		c = (c + 1) % (last - first + 1)
	}
	b[len(b)-1] = 0
}
