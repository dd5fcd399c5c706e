package rpc

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// Handler answers a request. ctx ends at the deadline of the caller, when the caller gives
// up, and when Serve ends. The answer may be any slice, that of the request included: it
// is copied. An error goes to the caller as an Error, with its text and the errno that it
// matches. Handlers run at the same time.
type Handler func(ctx context.Context, r *Request) (answer []byte, err error)

// Request is what a Handler answers. It is valid until the handler returns.
type Request struct {
	Method string
	From   netip.AddrPort // the socket of the Caller
	Body   []byte
}

// Methods are the methods of a server by their names, of at most 255 bytes.
type Methods map[string]Handler

// ServerOptions are the options of Serve. The zero value suits almost every program.
type ServerOptions struct {
	// Handlers is how many handlers run at the same time; 0 means 64. A handler counts
	// until its answer is on its way.
	Handlers int
	// Queue is how many requests wait for a handler; 0 means 1024. Requests beyond that,
	// or beyond 64 MiB of waiting requests, are ErrBusy.
	Queue int
	// MaxRequest is the longest request taken, bytes; 0 means 16 MiB. A longer one is
	// ErrTooLarge. Of requests above 128 KiB only those that are handled take memory.
	MaxRequest int
}

const (
	// maxQueued is the most bytes of requests that wait.
	maxQueued = 64 << 20
	// answerWait is how long an answer waits for room at its caller. A caller that asks
	// and does not read holds a handler no longer than this.
	answerWait = 10 * time.Second
)

// server is one Serve.
type server struct {
	s       *rds.Socket
	ctx     context.Context
	methods Methods
	o       ServerOptions
	wg      sync.WaitGroup
	staging staging

	mu      sync.Mutex
	active  map[callKey]*call // waiting or running
	queue   []*call           // waiting, in order
	queued  int               // bytes of their bodies
	idle    int               // workers that wait and were not promised a call
	workers int
	wake    sync.Cond
	ended   bool
}

// callKey names a call at the server.
type callKey struct {
	from netip.AddrPort
	id   uint64
}

// call is one request at the server.
type call struct {
	key    callKey
	req    Request
	handle Handler
	ctx    context.Context
	cancel context.CancelFunc
	size   int        // of the body
	cookie rds.Cookie // of a body that is in memory of the caller
	into   rds.Cookie // of the caller's memory for the answer, of room bytes
	room   uint64
	msg    rds.Message
}

// Serve answers the requests that s receives with methods, until ctx ends or s fails. It
// then ends the contexts of all handlers, waits for them, and returns why: the error of
// ctx, or one of rds.Socket.RecvFrom. It does not close s. While it runs, nobody else may
// receive from s. Methods must not change.
//
// What callers send is checked. A caller can have o.Handlers handlers and the place in
// the queue, so servers that do not trust their callers limit who can reach them
// (peers.allow).
func Serve(ctx context.Context, s *rds.Socket, methods Methods, o ServerOptions) error {
	if o.Handlers <= 0 {
		o.Handlers = 64
	}
	if o.Queue <= 0 {
		o.Queue = 1024
	}
	if o.MaxRequest <= 0 {
		o.MaxRequest = 16 << 20
	}
	ctx, cancel := context.WithCancel(ctx)
	v := &server{s: s, ctx: ctx, methods: methods, o: o, active: map[callKey]*call{}}
	v.wake.L = &v.mu
	s.SetNotices() // a caller that has gone needs no answer
	err := v.receive()
	cancel()
	v.end()
	v.wg.Wait()
	v.staging.free()
	return err
}

func (v *server) receive() error {
	for m, err := range v.s.Messages(v.ctx) {
		if err != nil {
			if e := v.ctx.Err(); e != nil {
				err = e
			}
			return err
		}
		ver, kind, id, ok := parseCommon(m.Payload)
		switch {
		case !ok:
		case ver != version:
			if kind == kindRequest {
				v.refuse(callKey{m.Addr, id}, statusVersion, "this server speaks version 1")
			}
		case kind == kindRequest:
			v.request(m, callKey{m.Addr, id})
		case kind == kindCancel:
			v.cancel(callKey{m.Addr, id})
		case kind == kindProbe:
			v.probed(m)
		}
	}
	return v.ctx.Err()
}

