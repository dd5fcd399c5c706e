package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/rds"
)

// inPredecessor are the fail points of a daemon that hands over, in their order.
var inPredecessor = []string{failpoint.Successor, failpoint.Passing, failpoint.Park, failpoint.Go}

// plainSuccessor are the arguments of an upgrade to a program without fail points.
func plainSuccessor() []string { return []string{"-binary", program("rdsd")} }

// failEach is what makes each step of the predecessor fail, in one attempt after the other.
func failEach(action string) (fail string) {
	for i, name := range inPredecessor {
		if i > 0 {
			fail += ","
		}
		fail += fmt.Sprintf("%s:1%s", name, action)
	}
	return fail
}

// TestPredecessorFails makes each step fail in the daemon that hands over. It must say why and go
// on, and the attempt after that must get further.
func TestPredecessorFails(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here, there := newHost(t, withProgram("rdsd-failpoints"), withEnv("RDSD_FAIL="+failEach(""))), newHost(t)
		here.expected = []string{"upgrade failed"}
		b := startBystanders(t, here, there)
		for _, name := range inPredecessor {
			here.upgradeFails(plainSuccessor(), fmt.Sprintf("fail point %q", name))
			b.progress()
		}
		here.upgrade(plainSuccessor()...)
		b.progress()
		b.finish()
	})
}

// TestPredecessorKilled kills the daemon that hands over, at each step. Until its successor has
// everything that is like any other death of a daemon: its clients learn of it, none of its
// processes stays, and a new daemon serves those that open again.
func TestPredecessorKilled(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here, there := newHost(t, withProgram("rdsd-failpoints")), newHost(t)
		events := make(chan *rds.Reopened, 1)
		again := here.openWith(rds.Options{Reopen: func(r *rds.Reopened) { events <- r }})
		dst, src := here.bind(again, 5000), there.bind(there.open(), 0)
		for _, name := range inPredecessor[:len(inPredecessor)-1] {
			here.Kill()
			here.env = []string{"RDSD_FAIL=" + name + ":1!"}
			here.start()
			reopens(t, <-events)
			once := here.open()
			s := here.bind(once, 0)

			p := here.upgrading(plainSuccessor()...)
			<-once.Done()
			if err := once.Err(); !errors.Is(err, rds.ErrDaemonGone) {
				t.Errorf("%s: client of the dead daemon: %v", name, err)
			}
			if _, err := s.SendTo(nil, here.at(9)); !errors.Is(err, rds.ErrDaemonGone) {
				t.Errorf("%s: send after the daemon's death: %v", name, err)
			}
			if code := here.process.wait(); code != -1 { // and no process has its log any more
				t.Errorf("%s: the daemon was not killed, status %d", name, code)
			}
			if left := here.processes(); len(left) > 0 {
				t.Errorf("%s: processes %v stay", name, left)
			}
			here.env = nil
			here.start()
			reopens(t, <-events)
			if code := p.wait(); code != 1 {
				t.Errorf("%s: rdsctl: status %d, %s", name, code, p.log())
			}
			if p.log() != "rdsctl: the daemon is gone\n" { // which it is if it was killed before it answered
				contains(t, "rdsctl daemon upgrade", p.log(), "has ended, and pid", "has started without taking over")
			}
			if files := here.files(); len(files) != 3 {
				t.Errorf("%s: files %v", name, files)
			}
			text := []byte("across " + name)
			if _, err := src.SendTo(text, here.at(5000)); err != nil {
				t.Error(err)
			}
			buf := make([]byte, 100)
			if n, _, err := dst.RecvFrom(buf); err != nil || !slices.Equal(buf[:n], text) {
				t.Errorf("%s: received %q, %v", name, buf[:n], err)
			}
		}
	})
}

// reopens checks that a client that opens again has everything again.
func reopens(t *testing.T, r *rds.Reopened) {
	t.Helper()
	for _, l := range r.Sockets {
		if l.Err != nil || !errors.Is(r.Cause, rds.ErrDaemonGone) {
			t.Errorf("opened again after %v: %v", r.Cause, l.Err)
		}
	}
}

// TestPredecessorKilledLast kills the daemon that hands over when its successor has adopted
// everything. The successor serves, and nobody notices anything.
func TestPredecessorKilledLast(t *testing.T) {
	isolated(t, func(t *testing.T) {
		here, there := newHost(t, withProgram("rdsd-failpoints"), withEnv("RDSD_FAIL="+failpoint.Go+":1!")), newHost(t)
		here.dies = true
		b := startBystanders(t, here, there)
		here.upgrade(plainSuccessor()...)
		b.progress()
		here.upgrade()
		b.progress()
		b.finish()
	})
}
