package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/rdstcp"
	"github.com/rdsd/rdsd/rds"
)

// onTCP makes a host reach all others by RDS/TCP.
func onTCP() option { return withArgs("-tcp-peers", "127.0.0.0/8", "-tcp-lanes", "8") }

// TestRDSTCP has two daemons speak RDS/TCP with each other, while their connections are reset
// again and again. Everything must arrive once and in order.
func TestRDSTCP(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2, onTCP())
		a := newAudit()
		var socks []*rds.Socket
		var readers, writers, breaker sync.WaitGroup
		for _, h := range hosts {
			c := h.open()
			for range 6 {
				socks = append(socks, h.bind(c, 0))
			}
		}
		for _, s := range socks {
			readers.Go(func() {
				if err := a.take(s); !errors.Is(err, rds.ErrClosed) {
					t.Errorf("receive: %v", err)
				}
			})
			writers.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(s.LocalAddrPort().Port())))
				s.SetWriteDeadline(time.Now().Add(patience))
				for i := range 300 {
					size := sizes[rng.IntN(len(sizes))]
					if err := a.send(s, socks[(i*7)%len(socks)].LocalAddrPort(), make([]byte, size)); err != nil {
						t.Errorf("send: %v", err)
						return
					}
				}
			})
		}
		stop := make(chan struct{})
		breaker.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(30 * time.Millisecond):
				}
				if err := hosts[i%2].reset(hosts[1-i%2]); err != nil && i > 3 {
					t.Error(err)
				}
			}
		})
		writers.Wait()
		close(stop)
		breaker.Wait()
		a.all(t, socks...)
		for _, s := range socks {
			s.Close()
		}
		readers.Wait()
		for i, h := range hosts {
			if p := h.peer(hosts[1-i]); p == nil || p.Transport != "tcp" || p.Resets == 0 {
				t.Errorf("%+v", p)
			}
		}
	})
}

// TestRDSTCPCookie checks that no cookie goes to a host that is reached by RDS/TCP. On such a
// host, a Linux kernel would end the process that receives one.
func TestRDSTCPCookie(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2, onTCP())
		c := hosts[0].open()
		s, near, far := hosts[0].bind(c, 0), hosts[0].bind(c, 0), hosts[1].bind(hosts[1].open(), 0)
		buf, err := c.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Register(buf, 0, 4096, rds.AllowRead)
		if err != nil {
			t.Fatal(err)
		}
		m := rds.Message{Addr: far.LocalAddrPort(), Cookie: r.Cookie()}
		if _, err = s.Send(context.Background(), &m); !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("to the other host: %v", err)
		}
		if _, err := s.Send(context.Background(), &rds.Message{Addr: near.LocalAddrPort(), Cookie: r.Cookie()}); err != nil {
			t.Errorf("to the same host: %v", err)
		}
	})
}

// TestRDSTCPGarbage makes connections that a daemon must refuse: from addresses that may not
// connect, from addresses that should have waited, and with nonsense in the stream. They may
// cost nothing but themselves.
func TestRDSTCPGarbage(t *testing.T) {
	isolated(t, func(t *testing.T) {
		const tcpPort = rdstcp.Port
		first, second := newAddress(t), newAddress(t)
		stranger, small, large := newAddress(t), newAddress(t), newAddress(t)
		h := newHost(t, withAddress(small), withArgs("-tcp-peers", first.String()+"/32,"+second.String()+"/32,"+large.String()+"/32"))
		other := newHost(t, withAddress(large), withArgs("-tcp-peers", small.String()+"/32"))
		l := startLoad2(t, h, other)
		dial := func(from netip.Addr) (*net.TCPConn, error) {
			c, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.TCPAddrFromAddrPort(h.at(tcpPort)))
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { c.Close() })
			c.SetDeadline(time.Now().Add(patience))
			return c, nil
		}
		for _, from := range []netip.Addr{stranger, large} {
			c, err := dial(from)
			if err == nil {
				var b []byte
				if b, err = io.ReadAll(c); len(b) > 0 {
					t.Errorf("%v got %d bytes", from, len(b))
				}
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v: %v", from, err)
			}
		}
		rng := rand.New(rand.NewPCG(3, 3))
		for round := range 30 {
			from := [...]netip.Addr{first, second}[round%2]
			c, err := dial(from)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 2000)
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			if round%3 == 0 { // the header is good
				hdr := wire.Header{Seq: 1, SPort: uint16(round), DPort: 4000, Len: uint32(round)}
				hdr.PutTCP(b)
			}
			b[wire.HeaderLen+round+16] = 0xff // an impossible length
			c.Write(b)
			c.CloseWrite()
			io.Copy(io.Discard, c)
			c.Close()
		}
		l()
	})
}

// startLoad2 exchanges pings between two sockets until its result is called. That checks that
// the exchange still works.
func startLoad2(t *testing.T, a, b *host) func() {
	sa, sb := a.bind(a.open(), 0), b.bind(b.open(), 0)
	rounds := func(n int) error {
		buf := make([]byte, 100)
		for i := range n {
			for _, s := range []struct{ from, to *rds.Socket }{{sa, sb}, {sb, sa}} {
				s.to.SetReadDeadline(time.Now().Add(patience))
				if _, err := s.from.SendTo(fmt.Append(nil, i), s.to.LocalAddrPort()); err != nil {
					return err
				}
				if k, _, err := s.to.ReadFrom(buf); err != nil || string(buf[:k]) != fmt.Sprint(i) {
					return fmt.Errorf("%q, %w", buf[:k], err)
				}
			}
		}
		return nil
	}
	if err := rounds(100); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := rounds(100); err != nil {
			t.Error(err)
		}
		neverReset(t, a, b)
	}
}
