package rpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// CallerOptions are the options of a Caller. The zero value suits almost every program.
type CallerOptions struct {
	// MaxAnswer is the longest answer that Call takes, bytes; 0 means 64 MiB. A longer one
	// is ErrTooLarge.
	MaxAnswer int
	// Probe is how often the Caller asks the servers of the calls that wait whether they
	// know the requests; 0 means one second. It asks for a call for the first time at the
	// latest so long after the call began. So a call whose server has died ends within about
	// that time.
	Probe time.Duration
}

// Caller calls methods of servers from one socket. Its methods may be called from many
// goroutines at once; calls at the same time share messages on the wire.
type Caller struct {
	s      *rds.Socket
	self   netip.AddrPort // its address
	o      CallerOptions
	uses   []Interceptor
	cancel context.CancelFunc
	wg     sync.WaitGroup
	free   sync.Pool // *pending

	// sends is held for reading while a request is registered and sent, and for writing
	// while the requests to an unreachable server are withdrawn, or all that were sent are
	// looked up.
	sends sync.RWMutex

	mu    sync.Mutex
	calls map[uint64]*pending
	last  uint64 // id
	timer *time.Timer
	armed bool
	ended error // no calls any more

	verdicts fifo[verdict]
}

// pending is one call that waits for its answer.
type pending struct {
	id     uint64
	to     netip.AddrPort
	mem    *Memory // for the answer, may be nil
	lent   bool    // the request names memory, for itself or for its answer
	server uint32  // incarnation of the socket that has said it knows the request, 0: none has. The receiver's alone
	done   chan struct{}
	msg    rds.Message
	out    []byte // the message

	// Set by whoever takes the call out of Caller.calls, before done.
	buf     []byte
	total   uint64
	begun   bool // a part has come
	written bool // the answer is in mem
	header  Header
	arrived time.Time // the last part
	err     error
}

// NewCaller makes a Caller that calls from s. The Caller takes s over: nobody else may
// receive from s, take its notices, choose them (SetNotices) or change
// SetFailUnreachable. Close ends both.
func NewCaller(s *rds.Socket, o CallerOptions) *Caller {
	if o.MaxAnswer <= 0 {
		o.MaxAnswer = 64 << 20
	}
	if o.Probe <= 0 {
		o.Probe = time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Caller{s: s, self: s.LocalAddrPort(), o: o, cancel: cancel, calls: map[uint64]*pending{}, last: rand.Uint64()}
	c.free.New = func() any { return &pending{done: make(chan struct{}, 1)} }
	c.timer = time.AfterFunc(time.Hour, c.probe)
	c.timer.Stop()
	s.SetFailUnreachable(true)
	s.SetNotices(rds.Lost, rds.NoSocket, rds.NotGranted, rds.Unreachable)
	c.wg.Go(func() { c.receive(ctx) })
	c.wg.Go(func() { c.notices(ctx) })
	return c
}

// Close ends the Caller and its socket. Calls that wait fail with rds.ErrClosed; their
// servers are not told. A second Close returns rds.ErrClosed.
func (c *Caller) Close() error {
	err := c.s.Close()
	c.cancel()
	c.end(rds.ErrClosed)
	c.wg.Wait()
	return err
}

// Call asks the server at to to run method on req, and returns the answer, which is the
// caller's. method has at most 255 bytes. req and the answer may be empty.
//
// Call waits until the answer is there or ctx ends. The deadline of ctx travels with the
// request: the handler's context ends then, too. If ctx ends first, the server is told
// to cancel the handler's context, and the error is that of ctx.
//
// The request runs at most once. It has run if Call returns nil. Errors, all within a
// CallError: those of this package, each of which says whether the request may have run;
// an Error, which is the handler's; an rds.Reason if the host is not reached, and the
// request did not run unless it had been sent before; ctx's; rds.ErrClosed,
// rds.ErrDaemonGone, rds.ErrSession and rds.ErrInvalid.
//
// A request of more than 128 KiB is read by the server from memory that Call allocates
// for it, see rds.Client.Alloc. Call allocates the answer, and otherwise nothing for a
// small request.
func (c *Caller) Call(ctx context.Context, to netip.AddrPort, method string, req []byte) ([]byte, error) {
	if c.uses != nil {
		return c.Do(ctx, &Request{Method: method, To: to, Body: req})
	}
	r := Request{Method: method, To: to, Body: req} // stays on the stack
	b, err := c.call(ctx, &r)
	return b, r.wrap(err)
}

// Do is Call with the Method, To, Body and Header of r. It sets From and Arrived, and Answer to
// the header of the answer, if r.Header is not nil. ErrTooLarge or rds.ErrInvalid if r.Header is not
// within its bounds; the request was not sent.
func (c *Caller) Do(ctx context.Context, r *Request) ([]byte, error) {
	r.From = c.self
	b, err := chain(c.call, c.uses)(ctx, r)
	return b, r.wrap(err)
}

// Use has each call made within is, the first of which is the outermost. A further Use adds
// to the inside. The answer of CallInto is a part of its Memory, which interceptors keep in
// place. Use is not called at the same time as calls.
func (c *Caller) Use(is ...Interceptor) { c.uses = append(c.uses, is...) }

// call is the Handler within the interceptors.
func (c *Caller) call(ctx context.Context, r *Request) ([]byte, error) {
	if r.mem != nil {
		n, err := c.callInto(ctx, r)
		if err != nil {
			return nil, err
		}
		return r.mem.Bytes()[:n], nil
	}
	p, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	b := p.buf
	c.recycle(p)
	return b, nil
}

// wrap returns err as the error of a call.
func (r *Request) wrap(err error) error {
	if err == nil {
		return nil
	}
	return &CallError{Method: r.Method, To: r.To, Err: err}
}

// do runs one call. The caller recycles what it returns.
func (c *Caller) do(ctx context.Context, r *Request) (*pending, error) {
	if r.Answer, r.Arrived = nil, (time.Time{}); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(r.Method) > maxMethod {
		return nil, &detailed{rds.ErrInvalid, "a method's name has at most 255 bytes"}
	}
	to, mem, req := r.To, r.mem, r.Body
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	p := c.free.Get().(*pending)
	*p = pending{to: to, mem: mem, lent: mem != nil, done: p.done, out: p.out[:0]}
	q := request{size: uint32(len(req)), body: req}
	if r.Header != nil {
		var err error
		if q.head, err = r.Header.encode(); err != nil {
			return nil, err
		}
		q.headed, q.header = true, r.Header
	}
	if len(req) > inline {
		body, err := c.lend(ctx, to, req)
		if err != nil {
			return nil, err
		}
		defer body.release(ctx)
		p.lent, q.body, q.cookie = true, nil, uint64(body.region.Cookie())
	}
	if mem != nil {
		q.into = uint64(mem.size)
		p.msg.Cookie = mem.region.Cookie()
	}
	if err := c.send(ctx, p, &q, r.Method); err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		if c.take(p) { // p is not reused: the receiver may be at it
			c.tell(p.to, newIDs(kindCancel, p.id, nil))
			return nil, ctx.Err()
		}
		<-p.done
	}
	if r.Answer, r.Arrived = p.header, p.arrived; p.err != nil {
		return nil, p.err
	}
	return p, nil
}

