package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// idleSettle is how long a daemon may take after its last message until it has nothing to do:
// one sleep of its engine.
const idleSettle = stats.SleepMost + time.Second

// idleBeside makes the idle sockets and peers of a case. It notes how much each makes the daemon
// grow.
func idleBeside(w *worker.Worker, c *rds.Client, at netip.Addr) error {
	for _, l := range []struct {
		arg  string
		make func(*rds.Client, netip.Addr, int) error
	}{
		{"idlesockets", idleSockets},
		{"idlepeers", idlePeers},
	} {
		n := w.Int(l.arg)
		if n == 0 {
			continue
		}
		before, err := resident(w.Int("daemon"))
		if err != nil {
			return err
		}
		if err := l.make(c, at, n); err != nil {
			return fmt.Errorf("%s: %w", l.arg, err)
		}
		after, err := resident(w.Int("daemon"))
		if err != nil {
			return err
		}
		w.Extra["kib_each"] = float64(after-before) / float64(n) / 1024
	}
	return nil
}

func idleSockets(c *rds.Client, at netip.Addr, n int) error {
	for range n {
		if _, err := c.Bind(netip.AddrPortFrom(at, 0)); err != nil {
			return err
		}
	}
	return nil
}

// idlePeers makes a connection to each peer: it sends a message to a port where no socket is
// bound, some at a time. The answer shows that the connection is there.
func idlePeers(c *rds.Client, at netip.Addr, n int) error {
	s, err := c.Bind(netip.AddrPortFrom(at, 0))
	if err != nil {
		return err
	}
	if err := s.SetDeadline(time.Now().Add(startup)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startup)
	defer cancel()
	notices := make([]rds.Notice, 64)
	const together = 32 // few, so that memory for connecting does not count as memory of connections
	for i := 0; i < n; {
		left := uint64(min(together, n-i))
		for range left {
			if _, err := s.SendTo(nil, netip.AddrPortFrom(idlePeer(i), port-1)); err != nil {
				return err
			}
			i++
		}
		for left > 0 {
			if _, err := s.Wait(ctx, rds.WaitSet{Notice: true}); err != nil {
				return fmt.Errorf("%d of %d did not answer: %w", left, n, err)
			}
			for _, e := range notices[:s.Notices(notices)] {
				if e.Kind == rds.NoSocket {
					left -= min(left, e.Count)
				}
			}
		}
	}
	return nil
}

// idlePeer returns the address of the i-th idle peer. All are addresses of the server's daemon.
func idlePeer(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)})
}

// idleDaemon measures a daemon that has nothing to do, after one round trip with an echo. It
// counts wake-ups of its threads and what the daemon used.
func idleDaemon(e *end, trip step) error {
	if _, err := trip(); err != nil {
		return err
	}
	time.Sleep(min(idleSettle, e.Duration("d")))
	daemon := e.Int("daemon")
	from, err := switches(daemon)
	if err != nil {
		return err
	}
	start, cpu := time.Now(), worker.CPUTime([]int{daemon})
	time.Sleep(e.Duration("d"))
	el, used := time.Since(start).Seconds(), worker.CPUTime([]int{daemon})-cpu
	to, err := switches(daemon)
	if err != nil {
		return err
	}
	e.Extra["wakeups_per_s"] = float64(to-from) / el
	e.Extra["cpu_percent"] = used.Seconds() / el * 100
	e.Msgs.Add(1)
	return e.Finish(worker.Result{Messages: 1, Seconds: el, CPU: used.Seconds()})
}