// request queues a request, or refuses it.
func (v *server) request(m *rds.Message, key callKey) {
	q, err := parseRequest(m.Payload)
	handle, known := v.methods[string(q.method)]
	switch {
	case err != nil:
		v.refuse(key, statusMalformed, err.Error())
		return
	case !known:
		v.refuse(key, statusNoMethod, string(q.method))
		return
	case uint64(q.size) > uint64(v.o.MaxRequest):
		v.refuse(key, statusTooLarge, "the request")
		return
	}
	c := &call{key: key, handle: handle, size: int(q.size), cookie: rds.Cookie(q.cookie)}
	c.req = Request{Method: string(q.method), From: key.from, Body: append([]byte(nil), q.body...)}
	if q.into > 0 && m.Cookie != 0 {
		c.into, c.room = m.Cookie, q.into
	}
	if q.timeout > 0 && q.timeout < uint64(rds.MaxGiveUp/time.Microsecond) {
		c.ctx, c.cancel = context.WithTimeout(v.ctx, time.Duration(q.timeout)*time.Microsecond)
	} else {
		c.ctx, c.cancel = context.WithCancel(v.ctx)
	}
	if st, text := v.admit(c); st != statusOK {
		c.cancel()
		v.refuse(key, st, text)
	}
}

// admit puts c into the queue and sees to it that a worker takes it.
func (v *server) admit(c *call) (status, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.active[c.key] != nil:
		return statusMalformed, "a second request of this id"
	case v.idle == 0 && v.workers == v.o.Handlers && len(v.queue) >= v.o.Queue, v.queued+len(c.req.Body) > maxQueued:
		return statusBusy, ""
	}
	v.active[c.key] = c
	v.queue = append(v.queue, c)
	v.queued += len(c.req.Body)
	switch {
	case v.idle > 0:
		v.idle-- // promised to c
		v.wake.Signal()
	case v.workers < v.o.Handlers:
		v.workers++
		v.wg.Go(v.work)
	}
	return statusOK, ""
}

// work runs calls until the server ends.
func (v *server) work() {
	for c := v.next(); c != nil; c = v.next() {
		v.run(c)
		v.mu.Lock()
		delete(v.active, c.key)
		v.mu.Unlock()
		c.cancel()
	}
}

// next takes a call from the queue and waits for one. It returns nil at the end.
func (v *server) next() *call {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.queue) == 0 && !v.ended {
		v.idle++
		v.wake.Wait()
	}
	if v.ended {
		return nil
	}
	c := v.queue[0]
	v.queue[0] = nil
	v.queue = v.queue[1:]
	v.queued -= len(c.req.Body)
	return c
}

func (v *server) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	for _, c := range v.active {
		c.cancel()
	}
	v.wake.Broadcast()
}

// cancel ends the context of a call whose caller has given up.
func (v *server) cancel(key callKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.active[key]; c != nil {
		c.cancel()
	}
}

// probed tells a caller which of its calls this server does not know.
func (v *server) probed(m *rds.Message) {
	ids, err := parseIDs(m.Payload)
	if err != nil {
		return
	}
	unknown := ids[:0]
	v.mu.Lock()
	for _, id := range ids {
		if v.active[callKey{m.Addr, id}] == nil {
			unknown = append(unknown, id)
		}
	}
	v.mu.Unlock()
	if len(unknown) > 0 {
		v.tell(m.Addr, newIDs(kindUnknown, 0, unknown))
	}
}

// refuse answers a request that is not handled. The receiver does not wait: if there is no
// room for the answer, the caller learns by its probe that there will be none.
func (v *server) refuse(key callKey, st status, text string) {
	text = clip(text)
	v.tell(key.from, appendAnswer(nil, &answer{id: key.id, status: st, total: uint64(len(text)), part: []byte(text)}))
}

// tell sends a message without waiting for room.
func (v *server) tell(to netip.AddrPort, p []byte) {
	_, _ = v.s.SendMsg(&rds.Message{Payload: p, Addr: to, DontWait: true})
}
