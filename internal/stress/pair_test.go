package stress

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/internal/stress/report"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// patience is much longer than any step of these tests takes.
const patience = 2 * time.Minute

// side is one end of a test.
type side struct {
	env    Env
	params Params
	out    bytes.Buffer
	err    lines

	report *report.Report
	failed error
}

// lines is a buffer that can be read while it is written to.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newSide(d *rdstest.Daemon, o proto.Options) *side {
	s := &side{}
	s.env = Env{Out: &s.out, Err: &s.err,
		Open:   func(ctx context.Context) (*rds.Client, error) { return rds.Open(ctx, rds.Options{Socket: d.Socket()}) },
		Timing: Timing{Start: time.Millisecond, BurnIn: -1, Interval: 20 * time.Millisecond, Drain: 100 * time.Millisecond}}
	s.params = Params{Options: o, Recv: d.Addr()}
	return s
}

func (s *side) run(ctx context.Context) { s.report, s.failed = Run(ctx, s.env, s.params) }

// pair runs a test between two daemons. o are the active side's options. The test ends when
// enough returns true for the number of messages that the active side has received.
func pair(t *testing.T, ds []*rdstest.Daemon, o proto.Options, change func(active, passive *side), enough func(exchanged uint64) bool) (active, passive *side) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	activeCtx, stop := context.WithCancel(ctx)
	defer stop()

	passive = newSide(ds[1], proto.Options{Port: o.Port})
	active = newSide(ds[0], o)
	active.params.Send = ds[1].Addr()
	// corrupt is called for every message that the active side receives.
	var seen atomic.Uint64
	active.env.corrupt = func([]byte) {
		if enough != nil && enough(seen.Add(1)) {
			stop()
		}
	}
	listening := make(chan struct{})
	passive.env.listening = func(netip.AddrPort) { close(listening) }
	if change != nil {
		change(active, passive)
	}
	var ends sync.WaitGroup
	ends.Go(func() { passive.run(ctx) })
	select {
	case <-listening:
		active.run(activeCtx)
	case <-ctx.Done():
	}
	ends.Wait()
	if ctx.Err() != nil {
		t.Fatalf("it did not end:\nactive: %v\n%s\npassive: %v\n%s", active.failed, &active.err, passive.failed, &passive.err)
	}
	return active, passive
}

func after(n uint64) func(uint64) bool { return func(seen uint64) bool { return seen >= n } }

func verified(change func(o *proto.Options)) proto.Options {
	o := proto.Default()
	o.Verify = true
	if change != nil {
		change(&o)
	}
	return o
}

func freePort(t *testing.T, a netip.Addr) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return min(addrPortOf(l.Addr()).Port(), 60000)
}
