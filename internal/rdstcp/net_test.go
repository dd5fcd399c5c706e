package rdstcp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// owner is a Handler that keeps what it gets.
type owner struct {
	n        *Net
	accepted []*Conn
	dialed   []*Conn
	failed   []error
	got      map[*Conn][]byte
	want     []byte // where the next bytes go
	rooms    int
	closed   map[*Conn]error
}

func (o *owner) Accepted(c *Conn) { o.accepted = append(o.accepted, c) }
func (o *owner) Dialed(_ any, c *Conn, err error) {
	if err != nil {
		o.failed = append(o.failed, err)
	} else {
		o.dialed = append(o.dialed, c)
	}
}
func (o *owner) Want(*Conn) []byte { return o.want }
func (o *owner) Placed(c *Conn, n int) {
	o.got[c] = append(o.got[c], o.want[:n]...)
	o.want = o.want[n:]
}
func (o *owner) Data(c *Conn, b []byte) { o.got[c] = append(o.got[c], b...) }
func (o *owner) Room(*Conn)             { o.rooms++ }
func (o *owner) Closed(c *Conn, err error) {
	o.closed[c] = err
	c.Close(false)
}

func newOwner(t *testing.T, port uint16) *owner {
	n, err := New(Options{Port: port, Rand: func() uint64 { return uint64(time.Now().UnixNano() >> 10) },
		Allowed: func(a netip.Addr) bool { return a != netip.MustParseAddr("127.0.77.9") }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return &owner{n: n, got: map[*Conn][]byte{}, closed: map[*Conn]error{}}
}

// until polls both until done, and blocks while there is nothing to do.
func until(t *testing.T, what string, done func() bool, os ...*owner) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
		work := false
		for _, o := range os {
			work = o.n.Poll(o) || work || o.n.Busy()
		}
		if !work {
			fds := []unix.PollFd{{Fd: int32(os[0].n.FD()), Events: unix.POLLIN}}
			unix.Poll(fds, 1)
		}
	}
}

func TestNet(t *testing.T) {
	here, there := netip.MustParseAddr("127.0.77.1"), netip.MustParseAddr("127.0.77.2")
	const port = 26385
	a, b := newOwner(t, port), newOwner(t, port)
	if err := b.n.Listen(there); err != nil {
		t.Fatal(err)
	}
	a.n.Dial(here, there, 5, false, 1)
	until(t, "connection", func() bool { return len(a.dialed) == 1 && len(b.accepted) == 1 }, a, b)
	x, y := a.dialed[0], b.accepted[0]
	if !x.Chosen || x.Local.Port()%8 != 5 || y.Remote != x.Local || y.Local != netip.AddrPortFrom(there, port) {
		t.Errorf("%+v, %+v", x, y)
	}
	// The message is larger than the sockets' buffers, comes from several pieces, and is
	// partly placed.
	var sent []byte
	piece := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	for {
		k, err := x.Write([][]byte{piece[:7], piece, piece[7:]})
		if err != nil {
			t.Fatal(err)
		}
		all := append(append(bytes.Clone(piece[:7]), piece...), piece[7:]...)
		sent = append(sent, all[:k]...)
		if k < len(all) {
			break
		}
	}
	if n, err := x.Unacked(); err != nil || n <= 0 {
		t.Errorf("unacked %d, %v", n, err)
	}
	b.want = make([]byte, 300_001)
	until(t, "end of it", func() bool { return len(b.got[y]) == len(sent) && a.rooms > 0 }, b, a)
	if !bytes.Equal(b.got[y], sent) || len(b.want) != 0 {
		t.Error("other bytes arrived")
	}
	until(t, "acknowledgement", func() bool { n, _ := x.Unacked(); return n == 0 }, a, b)
	// What was sent before the end arrives before the end.
	y.Write([][]byte{[]byte("last words")})
	y.Finish()
	until(t, "end", func() bool { _, ok := a.closed[x]; return ok }, a, b)
	if string(a.got[x]) != "last words" || a.closed[x] != nil {
		t.Errorf("%q, %v", a.got[x], a.closed[x])
	}
	until(t, "end there", func() bool { _, ok := b.closed[y]; return ok }, a, b)
	// A reset is reported as an error.
	a.n.Dial(here, there, 0, false, 1)
	until(t, "connection", func() bool { return len(a.dialed) == 2 && len(b.accepted) == 2 }, a, b)
	a.dialed[1].Close(true)
	until(t, "reset", func() bool { return errors.Is(b.closed[b.accepted[1]], unix.ECONNRESET) }, a, b)
	// The first connection goes to an address where nobody listens, the second comes from
	// an address that is not allowed.
	b.n.Dial(there, here, 0, false, 1)
	until(t, "failure", func() bool { return len(b.failed) == 1 }, b, a)
	c, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.77.9:0")), net.TCPAddrFromAddrPort(netip.AddrPortFrom(there, port)))
	if err == nil {
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a stranger: %v", err)
	}
	a.n.Poll(a)
	if len(b.accepted) != 2 {
		t.Error("a stranger was accepted")
	}
}

// TestHold: a connection that is held is not read and loses nothing. Finish ends the hold.
func TestHold(t *testing.T) {
	here, there := netip.MustParseAddr("127.0.77.3"), netip.MustParseAddr("127.0.77.4")
	a, b := newOwner(t, 26386), newOwner(t, 26386)
	if err := b.n.Listen(there); err != nil {
		t.Fatal(err)
	}
	a.n.Dial(here, there, 0, false, 1)
	until(t, "connection", func() bool { return len(a.dialed) == 1 && len(b.accepted) == 1 }, a, b)
	x, y := a.dialed[0], b.accepted[0]
	y.Hold(true)
	x.Write([][]byte{[]byte("first, ")})
	until(t, "acknowledgement", func() bool { n, _ := x.Unacked(); return n == 0 }, a, b)
	until(t, "event", func() bool { return y.more }, b)
	if b.n.Busy() || len(b.got[y]) != 0 {
		t.Errorf("busy %v, read %q", b.n.Busy(), b.got[y])
	}
	y.Hold(false)
	until(t, "data", func() bool { return string(b.got[y]) == "first, " }, b)
	y.Hold(true)
	x.Write([][]byte{[]byte("last")})
	x.Finish()
	until(t, "event", func() bool { return y.more }, b)
	y.Finish()
	y.Hold(true) // has no effect any more
	until(t, "end", func() bool { _, ok := b.closed[y]; return ok }, b, a)
	if string(b.got[y]) != "first, last" {
		t.Errorf("%q", b.got[y])
	}
}
