//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// points counts down the hits that RDSD_FAIL names.
type points struct {
	mu   sync.Mutex
	left map[string]int // hits until the failure; guarded by mu
	kill map[string]bool
}

// configured is made at the first Hit. It panics if RDSD_FAIL has an unknown name or a bad
// count: a test with such a value would test nothing.
var configured = sync.OnceValue(func() *points {
	p, err := parse(os.Getenv("RDSD_FAIL"))
	if err != nil {
		panic(err)
	}
	return p
})

func parse(s string) (*points, error) {
	p := &points{left: map[string]int{}, kill: map[string]bool{}}
	if s == "" {
		return p, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		name, count, _ := strings.Cut(item, ":")
		count, kill := strings.CutSuffix(count, "!")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("RDSD_FAIL: %q is not name:count with a count from 1 and a name of %q", item, Names())
		}
		p.left[name], p.kill[name] = n, kill
	}
	return p, nil
}

// Hit returns ENOMEM if RDSD_FAIL asks for a failure at the place called name at this hit,
// else nil. Any goroutine may call it.
func Hit(name string) error { return configured().hit(name) }

func (p *points) hit(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n, asked := p.left[name]; {
	case !asked:
		return nil
	case n > 1:
		p.left[name] = n - 1
		return nil
	}
	delete(p.left, name)
	if p.kill[name] {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	}
	return fmt.Errorf("fail point %q: %w", name, syscall.ENOMEM)
}
