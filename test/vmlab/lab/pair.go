package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Control is the control socket of a Pair's daemon.
const Control = "/run/rdsd.sock"

// StepLimit is the time that one step of a test, a program's run, may take.
const StepLimit = 3 * time.Minute

// Pair is a host with rdsd and a host with the kernel's RDS, or two hosts with rdsd. Either may
// have the smaller address. Programs run on them by krds (test/vmlab/krds), which has to be
// installed.
type Pair struct {
	*testing.T
	R, K  *Host // rdsd's host, the kernel's host
	Rdsds bool  // K runs rdsd, too
	V6    bool  // IPv6 addresses are used
}

// NewPair returns a pair of a lab's two hosts. rdsd has the smaller address if smaller is true.
func NewPair(t *testing.T, l *Lab, smaller bool) Pair {
	if smaller {
		return Pair{T: t, R: l.A, K: l.B}
	}
	return Pair{T: t, R: l.B, K: l.A}
}

// Short returns a function that reports whether a case is to be run. With -short, for CI, only
// the named cases are.
func Short(cases ...string) (keep func(name string) bool) {
	return func(name string) bool {
		number, _, _ := strings.Cut(name, " ")
		return !testing.Short() || slices.Contains(cases, number)
	}
}

// IP returns a host's address.
func (p *Pair) IP(h *Host) string {
	if p.V6 {
		return h.IP6()
	}
	return h.IP()
}

// Port returns a host's address and a port.
func (p *Pair) Port(h *Host, n int) string {
	if p.V6 {
		return fmt.Sprintf("[%s]:%d", h.IP6(), n)
	}
	return fmt.Sprintf("%s:%d", h.IP(), n)
}

// At returns a krds command of one host.
func (p *Pair) At(h *Host, format string, args ...any) string {
	cmd := "krds -via kernel "
	if h == p.R || p.Rdsds {
		cmd = "krds -via rdsd -rdsd " + Control + " "
	}
	return cmd + fmt.Sprintf(format, args...)
}

// Both runs f twice: first rdsd's host begins, then the kernel's.
func (p *Pair) Both(f func(t *testing.T, from, to *Host)) {
	p.Run("rdsd to kernel", func(t *testing.T) { f(t, p.R, p.K) })
	p.Run("kernel to rdsd", func(t *testing.T) { f(t, p.K, p.R) })
}

// Serve starts a krds that reports when it is ready.
func (p *Pair) Serve(h *Host, format string, args ...any) *Job {
	p.Helper()
	j := h.Start(p.T, p.At(h, format, args...))
	p.Until("a receiver", time.Minute, func() bool { return strings.Contains(j.Out(), "ready") })
	return j
}

// Until waits until done returns true.
func (p *Pair) Until(what string, d time.Duration, done func() bool) {
	p.Helper()
	for end := time.Now().Add(d); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("no %s within %v", what, d)
		}
	}
}

// Ended waits for a job, which must succeed, and returns its output.
func (p *Pair) Ended(j *Job) string {
	p.Helper()
	r := j.Wait(StepLimit)
	if r.Err() != nil {
		p.Fatalf("%v: %s", r.Err(), r.Out)
	}
	return r.Out
}

// Pings sends n pings from either side, each after the answer to the one before.
func (p *Pair) Pings(n int) {
	p.Both(func(t *testing.T, from, to *Host) {
		out := from.Run(t, StepLimit, p.At(from, "ping -from %s -to %s -n %d", p.IP(from), p.IP(to), n))
		if !strings.Contains(out, fmt.Sprintf("%d pings", n)) {
			t.Errorf("%q", out)
		}
	})
}

// Streams sends n messages from each of several sockets at the same time. Every byte is checked.
// more are flags for both ends.
func (p *Pair) Streams(from, to *Host, sockets, n int, more string) {
	p.Helper()
	j := p.Serve(to, "recv -at %s -streams %d %s -limit 150s", p.Port(to, 4000), sockets, more)
	from.Run(p.T, StepLimit, p.At(from, "send -from %s -to %s -sockets %d -n %d %s -limit 150s", p.Port(from, 5000), p.Port(to, 4000), sockets, n, more))
	if out := p.Ended(j); strings.Count(out, "0 lost") != sockets {
		p.Errorf("%q", out)
	}
}

// Congestion checks that a slow receiver delays its sender and that nothing is lost.
func (p *Pair) Congestion() {
	p.Both(func(t *testing.T, from, to *Host) {
		q := *p
		q.T = t
		const more = " -sizes 100000 "
		j := q.Serve(to, "recv -at %s -rcvbuf 300000 -delay 20ms -limit 150s"+more, q.Port(to, 4000))
		from.Run(t, StepLimit, q.At(from, "send -nonblock -from %s -to %s -n 80 -limit 150s"+more, q.Port(from, 5000), q.Port(to, 4000)))
		q.Ended(j)
	})
}

// Killed kills rdsd with SIGKILL. A socket that still exists must get nothing twice, and
// messages sent after the restart must arrive.
func (p *Pair) Killed(daemon *Job, start func()) {
	p.Helper()
	j := p.Serve(p.K, "recv -lossy -at %s -streams 1 -limit 170s", p.Port(p.K, 4000))
	s := p.R.Start(p.T, p.At(p.R, "send -lossy -from %s -to %s -n 100000 -sizes 24,3000 -limit 150s", p.Port(p.R, 5000), p.Port(p.K, 4000)))
	time.Sleep(5 * time.Second) // under load
	p.R.Run(p.T, time.Minute, "pkill -9 -x rdsd")
	daemon.Wait(time.Minute)
	s.Wait(time.Minute)
	start()
	p.R.Run(p.T, StepLimit, p.At(p.R, "send -lossy -from %s -to %s -n 50 -sizes 24,3000 -seed 7 -limit 150s", p.Port(p.R, 5000), p.Port(p.K, 4000)))
	if out := p.Ended(j); !strings.Contains(out, "50 messages, 75600 bytes, 0 lost") {
		p.Errorf("%q", out)
	}
	p.Streams(p.K, p.R, 1, 50, "")
}
