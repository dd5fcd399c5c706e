package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/rds"
)

// flow is a pair of sockets. Datagrams of one flow arrive in order.
type flow struct{ src, dst addrPort }

// audit records what was sent, what arrived and what notices reported. It checks that every
// datagram arrived once, in order and unchanged, or was reported.
type audit struct {
	mu    sync.Mutex
	flows map[flow]*ledger
	wrong []error
}

// ledger has the counts of one flow. Numbers start at 1.
type ledger struct {
	sent         uint64 // accepted by the library
	last         uint64 // number of the datagram that arrived last
	arrived      uint64
	lost, nosock uint64
}

func newAudit() *audit { return &audit{flows: map[flow]*ledger{}} }

func (a *audit) ledger(f flow) *ledger {
	l := a.flows[f]
	if l == nil {
		l = &ledger{}
		a.flows[f] = l
	}
	return l
}

// next returns the number of the next datagram of f.
func (a *audit) next(f flow) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger(f).sent + 1
}

// send sends the next datagram to the address to, in buf.
func (a *audit) send(s *rds.Socket, to addrPort, buf []byte) error {
	return a.sendIn(context.Background(), s, to, buf)
}

func (a *audit) sendIn(ctx context.Context, s *rds.Socket, to addrPort, buf []byte) error {
	f := flow{s.LocalAddrPort(), to}
	n := a.next(f)
	fillPayload(buf, n)
	// The datagram may arrive before Send returns.
	a.mu.Lock()
	a.ledger(f).sent = n
	a.mu.Unlock()
	_, err := s.Send(ctx, &rds.Message{Payload: buf, Addr: to})
	if err != nil {
		a.mu.Lock()
		a.ledger(f).sent = n - 1
		a.mu.Unlock()
	}
	return err
}

// arrived records a datagram that arrived.
func (a *audit) arrived(f flow, payload []byte) {
	n, err := parsePayload(payload)
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.ledger(f)
	switch {
	case err != nil:
		a.wrong = append(a.wrong, fmt.Errorf("%v: %w", f, err))
	case n > l.sent:
		a.wrong = append(a.wrong, fmt.Errorf("%v: number %d arrived, %d were sent", f, n, l.sent))
	case n == l.last:
		a.wrong = append(a.wrong, fmt.Errorf("%v: number %d arrived twice", f, n))
	case n < l.last:
		a.wrong = append(a.wrong, fmt.Errorf("%v: number %d arrived after %d: twice or out of order", f, n, l.last))
	}
	l.last = n
	l.arrived++
}

// take receives until there is an error, which it returns. The caller decides whether a
// deadline, a close or the daemon's end is right.
func (a *audit) take(s *rds.Socket) error {
	buf := make([]byte, rds.MaxMessage)
	for {
		n, from, err := s.RecvFrom(buf)
		if err != nil {
			return err
		}
		a.arrived(flow{from, s.LocalAddrPort()}, buf[:n])
	}
}

// notices records the notices of a sender.
func (a *audit) notices(s *rds.Socket) {
	var ns [64]rds.Notice
	for {
		n := s.Notices(ns[:])
		if n == 0 {
			return
		}
		a.mu.Lock()
		for _, x := range ns[:n] {
			l := a.ledger(flow{s.LocalAddrPort(), x.To})
			switch x.Kind {
			case rds.Lost:
				l.lost += x.Count
			case rds.NoSocket:
				l.nosock += x.Count
			}
		}
		a.mu.Unlock()
	}
}

// open returns how many datagrams of all flows have neither arrived nor been reported.
func (a *audit) open() (n uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.flows {
		if told := l.arrived + l.lost + l.nosock; told < l.sent {
			n += l.sent - told
		}
	}
	return n
}

// sums returns the sums over all flows.
func (a *audit) sums() (s ledger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.flows {
		s.sent += l.sent
		s.arrived += l.arrived
		s.lost += l.lost
		s.nosock += l.nosock
	}
	return s
}

// balance waits until every datagram has arrived or been reported, then calls check.
func (a *audit) balance(t *testing.T, senders ...*rds.Socket) {
	t.Helper()
	eventually(t, "datagrams", func() error {
		for _, s := range senders {
			a.notices(s)
		}
		if err := a.failure(); err != nil {
			return nil
		}
		if n := a.open(); n > 0 {
			return fmt.Errorf("%d neither arrived nor reported: %+v", n, a.sums())
		}
		return nil
	})
	a.check(t)
}

func (a *audit) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.wrong[:min(len(a.wrong), 10)]...)
}

// check fails the test if something was wrong.
func (a *audit) check(t *testing.T) {
	t.Helper()
	if err := a.failure(); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for f, l := range a.flows {
		// A datagram reported lost may have arrived before. One that found no socket cannot
		// have.
		if l.arrived+l.nosock > l.sent {
			t.Errorf("%v: %d sent, but %d arrived and %d found no socket", f, l.sent, l.arrived, l.nosock)
		}
	}
}

// all checks that every datagram arrived and none was reported.
func (a *audit) all(t *testing.T, senders ...*rds.Socket) {
	t.Helper()
	a.balance(t, senders...)
	if s := a.sums(); s.arrived != s.sent || s.lost+s.nosock > 0 {
		t.Errorf("not all arrived: %+v", s)
	}
}

// stream sends datagrams of many lengths from src until stop is closed, and takes its notices.
func (a *audit) stream(t *testing.T, src *rds.Socket, to addrPort, stop <-chan struct{}) {
	buf := make([]byte, 20000)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if err := a.send(src, to, buf[:minPayload+i*977%20000/2]); err != nil {
			t.Errorf("send: %v", err)
			return
		}
		a.notices(src)
	}
}
