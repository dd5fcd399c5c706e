package e2e

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// load is traffic between two hosts: datagrams in both directions, and operations.
type load struct {
	t     *testing.T
	hosts [2]*host
	audit *audit
	socks [2]*rds.Socket // for datagrams
	ops   *opPair
	opTo  *rds.Socket
	pace  time.Duration // between two datagrams of a sender, and between two looks for operations

	stop    chan struct{}
	ended   sync.WaitGroup // senders and operations
	readers sync.WaitGroup
}

func startLoad(t *testing.T, from, to *host, size int) *load {
	t.Helper()
	return startLoadAt(t, from, to, size, 0)
}

// startLoadAt is startLoad with a pace, for tests that want something in progress and not a busy
// machine.
func startLoadAt(t *testing.T, from, to *host, size int, pace time.Duration) *load {
	t.Helper()
	l := &load{t: t, hosts: [2]*host{from, to}, audit: newAudit(), stop: make(chan struct{}), pace: pace}
	cf, ct := from.open(), to.open()
	l.socks = [2]*rds.Socket{from.bind(cf, 0), to.bind(ct, 0)}
	l.opTo = to.bind(ct, 0)
	l.ops = newOpPair(t, cf, from.bind(cf, 0), l.opTo.LocalAddrPort())
	l.ops.pace = pace
	for i, s := range l.socks {
		l.readers.Go(func() { l.ends(l.audit.take(s)) })
		l.ended.Go(func() { l.send(s, l.socks[1-i].LocalAddrPort(), size) })
	}
	l.readers.Go(func() { l.ends(l.ops.serve(ct, l.opTo)) })
	l.ended.Go(func() {
		if err := l.ops.run(l.stop); err != nil {
			t.Errorf("operations: %v", err)
		}
	})
	return l
}

func (l *load) ends(err error) {
	if !errors.Is(err, rds.ErrClosed) && !errors.Is(err, rds.ErrDaemonGone) {
		l.t.Errorf("receiver: %v", err)
	}
}

func (l *load) send(s *rds.Socket, to addrPort, size int) {
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		default:
		}
		if err := l.audit.send(s, to, make([]byte, minPayload+(i*977)%size)); err != nil {
			l.t.Errorf("sender: %v", err)
			return
		}
		time.Sleep(l.pace)
	}
}

// progress waits until n more datagrams, and some operations, have got through.
func (l *load) progress(n uint64) {
	l.t.Helper()
	at := l.audit.sums().arrived
	ops := l.settled()
	eventually(l.t, "progress under load", func() error {
		if d, o := l.audit.sums().arrived-at, l.settled()-ops; (d < n || o < 5) && !l.t.Failed() {
			return fmt.Errorf("%d datagrams, %d operations", d, o)
		}
		return nil
	})
}

func (l *load) settled() int {
	l.ops.mu.Lock()
	defer l.ops.mu.Unlock()
	return len(l.ops.statuses)
}

// finish ends the load and checks that everything is accounted for.
func (l *load) finish() {
	l.t.Helper()
	close(l.stop)
	l.ended.Wait()
	if l.t.Failed() {
		return
	}
	l.audit.balance(l.t, l.socks[0], l.socks[1])
	l.ops.check(l.t)
	for _, s := range []*rds.Socket{l.socks[0], l.socks[1], l.opTo, l.ops.s} {
		s.Close()
	}
	l.readers.Wait()
}
