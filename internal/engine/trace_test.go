package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/trace"
)

// begin starts a trace.
func begin(t *testing.T, e *Engine, spec ctl.TraceSpec, who ctl.Caller) *trace.Trace {
	t.Helper()
	if spec.Rate == 0 {
		spec.Rate = ctl.MaxTraceRate
	}
	if spec.Duration == 0 {
		spec.Duration = time.Hour
	}
	tr := trace.New(spec, who)
	if !e.BeginTrace(tr) {
		t.Fatal("no place for a trace")
	}
	return tr
}

// steps are what a trace tells, as step, datagrams, operations, outcome. All of it has to be
// of one sequence, in the order of time.
func steps(t *testing.T, tr *trace.Trace) string {
	t.Helper()
	var out []string
	all := tr.Read(100)
	for _, e := range all {
		s := fmt.Sprintf("%s/%d", e.Step, e.Datagrams)
		if e.Ops > 0 {
			s += fmt.Sprintf("/%d", e.Ops)
		}
		out = append(out, s+e.Outcome)
		if e.Seq != all[0].Seq || e.Seq == 0 || e.Time.Before(all[0].Time) || e.Bytes != all[0].Bytes {
			t.Errorf("%+v does not belong to %+v", e, all[0])
		}
	}
	return strings.Join(out, " ")
}

var root = ctl.Caller{Admin: true}

// TestTraceLife: a message, a run and an operation at both ends, with the same sequence.
func TestTraceLife(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.expose(0, 4096, abi.RightWrite, a)
	w.run()
	ta, tb := begin(t, a.e, ctl.TraceSpec{}, root), begin(t, b.e, ctl.TraceSpec{}, root)
	for _, c := range []struct {
		name           string
		submit         func()
		sender, getter string
	}{
		{"a message", func() { a.submit(shm.Sub{Len: 100, Flags: shm.SubAckNow}) }, "submitted/1 posted/1 acked/1", "arrived/1 delivered/1 read/1"},
		{"a run", func() { a.submitRun(10, 20, 30) }, "submitted/3 posted/3 acked/3", "arrived/3 delivered/3 read/3"},
		{"an operation", func() { a.submit(shm.Sub{Len: 8}, a.op(abi.OpWrite, r.Cookie, 0)) },
			"submitted/1/1 posted/1/1 local/1/1 settled/1/1SUCCESS acked/1/1", "arrived/1/1 placed/1/1 delivered/1 read/1"},
		{"a message in fragments", func() { a.submit(shm.Sub{Len: 60_000, Flags: shm.SubAckNow}) }, "submitted/1 posted/1 acked/1", "arrived/1 delivered/1 read/1"},
	} {
		c.submit()
		for range 4 {
			w.run()
			w.wait(2_000_000)
			b.datagrams()
		}
		got := steps(t, ta)
		want := strings.Fields(c.sender)
		if g := strings.Fields(got); !same(g, want) {
			t.Errorf("%s: sender %q, want %q", c.name, got, c.sender)
		}
		if got := steps(t, tb); got != c.getter {
			t.Errorf("%s: receiver %q, want %q", c.name, got, c.getter)
		}
	}
	if s := ta.State(); s.Messages != 4 || s.Dropped != 0 || s.Skipped != 0 || s.Full {
		t.Errorf("state %+v", s)
	}
	a.e.EndTrace(ta)
	b.e.EndTrace(tb)
	a.submit(shm.Sub{Len: 1, Flags: shm.SubAckNow})
	w.run()
	b.datagrams()
	w.run()
	if got := steps(t, ta) + steps(t, tb); got != "" || a.e.traces.On {
		t.Errorf("after the end: %q", got)
	}
	w.clean2(a, b)
}

