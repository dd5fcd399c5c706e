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

// points counts down what RDSD_FAIL asked for.
type points struct {
	mu   sync.Mutex
	left map[string]int // hits until the failure; guarded by mu
}

// configured is made at the first Hit. It panics for what is no name or count:
// a test that asks for nothing tests nothing.
var configured = sync.OnceValue(func() *points {
	p, err := parse(os.Getenv("RDSD_FAIL"))
	if err != nil {
		panic(err)
	}
	return p
})

func parse(s string) (*points, error) {
	p := &points{left: map[string]int{}}
	if s == "" {
		return p, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		name, count, _ := strings.Cut(item, ":")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("RDSD_FAIL: %q is not name:count with a count from 1 and a name of %q", item, Names())
		}
		p.left[name] = n
	}
	return p, nil
}

// Hit reports the failure asked for at the place called name. Safe for any
// goroutine. The error is ENOMEM.
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
	return fmt.Errorf("fail point %q: %w", name, syscall.ENOMEM)
}
