package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// hog uses a CPU until its input ends.
func hog(w *worker.Worker) error {
	if err := w.Ready("-"); err != nil {
		return err
	}
	return w.Serve(func() error {
		for { //nolint:staticcheck // using a CPU is what it is for
		}
	})
}

// errUnavailable means that a case cannot be measured on this machine.
var errUnavailable = errors.New("not available here")

// cgroup limits the CPU time of the processes in it.
type cgroup struct{ path string }

const (
	quotaPeriod = 100_000 // us
	cgroupRoot  = "/sys/fs/cgroup"
)

// newCgroup makes a cgroup below the root of the CPU controller, version 2 or 1. Its processes
// together get half of the CPUs. Errors: errUnavailable.
func newCgroup() (*cgroup, error) {
	half := strconv.Itoa(max(quotaPeriod*runtime.NumCPU()/2, 1000))
	name := dirPrefix + strconv.Itoa(os.Getpid())
	g := &cgroup{filepath.Join(cgroupRoot, name)}
	limits := [][2]string{{"cpu.max", half + " " + strconv.Itoa(quotaPeriod)}}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err != nil {
		g.path = filepath.Join(cgroupRoot, "cpu", name)
		limits = [][2]string{{"cpu.cfs_period_us", strconv.Itoa(quotaPeriod)}, {"cpu.cfs_quota_us", half}}
	}
	g.removeStale()
	if err := os.Mkdir(g.path, 0o755); err != nil && !os.IsExist(err) {
		return nil, fmt.Errorf("CPU quota: %w: %w", errUnavailable, err)
	}
	for _, l := range limits {
		if err := os.WriteFile(filepath.Join(g.path, l[0]), []byte(l[1]), 0o644); err != nil {
			g.close()
			return nil, fmt.Errorf("CPU quota: %w: %w", errUnavailable, err)
		}
	}
	return g, nil
}

// removeStale removes the cgroups of benches that were killed. A cgroup with processes in it
// cannot be removed.
func (g *cgroup) removeStale() {
	dirs, _ := filepath.Glob(filepath.Join(filepath.Dir(g.path), dirPrefix+"*"))
	for _, dir := range dirs {
		os.Remove(dir)
	}
}

func (g *cgroup) add(pid int) error {
	return os.WriteFile(filepath.Join(g.path, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

func (g *cgroup) close() { os.Remove(g.path) }
