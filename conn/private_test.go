package conn

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

func TestPrivateDataRejected(t *testing.T) {
	good := wire.Private{Src: addrB, Dst: addrA, Major: 3, Minor: 1, MinorMask: 3, Ext: wire.ExtVersion}
	tests := []struct {
		name   string
		change func(*wire.Private)
		text   string
	}{
		{"major", func(p *wire.Private) { p.Major = 4 }, "protocol 4.1"},
		{"minor", func(p *wire.Private) { p.Minor = 0 }, "protocol 3.0"},
		{"old kernel", func(p *wire.Private) { p.Ext, p.Minor = 0, 0 }, "protocol 3.0"},
		{"kernel of no common version", func(p *wire.Private) { p.Ext, p.Major, p.MinorMask = 0, 4, 0xfffc }, "protocol 4.1"},
		{"extension", func(p *wire.Private) { p.Ext = 1 }, "extension version 1, this one 2"},
		{"source", func(p *wire.Private) { p.Src = netip.MustParseAddr("127.0.0.9") }, "claims to be 127.0.0.9"},
		{"destination", func(p *wire.Private) { p.Dst = netip.MustParseAddr("127.0.0.9") }, "means 127.0.0.9"},
		{"lane", func(p *wire.Private) { p.TOS = 3 }, "lane 3"},
		{"path", func(p *wire.Private) { p.Path, p.Ext = 3, wire.ExtPath }, "path 3"},
		{"no path", func(p *wire.Private) { p.Path, p.Ext = 8, wire.ExtPath }, "path 8"},
		{"short", nil, "private data of 10 bytes"},
	}
	for _, c := range tests {
		var b []byte
		if c.change == nil {
			b = make([]byte, 10)
		} else {
			p := good
			c.change(&p)
			b = wire.AppendPrivate(nil, &p)
		}
		t.Run("request "+c.name, func(t *testing.T) {
			s := newScript(t)
			q := s.peer.newQP(64)
			s.peer.dial(q, addrB, addrA, b)
			s.run()
			if s.c.State() != Down || len(s.peer.cm) != 1 || s.peer.cm[0].Type != verbs.CMRejected ||
				!bytes.Equal(s.peer.cm[0].Private, []byte{1, 0, 0, 0, 'R', 'd', wire.ExtVersion, 0, 0, 0, 0, 0}) {
				t.Errorf("state %v, events %+v", s.c.State(), s.peer.cm)
			}
			if !errors.Is(s.lastTrace, ErrIncompatible) || !strings.Contains(s.lastTrace.Error(), c.text) {
				t.Errorf("traced %v", s.lastTrace)
			}
		})
		t.Run("reply "+c.name, func(t *testing.T) {
			s := newScript(t)
			s.msg("x")
			s.run()
			q := s.peer.newQP(64)
			s.peer.accept(s.request(), q, b)
			s.run()
			s.wantError(ErrIncompatible)
			if s.c.NextTimeout() == 0 {
				t.Error("no retry planned")
			}
		})
	}
}

func TestPrivateDataSent(t *testing.T) {
	s := newScript(t)
	s.up()
	s.send(s.data("a"))
	s.msg("x")
	s.q.toErr(true)
	s.run()
	p, err := wire.ParsePrivate(s.peer.cm[len(s.peer.cm)-1].Private, false)
	want := wire.Private{Src: addrA, Dst: addrB, Major: 3, Minor: 1, MinorMask: 3, AckSeq: s.seq, Ext: wire.ExtVersion}
	if err != nil || p != want {
		t.Errorf("%+v, %v; want %+v", p, err, want)
	}
}

// TestRejectedWhy: a side that was rejected says why, with both versions if they differ, whatever the age of the
// daemon that rejects.
func TestRejectedWhy(t *testing.T) {
	old := func(r wire.Reject) []byte { return r.Append(nil)[:8] } // what daemons of 0.2.0 send
	for _, c := range []struct {
		name    string
		private []byte
		is      error
		text    string
	}{
		{"version", old(wire.Reject{Code: wire.RejectIncompat, Ext: 1}), ErrIncompatible, "extension version 1, this one 2"},
		{"version 1", wire.Rejected(wire.NotSaid)[:4], ErrIncompatible, "extension version 1 or is a Linux kernel, this rdsd speaks version 2"},
		{"0.2.0", old(wire.Reject{Code: wire.RejectIncompat, Ext: wire.ExtVersion}), ErrRejected, "does not say why"},
		{"forbidden", wire.Rejected(wire.NotAllowed), ErrForbidden, "its peers.allow does not name this host"},
		{"padded", append(wire.Rejected(wire.NotAllowed), make([]byte, 100)...), ErrForbidden, ""},
		{"room", wire.Rejected(wire.NoRoom), ErrRejected, "no room"},
		{"rate", wire.Rejected(wire.TooMany), ErrRejected, "peers.control_per_s"},
		{"transport", wire.Rejected(wire.OtherWay), ErrRejected, "another transport"},
		{"addresses", wire.Rejected(wire.WrongAddress), ErrRejected, "NAT"},
		{"later reason", wire.Rejected(99), ErrRejected, "reason 99"},
		{"nothing", nil, ErrRejected, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.msg("x")
			s.run()
			s.peer.rejectReq(s.request(), c.private)
			s.run()
			err := s.c.Info().LastError
			if !errors.Is(err, ErrRejected) || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
			if s.c.State() == Down && s.c.Info().RetryAt == 0 {
				t.Error("it does not try again")
			}
		})
	}
}

// TestRejectedByProvider: what the provider knows is the reason where there is no private data.
func TestRejectedByProvider(t *testing.T) {
	for _, why := range []error{verbs.ErrForbidden, verbs.ErrIdentity} {
		s := newScript(t)
		s.msg("x")
		s.run()
		s.c.HandleCM(s.now, &verbs.CMEvent{Type: verbs.CMRejected, QP: s.c.link.qp, Err: fmt.Errorf("TLS: %w", why)})
		if err := s.c.Info().LastError; !errors.Is(err, ErrRejected) || errors.Is(err, ErrForbidden) != (why == verbs.ErrForbidden) || errors.Is(err, why) == errors.Is(err, ErrForbidden) {
			t.Errorf("%v: %v", why, err)
		}
	}
}
