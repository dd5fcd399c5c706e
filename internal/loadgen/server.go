package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/loadgen/proto"
	"github.com/rdsd/rdsd/rds"
)

// Env is what client and server need from the program that they run in.
type Env struct {
	// Open attaches to the daemon of this host.
	Open func(ctx context.Context) (*rds.Client, error)
	// DaemonCPU is the daemon's CPU time so far. nil or an error mean that it is not known.
	DaemonCPU func() (time.Duration, error)
	// Say gets a line for each step. It may be nil.
	Say func(format string, args ...any)

	// corrupt gets all data before it is compared, so that a test can show that wrong data
	// is found.
	corrupt func(b []byte)
	version uint16 // 0 for proto.Version; a test may set another
}

func (e *Env) say(format string, args ...any) {
	if e.Say != nil {
		e.Say(format, args...)
	}
}

// daemonCPU is negative if it is not known.
func (e *Env) daemonCPU() time.Duration {
	if e.DaemonCPU != nil {
		if d, err := e.DaemonCPU(); err == nil {
			return d
		}
	}
	return -1
}

// processCPU is this process's CPU time so far.
func processCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Intervals of the server.
const (
	aliveEvery  = time.Second
	aliveGiveUp = 10 * time.Second // a client that does not take Alive messages is gone
	maxSessions = 64
)

// Server serves measurements.
type Server struct {
	env      Env
	client   *rds.Client
	ctl      *rds.Socket
	sessions map[netip.AddrPort]*session // by the client's control socket
}

// NewServer binds a server to at. Port 0 takes a free port.
func NewServer(ctx context.Context, env Env, at netip.AddrPort) (*Server, error) {
	c, err := env.Open(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{env: env, client: c, sessions: make(map[netip.AddrPort]*session)}
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
	defer func() {
		for from := range s.sessions {
			s.end(from, "the server ends")
		}
	}()
	s.ctl.SetNotices(rds.Lost, rds.NoSocket, rds.GaveUp)
	next := time.Now().Add(aliveEvery)
	m := rds.Message{Payload: make([]byte, proto.MaxMessage), DontWait: true}
	for {
		turn, cancel := context.WithDeadline(ctx, next)
		_, err := s.ctl.Wait(turn, rds.WaitSet{Message: true, Notice: true})
		cancel()
		switch {
		case ctx.Err() != nil:
			s.leave()
			return nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		for s.ctl.RecvMsg(&m) == nil {
			s.handle(ctx, m.Addr, m.Payload[:m.N])
		}
		s.forgetGone()
		if now := time.Now(); !now.Before(next) {
			next = now.Add(aliveEvery)
			for from := range s.sessions {
				s.tell(from, &proto.Alive{})
			}
		}
	}
}

// leave tells the clients that the server ends.
func (s *Server) leave() {
	for from := range s.sessions {
		s.tell(from, &proto.Refuse{Code: proto.Leaving, Text: "the server ends"})
	}
	wait, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.ctl.CloseWait(wait)
}

// tell sends m. If that fails, the other end notices the silence.
func (s *Server) tell(to netip.AddrPort, m any) {
	b := proto.Append(nil, m)
	if v := s.env.version; v != 0 {
		b[4], b[5] = byte(v>>8), byte(v)
	}
	_, _ = s.ctl.SendMsg(&rds.Message{Addr: to, Payload: b, DontWait: true, GiveUpAfter: aliveGiveUp})
}

func (s *Server) handle(ctx context.Context, from netip.AddrPort, b []byte) {
	m, err := proto.Parse(b)
	if _, other := errors.AsType[*proto.VersionError](err); other {
		// A client can read the version in the header of a message of any version.
		s.tell(from, &proto.Refuse{Code: proto.Failed, Text: err.Error()})
		return
	}
	if err != nil {
		return // not for us
	}
	if h, ok := m.(*proto.Hello); ok {
		s.hello(ctx, from, h)
		return
	}
	se := s.sessions[from]
	if se == nil {
		return
	}
	switch m := m.(type) {
	case *proto.Mark:
		se.mark()
	case *proto.Bye:
		s.tell(from, se.final(ctx, m.Sent))
		s.end(from, "done")
	}
}

func (s *Server) hello(ctx context.Context, from netip.AddrPort, h *proto.Hello) {
	if s.sessions[from] != nil {
		s.end(from, "begins anew")
	}
	if err := h.Check(); err != nil {
		s.tell(from, &proto.Refuse{Code: proto.Limits, Text: err.Error()})
		return
	}
	if len(s.sessions) >= maxSessions {
		s.tell(from, &proto.Refuse{Code: proto.Busy, Text: fmt.Sprintf("%d measurements are running", len(s.sessions))})
		return
	}
	se, err := newSession(ctx, &s.env, h, s.Addr().Addr(), from)
	if err != nil {
		s.tell(from, &proto.Refuse{Code: proto.Failed, Text: err.Error()})
		s.env.say("%v: %v", from, err)
		return
	}
	s.sessions[from] = se
	s.tell(from, se.welcome())
	s.env.say("%v: %v, %d bytes, %d sockets, depth %d", from, h.Mode, h.Size, h.Sockets, h.Depth)
}

// forgetGone ends the sessions of clients that are gone.
func (s *Server) forgetGone() {
	var ns [16]rds.Notice
	for {
		n := s.ctl.Notices(ns[:])
		for _, x := range ns[:n] {
			s.end(x.To, x.Kind.String())
		}
		if n < len(ns) {
			return
		}
	}
}

func (s *Server) end(from netip.AddrPort, why string) {
	if se := s.sessions[from]; se != nil {
		delete(s.sessions, from)
		se.close()
		s.env.say("%v: %s", from, why)
	}
}
