package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// maxInHand bounds Client.Limit, whatever the server says.
const maxInHand = 1 << 12

// Patience limits a client's waiting.
type Patience struct {
	Answer time.Duration // for the answer to one request
	GiveUp time.Duration // for all attempts at one request
}

// Client is a client's socket with its requests to one server. All methods but Open and
// Close may be called concurrently.
type Client struct {
	Server netip.AddrPort
	Wait   Patience
	Block  int // bytes of a block that both sides can handle; 0 until open
	Limit  int // requests the server takes at a time; 0 until open

	rc       *rds.Client
	sock     *rds.Socket
	calls    *calls
	session  uint64 // 0 until open for writing
	receiver sync.WaitGroup
	unhook   func() bool
}

// Connect binds a socket and starts to receive answers. The caller must call Close. When
// ctx ends, sends that wait for room fail.
func Connect(ctx context.Context, o rds.Options, bind, server netip.AddrPort, wait Patience) (*Client, error) {
	rc, err := rds.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	sock, err := rc.Bind(bind)
	if err != nil {
		rc.Close()
		return nil, err
	}
	c := &Client{rc: rc, sock: sock, Server: server, Wait: wait, calls: newCalls()}
	c.unhook = context.AfterFunc(ctx, func() { _ = sock.SetWriteDeadline(time.Unix(1, 0)) })
	c.receiver.Go(c.receive)
	return c, nil
}

// Close closes the socket. Calls that wait for an answer fail.
func (c *Client) Close() {
	c.unhook()
	c.sock.Close()
	c.receiver.Wait()
	c.rc.Close()
}

// receive passes answers and notices to the waiting calls until the socket is closed or
// fails.
func (c *Client) receive() {
	m := rds.Message{Payload: make([]byte, MaxMessage), DontWait: true}
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

// take receives all messages that have arrived.
func (c *Client) take(m *rds.Message) error {
	for {
		err := c.sock.RecvMsg(m)
		switch {
		case errors.Is(err, rds.ErrWouldBlock):
			return nil
		case err != nil:
			return err
		case m.Addr != c.Server || m.Truncated:
			continue // not an answer of the server
		}
		msg, err := Parse(m.Payload[:m.N])
		if err != nil {
			return fmt.Errorf("%v: %w", m.Addr, err)
		}
		c.calls.answer(msg)
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
				c.calls.retryAll("lost by a restart of the server's daemon")
			}
		}
	}
}

// request sends m with a new request number. The caller must end the call.
func (c *Client) request(m *Message, cookie rds.Cookie) (*Call, error) {
	k := c.calls.begin()
	m.ID, m.Session = k.id, c.session
	if _, err := c.sock.SendMsg(&rds.Message{Payload: m.Append(nil), Addr: c.Server, Cookie: cookie}); err != nil {
		k.End()
		return nil, err
	}
	return k, nil
}

// Try sends m once and waits for the first answer. FAILED is returned as a *Failure.
func (c *Client) Try(ctx context.Context, m Message) (Message, error) {
	k, err := c.request(&m, 0)
	if err != nil {
		return Message{}, err
	}
	defer k.End()
	return k.Wait(ctx, c.Wait.Answer)
}

// Ask sends m until an answer comes, or Wait.GiveUp has passed. A transient failure does
// not count as an answer.
func (c *Client) Ask(ctx context.Context, m Message) (Message, error) {
	for start := time.Now(); ; {
		a, err := c.Try(ctx, m)
		var f *Failure
		if lost := errors.As(err, &f) && f.Status.Transient(); !lost && !errors.Is(err, ErrNoAnswer) {
			return a, err
		}
		if time.Since(start) > c.Wait.GiveUp {
			return Message{}, fmt.Errorf("%v: no answer to %v for %v", c.Server, m.Kind, c.Wait.GiveUp)
		}
	}
}

// Open opens the export and returns its size in bytes. It sets Block and Limit to what
// both sides can handle.
func (c *Client) Open(ctx context.Context, block int, write bool) (size int64, err error) {
	m := Message{Kind: KindOpen, BlockSize: uint32(block)}
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
	return int64(a.Block), nil
}

// Slot makes a buffer of a block's size that the server may use.
func (c *Client) Slot(access rds.Access) (*Slot, error) {
	buf, err := c.rc.Alloc(c.Block)
	if err != nil {
		return nil, err
	}
	return &Slot{sock: c.sock, Buf: buf, access: access}, nil
}

// Read requests once the bytes that m names (Block, BlockSize, Length, Flags). When it
// returns nil, they are in the slot's buffer. After an error the caller must recall the
// slot, unless the error is a *Failure with StatusBusy.
func (c *Client) Read(ctx context.Context, s *Slot, m Message) error {
	cookie, err := s.cookie()
	if err != nil {
		return err
	}
	m.Kind = KindRead
	k, err := c.request(&m, cookie)
	if err != nil {
		return err
	}
	defer k.End()
	a, err := k.Wait(ctx, c.Wait.Answer)
	switch {
	case err != nil:
		return err
	case a.Kind != KindDone || a.Block != m.Block || a.Length != m.Length:
		return Failf(StatusChecksum, "block %d: answered with %v of block %d, %d bytes", m.Block, a.Kind, a.Block, a.Length)
	}
	if crc := Checksum(s.Buf.Bytes()[:m.Length]); crc != a.CRC {
		return Failf(StatusChecksum, "block %d: checksum %08x arrived, %08x announced", m.Block, crc, a.CRC)
	}
	return nil
}

// Write requests once that the server writes the slot's bytes to the place that m names
// (Block, BlockSize, Length, Flags), and waits for the first answer. If err is nil, the
// caller must end the call. fetched says that the server has read the bytes, and that
// another answer will come. After an error the slot must be recalled as after Read.
func (c *Client) Write(ctx context.Context, s *Slot, m Message) (k *Call, fetched bool, err error) {
	cookie, err := s.cookie()
	if err != nil {
		return nil, false, err
	}
	m.Kind, m.CRC = KindWrite, Checksum(s.Buf.Bytes()[:m.Length])
	k, err = c.request(&m, cookie)
	if err != nil {
		return nil, false, err
	}
	a, err := k.Wait(ctx, c.Wait.Answer)
	if err == nil && a.Kind != KindFetched && a.Kind != KindDurable && a.Kind != KindWritten {
		err = Failf(StatusChecksum, "block %d: answered with %v", m.Block, a.Kind)
	}
	if err != nil {
		k.End()
		return nil, false, err
	}
	return k, a.Kind == KindFetched, nil
}
