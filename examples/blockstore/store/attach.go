package store

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/rds"
)

const (
	// maxInHand bounds Client.Limit, whatever the server says.
	maxInHand = 1 << 12
	// batch is how many messages a client receives at a time.
	batch = 32
)

// Options are the options of a Client.
type Options struct {
	Daemon rds.Options
	Bind   netip.AddrPort
	Server netip.AddrPort
	Wait   Patience
	// Small is the most bytes of a read or write that travels in the message. The server
	// may lower it.
	Small int
	// Idle, if not nil, is called by the receiving goroutine after each batch of answers.
	Idle func()
}

// Patience limits a client's waiting.
type Patience struct {
	Answer time.Duration // for the answer to one request
	GiveUp time.Duration // for all attempts at one request
}

// Client is a client's socket with its requests to one server. All methods but Open and
// Close may be called concurrently.
type Client struct {
	Options
	Block int // bytes of a block both can; 0 until open
	Limit int // requests the server takes at a time; 0 until open

	rc      *rds.Client
	sock    *rds.Socket
	calls   *calls
	grants  grants
	session uint64 // 0 until open for writing
	ended   chan struct{}
	running sync.WaitGroup
	unhook  func() bool
}

// Connect binds a socket and starts to receive answers. The caller must call Close. When
// ctx ends, sends that wait for room fail.
func Connect(ctx context.Context, o Options) (*Client, error) {
	rc, err := rds.Open(ctx, o.Daemon)
	if err != nil {
		return nil, err
	}
	sock, err := rc.Bind(o.Bind)
	if err != nil {
		rc.Close()
		return nil, err
	}
	o.Small = min(o.Small, MaxSmall)
	c := &Client{Options: o, rc: rc, sock: sock, calls: newCalls(), ended: make(chan struct{})}
	c.unhook = context.AfterFunc(ctx, func() { _ = sock.SetWriteDeadline(time.Unix(1, 0)) })
	c.running.Go(c.receive)
	c.running.Go(c.watch)
	return c, nil
}

// Close closes the socket. Calls that wait for an answer fail.
func (c *Client) Close() {
	c.unhook()
	c.sock.Close()
	close(c.ended)
	c.running.Wait()
	c.rc.Close()
}

// watch ends calls whose answers do not come in time.
func (c *Client) watch() {
	tick := time.NewTicker(max(c.Wait.Answer/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			c.calls.expire(now)
		case <-c.ended:
			return
		}
	}
}

// receive hands answers, statuses and notices to the calls that wait, until the
// socket is closed.
func (c *Client) receive() {
	ms := make([]rds.Received, batch)
	for i := range ms {
		ms[i] = rds.Received{Payload: make([]byte, HeaderSize+max(c.Small, 8*MaxMore))}
	}
	for {
		ready, err := c.sock.Wait(context.Background(), rds.WaitSet{Message: true, Notice: true, Completion: true})
		if err == nil && ready.Message {
			err = c.take(ms)
		}
		if err != nil {
			c.calls.fail(err)
			return
		}
		if ready.Completion {
			c.statuses()
		}
		if ready.Notice {
			c.notices()
		}
		if c.Idle != nil {
			c.Idle()
		}
	}
}

// take receives all messages that have arrived.
func (c *Client) take(ms []rds.Received) error {
	n, err := c.sock.RecvBatch(rds.DontWait, ms)
	if err != nil && !errors.Is(err, rds.ErrWouldBlock) {
		return err
	}
	for i := range ms[:n] {
		m := &ms[i]
		if m.Addr != c.Server || m.N < m.Len {
			continue // not an answer of the server
		}
		msg, err := Parse(m.Payload[:m.N])
		if err != nil {
			return fmt.Errorf("%v: %w", m.Addr, err)
		}
		if msg.Kind == KindGranted {
			msg.Session = uint64(m.Cookie) // the cookie is no part of the message's bytes
		}
		c.calls.answer(msg)
	}
	return nil
}

// statuses takes the statuses of failed pushes and ends their calls.
func (c *Client) statuses() {
	var done [16]rds.Completion
	for n := c.sock.Completions(done[:]); n > 0; n = c.sock.Completions(done[:]) {
		for _, s := range done[:n] {
			failed := Message{Kind: KindFailed, ID: s.Token, Status: StatusRefused, Text: fmt.Sprintf("push: %v", s.Err())}
			switch {
			case s.Errno == unix.EINVAL || s.Errno == unix.EACCES: // this host's daemon knows that the grant was revoked
				failed.Status = StatusGrantOver
			case s.Status == rds.Unknown, s.Status == rds.Canceled:
				c.calls.unknown(s.Token, failed.Text)
				continue
			case s.Status == rds.Dropped:
				failed.Status = StatusRetry
			}
			c.calls.answer(failed)
		}
	}
}

// notices passes the daemon's notices about the server to the calls.
func (c *Client) notices() {
	var notices [16]rds.Notice
	for n := c.sock.Notices(notices[:]); n > 0; n = c.sock.Notices(notices[:]) {
		for _, o := range notices[:n] {
			switch o.Kind {
			case rds.NoSocket:
				c.calls.fail(fmt.Errorf("%v: no blockstore server is bound there", c.Server))
			case rds.Lost:
				c.calls.unknownAll("lost by a restart of the server's daemon")
			}
		}
	}
}

// Slot makes a buffer of a block's size that the server may use.
func (c *Client) Slot() (*Slot, error) {
	buf, err := c.rc.Alloc(c.Block)
	if err != nil {
		return nil, err
	}
	return &Slot{c: c, buf: buf, mem: buf.Bytes()}, nil
}
