package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
)

// TestWays checks each way to wait, of the daemon and of applications: round trips work, and the
// daemon says how it waits. Its engine runs on the CPUs of the configuration, and only it.
func TestWays(t *testing.T) {
	isolated(t, func(t *testing.T) {
		cpu := firstCPU(t)
		for _, w := range []string{"auto", "block", "yield", "spin"} {
			h := newHost(t, withArgs("-wait", w, "-cpus", cpu))
			c := h.openWith(rds.Options{Wait: w})
			a, b := h.bind(c, 0), h.bind(h.openWith(rds.Options{Wait: w}), 0)
			done := make(chan error)
			go func() { done <- echo(b, 300) }()
			for i := range 300 {
				if _, err := a.SendTo(fmt.Append(nil, i), b.LocalAddrPort()); err != nil {
					t.Fatal(err)
				}
				p := make([]byte, 8)
				n, _, err := a.RecvFrom(p)
				if err != nil || string(p[:n]) != fmt.Sprint(i) {
					t.Fatalf("%v: answer %d: %q, %v", w, i, p[:n], err)
				}
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			h.published()
			got := h.rdsctlJSON("status").Status.Engine.Wait
			if got.Strategy != w || w != "auto" && got.Way != w {
				t.Errorf("%v: the daemon waits by %+v", w, got)
			}
			contains(t, w, h.rdsctl("status"), "waiting", got.Way)
			if n := boundThreads(t, h.pid(), cpu); n != 1 && manyCPUs(t) {
				t.Errorf("%d threads are bound to CPU %s, want 1", n, cpu)
			}
		}
		p := startProcess(t, nil, program("rdsd"), "-socket", t.TempDir()+"/o", "-listen", newAddress(t).String(), "-cpus", "1023")
		if code := p.wait(); code != 1 {
			t.Errorf("a CPU that there is not: status %d", code)
		}
		contains(t, "a CPU that there is not", p.log(), "cpus", "1023", "taskset")
	})
}

// TestIdleBlocks: nobody looks for work while there is none, whatever was measured before.
func TestIdleBlocks(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		a, b := h.bind(h.open(), 0), h.bind(h.open(), 0)
		go func() { _ = echo(b, 1<<30) }()
		for i := range 2000 {
			if _, err := a.SendTo(fmt.Append(nil, i), b.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := a.RecvFrom(nil); err != nil {
				t.Fatal(err)
			}
		}
		// Nothing here asks the daemon, which would wake its engine: what it counts is in a mapping, where
		// the end of the traffic shows up to 10 ms late, in the first second.
		m, err := stats.Open(h.sock + ".stats")
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for second := range 3 {
			sleeps, turns := m.Load(int(stats.EngineSleeps)), m.Load(int(stats.EngineTurns))
			time.Sleep(time.Second) // the span that is measured
			sleeps, turns = m.Load(int(stats.EngineSleeps))-sleeps, m.Load(int(stats.EngineTurns))-turns
			const most = 1 // the heartbeat of each 15 s
			switch {
			case sleeps <= most && turns <= most:
				return
			case second == 2:
				t.Errorf("an idle engine woke %d times in a second, for %d turns; at most %d are expected", sleeps, turns, most)
			}
		}
	})
}

// echo sends n datagrams back.
func echo(s *rds.Socket, n int) error {
	p := make([]byte, 8)
	for range n {
		n, from, err := s.RecvFrom(p)
		if err != nil {
			return err
		}
		if _, err := s.SendTo(p[:n], from); err != nil {
			return err
		}
	}
	return nil
}

// firstCPU is the first CPU that this process may use.
func firstCPU(t *testing.T) string {
	list := allowed(t, "/proc/self/status")
	return list[:strings.IndexAny(list+",", ",-")]
}

func manyCPUs(t *testing.T) bool { return strings.ContainsAny(allowed(t, "/proc/self/status"), ",-") }

// allowed is the list of CPUs that a thread may use, from its status file.
func allowed(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "Cpus_allowed_list:")
	list, _, _ = strings.Cut(list, "\n")
	return strings.TrimSpace(list)
}

// boundThreads counts the threads of a process that may use this CPU only.
func boundThreads(t *testing.T, pid int, cpu string) (n int) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if allowed(t, f) == cpu {
			n++
		}
	}
	return n
}