func (c *Caller) recycle(p *pending) {
	p.buf, p.mem, p.header = nil, nil, nil
	if cap(p.out) > inline/2 {
		p.out = nil
	}
	c.free.Put(p)
}

// send registers p and sends its request, as soon as there is room for it.
func (c *Caller) send(ctx context.Context, p *pending, q *request, method string) error {
	for {
		q.timeout = 0
		if at, ok := ctx.Deadline(); ok {
			left := time.Until(at)
			if left <= 0 {
				return context.DeadlineExceeded
			}
			q.timeout = uint64((left + time.Microsecond - 1) / time.Microsecond)
		}
		err := c.try(p, q, method)
		if !errors.Is(err, rds.ErrWouldBlock) && !errors.Is(err, rds.ErrCongested) {
			return err
		}
		if _, err := c.s.Wait(ctx, rds.WaitSet{SendTo: []netip.AddrPort{p.to}}); err != nil {
			return err
		}
	}
}

// try registers p and sends its request in one step, for withdraw. So it cannot wait for room.
func (c *Caller) try(p *pending, q *request, method string) error {
	c.sends.RLock()
	defer c.sends.RUnlock()
	if err := c.register(p); err != nil {
		return err
	}
	q.id = p.id
	p.out = appendRequest(p.out[:0], q, method)
	p.msg.Payload, p.msg.Addr = p.out, p.to
	_, err := c.s.Send(rds.DontWait, &p.msg)
	if err != nil && !c.take(p) {
		<-p.done // whoever took it has a reason
		return p.err
	}
	return err
}

// register gives p an id under which its answer is found.
func (c *Caller) register(p *pending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended
	}
	c.last++
	p.id = c.last
	c.calls[p.id] = p
	if !c.armed {
		c.armed = true
		c.timer.Reset(c.o.Probe)
	}
	return nil
}

// take takes p out of the calls and reports whether it was one of them.
func (c *Caller) take(p *pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeLocked(p)
}

func (c *Caller) takeLocked(p *pending) bool {
	if c.calls[p.id] != p {
		return false
	}
	delete(c.calls, p.id)
	return true
}

// fail ends the calls for which those is true with err.
func (c *Caller) fail(err error, those func(*pending) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.calls {
		if those(p) && c.takeLocked(p) {
			p.err = err
			p.done <- struct{}{}
		}
	}
}

// end ends all calls with err, those to come included.
func (c *Caller) end(err error) {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = err
	}
	c.timer.Stop()
	c.mu.Unlock()
	c.fail(err, func(*pending) bool { return true })
}

// tell sends a message of which nothing depends: it is dropped if there is no room.
func (c *Caller) tell(to netip.AddrPort, p []byte) {
	_, _ = c.s.Send(rds.DontWait, &rds.Message{Payload: p, Addr: to})
}
