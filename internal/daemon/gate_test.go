package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// slowAcceptor is a listening socket whose Accept returns when the test says so, whatever
// its deadline is.
type slowAcceptor struct {
	accepting, bounded chan struct{}
	answer             chan error
}

func (s *slowAcceptor) Accept() (string, error) {
	s.accepting <- struct{}{}
	return "a connection", <-s.answer
}
func (s *slowAcceptor) SetDeadline(t time.Time) error {
	if !t.IsZero() {
		s.bounded <- struct{}{}
	}
	return nil
}
func (s *slowAcceptor) Addr() net.Addr                        { return nil }
func (s *slowAcceptor) SyscallConn() (syscall.RawConn, error) { return nil, nil }
func (s *slowAcceptor) Close() error                          { return nil }

// TestGateWaits: shut waits for an Accept that has a connection already. One that is ended
// waits for the gate and accepts again.
func TestGateWaits(t *testing.T) {
	g := newGate()
	slow := &slowAcceptor{make(chan struct{}), make(chan struct{}, 1), make(chan error)}
	l := newGated(g, slow, false)
	g.open()
	for _, ended := range []bool{false, true} {
		accepted, taken := make(chan error, 1), false
		go func() {
			accepted <- l.AcceptTo(func(string) {
				time.Sleep(10 * time.Millisecond)
				taken = true
			})
		}()
		<-slow.accepting
		shut := make(chan struct{})
		go func() { defer close(shut); g.shut() }()
		<-slow.bounded
		select {
		case <-shut:
			t.Error("shut while a connection is being accepted")
		case <-time.After(10 * time.Millisecond):
		}
		if !ended {
			slow.answer <- nil
		} else {
			slow.answer <- &net.OpError{Err: os.ErrDeadlineExceeded}
		}
		if <-shut; taken == ended {
			t.Errorf("taken is %v when the gate is shut", taken)
		}
		if ended {
			select {
			case <-slow.accepting:
				t.Error("accepts while the gate is shut")
			case <-time.After(10 * time.Millisecond):
			}
		}
		g.open()
		if ended {
			<-slow.accepting
			slow.answer <- nil
		}
		if err := <-accepted; err != nil {
			t.Error(err)
		}
	}
}

// TestGate: connections wait while the gate is shut, however often. A socket that is closed
// ends its Accept, whether the gate is open or shut.
func TestGate(t *testing.T) {
	ls := newListeners(nil)
	if err := ls.openControl(t.TempDir()+"/s", 0o600); err != nil {
		t.Fatal(err)
	}
	defer ls.close()
	tcp, err := ls.listen(context.Background(), anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	var wg sync.WaitGroup
	got, ended := make(chan string), make(chan error)
	wg.Go(func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				ended <- err
				return
			}
			c.Close()
			got <- "tcp"
		}
	})
	wg.Go(func() {
		for {
			c, err := ls.control.Accept()
			if err != nil {
				ended <- err
				return
			}
			c.Close()
			got <- "control"
		}
	})
	for range 3 {
		for _, a := range []net.Addr{tcp.Addr(), ls.control.Addr()} {
			c, err := net.Dial(a.Network(), a.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		select {
		case what := <-got:
			t.Errorf("accepts %s while the gate is shut", what)
		case <-time.After(10 * time.Millisecond):
		}
		ls.open()
		if a, b := <-got, <-got; a == b {
			t.Errorf("accepted %s twice", a)
		}
		ls.shut()
	}
	tcp.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	ls.open()
	ls.control.Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	wg.Wait()
}
