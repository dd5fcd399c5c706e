package rds

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var bg = context.Background

func TestSendRecv(t *testing.T) {
	_, a, b := pair(t, Options{})
	buf := make([]byte, MaxMessage)
	if err := a.SetSndBuf(MaxMessage); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 63, 64, 65, 4096, inlineCopy, inlineCopy + 1, 100000, MaxMessage} {
		p := bytes.Repeat([]byte{byte(n)}, n)
		if k, err := a.SendTo(p, b.LocalAddrPort()); k != n || err != nil {
			t.Fatalf("SendTo(%d bytes) = %d, %v", n, k, err)
		}
		k, from, err := b.RecvFrom(buf)
		if err != nil || from != a.LocalAddrPort() || !bytes.Equal(buf[:k], p) {
			t.Fatalf("RecvFrom of %d bytes = %d from %v, %v", n, k, from, err)
		}
	}
}

func TestTruncated(t *testing.T) {
	_, a, b := pair(t, Options{})
	mustSend(t, a, "0123456789", b)
	m := Received{Payload: make([]byte, 4)}
	for range 2 {
		if err := look(bg(), b, &m); err != nil || m.N != 4 || m.Len != 10 || m.Addr != a.LocalAddrPort() {
			t.Fatalf("peek: %+v, %v", m, err)
		}
	}
	m = Received{Payload: make([]byte, 20)}
	if err := b.Recv(DontWait, &m); err != nil || m.N != 10 || m.Len != 10 || m.Time.IsZero() {
		t.Fatalf("%+v, %v", m, err)
	}
	mustSend(t, a, "0123456789", b)
	if n, _, err := b.RecvFrom(make([]byte, 3)); n != 3 || err != nil {
		t.Fatalf("truncated: %d, %v", n, err)
	}
	if err := b.Recv(DontWait, &m); !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("the rest of a truncated message is discarded: %v", err)
	}
}

func TestDestination(t *testing.T) {
	_, a, b := pair(t, Options{})
	for to, want := range map[string]error{
		"0.0.0.0:1000":         syscall.EINVAL,
		"224.0.0.1:1000":       syscall.EINVAL,
		"255.255.255.255:1000": syscall.EINVAL,
		"[2001:db8::1]:1000":   syscall.EOPNOTSUPP,
		"[fe80::1%lo]:1000":    syscall.EINVAL,
	} {
		if _, err := a.SendTo(nil, netip.MustParseAddrPort(to)); !errors.Is(err, want) {
			t.Errorf("to %s: %v, want %v", to, err, want)
		}
	}
	if _, err := a.SendTo(nil, netip.AddrPort{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("to the zero address: %v", err)
	}
	// IPv4 written as IPv6 is the same destination.
	mapped := netip.AddrPortFrom(netip.AddrFrom16(b.LocalAddrPort().Addr().As16()), b.LocalAddrPort().Port())
	if _, err := a.SendTo([]byte("y"), mapped); err != nil {
		t.Fatal(err)
	}
	mustRecv(t, b, "y")
	if len(a.dests) != 1 {
		t.Errorf("%d destinations open, want 1", len(a.dests))
	}
}

func TestBindErrors(t *testing.T) {
	c, _ := openFake(t, Options{})
	bindFake(t, c, "127.0.0.1:4000")
	for ap, want := range map[string]error{
		"127.0.0.1:4000": syscall.EADDRINUSE,
		"127.0.0.1:1":    syscall.EINVAL,
		"0.0.0.0:4000":   syscall.EADDRNOTAVAIL, // this daemon says that it has none
		"224.0.0.1:4000": syscall.EINVAL,
		"192.0.2.1:4000": syscall.EADDRNOTAVAIL,
	} {
		_, err := c.Bind(netip.MustParseAddrPort(ap))
		var op *opError
		if !errors.Is(err, want) || !errors.As(err, &op) || op.Op != "bind" || op.Addr.String() != ap {
			t.Errorf("Bind(%s): %v, want %v", ap, err, want)
		}
	}
	if s := bindFake(t, c, "127.0.0.1:0"); s.LocalAddrPort().Port() == 0 {
		t.Error("port 0 after Bind")
	}
	if s, err := c.Bind(netip.MustParseAddrPort("[::ffff:127.0.0.1]:4010")); err != nil || !s.LocalAddrPort().Addr().Is4() {
		t.Errorf("Bind of IPv4 written as IPv6: %v", err)
	}
}

// TestSendBuffer: a message is accepted iff less than the limit is queued
// before it (net/rds/send.c rds_send_queue_rm).
func TestSendBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		d.keepIDs = true
		if err := a.SetSndBuf(100); err != nil {
			t.Fatal(err)
		}
		if _, err := a.SendTo(make([]byte, 101), b.LocalAddrPort()); !errors.Is(err, syscall.EMSGSIZE) {
			t.Fatalf("a message above the limit: %v", err)
		}
		for range 2 { // the second goes beyond
			if _, err := trySend(a, make([]byte, 51), b.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := trySend(a, make([]byte, 1), b.LocalAddrPort()); !errors.Is(err, ErrWouldBlock) {
			t.Fatalf("full: %v", err)
		}
		sent := make(chan error)
		go func() {
			_, err := a.SendTo(make([]byte, 1), b.LocalAddrPort())
			sent <- err
		}()
		synctest.Wait()
		select {
		case err := <-sent:
			t.Fatalf("a send into a full buffer did not wait: %v", err)
		default:
		}
		d.ackAll()
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		// A larger limit makes room as well.
		a.SetWriteDeadline(time.Now().Add(time.Second))
		for range 99 {
			mustSend(t, a, "x", b)
		}
		if _, err := a.SendTo([]byte("x"), b.LocalAddrPort()); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("full past the deadline: %v", err)
		}
		a.SetWriteDeadline(time.Time{})
		go func() {
			_, err := a.SendTo([]byte("x"), b.LocalAddrPort())
			sent <- err
		}()
		synctest.Wait()
		a.SetSndBuf(1000)
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	})
}

