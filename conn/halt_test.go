package conn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// TestHalt: a connection that is halted connects for nothing, keeps the peer's map and its
// request, and answers that when it resumes.
func TestHalt(t *testing.T) {
	s := newScript(t).up()
	s.cong(9)
	congs := s.congs
	s.c.Halt(s.now)
	m := s.msg("waits")
	s.run()
	if s.c.State() != Down || len(s.downs) != 1 || !errors.Is(s.downs[0], ErrHalted) {
		t.Fatalf("%v, down %v", s.c.State(), s.downs)
	}
	if s.congs != congs || !s.c.RemoteCong().Test(9) {
		t.Errorf("the peer's map was forgotten, and the host told %d times", s.congs-congs)
	}
	if _, idle := s.c.IdleSince(); idle || s.c.NeedFlush() {
		t.Errorf("idle %v, to be flushed %v", idle, s.c.NeedFlush())
	}
	s.q, s.peer.cm = s.peer.newQP(64), nil
	s.peer.dial(s.q, addrB, addrA, s.private())
	s.run()
	s.now += 10_000_000_000
	s.c.Tick(s.now)
	s.c.Reset(s.now, errors.New("by hand"))
	s.run()
	if s.c.State() != Down || len(s.dev.qps) != 0 || len(s.peer.cm) != 0 {
		t.Fatalf("%v, %d queue pairs, the peer got %+v", s.c.State(), len(s.dev.qps), s.peer.cm)
	}
	s.c.Resume(s.now)
	s.run()
	s.raw = nil
	s.hello()
	if !s.c.Ready() || len(s.frames()) != 1 {
		t.Fatalf("%v: %v", s.c.State(), s.lastTrace)
	}
	s.open(m)
}

// TestResumeConnects: a connection that was up is made anew with nothing to send, but not for
// ever. When the peer is not there, its map counts no more.
func TestResumeConnects(t *testing.T) {
	s := newScript(t).up()
	s.cong(9)
	s.c.Halt(s.now)
	s.run()
	s.c.Resume(s.now)
	s.run()
	for n := 1; n <= againTries; n++ {
		if s.c.State() != Connecting || !s.c.RemoteCong().Test(9) {
			t.Fatalf("attempt %d: %v, map kept: %v", n, s.c.State(), s.c.RemoteCong().Test(9))
		}
		s.dropRequests()
		s.run()
		s.now += 1_000_000_000
		s.c.Tick(s.now)
		s.run()
	}
	if s.c.State() != Down || !s.c.RemoteCong().Empty() {
		t.Errorf("%v, map empty: %v", s.c.State(), s.c.RemoteCong().Empty())
	}

	// One that was not up has no reason to.
	d := newScript(t)
	d.c.Halt(d.now)
	d.c.Resume(d.now)
	d.run()
	if d.c.State() != Down {
		t.Errorf("never connected: %v", d.c.State())
	}
}

// TestCrossedRejections: a peer that rejects because its own request is on its way does not
// reject for good, however often it says so. If no request comes for the time of an attempt,
// it does.
func TestCrossedRejections(t *testing.T) {
	laterFor(t, nil, func(s *script) { s.peer.rejectReq(s.request(), wire.Crossed()) })
}

// TestBusyRejections: so does a peer that takes no more TLS handshakes, and its error says it.
func TestBusyRejections(t *testing.T) {
	laterFor(t, verbs.ErrBusy, func(s *script) {
		s.request()
		s.c.HandleCM(s.now, &verbs.CMEvent{Type: verbs.CMRejected, QP: s.c.link.qp, Err: fmt.Errorf("a test: %w", verbs.ErrBusy)})
	})
}

// TestLaterEnds: a peer that rejected for a while, was away and then does so again has just begun to.
func TestLaterEnds(t *testing.T) {
	s := newScript(t).up()
	s.c.Halt(s.now)
	s.run()
	s.c.Resume(s.now)
	for _, err := range []error{verbs.ErrBusy, errors.New("no answer"), verbs.ErrBusy} {
		s.run()
		if s.c.State() != Connecting {
			s.now = s.c.NextTimeout()
			s.c.Tick(s.now)
			s.run()
		}
		s.request()
		s.now += s.c.cfg.ConnectTimeout - 1
		typ := verbs.CMRejected
		if err != verbs.ErrBusy {
			typ = verbs.CMUnreachable
		}
		s.c.HandleCM(s.now, &verbs.CMEvent{Type: typ, QP: s.c.link.qp, Err: err})
		if last := s.c.Info().LastError; errors.Is(last, ErrLater) != (err == verbs.ErrBusy) {
			t.Errorf("%v: %v", err, last)
		}
	}
}

// laterFor has a peer reject each attempt for a while only. Each error has why, if that is not nil.
func laterFor(t *testing.T, why error, reject func(*script)) {
	s := newScript(t, func(c *Config) { c.MaxBackoff = 1e8 }).up()
	s.cong(9)
	s.c.Halt(s.now)
	s.run()
	s.c.Resume(s.now)
	s.run()
	since, tries := s.now, 0
	for {
		reject(s)
		s.run()
		err := s.c.Info().LastError
		if !errors.Is(err, ErrRejected) || why != nil && !errors.Is(err, why) {
			t.Fatalf("try %d: %v", tries, err)
		}
		if late := s.now-since >= s.c.cfg.ConnectTimeout; late != !errors.Is(err, ErrLater) {
			t.Fatalf("try %d after %d ns: %v", tries, s.now-since, err)
		} else if late {
			break
		}
		tries++
		s.now = s.c.NextTimeout()
		s.c.Tick(s.now)
		s.run()
		if s.c.State() != Connecting || !s.c.RemoteCong().Test(9) {
			t.Fatalf("try %d: %v, map kept: %v", tries, s.c.State(), s.c.RemoteCong().Test(9))
		}
	}
	if tries <= 2*againTries {
		t.Errorf("%d tries", tries)
	}
}
