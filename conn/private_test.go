package conn

import (
	"bytes"
	"errors"
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
				!bytes.Equal(s.peer.cm[0].Private, []byte{1, 0, 0, 0, 'R', 'd', wire.ExtVersion, 0}) {
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

// TestRejectedByAnotherVersion: who was rejected by a daemon of another
// extension version learns both versions.
func TestRejectedByAnotherVersion(t *testing.T) {
	s := newScript(t)
	s.msg("x")
	s.run()
	s.peer.rejectReq(s.request(), (&wire.Reject{Code: wire.RejectIncompat, Ext: 1}).Append(nil))
	s.run()
	err := s.c.Info().LastError
	if !errors.Is(err, ErrRejected) || !errors.Is(err, ErrIncompatible) || !strings.Contains(err.Error(), "extension version 1, this one 2") {
		t.Errorf("%v", err)
	}
}
