package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
)

const (
	// written is the shortest answer that is written into the caller's memory, bytes. A
	// shorter one is faster in the message.
	written = 32<<10 + 1
	// stageSize is the size of a buffer for answers, bytes: what goes to the caller's host in one piece.
	stageSize = 1 << 20
	// stagesKept is how many buffers for answers a server keeps.
	stagesKept = 4
)

// run handles one call and answers it.
func (v *Server) run(c *call) {
	if c.ctx.Err() != nil {
		v.notRun(c)
		return
	}
	if c.cookie != 0 && c.size > 0 {
		c.req.Body = make([]byte, c.size)
		ctx, cancel := context.WithTimeout(c.ctx, v.o.callerWait)
		_, err := v.s.Remote(ctx, c.key.from, c.cookie, int64(c.size)).ReadAt(c.req.Body, 0)
		cancel()
		switch {
		case err == nil:
		case c.ctx.Err() != nil:
			v.notRun(c)
			return
		default:
			c.answerBy = time.Now().Add(v.o.callerWait)
			v.fail(c, fmt.Errorf("read the request: %w", err))
			return
		}
	}
	returned := false
	defer func() {
		if !returned {
			v.finish(c, nil, v.panicked(c, recover()))
		}
	}()
	out, err := c.handle(c.ctx, &c.req)
	returned = true
	v.finish(c, out, err)
}

// panicked logs that the handler of c has panicked with x, or has ended its goroutine if x is
// nil. It returns the error for the caller, which does not say why.
func (v *Server) panicked(c *call, x any) error {
	what := "panicked"
	if x == nil {
		what = "ended its goroutine"
	}
	v.o.Log.Error("rpc: a handler "+what, "method", c.req.Method, "from", c.key.from, "panic", x, "stack", string(debug.Stack()))
	return fmt.Errorf("the handler %s, the log of its server says why", what)
}

// finish answers c with what its handler returned.
func (v *Server) finish(c *call, out []byte, err error) {
	if !v.answers(c) {
		return
	}
	c.answerBy = time.Now().Add(v.o.callerWait)
	if c.headed && len(c.req.Answer) > 0 {
		head, wrong := c.req.Answer.encode()
		if wrong != nil {
			a := refusal(statusTooLarge, "the answer: "+wrong.Error())
			a.id = c.key.id
			_ = v.send(c, &a)
			return
		}
		c.head = append([]byte{byte(len(c.req.Answer))}, head...)
	}
	if err == nil {
		err = v.reply(c, out)
	}
	if err != nil && c.ctx.Err() == nil {
		v.fail(c, err)
	}
}

// reply sends the answer out of c. An error is one that the caller can still be told.
func (v *Server) reply(c *call, out []byte) error {
	total := uint64(len(out))
	switch {
	case c.into != 0 && total > c.room:
		text := fmt.Sprintf("an answer of %d bytes, and memory for %d", total, c.room)
		return v.send(c, &answer{id: c.key.id, status: statusTooLarge, total: uint64(len(text)), part: []byte(text)})
	case c.into != 0 && total >= written:
		return v.write(c, out)
	}
	for off := 0; ; {
		n := min(len(out)-off, inline)
		if err := v.send(c, &answer{id: c.key.id, total: total, offset: uint64(off), part: out[off : off+n]}); err != nil {
			return nil // the caller gets no answer in two pieces, its probe tells it
		}
		if off += n; off == len(out) {
			return nil
		}
	}
}

// fail answers c with err.
func (v *Server) fail(c *call, err error) {
	text := clip(err.Error())
	a := answer{id: c.key.id, status: statusFailed, total: uint64(len(text)), part: []byte(text)}
	if !errors.As(err, &a.errno) && c.stopped && errors.Is(err, context.Canceled) {
		a.errno = shutDown.errno
	}
	_ = v.send(c, &a)
}

// send sends one message of an answer. It waits for room as long as the call lasts, and until
// c.answerBy.
func (v *Server) send(c *call, a *answer) error {
	if a.offset == 0 {
		a.head = c.head
	}
	buf := outs.Get().(*[]byte)
	defer outs.Put(buf)
	*buf = appendAnswer((*buf)[:0], a)
	c.msg = rds.Message{Payload: *buf, Addr: c.key.from}
	_, err := v.s.Send(rds.DontWait, &c.msg)
	if errors.Is(err, rds.ErrWouldBlock) || errors.Is(err, rds.ErrCongested) {
		ctx, cancel := context.WithDeadline(c.ctx, c.answerBy)
		defer cancel()
		_, err = v.s.Send(ctx, &c.msg)
	}
	return err
}

// outs are buffers for messages to send.
var outs = sync.Pool{New: func() any { return new([]byte) }}

// write writes an answer into the caller's memory: all but the last piece first, then the
// last with the message that tells of the answer. The message is delivered only if its
// piece is there, and sent only if the others are.
func (v *Server) write(c *call, out []byte) error {
	ctx, cancel := context.WithDeadline(c.ctx, c.answerBy)
	defer cancel()
	first := max(0, len(out)-stageSize)
	if first > 0 {
		if _, err := v.s.Remote(ctx, c.key.from, c.into, int64(c.room)).WriteAt(out[:first], 0); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	stage, err := v.staging.take(v.s.Client())
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	n := copy(stage.Bytes(), out[first:])
	if n != len(out)-first {
		return rds.ErrClosed
	}
	op := rds.RDMA{Write: true, Cookie: c.into, RemoteOff: uint64(first), Notify: true, OwnerOnly: true, Local: []rds.Segment{{Buf: stage, Len: n}}}
	a := appendAnswer(nil, &answer{id: c.key.id, flags: flagWritten, total: uint64(len(out)), head: c.head})
	id, err := v.s.Send(ctx, &rds.Message{Payload: a, Addr: c.key.from, Op: &op})
	if err != nil {
		v.staging.put(stage, false)
		return fmt.Errorf("write the answer: %w", err)
	}
	_, err = v.s.Barrier(ctx, c.key.from.Addr(), id)
	v.staging.put(stage, err != nil)
	if err == nil {
		var done rds.Completion
		if done, err = v.s.WaitOp(ctx, c.key.from.Addr(), id); err == nil {
			err = done.Err()
		}
	}
	if err == nil || errors.Is(err, rds.Unknown) || errors.Is(err, rds.Canceled) {
		return nil // the caller has the answer, or may have it
	}
	return fmt.Errorf("write the answer: %w", err)
}

// staging is the server's local memory for answers that it writes.
type staging struct {
	mu   sync.Mutex
	kept []*rds.Buffer
}

func (g *staging) take(c *rds.Client) (*rds.Buffer, error) {
	g.mu.Lock()
	if n := len(g.kept); n > 0 {
		defer g.mu.Unlock()
		b := g.kept[n-1]
		g.kept = g.kept[:n-1]
		return b, nil
	}
	g.mu.Unlock()
	return c.Alloc(stageSize)
}

// put takes b back. If an operation may still use b, b is freed when none does.
func (g *staging) put(b *rds.Buffer, inUse bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !inUse && len(g.kept) < stagesKept {
		g.kept = append(g.kept, b)
		return
	}
	_ = b.FreeWait(rds.DontWait) // when nothing uses it any more
}

func (g *staging) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.kept {
		_ = b.FreeWait(rds.DontWait)
	}
	g.kept = nil
}
