package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
)

func TestQuantile(t *testing.T) {
	var d []time.Duration
	if q := quantile(d, 0.99); q != 0 {
		t.Errorf("of nothing: %v", q)
	}
	for i := range 100 {
		d = append(d, time.Duration(i+1))
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0, 1}, {0.5, 50}, {0.99, 99}, {1, 100}} {
		if got := quantile(d, c.q); got != c.want {
			t.Errorf("%v of 1..100: %d, want %d", c.q, got, c.want)
		}
	}
}

func TestBar(t *testing.T) {
	got := bar("copy-out", 50e6, 100e6, time.Second)
	want := "copy-out  50% [===============               ] 50.0 of 100.0 MB, 50 MB/s"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := bar("copy-in", 0, 0, 0); !strings.Contains(got, "100%") {
		t.Errorf("an empty file: %q", got)
	}
}

func TestQuota(t *testing.T) {
	q := newQuota(2)
	a, b := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
	if !q.charge(a) || !q.charge(a) || q.charge(a) {
		t.Error("want two requests for one client, and no third")
	}
	if !q.charge(b) {
		t.Error("another client paid for the first")
	}
	q.uncharge(a)
	if !q.charge(a) {
		t.Error("what was given back is gone")
	}
	q.uncharge(a)
	q.uncharge(a)
	q.uncharge(b)
	if len(q.used) != 0 {
		t.Errorf("%d clients remembered with nothing in hand", len(q.used))
	}
}

func TestOperationsStats(t *testing.T) {
	o := newOperations()
	a := netip.MustParseAddrPort("127.0.0.2:9")
	for id, s := range []rds.Status{rds.Success, rds.Dropped, rds.Unknown, rds.RemoteError} {
		op := &operation{request: request{from: a}}
		token := o.add(op)
		o.started(op, uint64(id)+1)
		if o.take(token) != op || o.take(token) != nil {
			t.Fatal("take: want the operation once")
		}
		o.count(s)
	}
	if o.flies() {
		t.Error("an operation flies that has settled")
	}
	o.countRead()
	o.countWrite()
	st := o.stats(func(netip.Addr) uint64 { return 3 })
	if st.Operations != 4 || st.Success != 1 || st.Dropped != 1 || st.Unknown != 1 || st.OtherStatus != 1 || st.Reads != 5 || st.Writes != 1 {
		t.Errorf("counts %+v", st)
	}
	if len(st.Destinations) != 1 || st.Destinations[0] != (destStats{"127.0.0.2", 4, 3}) {
		t.Errorf("destinations %+v", st.Destinations)
	}
	if o.add(&operation{}); !o.flies() {
		t.Error("no operation flies")
	}
}
