package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

const patience = 2 * time.Minute

func env(d *rdstest.Daemon) Env {
	return Env{Open: func(ctx context.Context) (*rds.Client, error) { return rds.Open(ctx, rds.Options{Socket: d.Socket()}) },
		DaemonPID: os.Getpid()}
}

// serve runs a server until the test ends.
func serve(t *testing.T, d *rdstest.Daemon, e Env) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := NewServer(ctx, e, netip.AddrPortFrom(d.Addr(), 0))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, rds.ErrDaemonGone) {
			t.Errorf("server: %v", err)
		}
	})
	return s
}

func params(d *rdstest.Daemon, to netip.AddrPort, m Mode) Params {
	return Params{Mode: m, Local: d.Addr(), Server: to, Size: 64, Depth: 4, Sockets: 2, Duration: 100 * time.Millisecond, Timeout: patience, Verify: true}
}

// measure runs a measurement until there are n operations.
func measure(t *testing.T, e Env, p Params, n uint64) (r *Report, lines int, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var ops uint64
	p.Duration, p.Interval = 0, 10*time.Millisecond
	p.OnInterval = func(i *Interval, _ time.Duration) {
		lines++
		if ops += i.Operations; ops >= n {
			cancel()
		}
	}
	r, err = Measure(ctx, e, p)
	return r, lines, err
}

func TestDuration(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	r, err := Measure(t.Context(), env(d), params(d, netip.AddrPort{}, RTT))
	if err != nil || r.Interrupted || r.Time < 100*time.Millisecond || len(r.Intervals) != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestMeasure(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	s := serve(t, ds[1], env(ds[1]))
	for _, tc := range []struct {
		name   string
		mode   Mode
		change func(p *Params)
	}{
		{"rtt", RTT, nil},
		{"rtt one", RTT, func(p *Params) { p.Sockets, p.Depth, p.Verify, p.Size = 1, 1, false, 0 }},
		{"rtt large", RTT, func(p *Params) { p.Size = 100_000 }},
		{"rtt open", RTT, func(p *Params) { p.Rate = 2000 }},
		{"rtt warm", RTT, func(p *Params) { p.WarmUp = 50 * time.Millisecond }},
		{"rate", Rate, func(p *Params) { p.Depth = 64 }},
		{"rate open", Rate, func(p *Params) { p.Rate = 20_000 }},
		{"rate large", Rate, func(p *Params) { p.Size, p.Verify = 1<<20, false }},
		{"rdma-read", RDMARead, func(p *Params) { p.Size = 4096 }},
		{"rdma-read open", RDMARead, func(p *Params) { p.Size, p.Rate = 4096, 2000 }},
		{"rdma-write", RDMAWrite, func(p *Params) { p.Size = 4096 }},
		{"rdma-write open", RDMAWrite, func(p *Params) { p.Size, p.Rate = 4096, 2000 }},
		{"rdma-write unverified", RDMAWrite, func(p *Params) { p.Size, p.Verify = 65536, false }},
		{"here", RTT, func(p *Params) { p.Server = netip.AddrPort{} }},
		{"rdma here", RDMARead, func(p *Params) { p.Server, p.Size = netip.AddrPort{}, 65536 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := params(ds[0], s.Addr(), tc.mode)
			if tc.change != nil {
				tc.change(&p)
			}
			start := time.Now()
			r, lines, err := measure(t, env(ds[0]), p, 100)
			took := time.Since(start)
			if err != nil {
				t.Fatal(err)
			}
			if r.Operations == 0 || r.Latency == nil || r.Latency.P50 < r.Latency.Min || r.Latency.Max < r.Latency.P99 {
				t.Errorf("%+v, %+v", r.Interval, r.Latency)
			}
			if r.Bytes != r.Operations*uint64(p.Size) || r.Received != r.Sent || r.Verified != p.Verify || !r.Interrupted || r.OneProcess != !p.Server.IsValid() {
				t.Errorf("%+v", r)
			}
			if (r.Late != nil) != (p.Rate > 0) {
				t.Errorf("late: %+v", r.Late)
			}
			if due := p.Rate*took.Seconds() + float64(p.Sockets); p.Rate > 0 && (float64(r.Operations) > due || float64(r.Sent) > due) {
				t.Errorf("%d operations, %d sent, in %v: no more than %.0f were due", r.Operations, r.Sent, took, due)
			}
			if r.CPU.Client == nil || (r.CPU.Server == nil) != r.OneProcess {
				t.Errorf("%+v", r.CPU)
			}
			if lines == 0 || lines != len(r.Intervals) {
				t.Errorf("%d lines, %d intervals", lines, len(r.Intervals))
			}
			var b bytes.Buffer
			r.Print(&b)
			if !strings.Contains(b.String(), "rate ") || !strings.Contains(b.String(), "latency ") {
				t.Errorf("%s", &b)
			}
		})
	}
}

// One wrong byte is found at either end, and its place is named.
func TestFindsCorruption(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for _, tc := range []struct {
		mode   Mode
		server bool
		at     int
		want   string
	}{
		{RTT, false, 20, "answers: message 49 is corrupt at offset 20: want 0x"},
		{RTT, true, 20, "message 49 is corrupt at offset 20: want 0x"},
		{RTT, false, 0, "where 49 was expected"},
		{Rate, true, 63, "at the server: socket 0: message 49 is corrupt at offset 63"},
		{RDMARead, false, 30, "RDMA read of slot 0: message 0 is corrupt at offset 30"},
		{RDMAWrite, true, 30, "at the server: socket 0: message 49 is corrupt at offset 30"},
	} {
		var n atomic.Int32
		corrupt := func(b []byte) {
			if n.Add(1) == 50 {
				b[tc.at] ^= 0x10
			}
		}
		se, ce := env(ds[1]), env(ds[0])
		if tc.server {
			se.corrupt = corrupt
		} else {
			ce.corrupt = corrupt
		}
		s := serve(t, ds[1], se)
		p := params(ds[0], s.Addr(), tc.mode)
		p.Sockets, p.Depth = 1, 1
		r, _, err := measure(t, ce, p, 64)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, %v: got %v, want %s", tc.mode, tc.server, err, tc.want)
		}
		if r == nil || r.Verified || r.Failure == "" {
			t.Errorf("%v: %+v", tc.mode, r)
		}
	}
}

