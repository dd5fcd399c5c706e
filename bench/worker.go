package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// workerArg, as the first argument, makes this program a worker.
const workerArg = "worker"

// worker is one process of a measurement. The parent gives it arguments as
// key=value, waits for its line "ready ADDRESS", and then writes one line with
// the ids of all processes to its standard input: go. The one that measures
// prints its result and ends; the others do when their input ends.
type worker struct {
	role string
	args map[string]string
	in   *bufio.Reader

	pids []int
	msgs atomic.Uint64 // what went through
	from uint64        // Mallocs at "go"
}

// result is what a worker prints at its end.
type result struct {
	Messages uint64  `json:"messages"` // within the measurement; an operation counts as one, a round trip as two
	Seconds  float64 `json:"seconds"`
	CPU      float64 `json:"cpu"` // seconds, of all processes
	P50      float64 `json:"p50"` // round trip, us
	P99      float64 `json:"p99"`
	Mallocs  uint64  `json:"mallocs"` // of this process from "go" to its end
	All      uint64  `json:"all"`     // messages from "go" to its end
}

func workerMain(args []string) int {
	w := &worker{role: args[0], args: map[string]string{}, in: bufio.NewReader(os.Stdin)}
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		w.args[k] = v
	}
	run := workers[w.role]
	err := fmt.Errorf("no worker %q", w.role)
	if run != nil {
		err = w.profiled(run)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", w.role, err)
		return 1
	}
	return 0
}

func (w *worker) profiled(run func(*worker) error) error {
	dir := w.args["profile"]
	if dir == "" {
		return run(w)
	}
	f, err := os.Create(filepath.Join(dir, w.args["case"]+"."+w.role+w.args["host"]+".pprof"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return run(w)
}

func (w *worker) duration(k string) time.Duration {
	d, _ := time.ParseDuration(w.args[k])
	return d
}

func (w *worker) int(k string) int {
	n, _ := strconv.Atoi(w.args[k])
	return n
}

// ready tells the address and waits for "go".
func (w *worker) ready(addr string) error {
	fmt.Println("ready", addr)
	line, err := w.in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("no go: %w", err)
	}
	for f := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return fmt.Errorf("go: %w", err)
		}
		w.pids = append(w.pids, pid)
	}
	w.from = mallocs()
	return nil
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// finish prints the result.
func (w *worker) finish(r result) error {
	r.Mallocs = mallocs() - w.from
	r.All = w.msgs.Load()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// serve runs work until the parent closes the input or work fails.
func (w *worker) serve(work func() error) error {
	failed := make(chan error, 1)
	go func() { failed <- work() }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.in.ReadString('\n')
	}()
	select {
	case err := <-failed:
		// The other side measures, and ends its connection first.
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			return err
		}
		<-ended
	case <-ended:
	}
	return w.finish(result{})
}

// count runs work beside a measurement of the messages it counts.
func (w *worker) count(work func() error) error {
	failed := make(chan error, 1)
	go func() { failed <- work() }()
	select {
	case err := <-failed:
		return err
	case <-time.After(w.warmup()):
	}
	s := w.start()
	select {
	case err := <-failed:
		return err
	case <-time.After(w.duration("d")):
	}
	return w.finish(w.stop(s))
}

func (w *worker) warmup() time.Duration { return min(w.duration("d")/4, 300*time.Millisecond) }

// span is the beginning of a measurement.
type span struct {
	at   time.Time
	cpu  time.Duration
	msgs uint64
}

func (w *worker) start() span { return span{time.Now(), cpuTime(w.pids), w.msgs.Load()} }

func (w *worker) stop(s span) result {
	n := w.msgs.Load() - s.msgs
	el := time.Since(s.at)
	return result{Messages: n, Seconds: el.Seconds(), CPU: (cpuTime(w.pids) - s.cpu).Seconds()}
}

// trips measures round trips.
func (w *worker) trips(once func() error) error {
	for end := time.Now().Add(w.warmup()); time.Now().Before(end); {
		if err := once(); err != nil {
			return err
		}
		w.msgs.Add(2)
	}
	d := w.duration("d")
	took := make([]int64, 0, 1+d/(2*time.Microsecond))
	s := w.start()
	before := time.Now()
	for end := before.Add(d); before.Before(end) && len(took) < cap(took); {
		if err := once(); err != nil {
			return err
		}
		now := time.Now()
		took = append(took, int64(now.Sub(before)))
		before = now
		w.msgs.Add(2)
	}
	r := w.stop(s)
	slices.Sort(took)
	r.P50, r.P99 = float64(took[len(took)/2])/1e3, float64(took[len(took)*99/100])/1e3
	return w.finish(r)
}
