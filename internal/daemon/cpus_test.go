package daemon

import (
	"runtime"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"golang.org/x/sys/unix"
)

// TestMayBind: the try leaves the thread as it was, where it succeeds and where it fails.
func TestMayBind(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	affinity := func() (set unix.CPUSet) {
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
		return set
	}
	before := affinity()
	first := 0
	for !before.IsSet(first) {
		first++
	}
	if err := mayBind([]config.CPURange{{First: first, Last: first}}); err != nil {
		t.Error(err)
	}
	if after := affinity(); after != before {
		t.Errorf("may use %d CPUs after the try, %d before", after.Count(), before.Count())
	}
	if err := mayBind([]config.CPURange{{First: 1023, Last: 1023}}); err == nil && !before.IsSet(1023) {
		t.Error("bound to CPU 1023, which is not there")
	}
	if after := affinity(); after != before {
		t.Errorf("may use %d CPUs after the try that failed, %d before", after.Count(), before.Count())
	}
}
