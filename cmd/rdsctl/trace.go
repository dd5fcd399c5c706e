package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/ctl"
)

const (
	feedEvery = 100 * time.Millisecond // how often a trace is asked for more
	traceIdle = 5                      // answers without an event that end a trace that has its count
)

func traceList() *listing[ctl.TraceEvent] {
	type E = ctl.TraceEvent
	return &listing[E]{
		kind:  ctl.KindTrace,
		items: func(r *ctl.Response) []E { return r.Trace },
		columns: []column[E]{
			{head: "TIME", field: "time", text: func(e *E) string { return e.Time.UTC().Format("15:04:05.000000") }},
			{head: "STEP", field: "step", text: func(e *E) string { return e.Step }, tone: func(e *E) text.Color { return stepTone(e) }},
			{head: "LOCAL", field: "local", text: func(e *E) string { return place(e.Local, e.LocalPort) }},
			{head: "REMOTE", field: "remote", text: func(e *E) string { return place(e.Remote, e.RemotePort) }},
			{head: "LANE", field: "lane", text: (*E).LanePath},
			{head: "SEQ", field: "seq", text: func(e *E) string { return count(e.Seq) }},
			{head: "DATAGRAMS", field: "datagrams", text: func(e *E) string { return count(e.Datagrams) }},
			{head: "BYTES", field: "length_bytes", text: func(e *E) string { return count(e.Bytes) }},
			{head: "OPS", field: "operations", text: func(e *E) string { return strconv.Itoa(e.Ops) }},
			{head: "OUTCOME", field: "outcome", text: func(e *E) string { return cell(e.Outcome, "none") }},
		},
	}
}

func stepTone(e *ctl.TraceEvent) text.Color {
	switch e.Step {
	case "resent", "refused":
		return busy
	case "ended", "nosocket":
		return wrong
	}
	return 0
}

// endpoint is the value of a flag that takes ADDR, ADDR:PORT, or :PORT.
type endpoint struct {
	addr netip.Addr
	port uint16
}

func (e *endpoint) String() string {
	switch {
	case e.addr.IsValid() && e.port != 0:
		return netip.AddrPortFrom(e.addr, e.port).String()
	case e.addr.IsValid():
		return e.addr.String()
	case e.port != 0:
		return ":" + strconv.Itoa(int(e.port))
	}
	return ""
}

func (e *endpoint) Set(s string) error {
	if len(s) > 1 && s[0] == ':' {
		if n, err := strconv.ParseUint(s[1:], 10, 16); err == nil {
			e.port = uint16(n)
			return nil
		}
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		e.addr, e.port = ap.Addr().Unmap(), ap.Port()
		return nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return fmt.Errorf("want ADDR, ADDR:PORT or :PORT")
	}
	e.addr = a.Unmap()
	return nil
}

func traceVerb(fs *flag.FlagSet) action {
	var local, remote endpoint
	fs.Var(&local, "local", "only messages of the socket of this host at `ADDR[:PORT]`, or :PORT")
	fs.Var(&remote, "remote", "only messages to and from `ADDR[:PORT]`, or :PORT, of the other host")
	every := fs.Uint64("every", 1, "only messages whose sequence is a multiple of this `number`: the same ones at both ends")
	n := fs.Uint64("n", 0, "end after this `number` of messages, 0 = after -d alone")
	d := fs.Duration("d", ctl.DefaultTraceTime, fmt.Sprintf("end after this `time`, at most %v", ctl.MaxTraceTime))
	rate := fs.Int("rate", ctl.DefaultTraceRate, fmt.Sprintf("at most this `number` of messages a second, up to %d", ctl.MaxTraceRate))
	return func(ctx context.Context, a *app, o *options, _ string) int {
		l := traceList()
		p, err := l.plan(o)
		switch {
		case err != nil:
		case *every == 0 || *d <= 0 || *rate <= 0:
			err = usagef("-every, -d and -rate are more than 0")
		}
		if err != nil {
			return a.wrong("trace", "%v", err)
		}
		spec := &ctl.TraceSpec{Local: local.addr, LocalPort: local.port, Remote: remote.addr, RemotePort: remote.port,
			Every: *every, Count: *n, Duration: *d, Rate: *rate}
		return p.trace(ctx, a, o, spec)
	}
}

