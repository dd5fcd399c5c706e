package librds

import (
	"bytes"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rdstest"
)

// sanitizers are the builds in which the C programs run.
func sanitizers() []string {
	if testing.Short() {
		return []string{""}
	}
	return []string{"", "address,undefined", "thread"}
}

// finish runs cmd and fails the test if cmd fails or does not end in a minute.
func finish(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // a child that hangs keeps the output open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out.String())
	}
	return out.String()
}

// TestThreads: many threads use one client.
func TestThreads(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			finish(t, program(t, s, "threads", d.Socket(), d.Addr().String()))
		})
	}
}

// TestCancel: a thread that is cancelled within a call harms no other. The address sanitizer takes
// the end of a cancelled thread for an overflow of its stack.
func TestCancel(t *testing.T) {
	for _, s := range sanitizers() {
		if strings.HasPrefix(s, "address") {
			continue
		}
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			finish(t, program(t, s, "cancel", d.Socket(), netip.AddrPortFrom(d.Addr(), 0).String()))
		})
	}
}

// TestFork: handles of the parent are refused in the child, and nothing of the parent's is
// harmed. The thread sanitizer does not follow a fork of a process with threads.
func TestFork(t *testing.T) {
	for _, s := range sanitizers() {
		if s == "thread" {
			continue
		}
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			cmd := program(t, s, "forked", d.Socket(), d.Addr().String())
			cmd.Env = append(cmd.Env, "ASAN_OPTIONS=detect_leaks=0") // the children keep copies
			finish(t, cmd)
		})
	}
}

// TestAdopt: adopted memory. The thread sanitizer does not follow a fork of a process with
// threads.
func TestAdopt(t *testing.T) {
	for _, s := range sanitizers() {
		if s == "thread" {
			continue
		}
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			cmd := program(t, s, "adopt", d.Socket(), d.Addr().String())
			cmd.Env = append(cmd.Env, "ASAN_OPTIONS=detect_leaks=0:allow_user_segv_handler=1")
			finish(t, cmd)
		})
	}
}

// TestSignals: signals in every call, and no SIGPIPE.
func TestSignals(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			finish(t, program(t, s, "signals", d.Socket(), d.Addr().String()))
		})
	}
}

// TestWake: wakes of threads and of signal handlers.
func TestWake(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			finish(t, program(t, s, "wake", d.Socket(), netip.AddrPortFrom(d.Addr(), 0).String()))
		})
	}
}

// TestReach: operations to hosts that are not reached end, and have not run.
func TestReach(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			finish(t, program(t, s, "reach", d.Socket(), netip.AddrPortFrom(d.Addr(), 0).String(), "127.254.253.252:7", "192.0.2.1:7"))
		})
	}
}

// TestBorrow: datagrams that are looked at where they lie.
func TestBorrow(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			finish(t, program(t, s, "borrow", d.Socket(), d.Addr().String()))
		})
	}
}

// TestGone: borrowed datagrams stay when the daemon ends, until the client is closed; and waits that
// only poll notice the end.
func TestGone(t *testing.T) {
	for name, first := range map[string]string{"borrow": "borrowed", "polling": "polls"} {
		t.Run(name, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			p := drive(t, program(t, "", name, d.Socket(), d.Addr().String(), "gone"))
			if got, err := p.do("begin"); err != nil || got != first {
				t.Fatal(got, err, p.end())
			}
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			if got, err := p.do("end"); err != nil || got != "ok" {
				t.Fatal(got, err, p.end())
			}
			if err := p.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPolling: the daemon rings no program that only polls.
func TestPolling(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			t.Log(finish(t, program(t, s, "polling", d.Socket(), d.Addr().String())))
		})
	}
}

// TestSegments: segments by address.
func TestSegments(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			cmd := program(t, s, "segments", d.Socket(), d.Addr().String())
			cmd.Env = append(cmd.Env, "ASAN_OPTIONS=detect_leaks=1:allow_user_segv_handler=1")
			finish(t, cmd)
		})
	}
}

// TestImportAt: memory that the program has mapped itself, in place.
func TestImportAt(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)[0]
			if strings.Contains(finish(t, program(t, s, "inplace", d.Socket(), d.Addr().String())), "no huge pages") {
				t.Log("the machine has no huge pages (vm.nr_hugepages)")
			}
		})
	}
}

// TestUnits: what needs no daemon.
func TestUnits(t *testing.T) {
	for _, s := range sanitizers() {
		t.Run("sanitize="+s, func(t *testing.T) { finish(t, program(t, s, "units")) })
	}
}
