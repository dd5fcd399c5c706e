package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/trace"
)

// rdsctl is a connection of rdsctl, of uid.
func (c *crowd) rdsctl(uid uint32) *ipc.Client {
	c.t.Helper()
	x := c.dial(uid)
	if err := hello(x, ipc.RoleCtl); err != nil {
		c.t.Fatal(err)
	}
	return x
}

// request puts r to the daemon.
func (c *crowd) request(x *ipc.Client, r ctl.Request) (*ctl.Response, error) {
	c.t.Helper()
	r.Schema = ctl.Schema
	req, err := json.Marshal(r)
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := x.CallJSON(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return ctl.Parse(b, r.Kind)
}

func (p *feedPlaces) taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

// TestTracePlaces: a thousand traces asked for are some of one user, some of the next, and
// always some for administrators; who hangs up, or reads nothing, gives its places back.
func TestTracePlaces(t *testing.T) {
	c := newCrowd(t, func(*config.Config) {})
	begin := ctl.Request{Kind: ctl.KindTrace, Do: ctl.DoBegin, Trace: &ctl.TraceSpec{Duration: time.Hour}}
	var open []*ipc.Client
	takes := func(uid uint32, tries int) (got int) {
		for range tries {
			x := c.rdsctl(uid)
			_, err := c.request(x, begin)
			if err == nil {
				got++
				open = append(open, x)
				continue
			}
			if !strings.Contains(err.Error(), "traces") || !strings.Contains(err.Error(), "one is free again when its rdsctl ends") {
				t.Fatal(err)
			}
			x.Close()
		}
		return got
	}
	if n := takes(alice, 20); n != 3 {
		t.Errorf("one user has %d of the traces", n)
	}
	if n := takes(bob, 20); n < 1 || n > 2 {
		t.Errorf("the next user has %d", n)
	}
	if n := takes(0, 20); n < trace.Max-6 || c.d.traces.taken() != trace.Max {
		t.Errorf("root has %d, %d are taken", n, c.d.traces.taken())
	}
	// One connection begins a thousand, of which each ends the one before.
	for range 1000 {
		if _, err := c.request(open[0], begin); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.d.traces.taken(); n != trace.Max {
		t.Errorf("%d are taken", n)
	}
	for _, x := range open {
		x.Close()
	}
	eventually(t, "the places are free", func() error {
		if n := c.d.traces.taken(); n != 0 {
			return fmt.Errorf("%d are taken", n)
		}
		return nil
	})
	// It reads nothing, and its time is over.
	x := c.rdsctl(alice)
	if _, err := c.request(x, ctl.Request{Kind: ctl.KindTrace, Do: ctl.DoBegin, Trace: &ctl.TraceSpec{Duration: time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the place is free", func() error {
		if c.d.traces.taken() != 0 {
			return errors.New("it is taken")
		}
		return nil
	})
	if r, err := c.request(x, ctl.Request{Kind: ctl.KindTrace, Do: ctl.DoRead}); err != nil || !r.TraceState.Over || len(r.Trace) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := c.request(x, ctl.Request{Kind: ctl.KindTrace, Do: ctl.DoEnd}); err != nil {
		t.Error(err)
	}
	if _, err := c.request(x, ctl.Request{Kind: ctl.KindTrace, Do: ctl.DoRead}); !errors.Is(err, ctl.ErrNotFound) {
		t.Errorf("after the end: %v", err)
	}
}

// TestCapturePlaces: one capture at a time, for administrators alone; who hangs up, or reads
// nothing, gives its place back.
func TestCapturePlaces(t *testing.T) {
	c := newCrowd(t, func(*config.Config) {})
	begin := ctl.Request{Kind: ctl.KindCapture, Do: ctl.DoBegin, Capture: &ctl.CaptureSpec{Duration: time.Hour}}
	x := c.rdsctl(alice)
	for _, do := range []string{ctl.DoBegin, ctl.DoRead, ctl.DoEnd} {
		if _, err := c.request(x, ctl.Request{Kind: ctl.KindCapture, Do: do}); !errors.Is(err, ctl.ErrPermission) {
			t.Errorf("%s of another user: %v", do, err)
		}
	}
	first, second := c.rdsctl(0), c.rdsctl(0)
	if _, err := c.request(first, begin); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err := c.request(second, begin); err == nil || !strings.Contains(err.Error(), "captures") {
			t.Fatalf("a second capture: %v", err)
		}
	}
	// The first connection begins a thousand, of which each ends the one before.
	for range 1000 {
		if _, err := c.request(first, begin); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := c.request(first, ctl.Request{Kind: ctl.KindCapture, Do: ctl.DoRead}); err != nil || r.CaptureState.Over || len(r.Capture) < 100 {
		t.Errorf("%+v, %v", r, err)
	}
	first.Close()
	eventually(t, "the place is free", func() error {
		if c.d.captures.taken() != 0 {
			return errors.New("it is taken")
		}
		return nil
	})
	begin.Capture.Duration = time.Millisecond
	if _, err := c.request(second, begin); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its time is over", func() error {
		if c.d.captures.taken() != 0 {
			return errors.New("it is taken")
		}
		return nil
	})
	if r, err := c.request(second, ctl.Request{Kind: ctl.KindCapture, Do: ctl.DoRead}); err != nil || !r.CaptureState.Over || len(r.Capture) < 100 {
		t.Errorf("%+v, %v", r, err)
	}
}
