package engine

import (
	"fmt"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// sendBufs are the buffers that connections send from, of Config.MaxSend bytes each.
type sendBufs struct {
	mem     []byte
	mr      verbs.MR
	free    []*conn.SendBuf
	starved bool // somebody found none
}

func (s *sendBufs) open(mem []byte, mr verbs.MR, size int) {
	s.mem, s.mr = mem, mr
	for off := len(mem) - size; off >= 0; off -= size {
		s.free = append(s.free, &conn.SendBuf{Mem: mem[off : off+size : off+size], LKey: mr.LKey(), Addr: uint64(off)})
	}
}

func (s *sendBufs) get() *conn.SendBuf {
	n := len(s.free) - 1
	if n < 0 {
		s.starved = true
		return nil
	}
	b := s.free[n]
	s.free = s.free[:n]
	return b
}

// ctlBufs are buffers that each belong to one connection, of conn.CtlLen bytes. There is
// one for each peer.
type ctlBufs struct {
	mem  []byte
	mr   verbs.MR
	free []*conn.SendBuf
	left int // bytes of mem that were never lent
}

func (c *ctlBufs) open(mem []byte, mr verbs.MR) { c.mem, c.mr, c.left = mem, mr, len(mem) }

func (c *ctlBufs) get() *conn.SendBuf {
	if n := len(c.free) - 1; n >= 0 {
		b := c.free[n]
		c.free = c.free[:n]
		return b
	}
	if c.left == 0 {
		return nil
	}
	c.left -= conn.CtlLen
	return &conn.SendBuf{Mem: c.mem[c.left : c.left+conn.CtlLen : c.left+conn.CtlLen], LKey: c.mr.LKey(), Addr: uint64(c.left)}
}

// openBufs makes the send buffers and the overflow's memory. They are address space
// until used: the shared receive queue is consumed last in, first out, so an idle or
// lightly loaded daemon touches only a few of them.
func (e *Engine) openBufs() error {
	alloc := func(n int) []byte {
		mem := e.cfg.Alloc(n)
		e.memory = append(e.memory, mem)
		return mem
	}
	mem := alloc(e.cfg.SendBufs * e.cfg.MaxSend)
	mr, err := e.devices.regMR(failpoint.SendPool, mem, 0, verbs.AccessPrivate)
	if err != nil {
		return fmt.Errorf("register send pool: %w", err)
	}
	e.sendBufs.open(mem, mr, e.cfg.MaxSend)
	mem = alloc(e.cfg.MaxPeers * conn.CtlLen)
	if mr, err = e.devices.regMR(failpoint.SendPool, mem, 0, verbs.AccessPrivate); err != nil {
		return fmt.Errorf("register control buffers: %w", err)
	}
	e.ctlBufs.open(mem, mr)
	windows := (e.cfg.OverflowBytes + shm.WindowSize - 1) / shm.WindowSize
	e.rx.overflow.open(alloc((windows + 1) * shm.WindowSize))
	return nil
}

// SendBuf lends a connection a send buffer, nil: there is none.
func (u *qpHost) SendBuf() *conn.SendBuf { return u.e.sendBufs.get() }

// PutSendBuf takes one back.
func (u *qpHost) PutSendBuf(b *conn.SendBuf) { u.e.sendBufs.free = append(u.e.sendBufs.free, b) }

// CtlBuf lends a connection its own buffer, nil: there is none.
func (u *qpHost) CtlBuf() *conn.SendBuf { return u.e.ctlBufs.get() }

// PutCtlBuf takes one back.
func (u *qpHost) PutCtlBuf(b *conn.SendBuf) { u.e.ctlBufs.free = append(u.e.ctlBufs.free, b) }
