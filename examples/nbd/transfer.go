package main

import (
	"errors"
	"sync"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// buffers is memory for small requests. It has pointers, so that Put allocates nothing.
var buffers = sync.Pool{New: func() any { b := make([]byte, store.MaxSmall); return &b }}

// message returns the blockstore's request for the n bytes at offset at of r.
func message(r request, at uint64, n int) store.Message {
	m := store.Message{Kind: store.KindRead, Flags: store.FlagBytes, Block: r.offset + at, Length: uint32(n)}
	if r.command == cmdWrite {
		if m.Kind = store.KindWrite; r.flags&askFUA == 0 {
			m.Flags |= store.FlagUnsynced
		}
	}
	return m
}

// beginSmall begins a READ or WRITE whose bytes are in the messages.
func (c *conn) beginSmall(r request) error {
	m := message(r, 0, int(r.length))
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
		c.out.reply(r.cookie, c.failed(r, err), data, func() { <-c.small })
		c.disk.touch(c)
		c.wg.Done()
	})
	return nil
}

// large is a READ or WRITE in pieces, each with a buffer.
type large struct {
	c *conn
	r request

	mu   sync.Mutex // guards the fields below
	left int        // pieces in hand
	err  error      // of a piece; ended comes before others
	bufs []*buffer
}

// beginLarge begins all pieces of a READ or WRITE whose bytes travel by RDMA.
func (c *conn) beginLarge(r request) error {
	l := &large{c: c, r: r}
	err := l.take()
	if err == nil && r.command == cmdWrite {
		err = c.payload(l.pieces()...)
	}
	if err != nil {
		l.release(nil)
		return err
	}
	c.wg.Add(1)
	l.left = len(l.bufs)
	at := uint64(0)
	for i, p := range l.pieces() {
		m := message(r, at, len(p))
		c.disk.begin(l.bufs[i], m, func(_ []byte, err error) { l.done(err) })
		at += uint64(len(p))
	}
	c.disk.flush() // pieces may have been answered before begin returned
	return nil
}

// take takes the buffers for the request.
func (l *large) take() error {
	for n := int(l.r.length); n > 0; n -= l.c.disk.block {
		l.c.room <- struct{}{} // waits for replies, which have a limit
		b, err := l.c.disk.take()
		if err != nil {
			<-l.c.room
			return l.c.disk.over(err)
		}
		l.bufs = append(l.bufs, b)
	}
	return nil
}

// pieces returns the parts of the buffers that the request uses.
func (l *large) pieces() (ps [][]byte) {
	left := int(l.r.length)
	for _, s := range l.bufs {
		n := min(left, l.c.disk.block)
		ps = append(ps, s.b[:n])
		left -= n
	}
	return ps
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
		c.out.replyPieces(l.r.cookie, l.pieces(), func() { l.release(nil) })
	} else {
		c.out.reply(l.r.cookie, c.failed(l.r, l.err), nil, nil)
		l.release(l.err)
	}
	c.disk.touch(c)
	c.wg.Done()
}

// release gives buffers back. If the session has ended, it drops them instead, because an
// operation may still touch them.
func (l *large) release(failed error) {
	var e *ended
	if !errors.As(failed, &e) {
		l.c.disk.put(l.bufs)
	}
	for range l.bufs {
		<-l.c.room
	}
}
