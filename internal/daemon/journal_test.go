package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

func viewOf(uid uint32, admin bool, limit int) ctl.View {
	return ctl.View{Limit: limit, May: func(u uint32) bool { return admin || u == uid }}
}

func TestJournal(t *testing.T) {
	var j journal
	all := viewOf(0, true, ctl.MaxLimit)
	now := time.Unix(1000, 0)
	peer := netip.MustParseAddr("127.0.0.2")
	j.note(now, slog.LevelInfo, peer, "up", []any{"local", netip.MustParseAddr("127.0.0.1"), "peer", peer})
	j.note(now.Add(1), slog.LevelInfo, peer, "down", []any{"err", errors.New("reset")})
	j.note(now.Add(2), slog.LevelWarn, uint32(1000), "client ended", []any{"pid", 12, "uid", 1000, "err", strings.Repeat("x", 10_000)})
	j.note(now.Add(3), slog.LevelInfo, peer, "down", []any{"err", errors.New("again")})

	out, more := j.events(all, 0)
	if len(out) != 4 || more || out[0].Seq != 1 || out[0].Local != netip.MustParseAddr("127.0.0.1") || out[0].Peer != peer || out[2].PID != 12 || *out[2].UID != 1000 ||
		len(out[2].Error) > maxErrText+3 || out[2].Level != "warn" {
		t.Errorf("events %+v, %v", out, more)
	}
	if out, more := j.events(viewOf(0, true, 2), 1); len(out) != 2 || !more || out[0].Seq != 2 {
		t.Errorf("two after the first: %+v, %v", out, more)
	}
	if out, _ := j.events(viewOf(0, true, 2), 0); len(out) != 2 || out[0].Seq != 3 {
		t.Errorf("the latest two: %+v", out)
	}
	if out, _ := j.events(viewOf(1000, false, 10), 0); len(out) != 4 {
		t.Errorf("to the user itself: %+v", out)
	}
	if out, _ := j.events(viewOf(7, false, 10), 0); len(out) != 3 {
		t.Errorf("to another user: %+v", out)
	}
	if out, more := j.events(all, 1<<63); len(out) != 0 || more {
		t.Errorf("after what never was: %+v", out)
	}
	if out, more := j.events(all, 1<<64-1); len(out) != 0 || more {
		t.Errorf("after the last number there is: %+v", out)
	}
	errs, _ := j.distinct(all)
	if len(errs) != 2 || errs[0].Event != "down" || errs[0].Count != 2 || errs[0].Error != "again" || !errs[0].First.Equal(now.Add(1)) || !errs[0].Last.Equal(now.Add(3)) {
		t.Errorf("errors %+v", errs)
	}
	if errs, more := j.distinct(viewOf(0, true, 1)); len(errs) != 1 || !more {
		t.Errorf("the latest error: %+v, %v", errs, more)
	}
	if errs, _ := j.distinct(viewOf(7, false, 10)); len(errs) != 1 {
		t.Errorf("errors to another user: %+v", errs)
	}

	// Whatever is said, it stays bounded, and the latest is there.
	for i := range 2 * maxEvents {
		j.note(now, slog.LevelWarn, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "refused", []any{"err", fmt.Errorf("no %d", i)})
	}
	out, _ = j.events(all, 0)
	if len(out) != maxEvents || out[maxEvents-1].Seq != 2*maxEvents+4 || out[0].Seq != maxEvents+5 {
		t.Errorf("%d events, %d to %d", len(out), out[0].Seq, out[len(out)-1].Seq)
	}
	if out, _ := j.events(all, 1); out[0].Seq != maxEvents+5 {
		t.Errorf("after what is gone: %d", out[0].Seq)
	}
	errs, _ = j.distinct(all)
	other := uint64(0)
	for _, e := range errs {
		if e.Event == "other errors" {
			other = e.Count
		}
	}
	if len(errs) != maxErrors+1 || other != 2*maxEvents-(maxErrors-2) {
		t.Errorf("%d errors, %d others", len(errs), other)
	}
}
