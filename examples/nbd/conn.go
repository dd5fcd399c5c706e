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
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

const (
	// payloadPatience limits how long a client takes to send the data of a WRITE after
	// its header, and to receive a reply.
	payloadPatience = 30 * time.Second
	// maxPlain bounds a connection's requests in hand that have no data.
	maxPlain = 64
	// maxSmall bounds a connection's small requests in hand.
	maxSmall = 256
	// readAhead is how much of what a client has sent is read at a time.
	readAhead = 32 << 10
)

// conn is one client that has the disk. The reader takes requests and begins them. The
// goroutine that receives the blockstore's answers sends the replies through out.
type conn struct {
	net.Conn
	disk *session
	log  *slog.Logger
	in   *bufio.Reader
	out  *out

	structured bool // the client takes structured replies
	status     bool // the client may ask for block status

	largest uint32        // most bytes of a READ or WRITE
	room    chan struct{} // one for each buffer in use
	small   chan struct{} // one for each small request in hand
	plain   chan struct{} // one for each request in hand that has no data
	wg      sync.WaitGroup

	since atomic.Int64 // when the reader began to wait for the data of a WRITE, in ns of Unix time; 0 if it does not
}

// largestOf returns the most bytes of a READ or WRITE if a piece has block bytes.
func largestOf(block int) uint32 { return uint32(max(maxRequest/block, 1) * block) }

func newConn(c net.Conn, s *session, log *slog.Logger) *conn {
	n := largestOf(s.Block)
	return &conn{Conn: c, disk: s, log: log, largest: n,
		in: bufio.NewReaderSize(c, readAhead), out: newOut(c),
		room:  make(chan struct{}, int(n)/s.Block),
		small: make(chan struct{}, maxSmall), plain: make(chan struct{}, maxPlain)}
}

// stop ends the reader. Requests in hand are finished and get their replies.
func (c *conn) stop() { _ = c.SetReadDeadline(time.Unix(1, 0)) }

// watch stops the reader if the data of a WRITE does not come in time, until ctx ends. A
// deadline of the connection for each WRITE would do the same, but each one wakes a thread
// of the runtime.
func (c *conn) watch(ctx context.Context) {
	tick := time.NewTicker(payloadPatience / 8)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if since := c.since.Load(); since != 0 && now.UnixNano()-since > int64(payloadPatience) {
				c.stop()
			}
		case <-ctx.Done():
			return
		}
	}
}

// serve carries out requests until the client disconnects, ctx ends or the session ends. It
// returns nil in the first two cases.
func (c *conn) serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.stop)()
	defer context.AfterFunc(c.disk.ctx, c.stop)()
	watched, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	go c.watch(watched)
	err := c.read()
	c.wg.Wait()
	c.out.drain()
	switch {
	case c.disk.ctx.Err() != nil:
		return &ended{context.Cause(c.disk.ctx)}
	case ctx.Err() != nil, errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// read takes requests until the client ends the connection (nil) or it fails.
func (c *conn) read() error {
	var head [requestSize]byte
	for {
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return err
		}
		r, err := parseRequest(&head)
		if err != nil {
			return err
		}
		switch e := r.check(c.disk.size, c.disk.readOnly, c.largest); {
		case e != eOK:
			err = c.refuse(r, e)
		case r.command == cmdStatus && !c.status:
			err = c.refuse(r, eInval)
		case r.command == cmdDisc:
			return nil
		case r.command > cmdWrite:
			c.plain <- struct{}{} // waits for replies, which have a limit
			c.wg.Go(func() {
				if r.command == cmdStatus {
					c.extents(r)
				} else {
					c.answer(r, c.change(r))
				}
				<-c.plain
			})
		case int(r.length) <= c.disk.Small:
			err = c.beginSmall(r)
		default:
			err = c.beginLarge(r)
		}
		if err != nil {
			return err
		}
	}
}

// refuse replies with e to a request that is not carried out. It first reads and drops the
// data of a WRITE.
func (c *conn) refuse(r request, e errno) error {
	if r.command == cmdWrite {
		if r.length > c.largest {
			return fmt.Errorf("%w: WRITE of %d bytes, at most %d", errProtocol, r.length, c.largest)
		}
		c.since.Store(time.Now().UnixNano())
		defer c.since.Store(0)
		if _, err := io.CopyN(io.Discard, c.in, int64(r.length)); err != nil {
			return err
		}
	}
	c.answer(r, e)
	return nil
}

// payload reads the data of a WRITE into all of ps.
func (c *conn) payload(ps ...[]byte) error {
	if len(ps) > 1 || c.in.Buffered() < len(ps[0]) {
		c.since.Store(time.Now().UnixNano())
		defer c.since.Store(0)
	}
	for _, p := range ps {
		_, err := io.ReadFull(c.in, p)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("in the data of a WRITE: %w", err)
		}
	}
	return nil
}

// change carries out a FLUSH, TRIM or WRITE_ZEROES.
func (c *conn) change(r request) errno {
	m := store.Message{Kind: store.KindFlush}
	if r.command == cmdFlush {
		if c.disk.readOnly {
			return eOK
		}
		_, err := c.disk.answer(m)
		return c.failed(r, err)
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
		if _, err := c.disk.answer(m); err != nil {
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

// extents carries out a BLOCK_STATUS. The extents may end before the range does.
func (c *conn) extents(r request) {
	m, err := c.disk.answer(store.Message{Kind: store.KindMap, Block: r.offset, Length: r.length})
	if err != nil {
		c.answer(r, c.failed(r, err))
		return
	}
	c.out.reply(c.reply(r, eOK), statusOf(m.Extents, r.flags&askOne != 0), nil)
	c.out.flush()
}

// answer sends the reply to r, which has no data.
func (c *conn) answer(r request, e errno) {
	c.out.reply(c.reply(r, e), nil, nil)
	c.out.flush()
}

// reply returns the header of the reply to r.
func (c *conn) reply(r request, e errno) reply {
	p := reply{cookie: r.cookie, e: e, offset: r.offset}
	switch {
	case !c.structured:
	case r.command == cmdRead:
		p.chunk = chunkData
	case r.command == cmdStatus:
		p.chunk = chunkStatus
	}
	return p
}
