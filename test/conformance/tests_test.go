package conformance

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/test/child"
)

// goTest proves a statement by tests of the package that decides it. The tests must exist and
// pass.
func goTest(t *testing.T, pkg string, tests ...string) {
	t.Helper()
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "^("+strings.Join(tests, "|")+")$", pkg)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", cmd, err, child.Tail(string(out)))
		return
	}
	for _, name := range tests {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("%s has no %s, or skips it:\n%s", pkg, name, child.Tail(string(out)))
		}
	}
}

// memoryOutlivesProcess lets a process end while its memory is in use: it reads from a daemon
// that is stopped.
func memoryOutlivesProcess(t *testing.T, e *env) {
	p := pair(t)
	registered := func() uint64 { return p.a.counter(t, stats.RegisteredBytes) }
	ka := newKernel(t, p.a)
	r := newRDMABetween(t, ka.bound(t), p.kb.bound(t), 8192, 0)
	p.b.pause(t)
	for range 3 {
		r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{}, 0, 8192)...)
	}
	eventually(t, "operations", func() error {
		n := p.a.counter(t, stats.OpsOutstanding)
		return errOf(n != 3, "%d are outstanding", n)
	})
	_ = ka.c.Close()
	eventually(t, "the process is gone", func() error {
		n := p.a.counter(t, stats.Sockets)
		return errOf(n != 0, "it has %d sockets", n)
	})
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
		if registered() == 0 {
			t.Fatal("its memory was freed while the hardware may write to it")
		}
	}
	p.b.Resume()
	eventually(t, "its memory", func() error { return errOf(registered() != 0, "%d bytes are kept", registered()) })
}
