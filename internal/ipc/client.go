package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Control is the client's side of a session.
type Control interface {
	// Call sends a request and waits for the answer. The descriptors fds stay the caller's.
	// Descriptors that come with the answer become the caller's. Any number of goroutines
	// may call. If the answer is an Err, the error is that *Err. If the session ends before
	// the answer, the error is Reason's, ErrGone or ErrClosed.
	Call(req Request, fds []int) (Response, []int, error)
	// Close ends the session.
	Close() error
	// Gone is closed when the session has ended.
	Gone() <-chan struct{}
	// Reason says why the session ended: a *SessionError with the daemon's text, an
	// ErrProtocol, or ErrClosed after Close. It is nil while the session lives, or if the
	// daemon gave no reason.
	Reason() error
}

// Client is a Control over a unix socket.
type Client struct {
	conn *Conn
	gone chan struct{}
	done chan struct{} // the receiving goroutine has returned

	mu      sync.Mutex
	next    uint32
	pending map[uint32]chan *Message // with room for all answers, so that the reader never waits
	ended   bool
	reason  error
}

var _ Control = (*Client)(nil)

// Dial connects to the daemon at path. Errors name the path and are errnos: ENOENT if there
// is no such file, ECONNREFUSED if no daemon listens there any more, EACCES.
func Dial(ctx context.Context, path string) (*Client, error) {
	conn, err := dialConn(ctx, path)
	if err != nil {
		return nil, err
	}
	return NewClient(conn), nil
}

const (
	// dialPatience is how long Dial waits for a place among the connections that the daemon
	// has not accepted yet.
	dialPatience = 10 * time.Second
	dialPause    = 10 * time.Millisecond
)

func dialConn(ctx context.Context, path string) (*Conn, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	var d net.Dialer
	for {
		c, err := d.DialContext(ctx, "unixpacket", path)
		if err == nil {
			return NewConn(c.(*net.UnixConn))
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, fmt.Errorf("control socket: %w", err)
		}
		select { // many others connect at this moment
		case <-time.After(dialPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("control socket: %w: other processes' connections wait for the daemon", err)
		}
	}
}

// NewClient takes over conn and starts to receive.
func NewClient(conn *Conn) *Client {
	c := &Client{conn: conn, gone: make(chan struct{}), done: make(chan struct{}), pending: map[uint32]chan *Message{}}
	go c.receive()
	return c
}

// Call implements Control.
func (c *Client) Call(req Request, fds []int) (Response, []int, error) {
	var resp Response
	var got []int
	err := c.exchange(req, fds, 1, func(m *Message) (bool, error) {
		if m.Body.Type() != req.request() {
			return false, protocolError("%v in answer to %v", m.Body.Type(), req.Type())
		}
		resp, got = m.Body.(Response), m.FDs
		return true, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return resp, got, nil
}

// CallJSON sends a Ctl request and returns the whole answer. The session must have been
// opened with RoleCtl.
func (c *Client) CallJSON(req []byte) ([]byte, error) {
	var answer []byte
	err := c.exchange(&Ctl{JSON: req}, nil, maxCtlParts, func(m *Message) (bool, error) {
		p, is := m.Body.(*CtlPart)
		if !is {
			return false, protocolError("%v in answer to Ctl", m.Body.Type())
		}
		if len(answer)+len(p.JSON) > MaxCtl {
			return false, protocolError("answer to Ctl longer than %d bytes", MaxCtl)
		}
		answer = append(answer, p.JSON...)
		return p.Last, nil
	})
	return answer, err
}

// exchange sends a request and calls take for each answer until take returns done. most is
// the largest number of answers.
func (c *Client) exchange(req Request, fds []int, most int, take func(*Message) (done bool, err error)) error {
	id, ch, err := c.register(most)
	if err != nil {
		return err
	}
	defer c.unregister(id)
	if err := c.conn.Send(id, req, fds...); err != nil {
		if !isGone(err) && !errors.Is(err, net.ErrClosed) {
			return err
		}
		// A reason that the daemon sent before it closed says more than the send error.
		<-c.gone
		return c.endError()
	}
	for {
		m := c.await(ch)
		if m == nil {
			return c.endError()
		}
		if done, err := c.answer(m, take); done || err != nil {
			return err
		}
	}
}

// await returns the next answer. It returns nil if the session ended without one.
func (c *Client) await(ch chan *Message) *Message {
	select {
	case m := <-ch:
		return m
	case <-c.gone:
	}
	// The answer may have arrived just before the end.
	select {
	case m := <-ch:
		return m
	default:
		return nil
	}
}

// answer handles the answers that any request can get, and passes the others to take.
func (c *Client) answer(m *Message, take func(*Message) (bool, error)) (done bool, err error) {
	if e, is := m.Body.(*Err); is {
		return true, e
	}
	if ok, is := m.Body.(*HelloOK); is {
		if err := ok.Check(); err != nil {
			m.CloseFDs()
			return true, err
		}
	}
	done, err = take(m)
	if err != nil {
		m.CloseFDs()
		c.end(err)
	}
	return done, err
}

func (c *Client) register(most int) (uint32, chan *Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, nil, c.endErrorLocked()
	}
	for {
		c.next++
		if _, used := c.pending[c.next]; !used && c.next != 0 {
			break
		}
	}
	ch := make(chan *Message, most)
	c.pending[c.next] = ch
	return c.next, ch, nil
}

func (c *Client) unregister(id uint32) {
	c.mu.Lock()
	ch := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	for {
		select {
		case m := <-ch:
			m.CloseFDs()
		default:
			return
		}
	}
}

// receive handles the daemon's frames until the end.
func (c *Client) receive() {
	defer close(c.done)
	for {
		m, err := c.conn.Recv()
		if err != nil {
			if isGone(err) {
				err = nil
			}
			c.end(err)
			return
		}
		if err := c.dispatch(m); err != nil {
			m.CloseFDs()
			c.end(err)
			return
		}
	}
}

// dispatch gives m to the call that waits for it. An error ends the session.
func (c *Client) dispatch(m *Message) error {
	switch b := m.Body.(type) {
	case *Goodbye:
		return &SessionError{Text: b.Text, Ends: b.Ends}
	case *Err:
		if m.ID == 0 { // the daemon refused before it read Hello
			return b
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.pending[m.ID]
	if ch == nil {
		return protocolError("%v answers request %d, which is not there", m.Body.Type(), m.ID)
	}
	select {
	case ch <- m:
		return nil
	default:
		return protocolError("too many answers to request %d", m.ID)
	}
}

// end ends the session, once.
func (c *Client) end(reason error) {
	c.mu.Lock()
	first := !c.ended
	if first {
		c.ended, c.reason = true, reason
		close(c.gone) // before calls fail, so that their callers find Gone closed
	}
	c.mu.Unlock()
	if first {
		c.conn.Close()
	}
}

// Close implements Control. When it returns, no goroutine is left.
func (c *Client) Close() error {
	c.end(net.ErrClosed)
	<-c.done
	return nil
}

// Gone implements Control.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Ending reports whether the daemon has closed the session. Gone is closed soon then, if it is not
// yet, and Reason is what the daemon said before.
func (c *Client) Ending() bool { return c.conn.HungUp() }

// Reason implements Control.
func (c *Client) Reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// endError is the error of calls after the end.
func (c *Client) endError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endErrorLocked()
}

func (c *Client) endErrorLocked() error {
	if c.reason == nil {
		return ErrGone
	}
	return c.reason
}
