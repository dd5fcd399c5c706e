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
	// PerCaller is how many of the handlers one Caller may have at the same time; 0 means
	// all but an eighth, or all but one of fewer than 16, so that one Caller never has all
	// handlers unless there is only one. Callers with requests that wait take turns.
	PerCaller int
	// Queue is how many requests wait for a handler; 0 means 1024. Requests beyond that,
	// or beyond 64 MiB of waiting requests, are ErrBusy. One Caller may have the same part
	// of the queue, in requests and in bytes, as 0 of PerCaller is of the handlers.
	Queue int
	// MaxRequest is the longest request taken, bytes; 0 means 16 MiB. A longer one is
	// ErrTooLarge. Of requests above 128 KiB only those that are handled take memory.
	MaxRequest int

	callerWait time.Duration // 0 means the constant
}

const (
	// maxQueued is the most bytes of requests that wait.
	maxQueued = 64 << 20
	// callerWait is how long a handler waits for its caller: so long until a request in memory
	// of the caller is read, and so long until the whole answer is with the caller. A caller
	// that asks and does not read, or reads slowly, holds a handler no longer than this,
	// whatever deadline it named.
	callerWait = 10 * time.Second
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
	callers map[netip.AddrPort]*caller
	next    fifo[*call]   // workers were promised to them
	ready   fifo[*caller] // with a call that waits and may run
	waiting int           // calls without a promise
	queued  int           // bytes of the bodies of calls that do not run
	idle    int           // workers that wait and were not promised a call
	workers int
	wake    sync.Cond
	ended   bool
}

// caller is a Caller that has calls at the server.
type caller struct {
	queue  fifo[*call] // waiting
	queued int         // bytes of the bodies of calls that do not run
	busy   int         // calls that run, or have the promise of a worker
	ready  bool        // in server.ready
}

// fifo is a queue.
type fifo[T any] struct {
	all  []T
	head int
}

func (q *fifo[T]) len() int { return len(q.all) - q.head }

func (q *fifo[T]) push(x T) {
	if q.head > len(q.all)/2 {
		n := copy(q.all, q.all[q.head:])
		clear(q.all[n:])
		q.all, q.head = q.all[:n], 0
	}
	q.all = append(q.all, x)
}

func (q *fifo[T]) pop() (x T) {
	x, q.all[q.head] = q.all[q.head], x
	q.head++
	return x
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

	answerBy time.Time // when the answer ends unfinished
}

// Serve answers the requests that s receives with methods, until ctx ends or s fails. It
// then ends the contexts of all handlers, waits for them, and returns why: the error of
// ctx, or one of rds.Socket.RecvFrom. It does not close s. While it runs, nobody else may
// receive from s. Methods must not change.
//
// What callers send is checked. One Caller cannot have all handlers, nor all places in the
// queue, but a process can be many Callers. So servers that do not trust their callers
// limit who can reach them (peers.allow).
func Serve(ctx context.Context, s *rds.Socket, methods Methods, o ServerOptions) error {
	if o.Handlers <= 0 {
		o.Handlers = 64
	}
	if o.PerCaller <= 0 {
		o.PerCaller = part(o.Handlers)
	}
	if o.Queue <= 0 {
		o.Queue = 1024
	}
	if o.MaxRequest <= 0 {
		o.MaxRequest = 16 << 20
	}
	if o.callerWait <= 0 {
		o.callerWait = callerWait
	}
	ctx, cancel := context.WithCancel(ctx)
	v := &server{s: s, ctx: ctx, methods: methods, o: o, active: map[callKey]*call{}, callers: map[netip.AddrPort]*caller{}}
	v.wake.L = &v.mu
	s.SetNotices() // a caller that has gone needs no answer
	err := v.receive()
	cancel()
	v.end()
	v.wg.Wait()
	v.staging.free()
	return err
}

// part is what one of several may have of n: all but an eighth, or but one.
func part(n int) int { return max(1, n-max(1, n/8)) }

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

// longest is a timeout beyond which a request has none.
const longest = 49 * 24 * time.Hour

// request queues a request, or refuses it.
func (v *server) request(m *rds.Received, key callKey) {
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
	if q.timeout > 0 && q.timeout < uint64(longest/time.Microsecond) {
		c.ctx, c.cancel = context.WithTimeout(v.ctx, time.Duration(q.timeout)*time.Microsecond)
	} else {
		c.ctx, c.cancel = context.WithCancel(v.ctx)
	}
	if st, text := v.admit(c); st != statusOK {
		c.cancel()
		v.refuse(key, st, text)
	}
}

// admit gives c a worker, or puts it into the queue.
func (v *server) admit(c *call) (status, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.active[c.key] != nil {
		return statusMalformed, "a second request of this id"
	}
	of := v.callers[c.key.from]
	if of == nil {
		of = &caller{}
	}
	queue, bytes := v.o.Queue, maxQueued // that one caller may have
	if v.o.PerCaller < v.o.Handlers {
		queue, bytes = part(queue), part(bytes)
	}
	n := len(c.req.Body)
	// What of's calls that wait may run is a worker's already.
	mayRun := of.queue.len() == 0 && of.busy < v.o.PerCaller && (v.idle > 0 || v.workers < v.o.Handlers)
	if v.queued+n > maxQueued || of.queued+n > bytes || !mayRun && (v.waiting >= v.o.Queue || of.queue.len() >= queue) {
		return statusBusy, ""
	}
	v.callers[c.key.from], v.active[c.key] = of, c
	of.queued += n
	v.queued += n
	if !mayRun {
		of.queue.push(c)
		v.waiting++
		v.mayRun(of)
		return statusOK, ""
	}
	of.busy++
	v.next.push(c)
	if v.idle > 0 {
		v.idle--
		v.wake.Signal()
	} else {
		v.workers++
		v.wg.Go(v.work)
	}
	return statusOK, ""
}

// mayRun notes that a call of a caller may run, if one waits and may.
func (v *server) mayRun(of *caller) {
	if !of.ready && of.queue.len() > 0 && of.busy < v.o.PerCaller {
		of.ready = true
		v.ready.push(of)
	}
}

// work runs calls until the server ends.
func (v *server) work() {
	for c := v.take(); c != nil; c = v.take() {
		v.run(c)
		v.done(c)
		c.cancel()
	}
}

// done forgets c, which has run.
func (v *server) done(c *call) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.active, c.key)
	of := v.callers[c.key.from]
	of.busy--
	if v.mayRun(of); of.busy == 0 && of.queue.len() == 0 {
		delete(v.callers, c.key.from)
	}
}

// take takes a call that was promised a worker, or one that waits, of one caller after the
// other, and waits for one. It returns nil at the end.
func (v *server) take() (c *call) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.next.len() == 0 && v.ready.len() == 0 && !v.ended {
		v.idle++
		v.wake.Wait()
	}
	switch {
	case v.ended:
		return nil
	case v.next.len() > 0:
		c = v.next.pop()
	default:
		of := v.ready.pop()
		of.ready = false
		c = of.queue.pop()
		of.busy++
		v.waiting--
		v.mayRun(of)
	}
	v.callers[c.key.from].queued -= len(c.req.Body)
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
func (v *server) probed(m *rds.Received) {
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
	_, _ = v.s.Send(rds.DontWait, &rds.Message{Payload: p, Addr: to})
}
