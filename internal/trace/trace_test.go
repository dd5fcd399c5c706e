package trace

import (
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

var (
	root   = ctl.Caller{Admin: true}
	nobody User
)

func begin(t *testing.T, a *Traces) *Trace {
	t.Helper()
	tr := New(ctl.TraceSpec{Rate: ctl.MaxTraceRate, Duration: time.Hour}, root)
	if !a.Begin(tr, 0) {
		t.Fatal("no place for a trace")
	}
	return tr
}

// TestUnread: a reader that reads nothing costs events, which are counted.
func TestUnread(t *testing.T) {
	var a Traces
	tr := begin(t, &a)
	ev := Event{Step: Read}
	set := a.Follow(&ev, nobody, 1)
	for range ring + 6 {
		a.Put(set, &ev, nobody)
	}
	if s := tr.State(); s.Dropped != 6 || s.Messages != 1 {
		t.Errorf("%+v", s)
	}
	if n := len(tr.Read(2 * ring)); n != ring {
		t.Errorf("%d events", n)
	}
	if a.Put(set, &ev, nobody); len(tr.Read(2*ring)) != 1 {
		t.Error("nothing fits when all was read")
	}
}

// TestPlaces: there are Max traces. A place that is given to another does not have it see
// messages that it has not chosen and may not see.
func TestPlaces(t *testing.T) {
	var a Traces
	var all [Max]*Trace
	for i := range all {
		all[i] = begin(t, &a)
	}
	if a.Begin(New(ctl.TraceSpec{Rate: 1}, root), 0) {
		t.Errorf("%d traces", Max+1)
	}
	ev := Event{}
	set := a.Follow(&ev, nobody, 1)
	if set != 1<<Max-1 {
		t.Errorf("set %b", set)
	}
	a.End(all[3])
	a.End(all[3])
	other := New(ctl.TraceSpec{Rate: 1, Duration: time.Hour}, ctl.Caller{UID: 1000})
	if !a.Begin(other, 0) {
		t.Fatal("the place is not free")
	}
	if a.Put(set, &ev, User{UID: 1, Known: true}); len(other.Read(9)) != 0 || len(all[3].Read(9)) != 0 || len(all[2].Read(9)) != 1 {
		t.Error("an event went to a trace that may not see it, or not to one that follows it")
	}
	for _, tr := range append(all[:], other) {
		a.End(tr)
	}
	if a.On {
		t.Error("on without a trace")
	}
}
