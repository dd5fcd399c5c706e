package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ctl"
)

func pingVerb(fs *flag.FlagSet) action {
	n := fs.Int("c", 0, "`count` of pings, 0 = until interrupted")
	interval := fs.Duration("i", time.Second, "`time` between pings")
	size := fs.Int("size", 0, fmt.Sprintf("payload `bytes` of each ping, at most %d, to see whether large packets pass to ADDR; for the other direction run it there", ctl.MaxPingSize))
	path := fs.Int("path", 0, "`path` of lane 0 to go by, 0 to 7")
	return func(ctx context.Context, a *app, o *options, arg string) int {
		addr, code := a.address(ctx, o, "ping", arg)
		if code != exitOK {
			return code
		}
		if *n < 0 || *interval < 0 {
			return a.wrong("ping", "-c and -i are not negative")
		}
		if *size < 0 || *size > ctl.MaxPingSize {
			return a.wrong("ping", "-size %d is not between 0 and %d bytes", *size, ctl.MaxPingSize)
		}
		if *path < 0 || *path >= wire.MaxPaths {
			return a.wrong("ping", "path %d is not between 0 and %d", *path, wire.MaxPaths-1)
		}
		c, err := a.connect(ctx, o)
		if err != nil {
			return a.fail(o, ctl.KindPingReport, err)
		}
		defer c.Close()
		p := &pinger{app: a, o: o, c: c, report: ctl.PingReport{Addr: addr, Path: uint8(*path), Size: *size, Replies: []ctl.PingReply{}}}
		if err := p.run(ctx, *n, *interval); err != nil {
			return a.fail(o, ctl.KindPingReport, err)
		}
		return p.finish()
	}
}

// pinger sends one ping at a time and counts the results.
type pinger struct {
	*app
	o      *options
	c      caller
	report ctl.PingReport
}

// run sends n pings, or pings until ctx ends if n is 0. It returns an error if the next
// ping would fail in the same way.
func (p *pinger) run(ctx context.Context, n int, interval time.Duration) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for seq := 1; n == 0 || seq <= n; seq++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		tick.Reset(interval)
		if err := p.one(ctx, seq); err != nil {
			return err
		}
	}
	return nil
}

func (p *pinger) one(ctx context.Context, seq int) error {
	addr := p.report.Addr
	// The daemon answers by itself if the peer does not. Only with a stuck daemon does the
	// call reach its own, later time-out.
	o := *p.o
	o.timeout += time.Second
	req := ctl.Request{Kind: ctl.KindPing, Addr: addr, Size: p.report.Size, Timeout: min(p.o.timeout, ctl.MaxPingTimeout)}
	if p.report.Path > 0 { // an older daemon knows one path
		req.Path = &p.report.Path
	}
	_, resp, err := call(ctx, p.c, &o, req)
	failure, answered := errors.AsType[*ctl.Error](err)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil // interrupted: not a lost ping
	case err == nil:
		p.report.Paths = resp.Ping.Paths
		p.report.Add(ctl.PingReply{Seq: seq, RTT: resp.Ping.RTT})
		p.say("reply from %s: seq %d, %s", p.report.To(), seq, short(resp.Ping.RTT))
	case answered && (failure.Code == ctl.CodeTimeout || failure.Code == ctl.CodeFailed):
		p.report.Add(ctl.PingReply{Seq: seq, Error: failure})
		p.say("no reply from %s: seq %d: %s", p.report.To(), seq, cell(failure.Message, "no reason given"))
	default:
		return err
	}
	return nil
}

func (p *pinger) say(format string, args ...any) {
	if !p.o.output.machine() {
		fmt.Fprintf(p.stdout, format+"\n", args...)
	}
}

// finish prints the summary. The exit status is 0 if a pong came.
func (p *pinger) finish() int {
	r := &p.report
	r.Summarize()
	code := exitOK
	if r.Received == 0 {
		code = exitFailed
		if n := len(r.Replies); n > 0 && r.Replies[n-1].Error.Code == ctl.CodeTimeout {
			code = exitTimeout
		}
	}
	if p.o.output.machine() {
		return max(code, p.printJSON(p.o, &ctl.Response{Schema: ctl.Schema, Kind: ctl.KindPingReport, PingReport: r}))
	}
	fmt.Fprintf(p.stdout, "%s: %d sent, %d received", r.To(), r.Sent, r.Received)
	if r.Received > 0 {
		fmt.Fprintf(p.stdout, "; min %s, p50 %s, p99 %s, max %s", short(r.Min), short(r.P50), short(r.P99), short(r.Max))
	}
	fmt.Fprintln(p.stdout)
	return code
}
