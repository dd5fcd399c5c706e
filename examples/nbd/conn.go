package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

const (
	// payloadPatience limits how long a client takes to send the data of a WRITE after
	// its header, and to receive a reply.
	payloadPatience = 30 * time.Second
	// maxPlain bounds a connection's requests in hand that have no data.
	maxPlain = 64
)

// conn is one client's connection after the handshake. The reader takes requests. Each
// request has a goroutine, which carries it out and replies.
type conn struct {
	net.Conn
	disk *session
	log  *slog.Logger

	largest uint32        // most bytes of a READ or WRITE
	room    chan struct{} // one for each buffer in use
	plain   chan struct{} // one for each request in hand that has no data
	wg      sync.WaitGroup

	reply sync.Mutex // one reply at a time

	mu      sync.Mutex // guards stopped and the read deadline
	stopped bool
}

// largestOf returns the most bytes of a READ or WRITE if a piece has block bytes.
func largestOf(block int) uint32 { return uint32(max(maxRequest/block, 1) * block) }

func newConn(c net.Conn, s *session, log *slog.Logger) *conn {
	n := largestOf(s.Block)
	return &conn{Conn: c, disk: s, log: log, largest: n,
		room: make(chan struct{}, int(n)/s.Block), plain: make(chan struct{}, maxPlain)}
}

// stop ends the reader. Requests in hand are finished and get their replies.
func (c *conn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	_ = c.SetReadDeadline(time.Unix(1, 0))
}

// limit sets the time within which the client must send what is read next; 0 is no limit.
func (c *conn) limit(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
	case d == 0:
		_ = c.SetReadDeadline(time.Time{})
	default:
		_ = c.SetReadDeadline(time.Now().Add(d))
	}
}

// serve carries out requests until the client disconnects, ctx ends or the session ends. It
// returns nil in the first two cases.
func (c *conn) serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.stop)()
	defer context.AfterFunc(c.disk.ctx, c.stop)()
	err := c.read()
	c.wg.Wait()
	switch {
	case c.disk.ctx.Err() != nil:
		return &ended{context.Cause(c.disk.ctx)}
	case ctx.Err() != nil, errors.Is(err, io.EOF):
		return nil
	}
	return err
}

func (c *conn) read() error {
	in := bufio.NewReaderSize(c.Conn, 4<<10)
	var head [requestSize]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		r, err := parseRequest(&head)
		if err != nil {
			return err
		}
		if e := r.check(c.disk.size, c.disk.readOnly, c.largest); e != eOK {
			if err := c.refuse(in, r, e); err != nil {
				return err
			}
			continue
		}
		switch r.command {
		case cmdDisc:
			return nil
		case cmdRead, cmdWrite:
			slots, err := c.buffers(int(r.length))
			if err == nil && r.command == cmdWrite {
				err = c.payload(in, slots, int(r.length))
			}
			if err != nil {
				c.release(slots, nil)
				return err
			}
			c.wg.Go(func() { c.transfer(r, slots) })
		default:
			c.plain <- struct{}{} // waits for replies, which have a limit
			c.wg.Go(func() {
				_ = c.answer(r, c.change(r), nil)
				<-c.plain
			})
		}
	}
}

// refuse replies with e to a request that is not carried out. It first reads and drops the
// data of a WRITE.
func (c *conn) refuse(in io.Reader, r request, e errno) error {
	if r.command == cmdWrite {
		if r.length > c.largest {
			return fmt.Errorf("%w: WRITE of %d bytes, at most %d", errProtocol, r.length, c.largest)
		}
		c.limit(payloadPatience)
		defer c.limit(0)
		if _, err := io.CopyN(io.Discard, in, int64(r.length)); err != nil {
			return err
		}
	}
	return c.answer(r, e, nil)
}

// buffers takes as many buffers as n bytes need.
func (c *conn) buffers(n int) (slots []*store.Slot, err error) {
	for ; n > 0; n -= c.disk.Block {
		c.room <- struct{}{} // waits for replies, which have a limit
		slot, err := c.disk.take()
		if err != nil {
			<-c.room
			return slots, c.disk.over(err)
		}
		slots = append(slots, slot)
	}
	return slots, nil
}

