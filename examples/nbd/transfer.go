package main

import (
	"errors"
	"sync"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// buffers is memory for small requests. It has pointers, so that Put allocates nothing.
var buffers = sync.Pool{New: func() any { b := make([]byte, store.MaxSmall); return &b }}

// message returns the request for the n bytes at offset at that the READ or WRITE r asks for.
func message(r request, at uint64, n int) store.Message {
	m := store.Message{Kind: store.KindRead, Flags: store.FlagBytes, Block: at, Length: uint32(n)}
	if r.command == cmdWrite {
		if m.Kind = store.KindWrite; r.flags&askFUA == 0 {
			m.Flags |= store.FlagUnsynced
		}
	}
	return m
}

// beginSmall begins a READ or WRITE whose bytes are in the messages.
func (c *conn) beginSmall(r request) error {
	m := message(r, r.offset, int(r.length))
	var buf *[]byte
	if r.command == cmdWrite {
		buf = buffers.Get().(*[]byte)
		m.Data = (*buf)[:r.length]
		if err := c.payload(m.Data); err != nil {
			buffers.Put(buf)
			return err
		}
	}
	c.small <- struct{}{} // waits for replies, which have a limit
	c.wg.Add(1)
	c.disk.begin(nil, m, func(data []byte, err error) {
		if buf != nil {
			buffers.Put(buf)
		}
		if err != nil || r.command == cmdWrite {
			data = nil
		}
		c.out.reply(c.reply(r, c.failed(r, err)), data, func() { <-c.small })
		c.disk.touch(c)
		c.wg.Done()
	})
	return nil
}

// large is a READ or WRITE in pieces, each with a buffer.
type large struct {
	c      *conn
	r      request
	slots  []*store.Slot
	pieces [][]byte // as much of each slot's memory as its piece needs

	mu   sync.Mutex // guards the fields below
	left int        // pieces in hand
	err  error      // of a piece; ended comes before others
}

// beginLarge begins all pieces of a READ or WRITE whose bytes travel by RDMA.
func (c *conn) beginLarge(r request) error {
	l := &large{c: c, r: r}
	err := l.take()
	if err == nil && r.command == cmdWrite {
		err = c.payload(l.pieces...)
	}
	if err != nil {
		l.release(nil)
		return err
	}
	c.wg.Add(1)
	l.left = len(l.slots)
	at := r.offset
	for i, slot := range l.slots {
		n := len(l.pieces[i])
		c.disk.begin(slot, message(r, at, n), func(_ []byte, err error) { l.done(err) })
		at += uint64(n)
	}
	c.disk.flush() // pieces may have been answered before begin returned
	return nil
}

// take takes the buffers for the request.
func (l *large) take() error {
	s := l.c.disk
	for n := int(l.r.length); n > 0; {
		l.c.room <- struct{}{} // waits for replies, which have a limit
		slot, err := s.take()
		if err != nil {
			<-l.c.room
			return s.over(err)
		}
		k := min(n, s.Block)
		l.slots, l.pieces = append(l.slots, slot), append(l.pieces, slot.Bytes()[:k])
		n -= k
	}
	return nil
}

// done ends a piece; the last one replies.
func (l *large) done(err error) {
	l.mu.Lock()
	var over *ended
	if l.err == nil || errors.As(err, &over) {
		l.err = err
	}
	l.left--
	last := l.left == 0
	l.mu.Unlock()
	if !last {
		return
	}
	c := l.c
	if l.r.command == cmdRead && l.err == nil {
		c.out.replyPieces(c.reply(l.r, eOK), l.pieces, func() { l.release(nil) })
	} else {
		c.out.reply(c.reply(l.r, c.failed(l.r, l.err)), nil, nil)
		l.release(l.err)
	}
	c.disk.touch(c)
	c.wg.Done()
}

// release gives buffers back. If the session has ended, it drops them instead, because an
// operation may still touch them.
func (l *large) release(failed error) {
	var e *ended
	for _, slot := range l.slots {
		if !errors.As(failed, &e) {
			l.c.disk.put(slot)
		}
		<-l.c.room
	}
}
