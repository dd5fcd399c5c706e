package main

import (
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// chunk is the memory of some small replies.
	chunk = 64 << 10
	// maxPieces bounds what one system call is given.
	maxPieces = 128
)

// out sends replies to a client. Replies are collected, and flush sends them in one
// system call that does not wait; it may be called by a goroutine that serves other
// clients, too. What a client does not take at once a goroutine of its own sends. A
// client that does not take it in time has no connection any more.
//
// Safe for concurrent use.
type out struct {
	conn net.Conn
	raw  syscall.RawConn // nil: everything is sent by the goroutine

	mu      sync.Mutex // guards the fields below
	idle    sync.Cond  // signalled when writing becomes false
	pending []piece
	spare   []byte   // a chunk that is not used
	iov     [][]byte // of send
	writing bool     // the goroutine runs
	failed  bool
}

// piece is a part of what is to be sent.
type piece struct {
	b    []byte
	sent []func() // called when b was sent, or will not be
	open bool     // b is a chunk; other replies may be appended
}

func newOut(c net.Conn) *out {
	o := &out{conn: c}
	o.idle.L = &o.mu
	if s, ok := c.(syscall.Conn); ok {
		o.raw, _ = s.SyscallConn()
	}
	return o
}

// reply collects a reply; data is copied. sent, if not nil, is called when the reply
// was sent, or will not be.
func (o *out) reply(cookie uint64, e errno, data []byte, sent func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.room(replySize + len(data))
	p.b = append(appendReply(p.b, cookie, e), data...)
	if sent != nil {
		p.sent = append(p.sent, sent)
	}
	o.drop()
}

// replyPieces collects a reply with data that stays where it is until sent is called.
func (o *out) replyPieces(cookie uint64, data [][]byte, sent func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, piece{b: appendReply(make([]byte, 0, replySize), cookie, eOK)})
	for _, b := range data {
		o.pending = append(o.pending, piece{b: b})
	}
	o.pending[len(o.pending)-1].sent = []func(){sent}
	o.drop()
}

// room returns a piece to which n bytes can be appended. mu is held.
func (o *out) room(n int) *piece {
	if i := len(o.pending) - 1; i >= 0 && o.pending[i].open && cap(o.pending[i].b)-len(o.pending[i].b) >= n {
		return &o.pending[i]
	}
	b := o.spare
	if o.spare = nil; cap(b) < n {
		b = make([]byte, 0, max(n, chunk))
	}
	o.pending = append(o.pending, piece{b: b[:0], open: true})
	return &o.pending[len(o.pending)-1]
}

// drop ends what is pending if the connection is over. mu is held.
func (o *out) drop() {
	if o.failed {
		o.passed(len(o.pending), 0)
	}
}

// passed removes the first n pieces, which were sent, and the first of bytes of the
// next. mu is held.
func (o *out) passed(n, bytes int) {
	for i := range o.pending[:n] {
		p := &o.pending[i]
		for _, f := range p.sent {
			f()
		}
		if p.open {
			o.spare = p.b
		}
	}
	left := copy(o.pending, o.pending[n:])
	clear(o.pending[left:])
	if o.pending = o.pending[:left]; bytes > 0 {
		o.pending[0].b = o.pending[0].b[bytes:]
		o.pending[0].open = false // what is left of a chunk is not one
	}
}

// flush sends what is pending, as far as the client takes it at once.
func (o *out) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending) > 0 && !o.writing && !o.failed {
		if !o.send() {
			o.writing = true
			go o.write()
		}
	}
}

// send gives the client some of what is pending; false if it takes nothing at
// once. mu is held.
func (o *out) send() bool {
	if o.raw == nil {
		return false
	}
	k := min(len(o.pending), maxPieces)
	o.iov = o.iov[:0]
	for i := range k {
		o.iov = append(o.iov, o.pending[i].b)
	}
	n := 0
	var err error
	rawErr := o.raw.Write(func(fd uintptr) bool {
		n, err = unix.Writev(int(fd), o.iov)
		return true
	})
	if rawErr != nil || err != nil || n <= 0 {
		return false // the goroutine finds out
	}
	i := 0
	for ; i < k && n >= len(o.pending[i].b); i++ {
		n -= len(o.pending[i].b)
	}
	o.passed(i, n)
	return true
}

// write sends what is pending, for as long as there is something.
func (o *out) write() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending) > 0 && !o.failed {
		n := len(o.pending)
		bs := make(net.Buffers, n)
		for i := range bs {
			bs[i] = o.pending[i].b
		}
		o.pending[n-1].open = false // it is being sent
		o.mu.Unlock()
		_ = o.conn.SetWriteDeadline(time.Now().Add(payloadPatience))
		_, err := bs.WriteTo(o.conn)
		_ = o.conn.SetWriteDeadline(time.Time{})
		o.mu.Lock()
		if o.failed = err != nil; o.failed {
			o.conn.Close()
			n = len(o.pending)
		}
		o.passed(n, 0)
	}
	o.writing = false
	o.idle.Broadcast()
}

// drain sends what is pending and returns when it was sent or the connection is over.
func (o *out) drain() {
	o.flush()
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing {
		o.idle.Wait()
	}
}
