package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

var (
	mergeA = netip.MustParseAddr("10.0.0.1")
	mergeB = netip.MustParseAddr("10.0.0.2")
)

// life is a message of a from A to B, or back, as the daemons of A and B trace it. The
// moments are µs by A's clock; B's is ahead by ahead.
func life(seq uint64, back bool, ahead time.Duration, posted, arrived, acked int) (a, b []ctl.TraceEvent) {
	at := func(us int, step string, local, remote netip.Addr, lport, rport uint16) ctl.TraceEvent {
		t := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(us) * time.Microsecond)
		if local == mergeB {
			t = t.Add(ahead)
		}
		return ctl.TraceEvent{Time: t, Step: step, Local: local, LocalPort: lport, Remote: remote, RemotePort: rport, Seq: seq, Datagrams: 3, Bytes: 100}
	}
	from, to := mergeA, mergeB
	if back {
		from, to = to, from
	}
	a = []ctl.TraceEvent{at(posted-5, "submitted", from, to, 1, 2), at(posted, "posted", from, to, 1, 2), at(acked, "acked", from, to, 1, 2)}
	b = []ctl.TraceEvent{at(arrived, "arrived", to, from, 2, 1), at(arrived+1, "delivered", to, from, 2, 1), at(arrived+40, "read", to, from, 2, 1)}
	if back {
		return b, a
	}
	return a, b
}

// TestMergeClocks: the offset is found within its error, from traffic one way and both, and
// everything is by the first clock.
func TestMergeClocks(t *testing.T) {
	for _, ahead := range []time.Duration{0, 3 * time.Second, -7 * time.Millisecond} {
		var files [2][]ctl.TraceEvent
		for i, m := range []struct {
			back                   bool
			posted, arrived, acked int
		}{{false, 100, 180, 200}, {false, 300, 320, 380}, {true, 500, 590, 600}, {true, 700, 712, 790}} {
			a, b := life(uint64(100+i), m.back, ahead, m.posted, m.arrived, m.acked)
			files[0], files[1] = append(files[0], a...), append(files[1], b...)
		}
		r, err := merge(files)
		if err != nil {
			t.Fatal(err)
		}
		c := r.Clocks
		if d := (c.Offset - ahead).Abs(); c.Error == nil || d > *c.Error || *c.Error > 16*time.Microsecond || c.Messages != 4 || c.Drifted {
			t.Errorf("%v ahead: %+v, error %v", ahead, c, c.Error)
		}
		if len(r.Merged) != 4 {
			t.Fatalf("%d messages", len(r.Merged))
		}
		for i, m := range r.Merged {
			if m.Seq != uint64(100+i) || *m.Posted != 5*time.Microsecond || *m.Posted > *m.Arrived || *m.Delivered-*m.Arrived != time.Microsecond || *m.Arrived > *m.Acked ||
				*m.Read-*m.Delivered != 39*time.Microsecond || m.Datagrams != 3 || m.Settled != nil || (m.From == mergeB) != (i > 1) {
				t.Errorf("%v ahead: message %d: %+v", ahead, i, m)
			}
		}
	}
}

// traceFile is a file with events.
func traceFile(t *testing.T, events []ctl.TraceEvent) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	p := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(p, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestMergeFiles: the verb, with files that are none, and files that have nothing in common.
func TestMergeFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := life(7, false, time.Second, 10, 60, 100)
	a2, _ := life(8, false, time.Second, 10, 60, 100)
	fa, fb, only := traceFile(t, append(a, a2...)), traceFile(t, b), traceFile(t, a2)
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args         []string
		code         int
		stdout, errs string
	}{
		{[]string{fa, fb, "-no-header"}, exitOK, "10.0.0.1:1  10.0.0.2:2  0  3  100  0  5.0µs  50.0µs  51.0µs", "is ahead of that of " + fa + " by 1.000005s, give or take 45µs (from 1 messages)"},
		{[]string{fa, fb, "-all", "-columns", "seq", "-no-header"}, exitOK, "7\n8\n", "ahead"},
		{[]string{fa, fb, "-o", "jsonl"}, exitOK, `"arrived_ns":`, ""},
		{[]string{fa, only}, exitFailed, "", "no message is in both traces"},
		{[]string{fa, bad}, exitFailed, "", bad + ": at byte 0: no event of a trace"},
		{[]string{fa, filepath.Join(dir, "none")}, exitNotFound, "", "no such file"},
		{[]string{fa}, exitUsage, "", "want two files"},
	} {
		code, stdout, stderr := runApp(t, direct{&backend{}, true}, append([]string{"trace", "merge"}, c.args...)...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stdout+stderr, c.errs) {
			t.Errorf("%q: status %d\n%s%s", c.args, code, stdout, stderr)
		}
	}
}

// FuzzTrace: no file makes merge fail in another way than with an error.
func FuzzTrace(f *testing.F) {
	a, b := life(7, false, time.Second, 10, 60, 100)
	for _, e := range append(a, b...) {
		line, _ := json.Marshal(e)
		f.Add(string(line) + "\n")
	}
	f.Add("{}\n")
	f.Fuzz(func(t *testing.T, s string) {
		_, b := life(7, false, time.Second, 10, 60, 100)
		events, err := parseTrace(strings.NewReader(s), "x")
		if err != nil {
			return
		}
		if r, err := merge([2][]ctl.TraceEvent{events, b}); err == nil && r.Clocks == nil {
			t.Error("no clocks")
		}
	})
}

// TestTraceVerb: what the daemon is asked, and what the user is told of what is missing.
func TestTraceVerb(t *testing.T) {
	for _, c := range []struct {
		args         []string
		code         int
		stdout, errs string
		spec         ctl.TraceSpec
	}{
		{[]string{"-n", "5", "-local", ":4000", "-remote", "127.0.0.2:4001", "-every", "3", "-d", "2s", "-rate", "7"}, exitOK, "posted", "2 events are missing",
			ctl.TraceSpec{LocalPort: 4000, Remote: netip.MustParseAddr("127.0.0.2"), RemotePort: 4001, Every: 3, Count: 5, Duration: 2 * time.Second, Rate: 7}},
		{[]string{"-o", "jsonl"}, exitOK, `"step":"submitted"`, "3 messages were beyond -rate", ctl.TraceSpec{Every: 1, Duration: ctl.DefaultTraceTime, Rate: ctl.DefaultTraceRate}},
		{[]string{"-o", "json-v2"}, exitOK, `"dropped_events": 2`, "", ctl.TraceSpec{Every: 1, Duration: ctl.DefaultTraceTime, Rate: ctl.DefaultTraceRate}},
		{[]string{"-every", "0"}, exitUsage, "", "more than 0", ctl.TraceSpec{}},
		{[]string{"-local", "x"}, exitUsage, "", "want ADDR, ADDR:PORT or :PORT", ctl.TraceSpec{}},
		{[]string{"-d", "2h"}, exitFailed, "", "is not between 0 and 1h0m0s", ctl.TraceSpec{}},
		{[]string{"-rate", "20000"}, exitFailed, "", "is not between 1 and 10000", ctl.TraceSpec{}},
	} {
		b := &backend{missed: true}
		code, stdout, stderr := runApp(t, direct{b, false}, append([]string{"trace"}, c.args...)...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.errs) {
			t.Errorf("%q: status %d\n%s%s", c.args, code, stdout, stderr)
		}
		if code == exitOK && (len(b.traced) != 1 || b.traced[0] != c.spec) {
			t.Errorf("%q asks for %+v", c.args, b.traced)
		}
	}
}
