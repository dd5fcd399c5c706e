//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// action is what happens at a fail point.
type action string

const (
	fails action = ""
	kills action = "!"
	stops action = "~"
)

// points counts down the hits that RDSD_FAIL names.
type points struct {
	mu   sync.Mutex
	left map[string]int // hits until the failure; guarded by mu
	do   map[string]action
}

// configured is made at the first Hit. It panics if RDSD_FAIL has an unknown name or a bad
// count: a test with such a value would test nothing.
var configured = sync.OnceValue(func() *points {
	s := os.Getenv("RDSD_FAIL")
	if path, ok := strings.CutPrefix(s, "@"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		s = string(b)
	}
	p, err := parse(s)
	if err != nil {
		panic(err)
	}
	return p
})

// hurry is the divisor of Limit. It panics if RDSD_HURRY is no positive number.
var hurry = sync.OnceValue(func() time.Duration {
	s := os.Getenv("RDSD_HURRY")
	if s == "" {
		return 1
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("RDSD_HURRY: %q is no number from 1", s))
	}
	return time.Duration(n)
})

// Limit returns d, or the part of d that RDSD_HURRY asks for.
func Limit(d time.Duration) time.Duration { return d / hurry() }

func parse(s string) (*points, error) {
	p := &points{left: map[string]int{}, do: map[string]action{}}
	if s == "" {
		return p, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		name, count, _ := strings.Cut(item, ":")
		do := fails
		for _, a := range []action{kills, stops} {
			if rest, ok := strings.CutSuffix(count, string(a)); ok {
				count, do = rest, a
				break
			}
		}
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("RDSD_FAIL: %q is not name:count with a count from 1 and a name of %q", item, Names())
		}
		p.left[name], p.do[name] = n, do
	}
	return p, nil
}

// Hit returns ENOMEM if RDSD_FAIL asks for a failure at the place called name at this hit,
// else nil. Any goroutine may call it.
func Hit(name string) error {
	p := configured()
	if !p.due(name) {
		return nil
	}
	switch p.do[name] {
	case kills:
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		os.Exit(137) // process 1 of a pid namespace does not heed that
	case stops:
		stop()
		return nil
	}
	return fmt.Errorf("fail point %q: %w", name, syscall.ENOMEM)
}

// due counts a hit of name, and reports whether it is the one that RDSD_FAIL means.
func (p *points) due(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n, asked := p.left[name]; {
	case !asked:
		return false
	case n > 1:
		p.left[name] = n - 1
		return false
	}
	delete(p.left, name)
	return true
}

// stop stops the process. When it goes on, it has got the signals that were sent to it while it
// stood.
func stop() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	// To this thread, because a signal to the process could let it run on for a while.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
	<-goesOn
}
