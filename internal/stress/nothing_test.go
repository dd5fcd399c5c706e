package stress

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/rdstest"
)

// TestNothingExchanged runs a test with a peer that accepts everything and sends nothing. The
// test must fail.
func TestNothingExchanged(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	port := freePort(t, ds[1].Addr())
	l, err := net.Listen("tcp", netip.AddrPortFrom(ds[1].Addr(), port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ds[1].Bind(t, ds[1].Open(t), port+1) // the peer's task, which never reads
	var peer sync.WaitGroup
	defer peer.Wait()
	peer.Go(func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if _, err := proto.ReadOptions(c); err != nil {
			t.Error(err)
		}
		c.Write(make([]byte, proto.GoSize))
		_, _ = io.Copy(io.Discard, c)
	})
	s := newSide(ds[0], verified(func(o *proto.Options) { o.Port, o.Seconds = port, 1 }))
	s.params.Send = ds[1].Addr()
	s.run(t.Context())
	if s.failed == nil || !strings.Contains(s.failed.Error(), "no message came from "+ds[1].Addr().String()+", 1 requests were sent") {
		t.Fatalf("%v", s.failed)
	}
	if r := s.report; r.Verified || r.Failure != s.failed.Error() || r.Total.RequestsSent != 1 {
		t.Errorf("%+v", r)
	}
}

// writer is an io.Writer that calls a function.
type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// TestStalls runs a test in which messages stop arriving before the end. It must fail.
func TestStalls(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	over := make(chan struct{})
	a, p := pair(t, ds, verified(func(o *proto.Options) { o.Seconds = 1 }), func(a, _ *side) {
		a.env.Timing.Stall = 200 * time.Millisecond
		n := 0
		a.env.corrupt = func([]byte) {
			if n++; n > 50 {
				<-over // the task receives nothing until the test is over
			}
		}
		a.env.Out = writer(func(b []byte) {
			if bytes.Contains(b, []byte("(average)")) {
				close(over)
			}
		})
	}, nil)
	if a.failed == nil || !strings.Contains(a.failed.Error(), "the test has stalled: no message came from "+ds[1].Addr().String()) || a.report.Verified {
		t.Errorf("%v, %+v", a.failed, a.report)
	}
	if p.failed != nil { // its Stall is longer than the test
		t.Errorf("passive: %v", p.failed)
	}
}
