package soft

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

func listen(t testing.TB, h *host) verbs.Listener {
	t.Helper()
	l, err := h.dev.Listen(loopback)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dialRaw(t testing.TB, to netip.AddrPort) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(failsafe))
	return c
}

// TestBadRequests: what is not a proper MPA request is closed and counted; the
// owner hears nothing of it.
func TestBadRequests(t *testing.T) {
	good := iwarp.MPA{Rev: 2, Enhanced: true, IRD: 1, ORD: 1}
	change := func(i int, b byte) []byte {
		f := good.Append(nil)
		f[i] = b
		return f
	}
	for _, c := range []struct {
		name string
		b    []byte
		end  bool // of the stream, after b
		want Stats
	}{
		{"garbage", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), false, Stats{HandshakeGarbage: 1}},
		{"a reply", (&iwarp.MPA{Reply: true, Rev: 1}).Append(nil), false, Stats{HandshakeGarbage: 1}},
		{"revision 3", change(17, 3), false, Stats{HandshakeGarbage: 1}},
		{"revision 0", change(17, 0), false, Stats{HandshakeGarbage: 1}},
		{"private data of 513", change(18, 2), false, Stats{HandshakeTimeout: 1}}, // 0x0204: 516
		{"half", good.Append(nil)[:10], true, Stats{HandshakeGarbage: 1}},
		{"nothing", nil, true, Stats{}}, // gone without a word, as when two connects cross
		{"silence", nil, false, Stats{HandshakeTimeout: 1}},
		{"one byte, then silence", []byte("M"), false, Stats{HandshakeTimeout: 1}},
		{"data behind the request", append(good.Append(nil), 1, 2, 3), false, Stats{HandshakeGarbage: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, Options{HandshakeTimeout: 50 * time.Millisecond})
			conn := dialRaw(t, listen(t, h).Addr())
			conn.Write(c.b)
			if c.end {
				conn.(*net.TCPConn).CloseWrite()
			}
			if b, err := io.ReadAll(conn); len(b) > 0 || err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("answer %x, %v", b, err)
			}
			want := c.want
			if c.name == "private data of 513" {
				want = Stats{HandshakeGarbage: 1}
			}
			eventually(t, "count", h, func() bool { return h.dev.Stats() == want })
			if len(h.ev) != 0 {
				t.Errorf("events %+v", h.ev)
			}
		})
	}
}

