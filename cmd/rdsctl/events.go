package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/ctl"
)

// followEvery is how often events -f asks.
const followEvery = 250 * time.Millisecond

func eventList() *listing[ctl.EventInfo] {
	type E = ctl.EventInfo
	return &listing[E]{
		kind:  ctl.KindEvents,
		items: func(r *ctl.Response) []E { return r.Events },
		columns: []column[E]{
			{head: "SEQ", field: "seq", wide: true, text: func(e *E) string { return count(e.Seq) }},
			{head: "TIME", field: "time", text: func(e *E) string { return e.Time.UTC().Format("2006-01-02T15:04:05.000Z") }},
			{head: "LEVEL", field: "level", text: func(e *E) string { return e.Level }, tone: func(e *E) text.Color { return levelTone(e.Level) }},
			{head: "ABOUT", field: "peer", text: func(e *E) string { return about(e.Peer, e.UID) }},
			{head: "LANE", field: "lane", text: (*E).LanePath},
			{head: "PID", field: "pid", wide: true, text: func(e *E) string { return strconv.Itoa(e.PID) }},
			{head: "LOCAL", field: "local", wide: true, text: func(e *E) string {
				if !e.Local.IsValid() {
					return "none"
				}
				return e.Local.String()
			}},
			{head: "EVENT", field: "event", text: func(e *E) string { return cell(e.Event, "unknown") }},
			{head: "ERROR", field: "error", free: true, text: func(e *E) string { return cell(e.Error, "none") }},
		},
	}
}

func eventsVerb(fs *flag.FlagSet) action {
	follow := fs.Bool("f", false, "go on with what happens from now on, until interrupted")
	return func(ctx context.Context, a *app, o *options, _ string) int {
		l := eventList()
		if !*follow {
			return l.run(ctx, a, o, ctl.Request{})
		}
		p, err := l.plan(o)
		switch {
		case err != nil:
			return a.wrong("events", "%v", err)
		case o.watch != 0:
			return a.wrong("events", "-f and -watch are two ways of going on: choose one")
		case o.output.form() == asJSON:
			return a.wrong("events", "-f has no end for one document: -o jsonl")
		}
		return p.follow(ctx, a, o)
	}
}

// follow prints new events until ctx ends.
func (p *plan[T]) follow(ctx context.Context, a *app, o *options) int {
	var after uint64
	c, err := a.connect(ctx, o)
	if err != nil {
		return a.fail(o, p.kind, err)
	}
	defer c.Close()
	for {
		raw, resp, err := call(ctx, c, o, ctl.Request{Kind: p.kind, After: after, Limit: o.limit})
		if ctx.Err() != nil {
			return exitOK
		}
		if err != nil {
			return a.fail(o, p.kind, err)
		}
		more := resp.Truncated
		resp.Truncated = false
		if n := len(resp.Events); n > 0 {
			if after != 0 && resp.Events[0].Seq > after+1 && o.output.form() != jsonLines {
				fmt.Fprintf(a.stderr, "rdsctl: events: up to %d are not here: too many at once, or another user's\n", resp.Events[0].Seq-after-1)
			}
			after = resp.Events[n-1].Seq
			if code := p.show(a, o, raw, resp); code != exitOK {
				return code
			}
			o.noHeader = true
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return exitOK
		case <-time.After(followEvery):
		}
	}
}
