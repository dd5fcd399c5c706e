package soft

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// TestMaxSegment: a connection that is made with a limit of its segments has it in both directions, and the
// side that is asked learns how large they are.
func TestMaxSegment(t *testing.T) {
	for _, most := range []int{0, 1220, 536} {
		a, b := newHost(t, Options{}), newHost(t, Options{})
		l, err := b.dev.Listen(loopback)
		if err != nil {
			t.Fatal(err)
		}
		qa, qb := a.newQP(attrs()), b.newQP(attrs())
		if err := a.dev.Connect(qa, verbs.ConnectParam{Remote: l.Addr(), MaxSegment: most}); err != nil {
			t.Fatal(err)
		}
		req := b.event(a)
		if err := b.dev.Accept(req.Req, qb, nil); err != nil {
			t.Fatal(err)
		}
		a.event(b)
		b.event(a)
		for name, got := range map[string]int{"of the request": req.Segment, "here": segmentOf(qa.(*qp).fd), "there": segmentOf(qb.(*qp).fd)} {
			if limited := got > 0 && got <= most; limited != (most > 0) || got == 0 {
				t.Errorf("segments %s have %d bytes, the limit is %d", name, got, most)
			}
		}
		if p := qa.(verbs.OverTCP).Path(); p.Stuck || p.Passes {
			t.Errorf("path %+v", p)
		}
		qa.ToError()
		if p := qa.(verbs.OverTCP).Path(); p != (verbs.Path{}) {
			t.Errorf("path %+v of a connection that is gone", p)
		}
	}
}

// TestBlamed: a set-up that only took long is not blamed on large packets.
func TestBlamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := blamed(c, os.ErrDeadlineExceeded); err != os.ErrDeadlineExceeded || errors.Is(err, verbs.ErrLarge) {
		t.Error(err)
	}
}
