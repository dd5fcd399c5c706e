package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/rds"
)

// hurried has the limits of a hand-over end sooner: 2 s while the daemon serves and 1 s while
// nobody does. Both daemons have fail points.
func hurried() option {
	return func(h *host) { h.prog, h.env = "rdsd-failpoints", append(h.env, "RDSD_HURRY=5") }
}

// stopAt upgrades to a successor that stops at a fail point. Where the limits are short a
// successor may be too late for its step. Then stopAt tries again.
func (f *failing) stopAt(name string) (p *process, pid int) {
	f.t.Helper()
	f.next(name + ":1~")
	for p = f.upgrading(); ; {
		eventually(f.t, "the successor stops", func() error {
			if pid = f.standing(); pid == 0 && p.Alive() {
				return errors.New("it runs")
			}
			return nil
		})
		if pid != 0 {
			return p, pid
		}
		f.failed(p, "i/o timeout")
		p = f.upgrading()
	}
}

// TestSuccessorStopped stops the successor in each of its steps, so that the limits of the
// hand-over act: the daemon must go on and end it. Without a starter nobody can end it, and it
// must end by itself when it is continued.
func TestSuccessorStopped(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here, there := newFailing(t, hurried()), newHost(t)
		b := startBystanders(t, here.host, there)
		steps := []struct{ name, step string }{{failpoint.Taking, "the new daemon's start"}, {failpoint.Adopt, "adoption"}, {failpoint.Adopted, "adoption"}}
		for _, s := range steps {
			p, _ := here.stopAt(s.name)
			here.failed(p, s.step, "i/o timeout")
			b.progress()
		}
		starter, failed := here.starter(), here.logged("upgrade failed")
		p, pid := here.stopAt(failpoint.Adopted)
		kill(t, starter, syscall.SIGKILL)
		eventually(t, "the daemon resumes", func() error {
			if here.logged("upgrade failed") <= failed {
				return errors.New("not yet")
			}
			return nil
		})
		b.progress()
		kill(t, pid, syscall.SIGCONT)
		p.wait()
		contains(t, "rdsctl daemon upgrade", p.log(), "adoption", "i/o timeout", "the starter has ended", "goes on")
		eventually(t, "the successor's end", func() error {
			if left := here.processes(); !slices.Equal(left, []int{here.pid()}) {
				return fmt.Errorf("processes %v", left)
			}
			return nil
		})
		b.finish()
	})
}

// TestPredecessorStopped stops the daemon that hands over in each of its steps. If it is
// continued in time it hands over. Otherwise its successor has given up, and it goes on.
func TestPredecessorStopped(t *testing.T) {
	for _, name := range inPredecessor {
		t.Run(name, func(t *testing.T) {
			isolated(t, func(t *testing.T) { testPredecessorStopped(t, name) })
		})
	}
}

func testPredecessorStopped(t *testing.T, name string) {
	options := []option{withProgram("rdsd-failpoints"), withEnv("RDSD_FAIL=" + name + ":1~")}
	if name != failpoint.Successor { // before that there is none
		options = append(options, hurried())
	}
	here, there := newHost(t, options...), newHost(t)
	here.expected = []string{"upgrade failed"}
	b := startBystanders(t, here, there)
	p := here.upgrading()
	if here.stopped() != here.pid() {
		t.Error("another process was stopped")
	}
	if name != failpoint.Successor {
		eventually(t, "the successor gives up", func() error {
			if n := len(here.processes()); n > 2 {
				return fmt.Errorf("%d processes", n)
			}
			return nil
		})
	}
	kill(t, here.pid(), syscall.SIGCONT)
	if name == failpoint.Successor {
		here.succeeded(p)
	} else {
		here.failed(p, "hand-over: ")
	}
	b.progress()
	b.finish()
}

// TestSlowPredecessor stops the daemon that hands over in each step and continues it at once.
func TestSlowPredecessor(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here, there := newHost(t, withProgram("rdsd-failpoints"), withEnv("RDSD_FAIL="+failEach("~"))), newHost(t)
		b := startBystanders(t, here, there)
		p := here.upgrading(plainSuccessor()...)
		for range inPredecessor {
			kill(t, here.stopped(), syscall.SIGCONT)
		}
		here.succeeded(p)
		b.progress()
		b.finish()
	})
}

