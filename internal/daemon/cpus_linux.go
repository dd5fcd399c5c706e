package daemon

import (
	"fmt"
	"runtime"

	"github.com/rdsd/rdsd/internal/config"
	"golang.org/x/sys/unix"
)

// bindThread has the calling thread run on cpus only. None: it stays as it is.
func bindThread(cpus []config.CPURange) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, r := range cpus {
		for c := r.First; c <= r.Last; c++ {
			set.Set(c)
		}
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("cpus: the engine's thread cannot run on CPUs %v: %w; this process may use %d CPUs (taskset -p shows which)", cpus, err, runtime.NumCPU())
	}
	return nil
}

// mayBind is the error that bindThread will have. Afterwards the thread may use the CPUs that it
// could use before.
func mayBind(cpus []config.CPURange) error {
	if len(cpus) == 0 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return fmt.Errorf("cpus: %w", err)
	}
	if err := bindThread(cpus); err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, &old); err != nil {
		return fmt.Errorf("cpus: back to all CPUs: %w", err)
	}
	return nil
}