// release gives buffers back. If the session has ended, it drops them instead, because an
// operation may still touch them.
func (c *conn) release(slots []*store.Slot, failed error) {
	var e *ended
	if !errors.As(failed, &e) {
		c.disk.put(slots)
	}
	for range slots {
		<-c.room
	}
}

// pieceOf returns how many of a request's n bytes are in slot i.
func (c *conn) pieceOf(i, n int) int { return min(c.disk.Block, n-i*c.disk.Block) }

// payload reads the data of a WRITE into the slots.
func (c *conn) payload(in io.Reader, slots []*store.Slot, n int) error {
	c.limit(payloadPatience)
	defer c.limit(0)
	for i, s := range slots {
		_, err := io.ReadFull(in, s.Buf.Bytes()[:c.pieceOf(i, n)])
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("in the data of a WRITE: %w", err)
		}
	}
	return nil
}

// transfer carries out a READ or WRITE, with all pieces at the same time, and replies.
func (c *conn) transfer(r request, slots []*store.Slot) {
	errs := make([]error, len(slots))
	var pieces sync.WaitGroup
	for i, s := range slots {
		m := store.Message{Flags: store.FlagBytes, Block: r.offset + uint64(i*c.disk.Block), Length: uint32(c.pieceOf(i, int(r.length)))}
		pieces.Go(func() {
			if r.command == cmdRead {
				errs[i] = c.disk.read(s, m)
				return
			}
			if r.flags&askFUA == 0 {
				m.Flags |= store.FlagUnsynced
			}
			errs[i] = c.disk.write(s, m)
		})
	}
	pieces.Wait()
	err := worst(errs)
	var data net.Buffers
	if err == nil && r.command == cmdRead {
		for i, s := range slots {
			data = append(data, s.Buf.Bytes()[:c.pieceOf(i, int(r.length))])
		}
	}
	c.tell(r, err, data)
	c.release(slots, err)
}

// worst returns the error that says that the session is over, else the first error.
func worst(errs []error) (err error) {
	for _, e := range errs {
		var over *ended
		if errors.As(e, &over) {
			return e
		}
		if err == nil {
			err = e
		}
	}
	return err
}

// change carries out a FLUSH, TRIM or WRITE_ZEROES.
func (c *conn) change(r request) errno {
	m := store.Message{Kind: store.KindFlush}
	if r.command == cmdFlush {
		if c.disk.readOnly {
			return eOK
		}
		return c.failed(r, c.disk.ask(m))
	}
	m.Kind = store.KindZero
	switch {
	case r.command == cmdTrim:
		m.Flags = store.FlagTrim
	case r.flags&askNoHole == 0:
		m.Flags = store.FlagHole
	}
	if r.flags&askFast != 0 {
		m.Flags |= store.FlagFast
	}
	if r.flags&askFUA == 0 {
		m.Flags |= store.FlagUnsynced
	}
	for at, left := r.offset, uint64(r.length); left > 0; {
		n := min(left, store.MaxZero)
		m.Block, m.Length = at, uint32(n)
		if err := c.disk.ask(m); err != nil {
			return c.failed(r, err)
		}
		at, left = at+n, left-n
	}
	return eOK
}

// failed logs why r failed and returns the error number for the client.
func (c *conn) failed(r request, err error) errno {
	e := errnoOf(err)
	var over *ended // is logged once, at the end of the connection
	if err != nil && e != eNotSup && !errors.As(err, &over) {
		c.log.Warn("request failed", "command", r.command, "offset", r.offset, "length", r.length, "err", err)
	}
	return e
}

func (c *conn) tell(r request, err error, data net.Buffers) { _ = c.answer(r, c.failed(r, err), data) }

// answer writes the reply to r. If the client does not receive it within payloadPatience,
// answer closes the connection.
func (c *conn) answer(r request, e errno, data net.Buffers) error {
	c.reply.Lock()
	defer c.reply.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(payloadPatience))
	out := append(net.Buffers{appendReply(make([]byte, 0, 16), r.cookie, e)}, data...)
	_, err := out.WriteTo(c.Conn)
	if err != nil {
		c.Close()
	}
	return err
}
