package ledger

import (
	"context"
	"flag"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/ledger/book"
	"github.com/rdsd/rdsd/test/ledger/plan"
)

var measured = flag.Bool("ledger.measure", false, "measure reconnects and the throughput under resets for longer")

// stream is a flow of messages of one size from one host to another. It counts arrivals and has
// the longest silence between two of them.
type stream struct {
	from, to *rds.Client
	src, dst *rds.Socket
	wg       sync.WaitGroup
	n        atomic.Uint64
	last     atomic.Int64
	silence  atomic.Int64
}

func newStream(a, b *host, size int) (*stream, error) {
	s := &stream{}
	for _, x := range []struct {
		h *host
		c **rds.Client
		s **rds.Socket
	}{{a, &s.from, &s.src}, {b, &s.to, &s.dst}} {
		c, err := rds.Open(context.Background(), rds.Options{Socket: x.h.sock})
		if err != nil {
			return nil, err
		}
		*x.c = c
		if *x.s, err = c.Bind(netip.AddrPortFrom(x.h.addr, 0)); err != nil {
			return nil, err
		}
	}
	s.flow(size)
	return s, nil
}

// flow has messages of size bytes go from src to dst until their clients are closed.
func (s *stream) flow(size int) {
	to := s.dst.LocalAddrPort()
	s.wg.Go(func() {
		buf := make([]byte, size)
		for {
			if _, err := s.src.SendTo(buf, to); err != nil {
				return
			}
		}
	})
	s.wg.Go(func() {
		buf := make([]byte, size)
		for {
			if _, _, err := s.dst.RecvFrom(buf); err != nil {
				return
			}
			now := book.Now()
			if gap := now - s.last.Swap(now); gap > s.silence.Load() {
				s.silence.Store(gap)
			}
			s.n.Add(1)
		}
	})
}

func (s *stream) close() {
	s.from.Close()
	s.to.Close()
	s.wg.Wait()
}

// rate measures the messages a second over the time d. If every is not 0, it resets the
// connection at that interval. silences are the longest silences around each reset.
func (s *stream) rate(d, every time.Duration, reset func() error) (perSecond float64, silences []time.Duration, err error) {
	n, begin := s.n.Load(), time.Now()
	for time.Since(begin) < d {
		if every == 0 {
			time.Sleep(d)
			break
		}
		s.silence.Store(0)
		if err := reset(); err != nil {
			return 0, nil, err
		}
		time.Sleep(every) // until the next reset
		silences = append(silences, time.Duration(s.silence.Load()))
	}
	return float64(s.n.Load()-n) / time.Since(begin).Seconds(), silences, nil
}

// TestReconnect measures the silence around a reset, and the throughput with a reset each
// second. It does not judge times.
func TestReconnect(t *testing.T) {
	sizes, unit := []int{4096}, 200*time.Millisecond
	if *measured {
		sizes, unit = []int{64, 4096, 64 << 10}, time.Second
	}
	dir := t.TempDir()
	log, err := book.Create(filepath.Join(dir, "faults.log"))
	if err != nil {
		t.Fatal(err)
	}
	hosts := newHosts(t, newNetwork(), plan.Calm(addresses(t)), log, dir)
	a, b := hosts[0], hosts[1]
	for _, h := range []*host{a, b} {
		if err := h.start(); err != nil {
			t.Fatal(err)
		}
		defer h.daemon.kill(patience)
	}
	reset := func() error {
		_, err := a.ctl("peer", "reset", b.addr.String())
		return err
	}
	for _, size := range sizes {
		s, err := newStream(a, b, size)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // until it is connected and warm
		calm, _, err := s.rate(5*unit, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		under, _, err := s.rate(5*unit, unit, reset)
		if err != nil {
			t.Fatal(err)
		}
		_, silences, err := s.rate(10*unit, unit/10, reset)
		if err != nil {
			t.Fatal(err)
		}
		s.close()
		slices.Sort(silences)
		t.Logf("%6d bytes: %.0f messages/s, with a reset each %v %.0f (%.2f); silence around a reset p50 %v, p99 %v of %d",
			size, calm, unit, under, under/calm, silences[len(silences)/2], silences[len(silences)*99/100], len(silences))
	}
}
