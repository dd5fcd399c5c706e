// Package model is the bare data path with runs: application, relay, TCP, relay, application,
// or two applications with one relay. It shows what the machine allows a data path that pays
// as little as possible for a datagram.
//
// An application and its relay share a ring of bytes for each direction. Datagrams lie in a
// ring one behind the other as frames: a header, the payload and padding. A run is what one
// publication adds, however many frames it has. So a datagram costs its frame and nothing
// else: no descriptor, id, event or return.
//
// A side that waits yields the processor for some time. Then it sleeps until the other side
// rings its bell. A side rings a bell only if the bell's owner has announced that it sleeps.
//
// An application can also write from its region to the other host's, as by RDMA without the
// protocol: the relays write large pieces from their place, and read them into it.
//
// The model has no reliability, ports, credits or accounting, and trusts what is in the rings.
// It shares no code with rdsd, so no change of rdsd changes it.
package model

import (
	"encoding/binary"
	"sync/atomic"
)

const (
	// MaxPayload is the most bytes that a datagram has.
	MaxPayload = 64 << 10

	headerSize   = 16
	frameAlign   = 8
	ringBytes    = 4 << 20 // a power of two
	controlBytes = 4096
	memoryBytes  = controlBytes + ringBytes

	// wrapped instead of a length says that the next frame is at the ring's start.
	wrapped = ^uint32(0)
)

// header is the beginning of a frame. It also travels on the connection between relays.
type header struct {
	n   uint32 // payload bytes
	to  uint32 // destination
	seq uint64 // the sender's count of datagrams
}

// toRegion instead of a destination says that the frame is a write to the other host's region.
// Its bytes are not in a ring. On the connection they follow the header.
const toRegion = ^uint32(0)

// writeHeader is the header of a write.
func writeHeader(off, n int) header {
	return header{to: toRegion, seq: uint64(off)<<32 | uint64(uint32(n))}
}

// of returns the bytes of region that a write is for, or nil if region has not all of them.
func (h header) of(region []byte) []byte {
	off, n := h.seq>>32, h.seq&(1<<32-1)
	if off+n > uint64(len(region)) {
		return nil
	}
	return region[off : off+n]
}

func (h header) put(b []byte) {
	binary.LittleEndian.PutUint32(b, h.n)
	binary.LittleEndian.PutUint32(b[4:], h.to)
	binary.LittleEndian.PutUint64(b[8:], h.seq)
}

func parseHeader(b []byte) header {
	return header{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])}
}

// frameBytes is what a frame takes of a ring.
func frameBytes(payload int) uint64 {
	return uint64(headerSize+payload+frameAlign-1) &^ (frameAlign - 1)
}

// control is the part of a ring that both sides write, each word in lines of its own.
type control struct {
	tail    atomic.Uint64 // the producer has published up to here
	_       [120]byte
	head    atomic.Uint64 // the consumer has released up to here
	_       [120]byte
	hungry  atomic.Uint32 // the consumer sleeps until a frame is published
	_       [124]byte
	blocked atomic.Uint32 // the producer sleeps until room is released
	_       [124]byte
}

// producer is the writing side of a ring. One thread uses it.
type producer struct {
	*control
	data  []byte
	bell  int    // of the consumer
	at    uint64 // written up to here
	known uint64 // what was last read of head
}

func newProducer(mem []byte, bell int) *producer {
	return &producer{control: controlOf(mem), data: mem[controlBytes:], bell: bell}
}

// reserve writes the header of a frame and returns the place of its payload. It returns nil if
// the ring has no room.
func (p *producer) reserve(h header) []byte {
	need, off, pad := frameBytes(int(h.n)), p.at%ringBytes, uint64(0)
	if off+need > ringBytes {
		pad = ringBytes - off
	}
	if p.at+pad+need-p.known > ringBytes {
		p.known = p.head.Load()
		if p.at+pad+need-p.known > ringBytes {
			return nil
		}
	}
	if pad > 0 {
		binary.LittleEndian.PutUint32(p.data[off:], wrapped)
		p.at += pad
		off = 0
	}
	h.put(p.data[off:])
	p.at += need
	return p.data[off+headerSize : off+headerSize+uint64(h.n)]
}

// publish shows the consumer what was reserved, and wakes it if it sleeps.
func (p *producer) publish() {
	p.tail.Store(p.at)
	if p.hungry.Load() != 0 && p.hungry.Swap(0) != 0 {
		ringBell(p.bell)
	}
}

// stuck reports whether the consumer has released nothing since reserve returned nil.
func (p *producer) stuck() bool { return p.head.Load() == p.known }

// consumer is the reading side of a ring. One thread uses it.
type consumer struct {
	*control
	data  []byte
	bell  int    // of the producer
	at    uint64 // read up to here
	known uint64 // what was last read of tail
}

func newConsumer(mem []byte, bell int) *consumer {
	return &consumer{control: controlOf(mem), data: mem[controlBytes:], bell: bell}
}

// peek returns the next frame, which stays in the ring. The payload is nil if there is none.
func (c *consumer) peek() (h header, payload []byte) {
	for {
		if c.at == c.known {
			c.known = c.tail.Load()
			if c.at == c.known {
				return h, nil
			}
		}
		off := c.at % ringBytes
		if binary.LittleEndian.Uint32(c.data[off:]) == wrapped {
			c.at += ringBytes - off
			continue
		}
		h = parseHeader(c.data[off:])
		return h, c.data[off+headerSize : off+headerSize+uint64(h.n)]
	}
}

// drop goes on behind the frame that peek returned.
func (c *consumer) drop(h header) { c.at += frameBytes(int(h.n)) }

// release gives the producer the room of what was dropped, and wakes it if it waits for room.
func (c *consumer) release() {
	c.head.Store(c.at)
	if c.blocked.Load() != 0 && c.blocked.Swap(0) != 0 {
		ringBell(c.bell)
	}
}

// empty reports whether nothing was published behind what was read.
func (c *consumer) empty() bool { return c.tail.Load() == c.at }