// trace prints events until the trace is over or ctx ends.
func (p *plan[T]) trace(ctx context.Context, a *app, o *options, spec *ctl.TraceSpec) int {
	c, err := a.connect(ctx, o)
	if err != nil {
		return a.fail(o, p.kind, err)
	}
	defer c.Close()
	if _, _, err := call(ctx, c, o, ctl.Request{Kind: p.kind, Do: ctl.DoBegin, Trace: spec}); err != nil {
		return a.fail(o, p.kind, err)
	}
	var s ctl.TraceState
	var all []ctl.TraceEvent // for -o json, which is one document
	for idle := 0; ; {
		raw, resp, err := call(ctx, c, o, ctl.Request{Kind: p.kind, Do: ctl.DoRead})
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return a.fail(o, p.kind, err)
		}
		s = *resp.TraceState
		if idle++; len(resp.Trace) > 0 {
			idle = 0
		}
		if o.output.form() == asJSON {
			all = append(all, resp.Trace...)
		} else if len(resp.Trace) > 0 || !o.noHeader {
			if code := p.show(a, o, raw, resp); code != exitOK {
				return code
			}
			o.noHeader = true
		}
		if s.Over || s.Full && idle >= traceIdle {
			break
		}
		if len(resp.Trace) < ctl.TraceAnswer && !pause(ctx, feedEvery) {
			break
		}
	}
	if o.output.form() == asJSON {
		resp := &ctl.Response{Schema: ctl.Schema, Kind: ctl.KindTrace, Trace: all, TraceState: &s}
		raw, err := json.Marshal(resp)
		if err != nil {
			return a.fail(o, p.kind, err)
		}
		if code := p.show(a, o, raw, resp); code != exitOK {
			return code
		}
	}
	a.traceSummary(&s)
	return exitOK
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// traceSummary says what is missing.
func (a *app) traceSummary(s *ctl.TraceState) {
	if s.Dropped > 0 {
		fmt.Fprintf(a.stderr, "rdsctl: trace: %d events are missing: this program did not read them fast enough\n", s.Dropped)
	}
	if s.Skipped > 0 {
		fmt.Fprintf(a.stderr, "rdsctl: trace: %d messages were beyond -rate and not followed: -every N chooses the same messages at both ends\n", s.Skipped)
	}
	if a.terminal().is() {
		fmt.Fprintf(a.stderr, "%d messages\n", s.Messages)
	}
}

func traceEntry() verb {
	v := traceList().verb(verb{name: "trace", summary: "follow single messages: submitted, posted, arrived, delivered, acked, with times", group: groupFollow,
		prepare: traceVerb,
		about: "STEP: submitted (the daemon took the message from the process), posted (to the connection), resent, acked, ended (with OUTCOME); of operations local " +
			"(locally complete), placed (the data is in place) and settled (with OUTCOME); at the receiver arrived, delivered (the process can read it), read, refused, nosocket. " +
			"A run is one message. Messages that were submitted before the trace began are not followed. Only administrators see messages of other users.",
		tries: []string{"trace -n 20", "trace -local :4000 -every 100 -d 10s -o jsonl >here.jsonl", "trace merge here.jsonl there.jsonl"}})
	v.watch = false
	return v
}

func traceMergeEntry() verb {
	v := mergeList().verb(verb{name: "trace merge", args: "FILE FILE", summary: "one line for each message of two traces, of the two ends", group: groupFollow,
		prepare: mergeVerb, many: true, alone: true,
		about: "The files are what rdsctl trace -o jsonl wrote at two hosts at the same time, with the same -every. How far the clocks of the hosts are apart is estimated from the " +
			"messages in both files. All times but SUBMITTED are since SUBMITTED.",
		tries: []string{"trace merge here.jsonl there.jsonl", "trace merge here.jsonl there.jsonl -sort -acked"}})
	v.watch = false
	return v
}
