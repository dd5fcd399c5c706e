// Package worker is the protocol between the bench and a process of a measurement, and the
// counting within that process.
//
// The bench starts the process with "worker", a role, and arguments of the form key=value. The
// process prints "ready ADDRESS" and waits for one line on its standard input, with the ids of
// all processes of the measurement. Then it works. The process that measures prints its Result
// as a line of JSON and ends. The others end when their input ends.
package worker

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
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Arg is the first argument of a program that makes it a worker.
const Arg = "worker"

// Worker is this process as a part of a measurement.
type Worker struct {
	Role string
	Msgs atomic.Uint64 // messages so far; an operation counts as one, a round trip as two

	// Extra goes into the Result. It may be set before Count, Serve or Trips is called, or by
	// what they run, before it returns.
	Extra map[string]float64

	args map[string]string
	in   *bufio.Reader
	pids []int
	from uint64 // mallocs when the line "go" came
}

// Result is what a worker prints at its end.
type Result struct {
	Messages uint64             `json:"messages"` // in the measurement
	Seconds  float64            `json:"seconds"`
	CPU      float64            `json:"cpu"` // seconds, of all processes
	P50      float64            `json:"p50"` // of a round trip, us
	P99      float64            `json:"p99"`
	P999     float64            `json:"p999"`
	Mallocs  uint64             `json:"mallocs"` // of this process, from "go" to its end
	All      uint64             `json:"all"`     // messages from "go" to the end
	Extra    map[string]float64 `json:"extra,omitempty"`
}

// Main runs the role of a command line. args has neither the program's name nor Arg. It returns
// the exit code. Errors go to standard error.
func Main(args []string, roles map[string]func(*Worker) error) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "worker: no role")
		return 2
	}
	w := &Worker{Role: args[0], args: map[string]string{}, in: bufio.NewReader(os.Stdin), Extra: map[string]float64{}}
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		w.args[k] = v
	}
	run := roles[w.Role]
	err := fmt.Errorf("no worker %q", w.Role)
	if run != nil {
		err = w.profiled(run)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", w.Role, err)
		return 1
	}
	return 0
}

func (w *Worker) profiled(run func(*Worker) error) error {
	dir := w.args["profile"]
	if dir == "" {
		return run(w)
	}
	f, err := os.Create(filepath.Join(dir, w.args["case"]+"."+w.Role+w.args["host"]+".pprof"))
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

// Get returns an argument, or "" if it was not given.
func (w *Worker) Get(k string) string { return w.args[k] }

// Duration returns an argument, or 0 if it was not given.
func (w *Worker) Duration(k string) time.Duration {
	d, _ := time.ParseDuration(w.args[k])
	return d
}

// Int returns an argument, or 0 if it was not given.
func (w *Worker) Int(k string) int {
	n, _ := strconv.Atoi(w.args[k])
	return n
}

// Ready prints the address and waits for "go".
func (w *Worker) Ready(addr string) error {
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
	w.Begin()
	return nil
}

// Begin counts allocations from now on, instead of from Ready.
func (w *Worker) Begin() { w.from = mallocs() }

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// Finish prints r.
func (w *Worker) Finish(r Result) error {
	r.Mallocs = mallocs() - w.from
	r.All = w.Msgs.Load()
	if len(w.Extra) > 0 {
		r.Extra = w.Extra
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// Serve runs work until the bench closes the input or work fails. The end of the connection is
// no failure, because the side that measures ends first.
func (w *Worker) Serve(work func() error) error {
	failed := make(chan error, 1)
	go func() { failed <- work() }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = w.in.ReadString('\n')
	}()
	select {
	case err := <-failed:
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		<-ended
	case <-ended:
	}
	return w.Finish(Result{})
}
