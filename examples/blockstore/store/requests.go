package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// payloads is memory for requests that are being sent. It has pointers, so that Put allocates
// nothing.
var payloads = sync.Pool{New: func() any {
	b := make([]byte, 0, MaxMessage)
	return &b
}}

// busyPause is the pause before a request to a busy server is repeated.
const busyPause = time.Millisecond

// Begin sends the request m once, and calls done once with the answer or an error. The error
// of a FAILED is a *Failure. The slot s holds the bytes of a WRITE or READ. It may be nil if
// m has at most Small bytes: those of a WRITE are then in m.Data, and those of a READ are in
// the answer's Data, which is valid only while done runs.
//
// Mostly the receiving goroutine calls done, so done must not wait. Begin may wait for room
// to send, and for a buffer of the server.
func (c *Client) Begin(ctx context.Context, s *Slot, m Message, done func(Message, error)) {
	c.begin(ctx, s, m, done)
}

func (c *Client) begin(ctx context.Context, s *Slot, m Message, done func(Message, error)) *call {
	switch {
	case m.Kind == KindWrite && int(m.Length) > c.Small:
		m.CRC = Checksum(s.mem[:m.Length])
		return c.push(ctx, s, m, done)
	case m.Kind == KindWrite:
		if m.Data == nil {
			m.Data = s.mem[:m.Length]
		}
		m.CRC = Checksum(m.Data)
	case m.Kind == KindRead:
		done = arrived(s, m, done)
	}
	out := rds.Message{Addr: c.Server}
	if m.Kind == KindRead && int(m.Length) > c.Small {
		cookie, err := s.cookie()
		if err != nil {
			done(Message{}, err)
			return nil
		}
		out.Cookie = cookie
	}
	m.Session = c.session
	buf := payloads.Get().(*[]byte)
	defer payloads.Put(buf) // the send copies it
	out.Payload = m.Append((*buf)[:0])
	// From here on done may be called, because the session ends. Then m.Data is somebody else's.
	k, err := c.calls.begin(c.Wait.Answer, false, nil, done)
	if err != nil {
		done(Message{}, err)
		return nil
	}
	setID(out.Payload, k.id)
	_, err = c.sock.Send(context.Background(), &out)
	if err != nil && c.calls.leave(k) {
		c.calls.cancel(k)
		done(Message{}, err)
	}
	return k
}

// arrived returns a function that checks the answer to the READ m, copies its bytes into s,
// and calls done.
func arrived(s *Slot, m Message, done func(Message, error)) func(Message, error) {
	return func(a Message, err error) {
		p := a.Data
		switch {
		case err != nil:
			done(a, err)
			return
		case a.Kind != KindDone || a.Block != m.Block || a.Length != m.Length || p == nil && s == nil:
			done(a, Failf(StatusChecksum, "block %d: answered with %v of block %d, %d bytes", m.Block, a.Kind, a.Block, a.Length))
			return
		case p == nil:
			p = s.mem[:m.Length]
		case s != nil:
			copy(s.mem, p)
		}
		if crc := Checksum(p); crc != a.CRC {
			err = Failf(StatusChecksum, "block %d: checksum %08x arrived, %08x announced", m.Block, crc, a.CRC)
		}
		done(a, err)
	}
}

// push RDMA-writes the bytes of the WRITE m into a buffer that the server has granted. The
// immediate data is m.
func (c *Client) push(ctx context.Context, s *Slot, m Message, done func(Message, error)) *call {
	g, i, err := c.grants.take(ctx, c)
	if err != nil {
		done(Message{}, err)
		return nil
	}
	back := func() { g.free <- i }
	k, err := c.calls.begin(c.Wait.Answer, true, back, func(a Message, err error) {
		var f *Failure
		if errors.As(err, &f) && (f.Status == StatusGrantOver || f.Status == StatusRefused) {
			c.grants.drop(g)
		}
		done(a, err)
	})
	if err != nil {
		back()
		done(Message{}, err)
		return nil
	}
	m.ID, m.Session = k.id, c.session
	m.Flags |= FlagPushed
	m.Window = g.number<<16 | i
	id, err := c.sock.Send(context.Background(), &rds.Message{
		Payload: m.Append(make([]byte, 0, HeaderSize)), Addr: c.Server,
		Op: &rds.RDMA{
			Write: true, Cookie: g.cookie, RemoteOff: uint64(i) * uint64(g.size),
			Local: []rds.Segment{{Buf: s.buf, Len: int(m.Length)}}, Token: k.id, Report: true,
		},
	})
	if err != nil {
		c.calls.cancel(k)
		back()
		done(Message{}, err)
		return nil
	}
	s.pushed = id
	c.calls.sent(k)
	return k
}

// Do does what Begin does, and waits for the answer. After an error other than StatusBusy
// the caller must call Recall before it uses the slot again.
func (c *Client) Do(ctx context.Context, s *Slot, m Message) (Message, error) {
	answer := make(chan outcome, 1)
	k := c.begin(ctx, s, m, func(a Message, err error) {
		if s != nil {
			a.Data = nil // the slot has the bytes
		}
		a.Data = bytes.Clone(a.Data) // the receiving goroutine reuses its memory
		answer <- outcome{a, err}
	})
	select {
	case o := <-answer:
		return o.m, o.err
	case <-ctx.Done():
		if k == nil || !c.calls.leave(k) {
			o := <-answer
			return o.m, o.err
		}
		return Message{}, context.Cause(ctx)
	}
}

// Ask sends the request m, which has no bytes, again and again until it is answered.
func (c *Client) Ask(ctx context.Context, m Message) (Message, error) {
	for start := time.Now(); ; {
		a, err := c.Do(ctx, nil, m)
		var f *Failure
		if lost := errors.As(err, &f) && f.Status.Transient(); !lost && !errors.Is(err, ErrNoAnswer) {
			return a, err
		}
		if time.Since(start) > c.Wait.GiveUp {
			return Message{}, fmt.Errorf("%v: no answer to %v for %v", c.Server, m.Kind, c.Wait.GiveUp)
		}
		if Busy(err) {
			if err := Pause(ctx); err != nil {
				return Message{}, err
			}
		}
	}
}

// Busy reports whether the server refused a request for want of room. Then it has done
// nothing, and no operation of the request exists.
func Busy(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Status == StatusBusy
}

// Pause waits for busyPause. It returns the cause if ctx ends first.
func Pause(ctx context.Context) error {
	t := time.NewTimer(busyPause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Open opens the export and sets Block, Limit and Small to values that both ends can handle.
func (c *Client) Open(ctx context.Context, block int, write bool) (size int64, err error) {
	m := Message{Kind: KindOpen, BlockSize: uint32(block)}
	c.session = 0
	if write {
		m.Flags = FlagWrite
		c.session = rand.Uint64() | 1
	}
	a, err := c.Ask(ctx, m)
	if err != nil {
		return 0, err
	}
	if a.Kind != KindOpened || a.BlockSize < MinBlock || a.BlockSize > MaxBlock || a.Block > 1<<62 || a.Window == 0 {
		return 0, fmt.Errorf("%v: unusable answer to OPEN: %v, block size %d, window %d, size %d",
			c.Server, a.Kind, a.BlockSize, a.Window, a.Block)
	}
	c.Block = int(a.BlockSize)
	c.Limit = int(min(a.Window, maxInHand))
	c.Small = min(c.Small, int(a.Length), MaxSmall)
	return int64(a.Block), nil
}
