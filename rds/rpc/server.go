package rpc

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// Handler answers a request. ctx ends at the deadline of the caller, when the caller gives
// up, and when Serve ends otherwise than by Shutdown. The answer may be any slice, that of the request included: it
// is copied. An error goes to the caller as an Error, with its text and the errno that it
// matches. Handlers run at the same time.
//
// A handler that panics, or ends its goroutine, does not end the process: the server logs
// the panic with its stack (ServerOptions.Log), and the caller gets an Error that does not say
// why. What the handler had locked stays locked.
type Handler func(ctx context.Context, r *Request) (answer []byte, err error)

// Request is a call as handlers and interceptors see it, at the server and at the caller.
// A Handler's is valid until the handler returns.
type Request struct {
	Method   string
	From, To netip.AddrPort // the sockets of Caller and server
	Body     []byte
	// Header is that of the request, or nil. It travels in messages of version 2, which a
	// server older than headers refuses: ErrVersion.
	Header Header
	// Answer is the header of the answer, also of an Error. The handler sets it. It travels
	// only to a caller whose Header is not nil, if empty: else the caller may be older.
	Answer Header
	// Arrived is when the request reached the daemon of the server's host, so that a Handler
	// knows how long it waited. At the caller, after the call, it is when the end of the
	// answer reached the daemon there, zero if none has. Each is by the wall clock of its host,
	// and as the engine's turn began, which may be some 10 µs earlier.
	Arrived time.Time

	mem    *Memory // at the caller, for the answer; may be nil
	served bool    // by a handler
}

// Interceptor makes a Handler that does something before or after next, or in its place. At
// the caller, next sends the request and returns the answer or the error of Caller.Call
// without its CallError. The same Interceptor can serve on both sides.
type Interceptor func(next Handler) Handler

// chain returns h within is, the first of which is the outermost.
func chain(h Handler, is []Interceptor) Handler {
	for _, i := range slices.Backward(is) {
		h = i(h)
	}
	return h
}

// Methods are the methods of a server by their names, of at most 255 bytes. Names that begin
// with "rpc." belong to this package. A server may have its own method of such a name instead.
type Methods map[string]Handler

// The methods that every server has. rdsctl call can call them, as any others.
const (
	MethodHealth = "rpc.health"  // answers "serving"; a server that shuts down refuses it, as all others
	MethodList   = "rpc.methods" // answers the names of the server's methods, sorted, each with a line feed
)

// all returns the methods of a server within is.
func (m Methods) all(is []Interceptor) Methods {
	all := Methods{
		MethodHealth: func(context.Context, *Request) ([]byte, error) { return []byte("serving"), nil },
		MethodList:   nil,
	}
	maps.Copy(all, m)
	names := []byte(strings.Join(slices.Sorted(maps.Keys(all)), "\n") + "\n")
	if all[MethodList] == nil {
		all[MethodList] = func(context.Context, *Request) ([]byte, error) { return names, nil }
	}
	for name, h := range all {
		all[name] = chain(h, is)
	}
	return all
}

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
	// Log gets an error for each handler that panics; nil means slog.Default.
	Log *slog.Logger
	// Refused, if not nil, is called for each request that is refused, with why: the error
	// that its caller gets. r has From and To, and the Method unless the request could not be
	// read. Whoever sends requests chooses the Method. Refused returns at once and does not use
	// the Server, which waits for it.
	Refused func(r *Request, err error)

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

// Server answers the requests that one socket receives. NewServer makes one, Serve runs it,
// Shutdown ends it. Shutdown may be called from any goroutine.
type Server struct {
	s       *rds.Socket
	ctx     context.Context // ends when nothing is received or sent any more
	stop    context.CancelFunc
	self    netip.AddrPort // the address of s
	methods Methods        // since Serve, with those that every server has, within uses
	uses    []Interceptor
	o       ServerOptions
	wg      sync.WaitGroup
	staging staging
	served  chan struct{} // closed when Serve has returned

	mu      sync.Mutex
	begun   bool              // Serve was called
	closing error             // why Serve will return, and takes no calls any more
	active  map[callKey]*call // waiting, running, or not refused yet
	callers map[netip.AddrPort]*caller
	next    fifo[*call]   // workers were promised to them
	ready   fifo[*caller] // with a call that waits and may run
	waiting int           // calls without a promise
	queued  int           // bytes of the bodies of calls that do not run
	idle    int           // workers that wait and were not promised a call
	workers int
	wake    sync.Cond
	ended   bool // no worker has anything to do any more
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
	headed bool   // the caller takes headers
	head   []byte // of the answer

	answerBy time.Time // when the answer ends unfinished
	state    atomic.Int32
	stopped  bool // the server has ended the context of the handler
}

