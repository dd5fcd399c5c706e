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

// maxInHand bounds what is made of a server's word.
const maxInHand = 1 << 12

// Patience limits a client's waiting.
type Patience struct {
	Answer time.Duration // for one answer, before it is asked for again
	GiveUp time.Duration // for one thing asked for, over all attempts
}

// Client is one attachment that talks to one server.
//
// Its methods but Open and Close may be called from many goroutines.
type Client struct {
	Server netip.AddrPort
	Wait   Patience
	Block  int // bytes of a block both can; 0 until open
	Limit  int // requests the server takes at a time; 0 until open

	rc       *rds.Client
	sock     *rds.Socket
	calls    *calls
	session  uint64 // 0 until open for writing
	receiver sync.WaitGroup
	unhook   func() bool
}

// Connect binds a socket and starts to take answers. Close ends both; the end
// of ctx ends sends that wait for room.
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

// Close ends the attachment: what waits for an answer fails.
func (c *Client) Close() {
	c.unhook()
	c.sock.Close()
	c.receiver.Wait()
	c.rc.Close()
}

// receive hands answers and notices to the calls that wait, until the socket
// is closed.
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

// take receives what is there.
func (c *Client) take(m *rds.Message) error {
	for {
		err := c.sock.RecvMsg(m)
		switch {
		case errors.Is(err, rds.ErrWouldBlock):
			return nil
		case err != nil:
			return err
		case m.Addr != c.Server || m.Truncated:
			continue // not ours
		}
		msg, err := Parse(m.Payload[:m.N])
		if err != nil {
			return fmt.Errorf("%v: %w", m.Addr, err)
		}
		c.calls.answer(msg)
	}
}

// notices tells the calls what the daemon says about the server.
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

// request sends m under a new number. The caller ends the call.
func (c *Client) request(m *Message, cookie rds.Cookie) (*Call, error) {
	k := c.calls.begin()
	m.ID, m.Session = k.id, c.session
	if _, err := c.sock.SendMsg(&rds.Message{Payload: m.Append(nil), Addr: c.Server, Cookie: cookie}); err != nil {
		k.End()
		return nil, err
	}
	return k, nil
}

// Try sends m once and waits for the first answer. A FAILED comes as a *Failure.
func (c *Client) Try(ctx context.Context, m Message) (Message, error) {
	k, err := c.request(&m, 0)
	if err != nil {
		return Message{}, err
	}
	defer k.End()
	return k.Wait(ctx, c.Wait.Answer)
}

// Ask sends m until it is answered.
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

// Open asks for the export and takes the block size and window both can.
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

// Slot makes a buffer of a block's size for the server to use.
func (c *Client) Slot(access rds.Access) (*Slot, error) {
	buf, err := c.rc.Alloc(c.Block)
	if err != nil {
		return nil, err
	}
	return &Slot{sock: c.sock, Buf: buf, access: access}, nil
}

// Read asks once for the bytes that m names (block, blockSize, length, flags);
// nil means they are in the slot's buffer. After any other error than one that
// is busy the slot is to be recalled.
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

// Write sends the bytes of the slot's buffer once, to where m says (block,
// blockSize, length, flags), and waits for the first answer. The call is the
// caller's to end unless err is non-nil; fetched: the server has the bytes, and
// another answer is to come.
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
