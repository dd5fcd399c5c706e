package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
)

// TestCongestion has a receiver that does not read. Its sender must learn of it, lose nothing,
// and go on as soon as there is room. Other sockets must not have to wait.
func TestCongestion(t *testing.T) {
	for _, where := range []string{"network", "host"} {
		t.Run(where, func(t *testing.T) {
			isolated(t, func(t *testing.T) { testCongestion(t, where == "host") })
		})
	}
}

func testCongestion(t *testing.T, same bool) {
	hosts := newHosts(t, 2)
	from, at := hosts[0], hosts[1]
	if same {
		from = at
	}
	a := newAudit()
	cf, ct := from.open(), at.open()
	src, dst := from.bind(cf, 0), at.bind(ct, 0)
	l := startLoad(t, from, at, 5000) // must go on as if nothing happened
	to := dst.LocalAddrPort()
	buf := make([]byte, 5000)

	// Non-blocking sends are refused, with either errno.
	full, congested := 0, false
	eventually(t, "congestion", func() error {
		for {
			err := a.sendIn(rds.DontWait, src, to, buf)
			switch {
			case errors.Is(err, syscall.ENOBUFS) && errors.Is(err, rds.ErrCongested):
				congested = true
				return nil
			case errors.Is(err, syscall.EAGAIN) && errors.Is(err, rds.ErrWouldBlock):
				full++
				return errors.New("only the send buffer is full")
			case err != nil:
				t.Fatal(err)
			}
		}
	})
	if !congested || a.sums().sent*uint64(len(buf)) < uint64(sndBuf) {
		t.Errorf("congested %v after %d messages", congested, a.sums().sent)
	}
	if n := at.gauge(stats.CongestedPorts); n != 1 {
		eventually(t, "gauge", func() error {
			if n := at.gauge(stats.CongestedPorts); n != 1 {
				return fmt.Errorf("%d congested ports", n)
			}
			return nil
		})
	}
	l.progress(300)

	// Relief must wake a Wait for it, and a blocked send.
	relieved, sent := make(chan error, 1), make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w, err := src.Wait(ctx, rds.WaitSet{Relief: []addrPort{to}})
		if err == nil && len(w.Relief) != 1 {
			err = fmt.Errorf("woken for %+v", w)
		}
		relieved <- err
	}()
	blocked := from.bind(cf, 0)
	go func() {
		blocked.SetWriteDeadline(time.Now().Add(patience))
		for range sndBuf/3000 + 100 { // more than it can send before it learns of the congestion
			if err := a.send(blocked, to, make([]byte, 3000)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	select {
	case err := <-relieved:
		t.Errorf("relief without a reader: %v", err)
	case err := <-sent:
		t.Errorf("sends to a full receiver: %v", err)
	case <-time.After(100 * time.Millisecond): // nothing may happen in this time
	}
	done := make(chan struct{})
	go func() { a.take(dst); close(done) }()
	for what, ch := range map[string]chan error{"relief": relieved, "blocked sends": sent} {
		if err := <-ch; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	a.all(t, src, blocked)
	neverReset(t, hosts...)
	l.finish()
	l.audit.all(t, l.socks[0], l.socks[1])
	dst.Close()
	<-done
}

// TestCongestedClose closes a receiver that never reads. Its port must be free, and its sender
// must get the notice NoSocket.
func TestCongestedClose(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		a := newAudit()
		src := hosts[0].bind(hosts[0].open(), 0)
		c := hosts[1].open()
		dst := hosts[1].bind(c, 5000)
		sent := make(chan error, 1)
		go func() {
			var err error
			for i := 0; i < 2000 && err == nil; i++ {
				_, err = src.SendTo(make([]byte, 5000), dst.LocalAddrPort())
			}
			sent <- err
		}()
		eventually(t, "congestion", func() error {
			if hosts[1].gauge(stats.CongestedPorts) == 0 {
				return errors.New("none")
			}
			return nil
		})
		dst.Close()
		if err := <-sent; err != nil {
			t.Errorf("sender: %v", err)
		}
		eventually(t, "notices", func() error {
			a.notices(src)
			if a.sums().nosock == 0 {
				return errors.New("none")
			}
			return nil
		})
		again := hosts[1].bind(c, 5000)
		done := make(chan struct{})
		go func() { a.drop(again); close(done) }()
		if _, err := src.SendTo(nil, again.LocalAddrPort()); err != nil {
			t.Error(err)
		}
		again.Close()
		<-done
		neverReset(t, hosts...)
	})
}

// TestMany has many sockets and goroutines of several clients. Every socket sends to every
// other.
func TestMany(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 3)
		a := newAudit()
		per, rounds := 20, 4
		if long {
			per, rounds = 200, 10
		}
		var socks []*rds.Socket
		for _, h := range hosts {
			c := h.open()
			for range per {
				socks = append(socks, h.bind(c, 0))
			}
		}
		var readers, writers sync.WaitGroup
		for i, s := range socks {
			readers.Go(func() {
				if err := a.take(s); !errors.Is(err, rds.ErrClosed) {
					t.Errorf("receive: %v", err)
				}
			})
			writers.Go(func() {
				s.SetWriteDeadline(time.Now().Add(patience))
				for r := range rounds {
					for j, to := range socks {
						if err := a.send(s, to.LocalAddrPort(), make([]byte, minPayload+(i*31+j*17+r*1009)%3000)); err != nil {
							t.Errorf("send: %v", err)
							return
						}
					}
				}
			})
		}
		writers.Wait()
		a.all(t, socks...)
		neverReset(t, hosts...)
		for _, s := range socks {
			s.Close()
		}
		readers.Wait()
	})
}

// TestLarge sends messages up to the longest: over the network, on one host, and between two
// addresses of one daemon.
func TestLarge(t *testing.T) {
	isolated(t, func(t *testing.T) {
		two := newHost(t, withAddress(newAddress(t)), withAddress(newAddress(t)))
		other := newHost(t)
		a := newAudit()
		c, co := two.open(), other.open()
		socks := []*rds.Socket{bind(t, c, addrPortOf(two.addrs[0], 0)), bind(t, c, addrPortOf(two.addrs[1], 0)), other.bind(co, 0)}
		var readers, writers sync.WaitGroup
		for _, s := range socks {
			if err := s.SetSndBuf(2 << 20); err != nil {
				t.Fatal(err)
			}
			readers.Go(func() {
				if err := a.take(s); !errors.Is(err, rds.ErrClosed) {
					t.Errorf("receive: %v", err)
				}
			})
			writers.Go(func() {
				s.SetWriteDeadline(time.Now().Add(patience))
				for i := range 12 {
					for _, to := range socks {
						size := rds.MaxMessage
						if i%3 > 0 {
							size = minPayload + i*87_381
						}
						if err := a.send(s, to.LocalAddrPort(), make([]byte, size)); err != nil {
							t.Errorf("send %d bytes: %v", size, err)
							return
						}
					}
				}
			})
		}
		writers.Wait()
		a.all(t, socks...)
		neverReset(t, two, other)
		for _, s := range socks {
			s.Close()
		}
		readers.Wait()
	})
}
