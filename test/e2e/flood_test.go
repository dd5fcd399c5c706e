package e2e

import (
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/internal/stats"
)

// TestGarbageFlood has a process break the rules again and again. Each time must be counted, and
// the log must stay short.
func TestGarbageFlood(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHosts(t, 1)[0]
		h.expected = []string{"client ended"}
		const n = 500
		for range n {
			c := h.dialRaw()
			if _, err := c.Write([]byte("hello, daemon, how are you?")); err != nil {
				t.Error(err)
			}
			drainUnix(c)
			c.Close()
		}
		eventually(t, "counted and summed", func() error {
			if c, sum := h.gauge(stats.ClientViolations), h.logged("times="); c != n || sum == 0 {
				return fmt.Errorf("%d counted of %d, %d sums", c, n, sum)
			}
			return nil
		})
		if lines := h.logged("client ended"); lines > n/4 {
			t.Errorf("%d lines for %d", lines, n)
		}
	})
}
