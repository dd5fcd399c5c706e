package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdsd/rdsd/rds"
)

// outgoing is a flow of numbered datagrams from a client that opens again.
type outgoing struct {
	sent, last uint64
	arrived    atomic.Uint64
	unacked    atomic.Uint64 // as the events say
}

func (o *outgoing) send(t *testing.T, s *rds.Socket, to addrPort, stop chan struct{}) {
	var p [8]byte
	for {
		select {
		case <-stop:
			return
		default:
		}
		binary.LittleEndian.PutUint64(p[:], o.sent+1)
		if _, err := s.SendTo(p[:], to); err != nil {
			t.Errorf("send across the daemons: %v", err)
			return
		}
		o.sent++
	}
}

func (o *outgoing) receive(t *testing.T, s *rds.Socket) {
	var p [8]byte
	for {
		_, _, err := s.RecvFrom(p[:])
		if err != nil {
			if !errors.Is(err, rds.ErrClosed) {
				t.Errorf("receive: %v", err)
			}
			return
		}
		n := binary.LittleEndian.Uint64(p[:])
		if n <= o.last {
			t.Errorf("datagram %d arrived behind %d", n, o.last)
		}
		o.last = n
		o.arrived.Add(1)
	}
}

// TestReopenKilled kills the daemon of a client that opens again, under load in both
// directions. Every datagram to the client arrives once or is reported to its sender. Of
// those that the client sends no more are missing than it was told.
func TestReopenKilled(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		here, there := hosts[0], hosts[1]
		var out outgoing
		events := make(chan *rds.Reopened, 1)
		c := there.openWith(rds.Options{Reopen: func(r *rds.Reopened) { events <- r }})
		s, other := there.bind(c, 5000), here.open()
		src, sink := here.bind(other, 0), here.bind(other, 0)

		a := newAudit()
		stop := make(chan struct{})
		var tasks, receivers sync.WaitGroup
		receivers.Go(func() {
			if err := a.take(s); !errors.Is(err, rds.ErrClosed) {
				t.Errorf("receive across the daemons: %v", err)
			}
		})
		receivers.Go(func() { out.receive(t, sink) })
		tasks.Go(func() { out.send(t, s, sink.LocalAddrPort(), stop) })
		tasks.Go(func() { a.stream(t, src, there.at(5000), stop) })
		rng := rand.New(rand.NewPCG(11, 7))
		for range 6 {
			until := a.sums().arrived + 1 + rng.Uint64N(300)
			eventually(t, "traffic", func() error {
				if n := a.sums().arrived; n < until {
					return fmt.Errorf("%d arrived, want %d", n, until)
				}
				return nil
			})
			there.restart()
			for _, l := range (<-events).Sockets {
				if l.Err != nil {
					t.Error(l.Err)
				}
				for _, n := range l.Unacked {
					out.unacked.Add(uint64(n))
				}
			}
		}
		close(stop)
		tasks.Wait()
		a.balance(t, src)
		if err := s.CloseWait(t.Context()); err != nil {
			t.Error(err)
		}
		eventually(t, "datagrams of the client", func() error { // acked ones are in the queue of sink
			if n := out.arrived.Load() + out.unacked.Load(); n < out.sent {
				return fmt.Errorf("%d of %d arrived or may be missing", n, out.sent)
			}
			return nil
		})
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		receivers.Wait()
		t.Logf("%d sent, %d arrived, %d may be missing; the other way %+v", out.sent, out.arrived.Load(), out.unacked.Load(), a.sums())
	})
}
