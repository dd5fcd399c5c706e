package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// retryLimit is how often a block is asked for when the answers say that
// something is wrong (refused, wrong checksum). Dropped operations and time
// outs are limited by copyOptions.giveUp instead.
const retryLimit = 3

// busyPause is how long a client waits before it asks a busy server again.
const busyPause = time.Millisecond

// maxInHand bounds what is made of a server's word.
const maxInHand = 1 << 12

// copyOptions are the client's.
type copyOptions struct {
	block    int           // bytes wanted
	window   int           // blocks in flight
	patience time.Duration // for one answer, before the block is asked for again
	giveUp   time.Duration // for one block, over all attempts
	bar      bool          // draw a progress bar on standard error
	status   io.Writer     // gets a line for each block done, if not nil
}

// client is one attachment that talks to one server.
type client struct {
	rc     *rds.Client
	sock   *rds.Socket
	server netip.AddrPort
	opt    copyOptions
	calls  *calls
	times  recorder

	session  uint64 // 0 until open for writing
	limit    int    // requests the server takes at a time; 0 until open
	receiver sync.WaitGroup
	unhook   func() bool
}

// connect binds a socket and starts to take answers. close ends both; the end
// of ctx ends sends that wait for room.
func connect(ctx context.Context, o rds.Options, bind, server netip.AddrPort, opt copyOptions) (*client, error) {
	rc, err := rds.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	sock, err := rc.Bind(bind)
	if err != nil {
		rc.Close()
		return nil, err
	}
	c := &client{rc: rc, sock: sock, server: server, opt: opt, calls: newCalls()}
	c.unhook = context.AfterFunc(ctx, func() { sock.SetWriteDeadline(time.Unix(1, 0)) })
	c.receiver.Go(c.receive)
	return c, nil
}

func (c *client) close() {
	c.unhook()
	c.sock.Close()
	c.receiver.Wait()
	c.rc.Close()
}

// receive hands answers and notices to the calls that wait, until the socket
// is closed.
func (c *client) receive() {
	m := rds.Message{Payload: make([]byte, maxMessage), DontWait: true}
	for {
		ready, err := c.sock.Wait(context.Background(), rds.WaitSet{Message: true, Notice: true})
		if err == nil && ready.Message {
			err = c.take(&m)
		}
		if err != nil {
			c.calls.fail(err)
			return
		}
		c.notices()
	}
}

// take receives what is there.
func (c *client) take(m *rds.Message) error {
	for {
		err := c.sock.RecvMsg(m)
		switch {
		case errors.Is(err, rds.ErrWouldBlock):
			return nil
		case err != nil:
			return err
		case m.Addr != c.server || m.Truncated:
			continue // not ours
		}
		msg, err := parse(m.Payload[:m.N])
		if err != nil {
			return fmt.Errorf("%v: %w", m.Addr, err)
		}
		c.calls.answer(msg)
	}
}

// notices tells the calls what the daemon says about the server.
func (c *client) notices() {
	var notices [16]rds.Notice
	for n := c.sock.Notices(notices[:]); n > 0; n = c.sock.Notices(notices[:]) {
		for _, o := range notices[:n] {
			switch o.Kind {
			case rds.NoSocket:
				c.calls.fail(fmt.Errorf("%v: no blockstore server is bound there", c.server))
			case rds.Lost:
				c.calls.retryAll("lost by a restart of the server's daemon")
			}
		}
	}
}

// request sends m under a new number. The caller ends the call.
func (c *client) request(m *message, cookie rds.Cookie) (*call, error) {
	k := c.calls.begin()
	m.id, m.session = k.id, c.session
	if _, err := c.sock.SendMsg(&rds.Message{Payload: m.append(nil), Addr: c.server, Cookie: cookie}); err != nil {
		k.end()
		return nil, err
	}
	return k, nil
}

// ask sends m until it is answered.
func (c *client) ask(ctx context.Context, m message) (message, error) {
	for start := time.Now(); ; {
		k, err := c.request(&m, 0)
		if err != nil {
			return message{}, err
		}
		a, err := k.wait(ctx, c.opt.patience)
		k.end()
		var f *failure
		if lost := errors.As(err, &f) && f.status.transient(); !lost && !errors.Is(err, errNoAnswer) {
			return a, err
		}
		if time.Since(start) > c.opt.giveUp {
			return message{}, fmt.Errorf("%v: no answer to %v for %v", c.server, m.kind, c.opt.giveUp)
		}
	}
}

