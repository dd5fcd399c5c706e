package rdstcp

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// journal is an owner that notes the order of its calls. It names connections by their
// other ends.
type journal struct {
	*owner
	names map[netip.AddrPort]string
	told  []string
}

func (j *journal) note(what string, c *Conn) { j.told = append(j.told, j.names[c.Remote]+" "+what) }

func (j *journal) Accepted(c *Conn) {
	j.note("accepted", c)
	j.owner.Accepted(c)
}

func (j *journal) Data(c *Conn, b []byte) {
	j.note(string(b), c)
	j.owner.Data(c, b)
}

func (j *journal) Closed(c *Conn, err error) {
	j.note("closed", c)
	j.owner.Closed(c, err)
}

// waits waits until n connections were accepted and not handed over.
func (j *journal) waits(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		j.n.mu.Lock()
		k := len(j.n.waiting)
		j.n.mu.Unlock()
		if k == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d wait, want %d", k, n)
		}
	}
}

// A new connection is handed over after everything that had arrived on the other
// connections of its host. Those may have arrived just before it, or be held.
func TestNewsInOrder(t *testing.T) {
	here := netip.MustParseAddr("127.0.77.5")
	j := &journal{owner: newOwner(t, 26387), names: map[netip.AddrPort]string{}}
	if err := j.n.Listen(here); err != nil {
		t.Fatal(err)
	}
	came := func(name, from string) *net.TCPConn {
		local := netip.AddrPortFrom(netip.MustParseAddr(from), 0)
		c, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(local), net.TCPAddrFromAddrPort(netip.AddrPortFrom(here, 26387)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		j.names[c.LocalAddr().(*net.TCPAddr).AddrPort()] = name
		return c
	}
	poll := func(n int) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); len(j.told) < n; j.n.Poll(j) {
			if time.Now().After(end) {
				t.Fatalf("only %q", j.told)
			}
		}
	}
	a := came("a", "127.0.77.6")
	a.Write([]byte("one"))
	a.CloseWrite()
	b := came("b", "127.0.77.6")
	b.Write([]byte("two"))
	j.waits(t, 2)
	poll(5)
	want := []string{"a accepted", "a one", "a closed", "b accepted", "b two"}
	if !slices.Equal(j.told, want) {
		t.Fatalf("told %q", j.told)
	}
	// While one connection is held, another of its host waits, and no other host's.
	j.accepted[1].Hold(true)
	b.Write([]byte("three"))
	came("c", "127.0.77.6")
	came("d", "127.0.77.7")
	j.waits(t, 2)
	poll(6)
	for range 10 {
		j.n.Poll(j)
	}
	if len(j.told) != 6 || j.told[5] != "d accepted" || j.n.Busy() {
		t.Fatalf("told %q, busy %v", j.told[5:], j.n.Busy())
	}
	j.accepted[1].Hold(false)
	poll(8)
	if got := strings.Join(j.told[6:], ", "); got != "b three, c accepted" {
		t.Errorf("told %q", got)
	}
	// A closed connection is not waited for.
	j.accepted[1].Hold(true)
	j.accepted[1].Close(true)
	if j.accepted[1].Hold(true); j.n.holds != 0 {
		t.Errorf("%d are held", j.n.holds)
	}
}

// A connection that was dialed waits for what had arrived on the others of its host, too.
func TestDialedInOrder(t *testing.T) {
	here, there := netip.MustParseAddr("127.0.77.10"), netip.MustParseAddr("127.0.77.11")
	a, b := newOwner(t, 26389), newOwner(t, 26389)
	if err := b.n.Listen(there); err != nil {
		t.Fatal(err)
	}
	a.n.Dial(here, there, 1, false, 1)
	until(t, "connection", func() bool { return len(a.dialed) == 1 && len(b.accepted) == 1 }, a, b)
	first := a.dialed[0]
	first.Hold(true)
	b.accepted[0].Write([][]byte{[]byte("one")})
	a.n.Dial(here, there, 0, false, 1)
	(&journal{owner: a}).waits(t, 1)
	for range 10 {
		a.n.Poll(a)
	}
	if len(a.dialed) != 1 {
		t.Fatal("it is used before the other one was read")
	}
	first.Hold(false)
	until(t, "second connection", func() bool { return len(a.dialed) == 2 }, a, b)
	if string(a.got[first]) != "one" {
		t.Errorf("read %q before", a.got[first])
	}
}

// A connection that was dialed does not wait for what its host goes on sending on another one,
// which is held again and again.
func TestDialedBesideFlood(t *testing.T) {
	here, there := netip.MustParseAddr("127.0.77.12"), netip.MustParseAddr("127.0.77.13")
	a, b := newOwner(t, 26390), newOwner(t, 26390)
	if err := b.n.Listen(there); err != nil {
		t.Fatal(err)
	}
	a.n.Dial(here, there, 1, false, 1)
	until(t, "connection", func() bool { return len(a.dialed) == 1 && len(b.accepted) == 1 }, a, b)
	first, flood := a.dialed[0], make([]byte, 64<<10)
	fill := func() {
		for {
			if k, err := b.accepted[0].Write([][]byte{flood}); err != nil {
				t.Fatal(err)
			} else if k < len(flood) {
				return
			}
		}
	}
	first.Hold(true)
	fill()
	a.n.Dial(here, there, 0, false, 1)
	(&journal{owner: a}).waits(t, 1)
	for range 1000 { // turns in each of which the host fills the connection again
		first.Hold(false)
		if a.n.Poll(holding{a}); len(a.dialed) == 2 {
			return
		}
		fill()
	}
	t.Error("it waits for what came after it")
}

// holding is an owner that holds each connection of which something was read.
type holding struct{ *owner }

func (h holding) Data(c *Conn, b []byte) {
	h.owner.Data(c, b)
	c.Hold(true)
}

// The waiting connections of one host are bounded.
func TestNewsOfOneHost(t *testing.T) {
	n := &Net{sys: &sockets{bell: -1}}
	leave := func(from string) bool {
		had := len(n.waiting)
		n.leave(dialed{c: &Conn{n: n, fd: -1, Remote: netip.MustParseAddrPort(from)}})
		return len(n.waiting) > had
	}
	for i := range maxOfHost + 1 {
		if took := leave("10.0.0.1:1"); took != (i < maxOfHost) {
			t.Errorf("connection %d: taken %v", i, took)
		}
	}
	if !leave("10.0.0.2:1") {
		t.Error("another host's is refused")
	}
}

// The end that is not sent on a connection that was reset does not count as a byte that has
// to be acknowledged.
func TestUnackedAfterReset(t *testing.T) {
	here, there := netip.MustParseAddr("127.0.77.8"), netip.MustParseAddr("127.0.77.9")
	a, b := newOwner(t, 26388), newOwner(t, 26388)
	a.n.sys.(*sockets).opt.Allowed, b.n.sys.(*sockets).opt.Allowed = nil, nil
	if err := b.n.Listen(there); err != nil {
		t.Fatal(err)
	}
	a.n.Dial(here, there, 0, false, 1)
	until(t, "connection", func() bool { return len(a.dialed) == 1 && len(b.accepted) == 1 }, a, b)
	x, y := a.dialed[0], b.accepted[0]
	x.Finish()
	if !x.end {
		t.Error("no end was sent")
	}
	x.Close(true)
	for end := time.Now().Add(2 * time.Minute); ; {
		if _, err := y.Write([][]byte{{1}}); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no reset")
		}
	}
	y.Finish()
	if y.end {
		t.Error("an end was sent on a connection that was reset")
	}
}
