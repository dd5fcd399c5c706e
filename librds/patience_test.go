package librds

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/wait"
)

// TestPatience: of the same waits librds and package rds learn the same.
func TestPatience(t *testing.T) {
	const window = 50_000
	for strategy := wait.Auto; strategy <= wait.Spin; strategy++ {
		for seed := range uint64(20) {
			if strategy != wait.Auto && seed > 0 {
				break
			}
			t.Run(fmt.Sprintf("%v/%d", strategy, seed), func(t *testing.T) {
				calls, want := waits(strategy, window, seed)
				cmd := program(t, "address,undefined", "patience", fmt.Sprint(int(strategy)), fmt.Sprint(window))
				cmd.Stdin = strings.NewReader(calls)
				if got := finish(t, cmd); got != want {
					t.Errorf("librds decided\n%.200q, package rds\n%.200q", got, want)
				}
			})
		}
	}
}

// waits are the calls of a thread that waits as it is told, and what a Waiter decides in them. By
// the seed looking or blocking is the shorter way for some hundred waits, and then the other.
func waits(strategy wait.Strategy, window int64, seed uint64) (calls, decisions string) {
	rnd := rand.New(rand.NewPCG(seed, 17))
	w := wait.New(strategy, window, wait.Block)
	var in, out strings.Builder
	now := int64(1)
	look := func() wait.Strategy {
		fmt.Fprintf(&in, "n %d\n", now)
		s := w.Next(now)
		fmt.Fprintln(&out, int(s))
		return s
	}
	for i := range 6000 {
		cost := [2]int64{4000, 4000} // of a wait that blocks, and of one that looks
		cost[(i/700+int(seed))%2] = int64(2000+300*(i/1400)) + rnd.Int64N(400)
		if rnd.IntN(400) == 0 {
			cost = [2]int64{6 * window, 6 * window}
		}
		began := now
		for now-began < cost[1] && look() != wait.Block {
			now += 300 + rnd.Int64N(400)
			if rnd.IntN(3000) == 0 {
				now += 900_000
			}
		}
		if now-began < cost[1] {
			now = max(now, began+cost[0])
		}
		fmt.Fprintf(&in, "o %d\n", now)
		w.Over(now)
		now += 500 + rnd.Int64N(50_000)
	}
	r := w.Report()
	fmt.Fprintln(&out, fmt.Sprint(map[bool]int{true: 1}[strategy == wait.Auto && r.Way == wait.Yield]), r.Block, r.Look)
	return in.String(), out.String()
}
