package sim

import (
	"os"
	"strconv"
	"testing"
)

// TestKernelPeer runs a daemon against the model of a kernel: without faults, with breaks, with
// bad keys and drops, and with posts that fail.
func TestKernelPeer(t *testing.T) {
	seeds := 12
	if s := os.Getenv("RDSD_SIM_SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("RDSD_SIM_SEEDS=%q", s)
		}
		seeds = n
	}
	if testing.Short() {
		seeds = min(seeds, 3)
	}
	for _, c := range []struct {
		name string
		set  func(w *kworld)
		must []string
	}{
		{"calm", func(w *kworld) {}, []string{"success", "pong", "released", "kernel: ENOBUFS", "cookie", "pong to the kernel"}},
		{"breaks", func(w *kworld) {
			w.net.Faults.BreakAll(pick[uint32](w.r, 300, 3000))
			w.net.Faults.HalfOpen = 200_000
			w.net.Faults.Refuse, w.net.Faults.Lost = 100_000, 20_000
			w.net.Timing.Late.Max = 30e6
		}, []string{"success", "unknown", "duplicates", "duplicates at the kernel", "raced"}},
		{"bad keys", func(w *kworld) { w.bad = true }, []string{"success", "remote error", "dropped", "duplicates at the kernel"}},
		{"post failures", func(w *kworld) { w.net.Faults.PostFail = 500 }, []string{"success", "bounces"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			saw := map[string]int{}
			for i := range seeds {
				seed := *first + uint64(i)
				if *oneSeed != 0 {
					seed = *oneSeed
				}
				func() {
					w := newKworld(seed, 16<<20)
					defer func() {
						if p := recover(); p != nil {
							v, ok := p.(*violation)
							if !ok {
								t.Log("seed", seed)
								panic(p)
							}
							t.Errorf("%v (replay: go test ./test/sim -run '%s' -sim.seed=%d)\nsaw %v", v, t.Name(), seed, w.saw)
						}
					}()
					c.set(w)
					w.run(400)
					for k, n := range w.saw {
						saw[k] += n
					}
				}()
				if *oneSeed != 0 || t.Failed() {
					return
				}
			}
			t.Log(saw)
			for _, k := range c.must {
				if saw[k] == 0 && !testing.Short() {
					t.Errorf("never saw %q", k)
				}
			}
		})
	}
}
