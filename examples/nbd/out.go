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

// out sends replies to a client. It collects replies, and flush sends them with one system
// call that does not wait, so a goroutine that serves other clients can call it. A goroutine
// sends the bytes that the client does not receive at once. If the client does not receive
// them within payloadPatience, the connection is closed.
//
// An out is safe for concurrent use.
type out struct {
	conn net.Conn
	raw  syscall.RawConn // nil if the goroutine has to send everything

	mu      sync.Mutex // guards the fields below
	idle    sync.Cond  // signalled when writing becomes false
	pending []piece
	spare   []byte   // a chunk that is not used
	iov     [][]byte // of send
	writing bool     // the goroutine is running
	failed  bool
}

// piece is a part of the bytes that are pending.
type piece struct {
	b    []byte
	sent []func() // called when b was sent, and when the connection is over
	open bool     // b is a chunk to which replies may be appended
}

func newOut(c net.Conn) *out {
	o := &out{conn: c}
	o.idle.L = &o.mu
	if s, ok := c.(syscall.Conn); ok {
		o.raw, _ = s.SyscallConn()
	}
	return o
}

// reply collects a reply with a copy of data. sent, if not nil, is called when the reply was
// sent, or the connection is over.
func (o *out) reply(r reply, data []byte, sent func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.room(maxReply + len(data))
	p.b = append(r.append(p.b, len(data)), data...)
	if sent != nil {
		p.sent = append(p.sent, sent)
	}
	o.drop()
}

// replyPieces collects a reply without copying its data, which must not change until sent is
// called.
func (o *out) replyPieces(r reply, data [][]byte, sent func()) {
	n := 0
	for _, b := range data {
		n += len(b)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, piece{b: r.append(make([]byte, 0, maxReply), n)})
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

// drop drops the pending pieces if the connection is over. mu is held.
func (o *out) drop() {
	if o.failed {
		o.passed(len(o.pending), 0)
	}
}

// passed removes the first n pieces and the first bytes of the next one. mu is held.
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
		o.pending[0].open = false // the rest of a chunk cannot become the spare one
	}
}

// flush sends the pending pieces. It leaves those that would need a wait to the goroutine.
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

// send sends some of the pending pieces. It returns false if that needs a wait. mu is held.
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
		return false // the goroutine will meet the error, if there is one
	}
	i := 0
	for ; i < k && n >= len(o.pending[i].b); i++ {
		n -= len(o.pending[i].b)
	}
	o.passed(i, n)
	return true
}

// write sends pieces until none is pending.
func (o *out) write() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending) > 0 && !o.failed {
		n := len(o.pending)
		bs := make(net.Buffers, n)
		for i := range bs {
			bs[i] = o.pending[i].b
		}
		o.pending[n-1].open = false // nothing may be appended while it is sent
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

// drain returns when all pieces were sent or the connection is over.
func (o *out) drain() {
	o.flush()
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing {
		o.idle.Wait()
	}
}
