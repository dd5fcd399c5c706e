package sim

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	oneSeed = flag.Uint64("sim.seed", 0, "replay one seed of TestSim")
	first   = flag.Uint64("sim.first", 1, "the first of TestSim's new seeds")
	trace   = flag.Bool("sim.trace", false, "print every event, with -sim.seed")
)

// result is what a run has shown.
type result struct {
	err            error
	world          *world
	messages, ops  int
	breaks, events int
	sights         map[string]int
	midTurn        int // calls that were answered while the rest of the turn was held
	hash           uint64
	met            meetings // of features
}

// runner runs one seed.
type runner func(seed uint64, mem *memPool, echo func(string)) result

// runSeed runs the workload with one seed.
func runSeed(seed uint64, mem *memPool, echo func(string)) result {
	return guarded(mem, func(r *result) {
		r.world = buildWith(seed, nil, mem)
		r.world.hist.echo = echo
		r.world.boot()
		r.world.run()
		r.world.finish()
	})
}

func panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// report reports a run that failed. name is empty for TestSim, otherwise the scenario's name.
func report(t *testing.T, name string, seed uint64, r result) {
	t.Helper()
	var opt, last string
	if r.world != nil {
		opt, last = r.world.opt.String(), r.world.hist.String()
	}
	keep(t, name, seed, r.rule())
	t.Errorf("seed %#x breaks rule %q: %v\noptions: %s\nlast events (virtual µs, host, what, numbers):\n%s"+
		"replay: go test ./test/sim -run '%s$' -sim.seed=%#x\nkept in test/sim/%s",
		seed, r.rule(), r.err, opt, last, t.Name(), seed, seedFile)
}

// TestSim runs the kept seeds, and as many new ones as RDSD_SIM_SEEDS says.
func TestSim(t *testing.T) {
	if *oneSeed != 0 {
		var echo func(string)
		if *trace {
			echo = func(s string) { fmt.Println(s) }
		}
		r := runSeed(*oneSeed, nil, echo)
		if r.err != nil {
			report(t, "", *oneSeed, r)
		}
		t.Logf("%d messages, %d operations, %d breaks, %d events, hash %#x", r.messages, r.ops, r.breaks, r.events, r.hash)
		return
	}
	seeds := keptSeeds(t, "")
	n := 20
	if s := os.Getenv("RDSD_SIM_SEEDS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 0 {
			t.Fatalf("RDSD_SIM_SEEDS=%q", s)
		}
	}
	if testing.Short() {
		n = min(n, 5)
	}
	for i := range n {
		seeds = append(seeds, *first+uint64(i))
	}
	began, cpu := time.Now(), processorTime()
	var messages, ops, breaks, midTurn int
	failed, done := 0, 0
	var met meetings
	for o := range runSeeds(runSeed, seeds) {
		r := o.result
		done++
		met.add(&r.met)
		messages, ops, breaks, midTurn = messages+r.messages, ops+r.ops, breaks+r.breaks, midTurn+r.midTurn
		if r.err != nil {
			report(t, "", o.seed, r)
			if failed++; failed == 3 {
				break
			}
			continue
		}
		if r.messages < wantMessages || r.ops < wantOps || r.breaks < wantBreaks {
			t.Errorf("seed %#x did too little: %d messages, %d operations, %d breaks", o.seed, r.messages, r.ops, r.breaks)
		}
	}
	if midTurn == 0 {
		t.Error("no call that waits was answered in the middle of a turn")
	}
	met.report(t)
	d := time.Since(began)
	cpu = processorTime() - cpu
	t.Logf("%d seeds: %d messages, %d operations, %d breaks, %d waits answered in mid-turn, in %v: %.0f messages/s, %.0f per second of processor time", done,
		messages, ops, breaks, midTurn, d.Round(time.Millisecond), float64(messages)/d.Seconds(), float64(messages)/cpu.Seconds())
}

// outcome is the result of one of many seeds.
type outcome struct {
	seed uint64
	result
}

// runSeeds runs all seeds, several at the same time. Each run is independent of the others.
func runSeeds(run runner, seeds []uint64) iter.Seq[outcome] {
	return func(yield func(outcome) bool) {
		next, out, stop := make(chan uint64), make(chan outcome), make(chan struct{})
		var workers sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			workers.Go(func() {
				mem := new(memPool)
				for seed := range next {
					r := run(seed, mem, nil)
					if r.err == nil {
						r.world = nil // it is large, and only a failed run's is looked at
					}
					select {
					case out <- outcome{seed, r}:
					case <-stop:
						return
					}
				}
			})
		}
		go func() {
			defer close(out)
			defer workers.Wait()
			defer close(next)
			for _, seed := range seeds {
				select {
				case next <- seed:
				case <-stop:
					return
				}
			}
		}()
		for o := range out {
			if !yield(o) {
				break
			}
		}
		close(stop)
		workers.Wait()
	}
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const seedFile = "testdata/seeds.txt"

// keep adds a seed that broke a rule to the seeds that every test run replays. Whoever mends the
// fault replaces the rule behind the # by what the fault was.
func keep(t *testing.T, name string, seed uint64, rule string) {
	if os.Getenv("RDSD_MUTANT") != "" || slices.Contains(keptSeeds(t, name), seed) {
		return // failures of a broken variant are expected
	}
	f, err := os.OpenFile(seedFile, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintln(f, strings.TrimSpace(fmt.Sprintf("%s %#x # %s", name, seed, rule)))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Logf("seed %#x is not kept: %v", seed, err)
	}
}

// keptSeeds reads the seeds in seedFile of TestSim or a scenario. A line is the scenario's name
// if there is one, the seed, and behind a # what it found.
func keptSeeds(t *testing.T, name string) (seeds []uint64) {
	t.Helper()
	f, err := os.Open(seedFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		line, _, _ := strings.Cut(in.Text(), "#")
		of, number, named := strings.Cut(strings.TrimSpace(line), " ")
		if !named {
			of, number = "", of
		}
		if number == "" || of != name {
			continue
		}
		seed, err := strconv.ParseUint(number, 0, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedFile, err)
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

// TestSimSame checks that the same seed gives the same run, whatever the memory held before.
func TestSimSame(t *testing.T) {
	mem := new(memPool)
	for seed := uint64(1); seed <= 6; seed++ {
		a, b := runSeed(seed, nil, nil), runSeed(seed, mem, nil)
		if a.hash != b.hash || a.events != b.events {
			t.Errorf("seed %#x: %#x after %d events, then %#x after %d", seed, a.hash, a.events, b.hash, b.events)
		}
	}
}
