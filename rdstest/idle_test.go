package rdstest_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// TestIdleCostsNothing: a thousand goroutines that wait for messages, and the
// daemon they wait at, use no processor time.
func TestIdleCostsNothing(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := d.Open(t)
	var wg sync.WaitGroup
	var socks []*rds.Socket
	for range 100 {
		s := d.Bind(t, c, 0)
		socks = append(socks, s)
		for range 10 {
			wg.Go(func() {
				if _, _, err := s.RecvFrom(nil); !errors.Is(err, rds.ErrClosed) {
					t.Error(err)
				}
			})
		}
	}
	// What came before may still be running. A goroutine that turns never lets a
	// span pass in which a twentieth of the time is used.
	for deadline := time.Now().Add(patience); ; {
		began, before := time.Now(), cpu(t)
		time.Sleep(300 * time.Millisecond) // the span that is measured
		used, span := cpu(t)-before, time.Since(began)
		if used < span/20 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%v of processor time in %v of waiting", used, span)
			break
		}
	}
	for _, s := range socks {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestNothingLeft: when everything is closed no descriptor, mapping, file or
// goroutine is left.
func TestNothingLeft(t *testing.T) {
	var socket string
	cycle := func() {
		t.Run("cycle", func(t *testing.T) {
			d := rdstest.StartDaemons(t, 2)
			socket = d[0].Socket()
			for range 3 {
				c := d[0].Open(t)
				s, peer := d[0].Bind(t, c, 0), d[1].Bind(t, d[1].Open(t), 0)
				b := alloc(t, c, 1<<20)
				if _, err := s.Register(b, 0, 100, rds.AllowRead); err != nil {
					t.Fatal(err)
				}
				if _, err := s.PollFD(rds.WaitSet{Message: true}); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Atomic(soon(t), peer.LocalAddrPort(), &rds.Atomic{Cookie: 1, Add: 1}); !errors.Is(err, rds.RemoteError) {
					t.Fatal(err)
				}
				if _, err := s.SendTo(make([]byte, 100), peer.LocalAddrPort()); err != nil {
					t.Fatal(err)
				}
				if _, _, err := peer.RecvFrom(nil); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	cycle() // what the runtime and libraries open once
	before := count()
	for range 3 {
		cycle()
	}
	after := count()
	for deadline := time.Now().Add(patience); after.beyond(before) && time.Now().Before(deadline); after = count() {
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	if after.beyond(before) {
		t.Errorf("%+v before, %+v after", before, after)
	}
	if _, err := os.Stat(filepath.Dir(socket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the daemons' directory is left: %v", err)
	}
}

type counts struct{ fds, maps, goroutines int }

func (n counts) beyond(m counts) bool {
	return n.fds > m.fds || n.maps > m.maps || n.goroutines > m.goroutines
}

func count() (n counts) {
	fds, _ := os.ReadDir("/proc/self/fd")
	maps, _ := os.ReadFile("/proc/self/maps")
	return counts{len(fds), strings.Count(string(maps), "/memfd:"), runtime.NumGoroutine()}
}

// TestCloseUnderLoad: closing a client while its goroutines send and receive
// ends all of them; nobody touches the memory after it was unmapped.
func TestCloseUnderLoad(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	for round := range 20 {
		c := d.Open(t)
		a, b := d.Bind(t, c, 0), d.Bind(t, c, 0)
		if round%2 == 1 {
			if _, err := b.PollFD(rds.WaitSet{Message: true}); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for _, size := range []int{10, 20000} {
			p, buf := make([]byte, size), make([]byte, 32<<10)
			for _, f := range []func() error{
				func() error { _, err := a.SendTo(p, b.LocalAddrPort()); return err },
				func() error { _, _, err := b.RecvFrom(buf); return err },
				func() error { _, err := b.Wait(soon(t), rds.WaitSet{Message: true}); return err },
			} {
				wg.Go(func() {
					for f() == nil {
					}
				})
			}
		}
		time.Sleep(time.Duration(round*100) * time.Microsecond)
		if round%4 > 1 {
			wg.Go(func() { _ = a.CloseWait(soon(t)) })
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}
