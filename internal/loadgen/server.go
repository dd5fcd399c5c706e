package loadgen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
)

// Env is what client and server need from the program that they run in.
type Env struct {
	// Open attaches to the daemon of this host.
	Open      func(ctx context.Context) (*rds.Client, error)
	DaemonPID int // of that daemon, for its processor time; 0 if it is not known
	// Say gets a line for each step. It may be nil.
	Say func(format string, args ...any)

	// corrupt gets all data before it is compared, so that a test can show that wrong data
	// is found.
	corrupt func(b []byte)
	version uint16 // 0 for protocol; a test may set another
}

// speaks is the version that this end speaks.
func (e *Env) speaks() uint16 {
	if e.version != 0 {
		return e.version
	}
	return protocol
}

func (e *Env) say(format string, args ...any) {
	if e.Say != nil {
		e.Say(format, args...)
	}
}

// cpuOf returns the processor time that a process has used, negative if it is not known. Every
// process may read every other's clock.
func cpuOf(pid int) time.Duration {
	const sched = 2 // CPUCLOCK_SCHED of the kernel's posix-timers: user and system time
	var ts unix.Timespec
	if pid == 0 || unix.ClockGettime(int32(^pid<<3|sched), &ts) != nil {
		return -1
	}
	return time.Duration(ts.Nano())
}

// cpu is the processor time of this process and of its daemon, negative where it is not known.
type cpu struct{ own, daemon time.Duration }

func (e *Env) cpu() cpu { return cpu{cpuOf(os.Getpid()), cpuOf(e.DaemonPID)} }

// since returns the time since b. The daemon's is -1 if it is not known.
func (c cpu) since(b cpu) cpu {
	d := cpu{c.own - b.own, -1}
	if c.daemon >= 0 && b.daemon >= 0 {
		d.daemon = c.daemon - b.daemon
	}
	return d
}

const (
	aliveEvery  = time.Second
	silence     = 10 * time.Second // an end that says nothing for so long is gone
	maxSessions = 64
)

// Server serves measurements.
type Server struct {
	env    Env
	client *rds.Client
	ctl    *rds.Socket
	ends   sync.WaitGroup

	mu       sync.Mutex
	sessions map[netip.AddrPort]*session // by the client's control socket
	making   map[netip.AddrPort]bool     // sessions that are being made, likewise
}

// NewServer binds a server to at. Port 0 takes a free port.
func NewServer(ctx context.Context, env Env, at netip.AddrPort) (*Server, error) {
	c, err := env.Open(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{env: env, client: c, sessions: map[netip.AddrPort]*session{}, making: map[netip.AddrPort]bool{}}
	if s.ctl, err = c.Bind(at); err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

// Addr is the address that the server is bound to.
func (s *Server) Addr() netip.AddrPort { return s.ctl.LocalAddrPort() }

// Run serves until ctx ends, which is no error, or until the daemon ends.
func (s *Server) Run(ctx context.Context) error {
	defer s.client.Close()
	methods := rpc.Methods{callBegin: s.begin, callAlive: s.of(s.alive), callMark: s.of(s.mark), callEnd: s.of(s.finish)}
	err := rpc.Serve(ctx, s.ctl, methods, rpc.ServerOptions{})
	s.mu.Lock()
	rest := maps.Clone(s.sessions)
	s.mu.Unlock()
	for from, se := range rest {
		s.end(from, se, "the server ends")
	}
	s.ends.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *Server) begin(ctx context.Context, r *rpc.Request) ([]byte, error) {
	h := &hello{}
	if err := json.Unmarshal(r.Body, h); err != nil {
		return nil, err
	}
	if err := h.check(s.env.speaks()); err != nil {
		return nil, err
	}
	from := r.From
	s.end(from, s.session(from), "begins anew")
	if err := s.mayMake(from); err != nil {
		return nil, err
	}
	se, err := newSession(ctx, &s.env, h, s.Addr().Addr(), from.Addr(), func(se *session, why error) {
		s.ends.Go(func() { s.end(from, se, "gone: "+why.Error()) })
	})
	if err == nil {
		se.alive = time.AfterFunc(silence, func() { s.end(from, se, "gone: silent") })
	}
	s.made(from, se)
	if err != nil {
		s.env.say("%v: %v", from, err)
		return nil, err
	}
	s.env.say("%v: %v, %d bytes, %d sockets, depth %d", from, h.Mode, h.Size, h.Sockets, h.Depth)
	return encode(se.welcome()), nil
}

// mayMake begins the making of a session for the client at from, which made ends.
func (s *Server) mayMake(from netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.making[from] || s.sessions[from] != nil:
		return errors.New("a measurement of this client begins already")
	case len(s.sessions)+len(s.making) >= maxSessions:
		return fmt.Errorf("%d measurements are running", maxSessions)
	}
	s.making[from] = true
	return nil
}

// made ends mayMake with se, nil if there is none.
func (s *Server) made(from netip.AddrPort, se *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.making, from)
	if se != nil {
		s.sessions[from] = se
	}
}

// session is that of the client at from, or nil.
func (s *Server) session(from netip.AddrPort) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[from]
}

// errNoSession answers a client that has no session, or none any more.
var errNoSession = errors.New("the server has no such measurement any more")

// of makes the handler of calls that belong to a session.
func (s *Server) of(do func(context.Context, *session, *rpc.Request) ([]byte, error)) rpc.Handler {
	return func(ctx context.Context, r *rpc.Request) ([]byte, error) {
		if se := s.session(r.From); se != nil {
			return do(ctx, se, r)
		}
		return nil, errNoSession
	}
}

func (s *Server) alive(_ context.Context, se *session, _ *rpc.Request) ([]byte, error) {
	se.alive.Reset(silence)
	if wrong := se.found(nil); wrong != "" {
		return nil, errors.New(wrong)
	}
	return nil, nil
}

func (s *Server) mark(_ context.Context, se *session, _ *rpc.Request) ([]byte, error) {
	se.mark()
	return nil, nil
}

func (s *Server) finish(ctx context.Context, se *session, r *rpc.Request) ([]byte, error) {
	var sent uint64
	if err := json.Unmarshal(r.Body, &sent); err != nil {
		return nil, err
	}
	f := se.final(ctx, sent)
	s.end(r.From, se, "done")
	return encode(f), nil
}

// end ends the session of the client at from, if it is still se.
func (s *Server) end(from netip.AddrPort, se *session, why string) {
	s.mu.Lock()
	is := se != nil && s.sessions[from] == se
	if is {
		delete(s.sessions, from)
	}
	s.mu.Unlock()
	if is {
		se.close()
		s.env.say("%v: %s", from, why)
	}
}
