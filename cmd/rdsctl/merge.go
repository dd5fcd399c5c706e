package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/ctl"
)

// A message has the same sender, receiver, lane and sequence in the traces of both ends. Of
// a message that is in both, two things are certain whatever the clocks say: it arrived
// after it was posted, and it was acked after it had arrived. So each such message bounds
// how far one clock is ahead of the other from one side or from both; the bounds of all of
// them together are within half of the shortest round trip of each other.

// traced is one message in the traces of two daemons.
type messageKey struct {
	from, to         netip.Addr
	fromPort, toPort uint16
	lane             uint8
	seq              uint64
}

type traced struct {
	messageKey
	sent, came map[string]ctl.TraceEvent // by step; the first of each step
	first      *ctl.TraceEvent
}

// receiverSteps are those that the receiver's daemon tells of. A step of both is the
// sender's if its event is among the sender's.
var receiverSteps = map[string]bool{"arrived": true, "delivered": true, "read": true, "refused": true, "nosocket": true}

// Bounds of a file with a trace.
const (
	maxTraceFile   = 4 << 30 // bytes
	maxTraceEvents = 5_000_000
)

func mergeList() *listing[ctl.MergedMessage] {
	type M = ctl.MergedMessage
	since := func(d *time.Duration) string {
		if d == nil {
			return "none"
		}
		return fmt.Sprintf("%.1fµs", float64(*d)/1e3)
	}
	return &listing[M]{
		kind:  ctl.KindMerged,
		items: func(r *ctl.Response) []M { return r.Merged },
		none:  "no message",
		columns: []column[M]{
			{head: "SUBMITTED", field: "submitted", text: func(m *M) string { return m.Submitted.UTC().Format("15:04:05.000000") }},
			{head: "FROM", field: "from", text: func(m *M) string { return place(m.From, m.FromPort) }},
			{head: "TO", field: "to", text: func(m *M) string { return place(m.To, m.ToPort) }},
			{head: "LANE", field: "lane", text: (*M).LanePath},
			{head: "SEQ", field: "seq", wide: true, text: func(m *M) string { return count(m.Seq) }},
			{head: "DATAGRAMS", field: "datagrams", text: func(m *M) string { return count(m.Datagrams) }},
			{head: "BYTES", field: "length_bytes", text: func(m *M) string { return count(m.Bytes) }},
			{head: "OPS", field: "operations", text: func(m *M) string { return strconv.Itoa(m.Ops) }},
			{head: "POSTED", field: "posted_ns", text: func(m *M) string { return since(m.Posted) }},
			{head: "ARRIVED", field: "arrived_ns", text: func(m *M) string { return since(m.Arrived) }},
			{head: "DELIVERED", field: "delivered_ns", text: func(m *M) string { return since(m.Delivered) }},
			{head: "READ", field: "read_ns", text: func(m *M) string { return since(m.Read) }},
			{head: "PLACED", field: "placed_ns", text: func(m *M) string { return since(m.Placed) }},
			{head: "LOCAL", field: "local_ns", wide: true, text: func(m *M) string { return since(m.Local) }},
			{head: "ACKED", field: "acked_ns", text: func(m *M) string { return since(m.Acked) }},
			{head: "SETTLED", field: "settled_ns", text: func(m *M) string { return since(m.Settled) }},
			{head: "OUTCOME", field: "outcome", text: func(m *M) string { return cell(m.Outcome, "none") }, tone: func(m *M) text.Color {
				if m.Resent > 0 {
					return busy
				}
				return 0
			}},
			{head: "RESENT", field: "resent", wide: true, text: func(m *M) string { return strconv.Itoa(m.Resent) }},
		},
	}
}

func mergeVerb(fs *flag.FlagSet) action {
	all := fs.Bool("all", false, "also messages of which only one end is known")
	return func(_ context.Context, a *app, o *options, arg string) int {
		names := strings.Fields(arg)
		if len(names) != 2 {
			return a.wrong("trace merge", "want two files, each from rdsctl trace -o jsonl at one of two hosts")
		}
		l := mergeList()
		l.keep = func(m *ctl.MergedMessage) bool { return *all || m.Arrived != nil && m.Posted != nil }
		p, err := l.plan(o)
		if err != nil {
			return a.wrong("trace merge", "%v", err)
		}
		var files [2][]ctl.TraceEvent
		for i, name := range names {
			if files[i], err = readTrace(name); err != nil {
				return a.fail(o, ctl.KindMerged, err)
			}
		}
		resp, err := merge(files)
		if err != nil {
			return a.fail(o, ctl.KindMerged, err)
		}
		raw, err := json.Marshal(resp)
		if err != nil {
			return a.fail(o, ctl.KindMerged, err)
		}
		if !o.output.machine() {
			fmt.Fprintln(a.stdout, printable(clockLine(resp.Clocks, names)))
		}
		return p.show(a, o, raw, resp)
	}
}