// open asks for the export and takes the block size and window both can.
func (c *client) open(ctx context.Context, write bool) (size int64, err error) {
	m := message{kind: kindOpen, blockSize: uint32(c.opt.block)}
	if write {
		m.flags = flagWrite
		c.session = rand.Uint64() | 1
	}
	a, err := c.ask(ctx, m)
	if err != nil {
		return 0, err
	}
	if a.kind != kindOpened || a.blockSize < minBlock || a.blockSize > maxBlock || a.block > 1<<62 || a.window == 0 {
		return 0, fmt.Errorf("%v: unusable answer to OPEN: %v, block size %d, window %d, size %d",
			c.server, a.kind, a.blockSize, a.window, a.block)
	}
	c.opt.block = int(a.blockSize)
	c.limit = int(min(a.window, maxInHand))
	c.opt.window = min(c.opt.window, c.limit)
	return int64(a.block), nil
}

// slots makes n buffers for the server to use.
func (c *client) slots(n int, access rds.Access) ([]*slot, error) {
	var slots []*slot
	for i := range n {
		buf, err := c.rc.Alloc(c.opt.block)
		if err != nil {
			return nil, fmt.Errorf("buffer %d of %d: %w", i+1, n, err)
		}
		slots = append(slots, &slot{sock: c.sock, buf: buf, access: access})
	}
	return slots, nil
}

// worker copies one block through its slot; it may return before the block is
// done, when the slot is free and someone else waits for the rest.
type worker func(ctx context.Context, s *slot, j job) error

// run copies all blocks of size bytes with a window of workers.
func (c *client) run(ctx context.Context, label string, size int64, access rds.Access, t *todo, work worker) (copyStats, error) {
	start := time.Now()
	stats := copyStats{Direction: label, Bytes: size, Blocks: t.blocks, BlockSize: c.opt.block}
	stats.Window = int(min(uint64(c.opt.window), max(1, t.blocks)))
	slots, err := c.slots(stats.Window, access)
	if err != nil {
		return stats, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { t.stop(context.Cause(ctx)) })()
	if c.opt.status != nil {
		t.follow(func(done uint64) { fmt.Fprintln(c.opt.status, done, t.blocks) })
	}
	if c.opt.bar {
		done := func() int64 { n, _ := t.state(); return min(int64(n)*int64(c.opt.block), size) }
		defer progress(os.Stderr, label, size, done)()
	}
	var workers sync.WaitGroup
	for _, s := range slots {
		workers.Go(func() {
			for {
				j, ok := t.next()
				if !ok {
					return
				}
				if err := work(ctx, s, j); err != nil {
					// The others stop too, and what their calls return for
					// that is not the reason.
					cancel(err)
					t.stop(context.Cause(ctx))
					return
				}
			}
		})
	}
	workers.Wait()
	_, err = t.state()
	c.times.fill(&stats, time.Since(start))
	return stats, err
}

// again decides whether j is asked for once more after err; nil means yes.
func (c *client) again(ctx context.Context, err error, j job) error {
	var f *failure
	failed := errors.As(err, &f)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed && f.status.suspect():
		if j.attempt >= retryLimit {
			return err
		}
	case failed && !f.status.transient(), !failed && !errors.Is(err, errNoAnswer):
		return err
	case time.Since(j.start) > c.opt.giveUp:
		return fmt.Errorf("block %d: given up after %v: %w", j.block, c.opt.giveUp, err)
	}
	if busy(err) {
		// Answers overtake what the server knows of them: it will have room.
		pause := time.NewTimer(busyPause)
		defer pause.Stop()
		select {
		case <-pause.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.times.retry(!failed, failed && f.status == statusChecksum)
	return nil
}

// busy: the server did nothing, and nothing of the request is left.
func busy(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.status == statusBusy
}

// blocksOf is the number of blocks of a file.
func blocksOf(size int64, block int) uint64 { return uint64((size + int64(block) - 1) / int64(block)) }

// lengthOf is the length of one of them.
func lengthOf(size int64, block int, n uint64) int {
	return int(min(int64(block), size-int64(n)*int64(block)))
}