// TestZeroLength: messages without payload cost no send buffer.
func TestZeroLength(t *testing.T) {
	d, a, b := pair(t, Options{Params: Params{MaxMsgs: 512}})
	d.keepIDs = true
	// With a limit each has a message id of its own.
	empty := func() error {
		_, err := a.Send(DontWait, &Message{Addr: b.LocalAddrPort(), GiveUpAfter: time.Hour})
		return err
	}
	for i := range 57 { // a ninth
		if err := empty(); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := empty(); !errors.Is(err, ErrCongested) {
		t.Fatalf("with its share of message ids in use: %v", err)
	}
	d.ackAll()
	if err := empty(); err != nil {
		t.Fatal(err)
	}
}

// TestShortages: each resource of the client can run out; a sender then waits
// and goes on when it is there again.
func TestShortages(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params Params
		size   int
		n      int
	}{
		{"message ids", Params{MaxMsgs: 4}, 10, 20},
		{"submission ring", Params{SubEntries: 4}, 10, 50},
		{"event ring", Params{EventEntries: 4}, 10, 50},
		{"send arena", Params{SendWindows: 1}, MaxMessage, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := noSpin
				o.Params = tt.params
				o.Params.RecvWindows = 8
				d, a, b := pair(t, o)
				d.keepIDs, d.noGrow = true, true
				a.SetSndBuf(100 << 20)
				go func() {
					for range 1000 {
						time.Sleep(time.Millisecond)
						d.ackAll()
					}
				}()
				go func() {
					for i := range tt.n {
						p := make([]byte, tt.size)
						p[0] = byte(i)
						if _, err := a.SendTo(p, b.LocalAddrPort()); err != nil {
							t.Error(err)
						}
					}
				}()
				buf := make([]byte, tt.size)
				for i := range tt.n {
					if n, _, err := b.RecvFrom(buf); err != nil || n != tt.size || buf[0] != byte(i) {
						t.Fatalf("message %d: %d bytes, number %d, %v", i, n, buf[0], err)
					}
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// TestGrowSend: the send arena grows before anybody has to wait for it.
func TestGrowSend(t *testing.T) {
	d, a, b := pair(t, Options{Params: Params{SendWindows: 1, RecvWindows: 8}})
	d.keepIDs = true
	a.SetSndBuf(100 << 20)
	if err := b.SetRcvBuf(100 << 20); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, err := trySend(a, make([]byte, MaxMessage), b.LocalAddrPort()); err != nil {
			t.Fatal(i, err)
		}
	}
	if d.grown != 3 { // one ahead
		t.Errorf("grown by %d windows, want 3", d.grown)
	}
}

func TestCancel(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.holdSends = true
	mustSend(t, a, "1", b)
	if err := a.CancelSentTo(b.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	d.do(func() { d.holdSends = false })
	if err := a.CancelSentTo(netip.MustParseAddrPort("127.0.0.1:9")); err != nil {
		t.Fatalf("a destination never used: %v", err)
	}
	mustSend(t, a, "2", b)
	mustRecv(t, b, "2")
}

func TestBatches(t *testing.T) {
	_, a, b := pair(t, Options{})
	out := make([]Message, 100)
	for i := range out {
		out[i] = Message{Payload: []byte{byte(i)}, Addr: b.LocalAddrPort()}
	}
	out[50].Payload = bytes.Repeat([]byte{50}, 3*inlineCopy)
	if n, err := a.SendBatch(context.Background(), out); n != 100 || err != nil {
		t.Fatal(n, err)
	}
	in := make([]Received, 30)
	for i := range in {
		in[i].Payload = make([]byte, 4*inlineCopy)
	}
	for got := 0; got < 100; {
		n, err := b.RecvBatch(context.Background(), in)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		for i := range n {
			want := out[got+i].Payload
			if !bytes.Equal(in[i].Payload[:in[i].N], want) || in[i].Addr != a.LocalAddrPort() {
				t.Fatalf("message %d: %d bytes, want %d", got+i, in[i].N, len(want))
			}
		}
		got += n
	}
	out[3].Payload = make([]byte, MaxMessage+1)
	if n, err := a.SendBatch(context.Background(), out); n != 3 || !errors.Is(err, ErrMessageTooLong) {
		t.Fatalf("SendBatch up to a bad one: %d, %v", n, err)
	}
	if n, err := b.RecvBatch(context.Background(), nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
}

func TestPacketAddrs(t *testing.T) {
	_, a, b := pair(t, Options{})
	to := b.LocalAddrPort()
	for _, addr := range []net.Addr{b.LocalAddr(), net.UDPAddrFromAddrPort(to)} {
		if _, err := a.WriteTo([]byte("x"), addr); err != nil {
			t.Fatal(err)
		}
		_, from, err := b.ReadFrom(make([]byte, 1))
		if err != nil || from.Network() != "rds" || from.String() != a.LocalAddrPort().String() {
			t.Fatal(from, err)
		}
	}
	for _, addr := range []net.Addr{nil, (*Addr)(nil), (*net.UDPAddr)(nil)} {
		if _, err := a.WriteTo([]byte("x"), addr); !errors.Is(err, ErrInvalid) {
			t.Errorf("WriteTo(%#v): %v", addr, err)
		}
	}
	if _, err := a.WriteTo([]byte("x"), &net.TCPAddr{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("WriteTo a TCP address: %v", err)
	}
}

// ackAll returns what keepIDs kept.
func (d *fakeDaemon) ackAll() {
	d.do(func() {
		for _, id := range d.unacked {
			d.ack(id)
		}
		d.unacked = nil
	})
}

func mustSend(t testing.TB, a *Socket, p string, b *Socket) {
	t.Helper()
	if _, err := a.SendTo([]byte(p), b.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
}

func mustRecv(t testing.TB, s *Socket, want string) {
	t.Helper()
	buf := make([]byte, 1<<16)
	n, _, err := s.RecvFrom(buf)
	if err != nil || string(buf[:n]) != want {
		t.Fatalf("received %.40q, %v; want %.40q", buf[:n], err, want)
	}
}
