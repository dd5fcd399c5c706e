package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/stats"
)

// TestUpgradeCommand has rdsctl replace the daemon by the program at its path and by another
// one, and shows what it says and its exit status when that is refused.
func TestUpgradeCommand(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		h.expected = append(h.expected, "upgrade failed, this daemon goes on")
		instance := h.status().Instance
		copied := filepath.Join(t.TempDir(), "rdsd")
		b, err := os.ReadFile(program("rdsd"))
		if err == nil {
			err = os.WriteFile(copied, b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		run := func(code int, args ...string) string {
			t.Helper()
			p := startProcess(t, nil, program("rdsctl"), append([]string{"daemon", "upgrade", "-socket", h.sock}, args...)...)
			if got := p.wait(); got != code {
				t.Errorf("rdsctl daemon upgrade %v: status %d, want %d: %s%s", args, got, code, p.stdout(), p.log())
			}
			return p.stdout() + p.log()
		}
		for _, args := range [][]string{nil, {"-binary", copied}} {
			contains(t, "rdsctl daemon upgrade", run(0, args...), "serves, pid ", "after a pause of")
			h.replaced(&h.status().Upgrade)
		}
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", h.pid())); err != nil || exe != copied {
			t.Errorf("the daemon's program is %s, want %s (%v)", exe, copied, err)
		}
		notes := t.TempDir()
		if err := os.WriteFile(notes+"/rdsd", []byte("#!/bin/sh\necho hello\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			code   int
			args   []string
			wanted string
		}{
			{1, []string{"-binary", "/nowhere/rdsd"}, "no such file or directory"},
			{1, []string{"-binary", "rdsd"}, "not an absolute path"},
			{1, []string{"-binary", notes + "/rdsd"}, "-version does not say that it is rdsd"},
			{2, []string{"-wait", "-1s"}, "negative"},
			{3, []string{"-socket", h.dir + "/none"}, "no daemon found"},
		} {
			contains(t, "rdsctl daemon upgrade "+strings.Join(tc.args, " "), run(tc.code, tc.args...), tc.wanted)
		}
		contains(t, "rdsctl status", h.rdsctl("status"), "generation 3; the last one failed at", "-version does not say")
		contains(t, "rdsctl events", h.rdsctl("events"), "upgrade failed, this daemon goes on", "upgrade done")
		contains(t, "rdsctl daemon upgrade -wait 0", run(0, "-wait", "0"), "has begun; rdsctl status shows its end")
		h.follow()
		if now := h.status().Instance; now != instance {
			t.Errorf("instance %v, before %v", now, instance)
		}
	})
}

// TestUpgradeWatched has rdsctl follow the daemon in every way while it is replaced. A trace and
// a capture end with a reason. What only looks again goes on, and counters never fall.
func TestUpgradeWatched(t *testing.T) {
	isolated(t, func(t *testing.T) {
		addr := newAddress(t)
		metrics := addr.String() + ":" + freePort(t, addr)
		h := newHost(t, withAddress(addr), withArgs("-metrics-listen", metrics))
		l := startLoad(t, h, newHost(t), 5000)
		l.progress(100)
		file := filepath.Join(t.TempDir(), "x.pcapng")
		trace := startProcess(t, nil, program("rdsctl"), "trace", "-d", "1m", "-socket", h.sock)
		capture := startProcess(t, nil, program("rdsctl"), "capture", "-w", file, "-d", "1m", "-socket", h.sock)
		events := startProcess(t, nil, program("rdsctl"), "events", "-f", "-socket", h.sock)
		trace.saw("\n")
		events.saw("up")
		eventually(t, "the capture", func() error { _, err := os.Stat(file); return err })

		last := map[stats.Counter]uint64{}
		look := func() {
			t.Helper()
			if text, err := scraped(metrics); err != nil || !strings.Contains(text, "rdsd_sockets 2") {
				t.Errorf("the metrics do not say that there are two sockets: %v", err)
			}
			for _, c := range []stats.Counter{stats.SendQueued, stats.RecvDelivered, stats.Sockets, stats.Clients} {
				if now := h.gauge(c); now < last[c] {
					t.Errorf("%v went from %d to %d", c, last[c], now)
				} else {
					last[c] = now
				}
			}
		}
		stop, looked := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(looked)
			for {
				select {
				case <-stop:
					return
				default:
					look()
				}
			}
		}()
		for range 3 {
			h.upgrade()
			l.progress(20)
		}
		close(stop)
		<-looked
		for what, p := range map[string]*process{"trace": trace, "capture": capture} {
			if code := p.wait(); code == 0 || !strings.Contains(p.log(), "the daemon is being replaced by a new one") {
				t.Errorf("rdsctl %s: status %d, %q", what, code, p.log())
			}
		}
		events.saw("upgrade done")
		if !events.Alive() {
			t.Errorf("rdsctl events -f ended: %s", events.log())
		}
		events.Kill()
		l.finish()
		l.audit.all(t, l.socks[0], l.socks[1])
		if u := h.status().Upgrade; u.Generation != 4 || u.Pause <= 0 || u.Pause >= u.Took {
			t.Errorf("%+v", u)
		}
	})
}