// same reports whether two lists have the same elements: a status may come ahead of the ack
// or behind it.
func same(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// TestTraceSameHost: there is no connection, so what was submitted is delivered.
func TestTraceSameHost(t *testing.T) {
	w, a, b := opPair(t, 1)
	tr, getter := begin(t, a.e, ctl.TraceSpec{}, root), begin(t, a.e, ctl.TraceSpec{LocalPort: b.port}, root)
	a.submitRun(10, 20)
	w.run()
	b.datagrams()
	w.run()
	if got := steps(t, tr); got != "submitted/2 delivered/2 acked/2 read/2" {
		t.Error(got)
	}
	if got := steps(t, getter); got != "delivered/2 read/2" {
		t.Errorf("of the receiver's port: %q", got)
	}
	w.clean2(a, b)
}

// TestTraceRights: a user sees what happens at its own sockets, and nothing else, even if the
// place of a trace has belonged to an administrator's before.
func TestTraceRights(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.opSideAs(0, 10, 1000), w.opSideAs(1, 20, 2000)
	a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
	w.run()
	all := begin(t, b.e, ctl.TraceSpec{}, root)
	a.submit(shm.Sub{Len: 5})
	w.run()
	if got := steps(t, all); got != "arrived/1 delivered/1" {
		t.Errorf("administrator: %q", got)
	}
	b.e.EndTrace(all)
	other, own := begin(t, b.e, ctl.TraceSpec{}, ctl.Caller{UID: 1000}), begin(t, b.e, ctl.TraceSpec{}, ctl.Caller{UID: 2000})
	b.datagrams()
	a.submit(shm.Sub{Len: 5})
	w.run()
	b.datagrams()
	w.run()
	if got := steps(t, other); got != "" {
		t.Errorf("another user: %q", got)
	}
	if got := own.Read(100); len(got) != 3 || got[0].Step != "arrived" || got[2].Step != "read" {
		t.Errorf("the owner: %+v", got)
	}
	// A message for nobody is an administrator's affair.
	b.e.EndTrace(own)
	all, own = begin(t, b.e, ctl.TraceSpec{}, root), begin(t, b.e, ctl.TraceSpec{}, ctl.Caller{UID: 2000})
	b.must(&ipc.CloseSock{Sock: b.sock})
	w.run()
	a.submit(shm.Sub{Len: 5})
	w.run()
	if got := steps(t, all); got != "nosocket/1" {
		t.Errorf("for nobody: %q", got)
	}
	if got := steps(t, own); got != "" {
		t.Errorf("a user of what is for nobody: %q", got)
	}
	w.clean2(a, b)
}

// TestTraceSelect: filters, every Nth at both ends, the count, and the places.
func TestTraceSelect(t *testing.T) {
	w, a, b := opPair(t, 2)
	w.run()
	here, there := a.e.addrs.all[0].addr, b.e.addrs.all[0].addr
	no := begin(t, a.e, ctl.TraceSpec{LocalPort: a.port + 1}, root)
	no2 := begin(t, a.e, ctl.TraceSpec{Remote: here}, root)
	yes := begin(t, a.e, ctl.TraceSpec{Local: here, LocalPort: a.port, Remote: there, RemotePort: b.port, Every: 4}, root)
	peer := begin(t, b.e, ctl.TraceSpec{LocalPort: b.port, Remote: here, Every: 4}, root)
	two := begin(t, a.e, ctl.TraceSpec{Count: 2}, root)
	slow := begin(t, a.e, ctl.TraceSpec{Rate: 3}, root)
	for range 16 {
		a.submit(shm.Sub{Len: 5})
		w.run()
		b.datagrams()
	}
	if got := no.Read(100); len(got) != 0 {
		t.Errorf("another port: %+v", got)
	}
	if got := no2.Read(100); len(got) != 0 {
		t.Errorf("another peer: %+v", got)
	}
	seqs := func(tr *trace.Trace, step string) (out []uint64) {
		for _, e := range tr.Read(1000) {
			if e.Step == step {
				out = append(out, e.Seq)
			}
		}
		return out
	}
	if s, r := seqs(yes, "posted"), seqs(peer, "arrived"); len(s) != 4 || !slices.Equal(s, r) || s[0]%4 != 0 {
		t.Errorf("every fourth: %d at the sender, %d at the receiver", s, r)
	}
	if n := seqs(two, "posted"); len(n) != 2 || !two.State().Full {
		t.Errorf("the first two: %d, %+v", n, two.State())
	}
	if n, s := seqs(slow, "posted"), slow.State(); len(n) < 3 || len(n) > 6 || int(s.Skipped) != 16-len(n) {
		t.Errorf("3 a second: %d, %+v", n, s)
	}
	w.clean2(a, b)
}