func clockLine(c *ctl.ClockOffset, names []string) string {
	where := "ahead of"
	if c.Offset < 0 {
		where = "behind"
	}
	s := fmt.Sprintf("the clock of %s is %s that of %s by %v", names[1], where, names[0], c.Offset.Abs().Round(100))
	switch {
	case c.Error == nil:
		return s + ", or by less: no message was acked, so nothing bounds it from the other side"
	case c.Drifted:
		return s + fmt.Sprintf(", give or take %v: the clocks do not run alike", c.Error.Round(100))
	}
	return s + fmt.Sprintf(", give or take %v (from %d messages)", c.Error.Round(100), c.Messages)
}

// readTrace reads what rdsctl trace wrote with -o jsonl or json.
func readTrace(name string) (out []ctl.TraceEvent, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseTrace(f, name)
}

// parseTrace reads events, or documents with events.
func parseTrace(r io.Reader, name string) (out []ctl.TraceEvent, err error) {
	for d := json.NewDecoder(io.LimitReader(r, maxTraceFile)); ; {
		var v struct {
			ctl.TraceEvent
			Kind  ctl.Kind         `json:"kind"`
			Trace []ctl.TraceEvent `json:"trace"`
		}
		at := d.InputOffset()
		var doc json.RawMessage
		err := d.Decode(&doc)
		if err == io.EOF {
			return out, nil
		}
		if err == nil {
			doc, err = stringsToNumbers(doc)
		}
		if err == nil {
			err = json.Unmarshal(doc, &v)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: at byte %d: %w", name, at, err)
		}
		if v.Kind != ctl.KindTrace {
			v.Trace = []ctl.TraceEvent{v.TraceEvent}
		}
		for _, e := range v.Trace {
			if e.Step == "" || e.Time.IsZero() || !e.Local.IsValid() || !e.Remote.IsValid() {
				return nil, fmt.Errorf("%s: at byte %d: no event of a trace: want what rdsctl trace -o jsonl wrote, with all fields", name, at)
			}
		}
		if out = append(out, v.Trace...); len(out) > maxTraceEvents {
			return nil, fmt.Errorf("%s has more than %d events: trace fewer messages", name, maxTraceEvents)
		}
	}
}

// bounds are what is known of how far the second clock is ahead of the first, ns.
type bounds struct {
	low, high float64
	messages  int
}

// merge puts the traces of two daemons together. Its times are those of the first one's
// clock.
func merge(files [2][]ctl.TraceEvent) (*ctl.Response, error) {
	var byKey [2]map[messageKey]*traced
	for i, events := range files {
		byKey[i] = group(events)
	}
	b := bounds{math.Inf(-1), math.Inf(1), 0}
	for k, m := range byKey[0] {
		if n := byKey[1][k]; n != nil {
			b.both(m, n, 1)
			b.both(n, m, -1)
		}
	}
	if math.IsInf(b.high, 1) && math.IsInf(b.low, -1) {
		return nil, fmt.Errorf("no message is in both traces, posted in one and arrived in the other: trace at both hosts at the same time, with the same -every")
	}
	clocks := b.clocks()
	var out []ctl.MergedMessage
	for i, own := range byKey {
		for k, m := range own {
			other := byKey[1-i][k]
			switch {
			case len(m.sent) > 0 || other == nil:
				out = append(out, merged(m, other, i, clocks.Offset))
			case len(other.sent) == 0 && i == 0: // both know only the receiver's part: one host
				out = append(out, merged(m, nil, i, clocks.Offset))
			}
		}
	}
	slices.SortFunc(out, func(a, b ctl.MergedMessage) int {
		return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(a.Seq, b.Seq))
	})
	if out == nil {
		out = []ctl.MergedMessage{}
	}
	return &ctl.Response{Schema: ctl.Schema, Kind: ctl.KindMerged, Merged: out, Clocks: clocks}, nil
}