// TestMarkers: a peer that wants markers gets them, in its direction only,
// whichever side it is, and segments that fit its TCP ones.
func TestMarkers(t *testing.T) {
	crcModes(t, func(t *testing.T, at verbs.QPInitAttr) {
		h := newHost(t, Options{})
		conn := dialRaw(t, listen(t, h).Addr())
		req := iwarp.MPA{Markers: true, Rev: 1, CRC: at.CRC == verbs.CRCOn}
		conn.Write(req.Append(nil))
		h.qp = h.newQP(at)
		if err := h.dev.Accept(h.event().Req, h.qp, nil); err != nil {
			t.Fatal(err)
		}
		fill(h.mem[:100000], 3)
		conn.Write(writeFrame(1, 0, true, nil))
		h.send(verbs.SendWR{Op: verbs.OpSend, SGL: h.sge(0, 5)},
			verbs.SendWR{WRID: 1, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, RKey: 7, SGL: h.sge(0, 100000)})
		got := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(conn)
			got <- b
		}()
		h.take(1)
		h.qp.Disconnect()
		if e := h.event(); e.Type != verbs.CMEstablished {
			t.Fatalf("%+v", e)
		}
		h.event()
		stream := (<-got)[iwarp.MPAHeaderLen:]
		var plain []byte
		for i := 0; i < len(stream); i++ {
			if i%512 == 0 {
				i += 3
				continue
			}
			plain = append(plain, stream[i])
		}
		payload, frames := 0, 0
		for len(plain) > 0 {
			var x iwarp.Header
			if err := iwarp.ParseHeader(plain, &x); err != nil {
				t.Fatalf("frame %d: %v", frames, err)
			}
			if x.Op == iwarp.OpWrite && !bytes.Equal(plain[x.Len():x.Len()+x.Payload()], h.mem[payload:payload+x.Payload()]) {
				t.Fatalf("frame %d: data differ", frames)
			}
			if x.Op == iwarp.OpWrite {
				payload += x.Payload()
			}
			plain = plain[iwarp.FPDUSize(x.ULPDU):]
			frames++
		}
		if payload != 100000 || frames < 3 {
			t.Errorf("%d bytes in %d frames", payload, frames)
		}
		if s := h.dev.Stats(); s.HandshakeMarkers != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestHandshakeLimit: silent connections use up their places, no more; a place
// comes back when its connection ends.
func TestHandshakeLimit(t *testing.T) {
	h := newHost(t, Options{MaxHandshakes: 4}) // two of one source
	l := listen(t, h)
	silent := []net.Conn{dialRaw(t, l.Addr()), dialRaw(t, l.Addr())}
	// The third may come before the first two are seen; one of the three is
	// refused.
	third := dialRaw(t, l.Addr())
	eventually(t, "refusal", h, func() bool { return h.dev.Stats().HandshakeRefused == 1 })
	for _, c := range append(silent, third) {
		c.Close()
	}
	eventually(t, "place back", h, func() bool { return h.dev.ctl.slots.left() == h.dev.opt.MaxHandshakes })
	a := newHost(t, Options{})
	a.qp, h.qp = a.newQP(attrs()), h.newQP(attrs())
	if err := a.dev.Connect(a.qp, verbs.ConnectParam{Remote: l.Addr()}); err != nil {
		t.Fatal(err)
	}
	if e := h.event(a); e.Type != verbs.CMConnectRequest {
		t.Fatalf("%+v", e)
	}
}

// TestUnansweredRequest: a request the owner never answers expires.
func TestUnansweredRequest(t *testing.T) {
	h := newHost(t, Options{HandshakeTimeout: 20 * time.Millisecond})
	conn := dialRaw(t, listen(t, h).Addr())
	req := iwarp.MPA{Rev: 1}
	conn.Write(req.Append(nil))
	e := h.event()
	eventually(t, "expiry", h, func() bool { return h.dev.Stats().HandshakeRefused == 1 })
	if err := h.dev.Accept(e.Req, h.newQP(attrs()), nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Accept of an expired request: %v", err)
	}
	if b, err := io.ReadAll(conn); len(b) > 0 || err != nil {
		t.Errorf("%x, %v", b, err)
	}
	if h.dev.ctl.slots.left() != h.dev.opt.MaxHandshakes {
		t.Error("its place is still taken")
	}
}

// TestConnectCancel: closing the device ends a connect that hangs.
func TestConnectCancel(t *testing.T) {
	addr, _ := responderOnce(t, []byte{})
	h := newHost(t, Options{})
	if err := h.dev.Connect(h.newQP(attrs()), verbs.ConnectParam{Remote: addr, TimeoutNs: int64(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), failsafe)
	defer cancel()
	done := make(chan struct{})
	go func() { h.dev.Close(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("Close hangs")
	}
}

// TestHandshakeShares: a source that opens plain connections and says nothing
// keeps nobody at another address out, and neither do many such sources that
// come after each other.
func TestHandshakeShares(t *testing.T) {
	p := newPlaces(64)
	fill := func(a netip.Addr) (n int) {
		for p.take(a) {
			n++
		}
		return n
	}
	first, second := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	if n := fill(first); n != 32 {
		t.Errorf("the first source has %d of 64 places, want half", n)
	}
	if n := fill(second); n != 16 || p.take(netip.MustParseAddr("fd00::2")) {
		t.Errorf("the second has %d, want half of the rest, and so for its whole /64", n)
	}
	p.give(first)
	if n := fill(netip.MustParseAddr("10.0.0.2")); n == 0 {
		t.Error("no place for an address that has none")
	}
	for range 31 {
		p.give(first)
	}
	taken := 0
	for _, n := range p.sources {
		taken += n
	}
	if p.sources[sourceOf(first)] != 0 || p.free+taken != 64 {
		t.Errorf("left: %+v", p)
	}

	h := newHost(t, Options{MaxHandshakes: 8})
	l, err := h.dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 20 {
		dialRaw(t, l.Addr())
	}
	eventually(t, "the refusals", h, func() bool { return h.dev.Stats().HandshakeRefused == 16 })
	a := newHost(t, Options{})
	a.qp, h.qp = a.newQP(attrs()), h.newQP(attrs())
	if err := a.dev.Connect(a.qp, verbs.ConnectParam{Local: netip.MustParseAddrPort("127.0.0.3:0"), Remote: l.Addr()}); err != nil {
		t.Fatal(err)
	}
	if e := h.event(a); e.Type != verbs.CMConnectRequest {
		t.Fatalf("another source: %+v", e)
	}
}