// NewServer makes a Server that answers the requests that s receives with methods. From
// Serve on, the Server has s: nobody else may receive from s, and methods must not change.
//
// What callers send is checked. One Caller cannot have all handlers, nor all places in the
// queue, but a process can be many Callers. So servers that do not trust their callers
// limit who can reach them (peers.allow).
func NewServer(s *rds.Socket, methods Methods, o ServerOptions) *Server {
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
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.callerWait <= 0 {
		o.callerWait = callerWait
	}
	v := &Server{s: s, self: s.LocalAddrPort(), methods: methods, o: o, served: make(chan struct{}), active: map[callKey]*call{}, callers: map[netip.AddrPort]*caller{}}
	v.wake.L = &v.mu
	return v
}

// Use has each method of the server called within is, the first of which is the outermost. A
// further Use adds to the inside. Requests that are refused get to no interceptor, but to
// ServerOptions.Refused. Use is called before Serve.
func (v *Server) Use(is ...Interceptor) { v.uses = append(v.uses, is...) }

// Serve is NewServer and Server.Serve, for a server that ends with ctx.
func Serve(ctx context.Context, s *rds.Socket, methods Methods, o ServerOptions) error {
	return NewServer(s, methods, o).Serve(ctx)
}

// part is what one of several may have of n: all but an eighth, or but one.
func part(n int) int { return max(1, n-max(1, n/8)) }

// receive takes what callers send, until ctx ends or the socket fails.
func (v *Server) receive(ctx context.Context) error {
	for m, err := range v.s.Messages(ctx) {
		if err != nil {
			return err
		}
		ver, kind, id, ok := parseCommon(m.Payload)
		switch {
		case !ok:
		case ver > versionHeader:
			if kind == kindRequest {
				v.refuse(callKey{m.Addr, id}, "", refusal(statusVersion, "this server speaks versions 1 and 2"))
			}
		case kind == kindRequest:
			v.request(m, callKey{m.Addr, id})
		case kind == kindCancel:
			v.canceled(callKey{m.Addr, id})
		case kind == kindProbe:
			v.probed(m)
		}
	}
	return ctx.Err()
}

// longest is a timeout beyond which a request has none.
const longest = 49 * 24 * time.Hour

// request queues a request, or refuses it.
func (v *Server) request(m *rds.Received, key callKey) {
	q, err := parseRequest(m.Payload)
	method := string(q.method)
	handle, known := v.methods[method]
	var no answer
	switch {
	case err != nil:
		method, no = "", refusal(statusMalformed, err.Error())
	case !known:
		no = refusal(statusNoMethod, "")
	case uint64(q.size) > uint64(v.o.MaxRequest):
		no = refusal(statusTooLarge, "the request")
	}
	if no.status != statusOK {
		if v.closes() {
			no = shutDown
		}
		v.refuse(key, method, no)
		return
	}
	c := &call{key: key, handle: handle, size: int(q.size), cookie: rds.Cookie(q.cookie), headed: q.headed}
	c.req = Request{Method: method, From: key.from, To: v.self, Body: append([]byte(nil), q.body...), Header: q.header, Arrived: m.Time, served: true}
	if q.into > 0 && m.Cookie != 0 {
		c.into, c.room = m.Cookie, q.into
	}
	if q.timeout > 0 && q.timeout < uint64(longest/time.Microsecond) {
		c.ctx, c.cancel = context.WithTimeout(v.ctx, time.Duration(q.timeout)*time.Microsecond)
	} else {
		c.ctx, c.cancel = context.WithCancel(v.ctx)
	}
	if no := v.admit(c); no.status != statusOK {
		c.cancel()
		v.refuse(key, c.req.Method, no)
	}
}

// canceled ends the context of a call whose caller has given up.
func (v *Server) canceled(key callKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.active[key]; c != nil {
		c.cancel()
	}
}

// probed tells a caller which of its calls this server knows, and which it does not.
func (v *Server) probed(m *rds.Received) {
	ids, err := parseIDs(m.Payload)
	if err != nil {
		return
	}
	var known []uint64
	unknown := ids[:0]
	v.mu.Lock()
	for _, id := range ids {
		if c := v.active[callKey{m.Addr, id}]; c == nil || c.state.Load() == cut {
			unknown = append(unknown, id)
		} else {
			known = append(known, id)
		}
	}
	v.mu.Unlock()
	if len(known) > 0 {
		v.tell(m.Addr, newIDs(kindKnown, 0, known))
	}
	if len(unknown) > 0 {
		v.tell(m.Addr, newIDs(kindUnknown, 0, unknown))
	}
}

// refuse answers a request that is not handled. The receiver does not wait: if there is no
// room for the answer, the caller learns by its probe that there will be none.
func (v *Server) refuse(key callKey, method string, a answer) {
	if v.o.Refused != nil {
		v.o.Refused(&Request{Method: method, From: key.from, To: v.self}, a.err())
	}
	a.id = key.id
	v.tell(key.from, appendAnswer(nil, &a))
}

// tell sends a message without waiting for room.
func (v *Server) tell(to netip.AddrPort, p []byte) {
	_, _ = v.s.Send(rds.DontWait, &rds.Message{Payload: p, Addr: to})
}