func TestErrors(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	nobody := netip.AddrPortFrom(ds[1].Addr(), 9)
	away := netip.AddrPortFrom(netip.MustParseAddr("127.255.255.1"), 9)
	other := env(ds[1])
	other.version = 7
	newer := serve(t, ds[1], other)
	s := serve(t, ds[1], env(ds[1]))
	olderClient := env(ds[0])
	olderClient.version = 3
	noDaemon := Env{Open: func(ctx context.Context) (*rds.Client, error) {
		return rds.Open(ctx, rds.Options{Socket: ds[0].Socket() + "x"})
	}}
	for _, tc := range []struct {
		name   string
		env    Env
		to     netip.AddrPort
		change func(p *Params)
		want   error
		text   string
	}{
		{"no daemon", noDaemon, nobody, nil, rds.ErrNoDaemon, ""},
		{"no server", env(ds[0]), nobody, nil, ErrNoServer, "no rdsctl bench -serve at"},
		{"no host", env(ds[0]), away, func(p *Params) { p.Timeout = 50 * time.Millisecond }, ErrTimeout, "127.255.255.1:9: host not reached"},
		{"newer server", env(ds[0]), newer.Addr(), nil, nil, "speaks version 2 of its protocol, this one 7"},
		{"older client", olderClient, s.Addr(), nil, ErrRefused, "speaks version 3 of its protocol, this one 2"},
		{"limits", env(ds[0]), s.Addr(), func(p *Params) { p.Sockets = 0 }, ErrLimits, "0 sockets"},
		{"too small", env(ds[0]), s.Addr(), func(p *Params) { p.Size = 8 }, ErrLimits, "too few to verify"},
		{"local address", env(ds[0]), s.Addr(), func(p *Params) { p.Local = ds[1].Addr() }, nil, "cannot assign requested address"},
	} {
		p := params(ds[0], tc.to, RTT)
		if tc.change != nil {
			tc.change(&p)
		}
		r, err := Measure(t.Context(), tc.env, p)
		if r != nil || err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// The server refuses what it cannot do, and calls of those without a session.
func TestServerRefuses(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	s := serve(t, ds[1], env(ds[1]))
	ctl := ds[0].Bind(t, ds[0].Open(t), 0)
	from := ctl.LocalAddrPort()
	c := rpc.NewCaller(ctl, rpc.CallerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ask := func(method string, body any) ([]byte, error) { return c.Call(ctx, s.Addr(), method, encode(body)) }
	refused := func(method string, body any, want string) {
		t.Helper()
		if _, err := ask(method, body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", method, err, want)
		}
	}
	refused(callEnd, 0, "no such measurement")
	refused(callAlive, nil, "no such measurement")
	refused(callMark, nil, "no such measurement")
	refused(callBegin, "nonsense", "cannot unmarshal")
	refused(callBegin, &hello{Version: protocol, Mode: 99}, "mode 99 is not known here")
	ports := func() (w welcome) {
		t.Helper()
		b, err := ask(callBegin, &hello{Version: protocol, Mode: RTT, Sockets: 1, Depth: 1})
		if err = errors.Join(err, json.Unmarshal(b, &w)); err != nil || len(w.Ports) != 1 {
			t.Fatalf("%+v, %v", w, err)
		}
		return w
	}
	first, again := ports(), ports()
	if first.Ports[0] == again.Ports[0] {
		t.Errorf("%+v after %+v", again, first)
	}
	refused(callEnd, "x", "cannot unmarshal")
	until := func(method, want string) {
		t.Helper()
		for err := error(nil); err == nil || !strings.Contains(err.Error(), want); _, err = ask(method, nil) {
			if ctx.Err() != nil {
				t.Fatalf("%s: not %s, but %v", method, want, err)
			}
		}
	}
	// What is wrong at the server is told to the client at its next sign of life.
	if _, err := ds[0].Bind(t, ds[0].Open(t), 0).SendTo([]byte{1}, netip.AddrPortFrom(s.Addr().Addr(), again.Ports[0])); err != nil {
		t.Fatal(err)
	}
	until(callAlive, "at the server: socket 0: message 0 has 1 bytes, want 0")
	// A client that was silent for too long has no measurement any more.
	ports()
	s.session(from).alive.Reset(0)
	until(callMark, "no such measurement") // alive would begin the time anew
	ports()
	var f final
	if b, err := ask(callEnd, 0); err != nil || json.Unmarshal(b, &f) != nil || f.Received != 0 {
		t.Errorf("%s, %v", b, err)
	}
	refused(callAlive, nil, "no such measurement")
}

// An interrupted measurement reports what was measured until then.
func TestInterrupted(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	s := serve(t, ds[1], env(ds[1]))
	for _, m := range []Mode{RTT, Rate, RDMARead, RDMAWrite} {
		r, _, err := measure(t, env(ds[0]), params(ds[0], s.Addr(), m), 1)
		if err != nil || !r.Interrupted || r.Operations == 0 || r.Received != r.Sent || !r.Verified {
			t.Errorf("%v: %v, %+v", m, err, r)
		}
	}
}

// The server ends during a measurement.
func TestServerGone(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s, err := NewServer(ctx, env(ds[1]), netip.AddrPortFrom(ds[1].Addr(), 0))
	if err != nil {
		t.Fatal(err)
	}
	var server sync.WaitGroup
	server.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	p := params(ds[0], s.Addr(), RTT)
	p.Duration, p.Interval = 0, 10*time.Millisecond
	p.OnInterval = func(*Interval, time.Duration) { stop() }
	r, err := Measure(t.Context(), env(ds[0]), p)
	if !errors.Is(err, ErrGone) || r == nil || r.Failure == "" {
		t.Errorf("%v, %+v", err, r)
	}
	server.Wait()
}

func TestPace(t *testing.T) {
	p := pace{time.Now(), 1e6} // 1000 a second
	for _, tc := range []struct {
		at   time.Duration
		n    uint64
		want int
	}{{0, 0, 1}, {0, 1, 0}, {time.Second, 0, 1001}, {time.Second, 990, 11}, {time.Second, 1001, 0}} {
		if n := p.behind(p.start.Add(tc.at), tc.n); n != tc.want {
			t.Errorf("after %v, %d are due of %d and those after it, want %d", tc.at, n, tc.n, tc.want)
		}
	}
	if d := p.due(500).Sub(p.start); d != 500*time.Millisecond {
		t.Errorf("the 500th is due after %v", d)
	}
}

func TestCPUOf(t *testing.T) {
	before := cpuOf(os.Getpid())
	if after := cpuOf(os.Getpid()); before <= 0 || after < before {
		t.Errorf("%v, then %v", before, after)
	}
	for _, pid := range []int{0, 1 << 22} { // a process has a smaller number
		if d := cpuOf(pid); d >= 0 {
			t.Errorf("process %d has used %v", pid, d)
		}
	}
	if d := (cpu{5, 7}).since(cpu{3, -1}); d != (cpu{2, -1}) {
		t.Errorf("%+v", d)
	}
}
