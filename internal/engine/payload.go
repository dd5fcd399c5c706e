package engine

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/shm"
)

// payload is where a message's bytes are.
type payload struct {
	mem  []byte
	addr uint64 // of mem[0] under lkey
	lkey uint32
	buf  *buffer    // SubFromBuf
	run  int        // datagrams of the run that mem is, 0: it is one datagram
	sum  frames.Sum // as in txMsg
}

// payload finds the bytes that d names. The error is a broken client's: the
// library has checked, and it keeps a buffer until the message is returned.
func (c *Client) payload(d *shm.Sub) (p payload, err error) {
	p.sum = frames.Sum{Datagrams: 1, Bytes: int(d.Len)}
	if d.Flags&shm.SubTraceparent != 0 && d.Kind != shm.KindRun {
		if c.traceparent(d) == nil {
			return p, errors.New("a traceparent outside the send arena")
		}
	}
	switch {
	case d.Kind == shm.KindRun:
		return c.takeRun(d)
	case d.Kind == shm.KindSendOp && d.Flags&shm.SubNotify != 0:
		return p, errors.New("a status for a message with operations, which have their own")
	case d.Len == 0:
		return p, nil
	case d.Len > abi.MaxMessage:
		return p, fmt.Errorf("%d bytes, a message has at most %d", d.Len, abi.MaxMessage)
	case d.Flags&shm.SubFromBuf != 0:
		b := c.buffers[d.Buf]
		if b == nil || b.freeing || !b.has(d.Off, uint64(d.Len)) {
			return p, fmt.Errorf("%d bytes at %d are outside buffer %d", d.Len, d.Off, d.Buf)
		}
		end := d.Off + uint64(d.Len)
		p.mem, p.addr, p.lkey, p.buf = b.mem[d.Off:end:end], d.Off, b.mr.LKey(), b
		return p, nil
	}
	addr := uint64(d.Chunk) * shm.Unit
	mem, w := c.sent(addr, uint64(d.Len))
	if w == nil {
		return p, fmt.Errorf("%d bytes at chunk %d are outside the send arena", d.Len, d.Chunk)
	}
	p.mem, p.addr, p.lkey = mem, addr, w.mr.LKey()
	return p, nil
}

// traceparent finds the trace of the message d, see shm.SubTraceparent. It returns nil if it would be
// outside the send arena.
func (c *Client) traceparent(d *shm.Sub) []byte {
	addr := uint64(d.Chunk) * shm.Unit
	if d.Flags&shm.SubFromBuf == 0 {
		addr += uint64(d.Len)
	}
	mem, _ := c.sent(addr, wire.TraceparentLen)
	return mem
}

// belongs notes that t belongs to the trace in mem. t's process can write to mem: the daemon that t
// arrives at checks the copy.
func (t *txMsg) belongs(mem []byte) {
	copy(t.parent[:], mem)
	t.m.Traceparent = &t.parent
}

// takeRun closes the run that d names, and finds what it holds.
func (c *Client) takeRun(d *shm.Sub) (p payload, err error) {
	addr := uint64(d.Chunk) * shm.Unit
	mem, w := c.sent(addr, uint64(d.Len))
	if w == nil || d.Len < shm.RunHead {
		return p, fmt.Errorf("a run in %d bytes at chunk %d is outside the send arena", d.Len, d.Chunk)
	}
	if d.Cookie|d.Off != 0 || d.GiveUp|d.DstInc != 0 || d.Flags != 0 {
		return p, errors.New("a run with a cookie, a limit, an incarnation or flags")
	}
	s := shm.RunWord(mem).Close()
	if err := s.Check(len(mem)); err != nil {
		return p, err
	}
	if s&shm.RunAckNow != 0 {
		d.Flags = shm.SubAckNow
	}
	p.mem, p.addr = mem[shm.RunHead:][:s.Len():s.Len()], addr+shm.RunHead
	p.lkey = w.mr.LKey()
	p.run = s.Datagrams()
	p.sum = frames.Sum{Datagrams: p.run, Bytes: s.Payload()}
	return p, nil
}
