package main

import (
	"context"
	"encoding/json"
	"flag"
	"strconv"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

func counterList() *listing[ctl.CounterInfo] {
	type C = ctl.CounterInfo
	return &listing[C]{
		kind:  ctl.KindCounters,
		items: func(r *ctl.Response) []C { return r.Counters },
		none:  "every counter is 0: --all",
		columns: []column[C]{
			{head: "COUNTER", field: "name", text: func(c *C) string { return cell(c.Name, "unnamed") }},
			{head: "VALUE", field: "value", text: func(c *C) string { return count(c.Value) }},
			{head: "RATE", field: "rate_per_second", text: func(c *C) string {
				if c.Rate == nil {
					return "none"
				}
				return strconv.FormatFloat(*c.Rate, 'f', 1, 64) + "/s"
			}},
		},
	}
}

// gauges are the names of words that may fall. They have no rate.
var gauges = func() map[string]bool {
	names := map[string]bool{}
	for c := range stats.NumCounters {
		if c.Gauge() {
			names[c.String()] = true
		}
	}
	return names
}()

// countersVerb lists the counters. With -watch it adds their rates.
func countersVerb(fs *flag.FlagSet) action {
	all := fs.Bool("all", false, "those that are 0, too")
	return func(ctx context.Context, a *app, o *options, _ string) int {
		l := counterList()
		if o.watch == 0 && o.columns == "" {
			l.columns[2].wide = true
		}
		p, err := l.plan(o)
		if err != nil {
			return a.wrong("counters", "%v", err)
		}
		before, at := map[string]uint64{}, time.Time{}
		return a.repeat(ctx, o, func() int {
			var s *ctl.Status
			gone := exitOK
			if o.offline {
				if s, gone, err = a.offline(o.stats); err != nil {
					return a.fail(o, l.kind, err)
				}
			} else {
				_, r, err := a.once(ctx, o, ctl.Request{Kind: ctl.KindStatus})
				if err != nil {
					return a.fail(o, l.kind, err)
				}
				s = r.Status
			}
			now := time.Now()
			r := &ctl.Response{Schema: ctl.Schema, Kind: l.kind, Counters: []ctl.CounterInfo{}}
			for _, c := range s.Counters {
				i := ctl.CounterInfo{Name: c.Name, Value: c.Value}
				if last, ok := before[c.Name]; ok && now.After(at) && !gauges[c.Name] {
					rate := (float64(c.Value) - float64(last)) / now.Sub(at).Seconds()
					i.Rate = &rate
				}
				before[c.Name] = c.Value
				if *all || c.Value != 0 {
					r.Counters = append(r.Counters, i)
				}
			}
			at = now
			raw, err := json.Marshal(r)
			if err != nil {
				return a.fail(o, l.kind, err)
			}
			return max(gone, p.show(a, o, raw, r))
		})
	}
}