// TestStarterKilled kills the starter: before an upgrade, which is refused from then on, and
// during one, which succeeds.
func TestStarterKilled(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here, there := newFailing(t), newHost(t)
		b := startBystanders(t, here.host, there)
		here.next(failpoint.Taking + ":1~")
		starter := here.starter()
		p := here.upgrading(failingSuccessor()...)
		next := here.stopped()
		kill(t, starter, syscall.SIGKILL)
		kill(t, next, syscall.SIGCONT)
		here.succeeded(p)
		b.progress()

		kill(t, here.starter(), syscall.SIGKILL)
		for range 2 {
			p := here.upgrading()
			if code := p.wait(); code == 0 {
				t.Errorf("without a starter: status 0, %s", p.stdout())
			}
			contains(t, "rdsctl daemon upgrade", p.log(), "the starter has ended", "restart the daemon")
		}
		if left := here.processes(); !slices.Equal(left, []int{here.pid()}) {
			t.Errorf("processes %v", left)
		}
		b.progress()
		b.finish()
	})
}

// TestEndedWhileHandingOver sends SIGTERM to one of the daemons in a hand-over. Of the old one it
// ends the service, whoever serves by then. Of the new one it ends the attempt.
func TestEndedWhileHandingOver(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here := newFailing(t)
		for _, name := range []string{failpoint.Taking, failpoint.Adopted} {
			c := here.open()
			s := here.bind(c, 0)
			here.next(name + ":1~")
			p := here.upgrading(failingSuccessor()...)
			next := here.stopped()
			kill(t, next, syscall.SIGTERM)
			kill(t, next, syscall.SIGCONT)
			here.failed(p, "asked to end")
			if _, err := s.SendTo(nil, s.LocalAddrPort()); err != nil {
				t.Error(err)
			}

			p = here.upgrading(failingSuccessor()...)
			next = here.stopped()
			kill(t, here.pid(), syscall.SIGTERM)
			here.saw(`msg="asked to end, waits`)
			kill(t, next, syscall.SIGCONT)
			<-c.Done()
			if err := c.Err(); !errors.Is(err, rds.ErrDaemonGone) || !strings.Contains(err.Error(), "shutting down") {
				t.Errorf("%s: client of the daemon that was ended: %v", name, err)
			}
			if code := here.wait(); code != 0 {
				t.Errorf("%s: status %d after SIGTERM", name, code)
			}
			if files, left := here.files(), here.processes(); len(files)+len(left) > 0 {
				t.Errorf("%s: left files %v and processes %v", name, files, left)
			}
			p.Kill()
			here.checkLog()
			here.start()
		}
	})
}

// TestUpgradesAtOnce asks for another upgrade while one is in progress, in both ways. It is
// refused, and the first one goes on.
func TestUpgradesAtOnce(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here, there := newFailing(t), newHost(t)
		here.expected = append(here.expected, `msg="no upgrade"`)
		b := startBystanders(t, here.host, there)
		here.next(failpoint.Taking + ":1~")
		p := here.upgrading(failingSuccessor()...)
		next := here.stopped()
		second := here.upgrading()
		if code := second.wait(); code != 1 {
			t.Errorf("a second upgrade: status %d, %s", code, second.stdout())
		}
		contains(t, "a second upgrade", second.log(), "upgrade 1 is in progress")
		here.Signal(syscall.SIGUSR2)
		here.saw(`msg="no upgrade"`)
		kill(t, next, syscall.SIGCONT)
		if u := here.succeeded(p); u.Generation != 2 || u.Attempt != 1 {
			t.Errorf("%+v", u)
		}
		b.progress()
		here.next("")
		if u := here.upgrade(); u.Generation != 3 || u.Attempt != 2 {
			t.Errorf("%+v", u)
		}
		b.progress()
		b.finish()
	})
}

// TestUpgradeWhileDraining: a daemon that drains hands that over, and whoever waits for the end
// of the drain goes on waiting.
func TestUpgradeWhileDraining(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		c := h.open()
		s := h.bind(c, 0)
		nobody := addrPortOf(newAddress(t), 1) // no host is there
		if _, err := s.SendTo([]byte("stays"), nobody); err != nil {
			t.Fatal(err)
		}
		p := startProcess(t, nil, program("rdsctl"), "daemon", "drain", "-wait", patience.String(), "-socket", h.sock)
		refused := func() error {
			x, err := c.Bind(h.at(0))
			switch {
			case errors.Is(err, syscall.ESHUTDOWN):
				return nil
			case err == nil:
				x.Close()
				return errors.New("bind succeeds")
			}
			return err
		}
		eventually(t, "drain", refused)
		h.upgrade()
		if err := refused(); err != nil {
			t.Error(err)
		}
		if !p.Alive() {
			t.Errorf("the drain is over: %s%s", p.stdout(), p.log())
		}
		if err := s.CancelSentTo(nobody); err != nil {
			t.Error(err)
		}
		if code := p.wait(); code != 0 {
			t.Errorf("drain: status %d, %s", code, p.log())
		}
		h.rdsctl("daemon", "resume")
		h.bind(c, 0)
		c.Close()
	})
}
