package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/rdsd/rdsd/verbs/sim"
)

// scenario is a kind of run. options changes the options after they were drawn. play replaces
// the workload.
type scenario struct {
	name    string
	options func(r *rand.Rand, o *options)
	play    func(w *world)
	seen    []string // what the runs of a test must have brought up between them
	meets   bool     // features that its runs bring up at the same time count as those of TestSim
}

// run is runSeed for the scenario.
func (sc *scenario) run(seed uint64, mem *memPool, echo func(string)) result {
	return guarded(mem, func(r *result) {
		n := sim.NewNetwork(seed)
		opt := drawOptions(n.Rand(streamOptions))
		sc.options(n.Rand(streamScenario), &opt)
		r.world = buildWith(seed, &opt, mem)
		r.world.hist.echo = echo
		r.world.boot()
		sc.play(r.world)
		r.world.finish()
	})
}

// saw counts a sight: something that the runs of a scenario must bring up.
func (w *world) saw(what string) {
	if w.sights == nil {
		w.sights = map[string]int{}
	}
	w.sights[what]++
}

// fewest is the number of TestSim's seeds that gives the scenarios enough runs to bring up all
// their sights.
const fewest = 30

// scenarioSeeds returns how many new seeds the test of a scenario runs: one for five of
// TestSim's, and at least fewest/5.
func scenarioSeeds(t *testing.T) int {
	n := 30
	if s := os.Getenv("RDSD_SIM_SEEDS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 0 {
			t.Fatalf("RDSD_SIM_SEEDS=%q", s)
		}
	}
	if testing.Short() {
		n = min(n, fewest)
	}
	return max(n, fewest) / 5
}

// test runs the scenario's kept seeds and new ones.
func (sc *scenario) test(t *testing.T) {
	seeds := keptSeeds(t, sc.name)
	for i := range scenarioSeeds(t) {
		seeds = append(seeds, *first+uint64(i))
	}
	var echo func(string)
	if *oneSeed != 0 {
		seeds = []uint64{*oneSeed}
		if *trace {
			echo = func(s string) { fmt.Println(s) }
		}
	}
	saw := map[string]int{}
	failed := 0
	run := func(seed uint64, mem *memPool, _ func(string)) result { return sc.run(seed, mem, echo) }
	var met meetings
	for o := range runSeeds(run, seeds) {
		met.add(&o.met)
		for what, n := range o.sights {
			saw[what] += n
		}
		if o.err == nil {
			continue
		}
		report(t, sc.name, o.seed, o.result)
		if failed++; failed == 3 {
			break
		}
	}
	t.Logf("%d seeds: %v", len(seeds), saw)
	if sc.meets {
		met.report(t)
	}
	for _, what := range sc.seen {
		if saw[what] == 0 && *oneSeed == 0 && failed == 0 {
			t.Errorf("never saw %q", what)
		}
	}
}

// guarded does one run. Its error is a broken rule or a panic of the code under test.
func guarded(mem *memPool, run func(*result)) (r result) {
	defer mem.end()
	defer func() {
		p := recover()
		if v, ok := p.(*violation); ok {
			r.err = v
		} else if p != nil {
			r.err = panicked(p)
		}
		if w := r.world; w != nil {
			r.messages, r.ops, r.breaks, r.events = len(w.msgs), len(w.ops), w.breaks, w.hist.n
			r.hash, r.midTurn, r.sights = w.hist.hash^w.net.TraceHash(), w.midTurn, w.sights
			r.met = w.met
		}
	}()
	run(&r)
	return r
}

func (r *result) rule() string {
	var v *violation
	if errors.As(r.err, &v) {
		return v.rule
	}
	return "panic"
}
