package ledger

import (
	"context"
	"errors"
	"fmt"
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

// beat is how often a ping is sent.
const beat = time.Millisecond

// pinger sends a message each beat as soon as the last one has come back. It has the longest time
// between two messages that came back.
type pinger struct {
	*end
	echo    *end
	n       atomic.Uint64
	last    atomic.Int64
	silence atomic.Int64
	stop    chan struct{}
	wg      sync.WaitGroup
	errs    chan error // has room for both
}

// end is a client with a socket.
type end struct {
	c *rds.Client
	s *rds.Socket
}

func newEnd(h *host) (*end, error) {
	c, err := rds.Open(context.Background(), rds.Options{Socket: h.sock})
	if err != nil {
		return nil, err
	}
	s, err := c.Bind(netip.AddrPortFrom(h.addr, 0))
	return &end{c, s}, err
}

func newPinger(a, b *host) (p *pinger, err error) {
	p = &pinger{stop: make(chan struct{}), errs: make(chan error, 2)}
	if p.end, err = newEnd(a); err != nil {
		return nil, err
	}
	if p.echo, err = newEnd(b); err != nil {
		return nil, err
	}
	p.wg.Go(func() { p.errs <- p.ping() })
	p.wg.Go(func() { p.errs <- p.answer() })
	return p, nil
}

func (p *pinger) ping() error {
	buf, to := make([]byte, 64), p.echo.s.LocalAddrPort()
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return nil
		case <-t.C:
		}
		if _, err := p.s.SendTo(buf, to); err != nil {
			return err
		}
		if _, _, err := p.s.RecvFrom(buf); err != nil {
			return err
		}
		now := book.Now()
		p.silence.Store(max(p.silence.Load(), now-p.last.Swap(now)))
		p.n.Add(1)
	}
}

func (p *pinger) answer() error {
	buf := make([]byte, 64)
	for {
		n, from, err := p.echo.s.RecvFrom(buf)
		if err == nil {
			_, err = p.echo.s.SendTo(buf[:n], from)
		}
		if errors.Is(err, rds.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// around returns the longest silence around what do does, from some beats before to some after.
func (p *pinger) around(do func() error) (time.Duration, error) {
	p.silence.Store(0)
	p.beats(20)
	if err := do(); err != nil {
		return 0, err
	}
	p.beats(20)
	return time.Duration(p.silence.Load()), nil
}

// beats waits until n more messages have come back.
func (p *pinger) beats(n uint64) {
	for until := p.n.Load() + n; p.n.Load() < until && len(p.errs) == 0; {
		time.Sleep(beat) // between two looks
	}
}

// close ends the ping-pong. It returns the error of its sender or its receiver.
func (p *pinger) close() error {
	close(p.stop)
	first := <-p.errs
	p.echo.s.Close()
	p.wg.Wait()
	err := errors.Join(first, <-p.errs)
	return errors.Join(err, p.c.Close(), p.echo.c.Close())
}

// pauses are the pauses of planned restarts.
type pauses struct{ seen, said []time.Duration }

// measure replaces the daemons of a and b n times, in turn.
func (ps *pauses) measure(p *pinger, n int, hosts ...*host) error {
	for i := range n {
		h := hosts[i%len(hosts)]
		seen, err := p.around(h.upgrade)
		if err != nil {
			return err
		}
		u, err := h.upgrades()
		if err != nil {
			return err
		}
		if u.Generation != uint32(i/len(hosts))+2 {
			return fmt.Errorf("daemon %v is of generation %d after %d upgrades", h.addr, u.Generation, i/len(hosts)+1)
		}
		ps.seen, ps.said = append(ps.seen, seen), append(ps.said, u.Pause)
	}
	return nil
}

func quantiles(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("p50 %v, p99 %v, max %v", all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
}

// TestPause measures how long planned restarts interrupt a ping-pong at 1 kHz between two hosts,
// without and with streams and operations beside it. The daemons are replaced in turn. Each pause is
// the longest time between two messages that came back. The test judges no time. It does judge
// that no call fails and that operations end with SUCCESS or DROPPED.
func TestPause(t *testing.T) {
	restarts := 6
	if *measured {
		restarts = 200
	}
	for _, loaded := range []bool{false, true} {
		dir := t.TempDir()
		log, err := book.Create(filepath.Join(dir, "faults.log"))
		if err != nil {
			t.Fatal(err)
		}
		hosts := newHosts(t, newNetwork(), plan.Calm(addresses(t)), log, dir)[:2]
		a, b := hosts[0], hosts[1]
		for _, h := range hosts {
			if err := h.start(); err != nil {
				t.Fatal(err)
			}
			defer h.daemon.kill(patience)
		}
		p, err := newPinger(a, b)
		if err != nil {
			t.Fatal(err)
		}
		load := &load{}
		if loaded {
			if err := load.start(a, b); err != nil {
				t.Fatal(err)
			}
		}
		p.beats(100) // until it is connected and warm
		calm, _ := p.around(func() error { time.Sleep(time.Second); return nil })
		var ps pauses
		if err := errors.Join(ps.measure(p, restarts, hosts...), p.close(), load.close()); err != nil {
			t.Fatal(err)
		}
		t.Logf("load %v: %d restarts; the ping-pong's pause %s; what daemons say %s; a second without a restart %v; %s",
			loaded, restarts, quantiles(ps.seen), quantiles(ps.said), calm, load)
	}
}