// group sorts events by message.
func group(events []ctl.TraceEvent) map[messageKey]*traced {
	out := map[messageKey]*traced{}
	for i := range events {
		e := &events[i]
		k := messageKey{e.Local, e.Remote, e.LocalPort, e.RemotePort, e.Lane, e.Seq}
		back := messageKey{e.Remote, e.Local, e.RemotePort, e.LocalPort, e.Lane, e.Seq}
		came := receiverSteps[e.Step] || e.Step == "placed" && out[back] != nil && len(out[back].came) > 0
		if came {
			k = back
		}
		m := out[k]
		if m == nil {
			m = &traced{messageKey: k, sent: map[string]ctl.TraceEvent{}, came: map[string]ctl.TraceEvent{}, first: e}
			out[k] = m
		}
		steps := m.sent
		if came {
			steps = m.came
		}
		if _, known := steps[e.Step]; !known || e.Step == "resent" {
			steps[e.Step] = *e
		}
		if e.Step == "resent" {
			steps[fmt.Sprintf("resent %d", len(steps))] = *e
		}
	}
	return out
}

// both narrows b by a message that is sent in the trace of m and arrives in that of n. sign
// is -1 if n is of the first clock.
func (b *bounds) both(m, n *traced, sign float64) {
	posted, sent := m.sent["posted"]
	arrived, came := n.came["arrived"]
	if !sent || !came {
		return
	}
	b.messages++
	high := float64(arrived.Time.Sub(posted.Time))
	low := math.Inf(-1)
	if acked, ok := m.sent["acked"]; ok {
		low = float64(arrived.Time.Sub(acked.Time))
	}
	if sign < 0 {
		low, high = -high, -low
	}
	b.low, b.high = max(b.low, low), min(b.high, high)
}

func (b *bounds) clocks() *ctl.ClockOffset {
	c := &ctl.ClockOffset{Messages: b.messages}
	switch {
	case math.IsInf(b.low, -1):
		c.Offset = time.Duration(b.high)
	case math.IsInf(b.high, 1):
		c.Offset = time.Duration(b.low)
	default:
		width := time.Duration(math.Abs(b.high-b.low) / 2)
		c.Offset, c.Error, c.Drifted = time.Duration((b.low+b.high)/2), &width, b.low > b.high
	}
	return c
}

// merged is what both traces say of m, of trace number at. other, in the other trace, may be
// nil.
func merged(m, other *traced, at int, offset time.Duration) ctl.MergedMessage {
	local := func(e ctl.TraceEvent, of int) time.Time {
		if of == 1 {
			return e.Time.Add(-offset)
		}
		return e.Time
	}
	times := map[string]time.Time{}
	add := func(steps map[string]ctl.TraceEvent, of int) {
		for s, e := range steps {
			if _, known := times[s]; !known {
				times[s] = local(e, of)
			}
		}
	}
	add(m.sent, at)
	add(m.came, at)
	if other != nil {
		add(other.came, 1-at)
	}
	out := ctl.MergedMessage{From: m.from, FromPort: m.fromPort, To: m.to, ToPort: m.toPort, Lane: m.lane, Path: m.first.Path, Seq: m.seq,
		Datagrams: m.first.Datagrams, Bytes: m.first.Bytes, Ops: m.first.Ops}
	start, known := times["submitted"]
	if !known {
		start = slices.MinFunc(slices.Collect(maps.Values(times)), time.Time.Compare)
	}
	out.Submitted = start.UTC()
	for step, to := range map[string]**time.Duration{"posted": &out.Posted, "arrived": &out.Arrived, "delivered": &out.Delivered, "read": &out.Read,
		"placed": &out.Placed, "local": &out.Local, "acked": &out.Acked, "settled": &out.Settled} {
		if t, ok := times[step]; ok {
			d := t.Sub(start)
			*to = &d
		}
	}
	for _, step := range []string{"ended", "settled"} {
		if e, ok := m.sent[step]; ok && out.Outcome == "" {
			out.Outcome = e.Outcome
		}
	}
	for s := range m.sent {
		if strings.HasPrefix(s, "resent ") {
			out.Resent++
		}
	}
	return out
}
