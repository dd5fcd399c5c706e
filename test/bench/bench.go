package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// bench runs the cases.
type bench struct {
	*options
	dir    string // for control sockets; their paths must be short
	stderr io.Writer
	count  int             // how many pairs of daemons were started
	peers  map[string]bool // roles that the peers' program has
}

// startup is the time that processes may take to start and to end.
const startup = 20 * time.Second

// all runs every case once, then every case again, and so on. So other load on the machine
// affects all cases alike. A case that fails is noted and not run again. The error names these
// cases.
func (b *bench) all(ctx context.Context, cs []testCase) (*report, error) {
	rep := newReport(b.options, cs)
	out := make([]bool, len(cs))
	var failed []error
	for i := range b.runs {
		for j, c := range cs {
			if out[j] || c.maxRuns > 0 && i >= c.maxRuns {
				continue
			}
			b.progress("run %d of %d: %s", i+1, b.runs, c.name)
			r, err := b.once(ctx, c)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				out[j] = true
				rep.Notes = append(rep.Notes, fmt.Sprintf("%s: %v", c.name, err))
				if !errors.Is(err, errUnavailable) {
					failed = append(failed, fmt.Errorf("%s: %w", c.name, err))
				}
				continue
			}
			rep.Cases[j].add(r)
		}
	}
	b.progress("")
	rep.summarize(goals())
	return rep, errors.Join(failed...)
}

// progress shows the progress of the bench on a terminal.
func (b *bench) progress(format string, args ...any) {
	f, ok := b.stderr.(*os.File)
	if !ok {
		return
	}
	if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintf(f, "\r%-50s\r", fmt.Sprintf(format, args...))
	}
}

// run is the outcome of one measurement: the figures, and the allocations per message in both
// applications.
type run struct {
	worker.Result
	allocs float64
}

// host is a daemon and the address of its sockets.
type host struct {
	addr, socket string
	pid          int
}

// once measures one case with fresh processes.
func (b *bench) once(ctx context.Context, c testCase) (r run, err error) {
	b.count++
	s := &setup{bench: b, testCase: c}
	ctx, cancel := context.WithTimeout(ctx, startup+2*s.duration())
	defer cancel()
	defer s.close()
	if err := s.begin(ctx); err != nil {
		return r, err
	}
	server, err := s.worker(c.server, 0, "")
	if err != nil {
		return r, err
	}
	line, err := server.expect(ctx, "ready ")
	if err != nil {
		return r, err
	}
	client, err := s.worker(c.client, 1, strings.TrimPrefix(line, "ready "))
	if err != nil {
		return r, err
	}
	if _, err := client.expect(ctx, "ready "); err != nil {
		return r, err
	}
	if s.beside != nil {
		if err := s.startBeside(ctx); err != nil {
			return r, err
		}
	}
	if err := s.start(ctx); err != nil {
		return r, err
	}
	measuring, other := client, server
	if c.serverMeasures {
		measuring, other = server, client
	}
	// If another process fails, the one that measures might wait for ever.
	watch, unwatch := context.WithCancelCause(ctx)
	defer unwatch(nil)
	for _, p := range s.procs {
		if p == measuring {
			continue
		}
		go func() {
			select {
			case <-p.Ended():
				unwatch(p.failure("ended"))
			case <-watch.Done():
			}
		}()
	}
	if r.Result, err = measuring.result(watch); err != nil {
		return r, errors.Join(err, context.Cause(watch))
	}
	if r.Messages == 0 {
		return r, errors.New("nothing went through")
	}
	unwatch(nil)
	other.stdin.Close()
	rest, err := other.result(ctx)
	if err != nil {
		return r, err
	}
	if rest.All == 0 { // the target of one-sided operations counts no messages
		rest.All = r.All
	}
	r.allocs = perMessage(r.Result) + perMessage(rest)
	if r.Extra == nil && len(rest.Extra) > 0 {
		r.Extra = map[string]float64{}
	}
	maps.Copy(r.Extra, rest.Extra)
	return r, nil
}

func perMessage(r worker.Result) float64 { return float64(r.Mallocs) / float64(max(r.All, 1)) }

// peerRoles returns the roles that the peers' program has: none if there is no such program.
func peerRoles(program string) map[string]bool {
	known := map[string]bool{}
	out, err := exec.Command(program, "roles").Output()
	if err != nil {
		return known
	}
	for r := range strings.FieldsSeq(string(out)) {
		known[r] = true
	}
	return known
}
