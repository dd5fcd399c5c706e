package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/loadgen"
	"github.com/rdsd/rdsd/rds"
)

// benchPort is the RDS port of rdsctl bench -serve.
const benchPort = 18635

func benchVerb(fs *flag.FlagSet) action {
	var (
		serve    = fs.Bool("serve", false, "be the server, until interrupted")
		bind     = fs.String("bind", "", "local `address`, one of the daemon's (default: its first); with -serve also address:port")
		mode     = fs.String("mode", "rtt", "rtt: a message there and back; rate: one way; rdma-read, rdma-write: operations")
		size     = fs.Int("size", 64, "`bytes` of a message or operation, at most 1048576")
		depth    = fs.Int("depth", 0, "`number` outstanding per socket, for rate: handed over at once (default: rtt 1, rate 64, RDMA 8)")
		sockets  = fs.Int("sockets", 1, "`number` of sockets at each end")
		rate     = fs.Float64("rate", 0, "operations a `second` in all, in open loop: latency counts from when each is due; 0: closed loop, as fast as it goes")
		warm     = fs.Duration("warmup", 500*time.Millisecond, "`time` before figures count")
		duration = fs.Duration("d", 5*time.Second, "`time` to measure, 0: until interrupted")
		interval = fs.Duration("interval", time.Second, "`time` between lines, 0: none")
		verify   = fs.Bool("verify", false, "compare every byte at both ends")
		wait     = fs.String("wait", "auto", "how this end waits: `auto, block, yield or spin`; the daemon's way is its option wait")
	)
	return func(ctx context.Context, a *app, o *options, arg string) int {
		local, err := a.addrPort(ctx, o, *bind, 0)
		if err != nil {
			return a.wrong("bench", "-bind: %v", err)
		}
		server, err := a.addrPort(ctx, o, arg, benchPort)
		if err != nil {
			return a.wrong("bench", "%v", err)
		}
		m, err := loadgen.ParseMode(*mode)
		switch {
		case err != nil:
			return a.wrong("bench", "-mode: %v", err)
		case *serve && arg != "":
			return a.wrong("bench", "a server takes no address but -bind")
		case *rate < 0 || *warm < 0 || *duration < 0 || *interval < 0 || *depth < 0:
			return a.wrong("bench", "-rate, -warmup, -d, -interval and -depth are not negative")
		}
		b := &bencher{app: a, o: o, wait: *wait}
		if err := b.find(ctx, &local, server.Addr()); err != nil {
			return a.fail(o, ctl.KindBench, err)
		}
		if *serve {
			return b.serve(ctx, local)
		}
		if *depth == 0 {
			*depth = map[loadgen.Mode]int{loadgen.RTT: 1, loadgen.Rate: 64, loadgen.RDMARead: 8, loadgen.RDMAWrite: 8}[m]
		}
		return b.measure(ctx, loadgen.Params{Mode: m, Local: local.Addr(), Server: server, Size: *size, Depth: *depth, Sockets: *sockets,
			Rate: *rate, WarmUp: *warm, Duration: *duration, Interval: *interval, Timeout: o.timeout, Verify: *verify})
	}
}

// bencher runs a server or a measurement.
type bencher struct {
	*app
	o    *options
	wait string
	env  loadgen.Env
}

// find asks the daemon for its process. If local names no address, it also asks for an
// address of to's family.
func (b *bencher) find(ctx context.Context, local *netip.AddrPort, to netip.Addr) error {
	c, err := b.connect(ctx, b.o)
	if err != nil {
		return err
	}
	defer c.Close()
	_, resp, err := call(ctx, c, b.o, ctl.Request{Kind: ctl.KindStatus})
	if err != nil {
		return err
	}
	b.env = loadgen.Env{
		Open: func(ctx context.Context) (*rds.Client, error) {
			return rds.Open(ctx, rds.Options{Socket: b.o.socket, Wait: b.wait})
		},
		DaemonPID: resp.Status.PID,
		Say:       func(format string, args ...any) { fmt.Fprintf(b.stderr, format+"\n", args...) },
	}
	if local.IsValid() {
		return nil
	}
	for _, l := range resp.Status.Listen {
		if a := l.Addr().Unmap(); !a.IsUnspecified() && (!to.IsValid() || a.Is4() == to.Is4()) {
			*local = netip.AddrPortFrom(a, 0)
			return nil
		}
	}
	return errors.New("the daemon names no address to bind at; name one with -bind")
}

func (b *bencher) serve(ctx context.Context, at netip.AddrPort) int {
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), benchPort)
	}
	s, err := loadgen.NewServer(ctx, b.env, at)
	if err != nil {
		return b.fail(b.o, ctl.KindBench, err)
	}
	b.env.Say("serving at %v", s.Addr())
	if err := s.Run(ctx); err != nil {
		return b.fail(b.o, ctl.KindBench, err)
	}
	return exitOK
}

func (b *bencher) measure(ctx context.Context, p loadgen.Params) int {
	table := !b.o.output.machine()
	if table {
		first := true
		p.OnInterval = func(i *loadgen.Interval, end time.Duration) {
			if first {
				loadgen.Header(b.stdout)
				first = false
			}
			i.Print(b.stdout, end)
		}
	}
	r, err := loadgen.Measure(ctx, b.env, p)
	if ctx.Err() != nil && r == nil {
		err = errors.New("interrupted before anything was measured")
	}
	if r == nil {
		return b.fail(b.o, ctl.KindBench, err)
	}
	code := b.printReport(b.o, report{Kind: ctl.KindBench, Bench: r}, err)
	if table {
		r.Print(b.stdout)
	}
	return code
}
