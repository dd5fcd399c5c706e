package worker

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The counter counts each call of a process that it is given, but no yield.
func TestCountCalls(t *testing.T) {
	if err := MayCountCalls(); err != nil {
		t.Skip(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := countCalls([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	const calls = 20000
	before, err := c.total()
	if err != nil {
		t.Fatal(err)
	}
	for range calls {
		unix.Getppid()
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	after, err := c.total()
	if err != nil {
		t.Fatal(err)
	}
	if n := after - before; n < calls || n > calls*3/2 {
		t.Errorf("%d calls, want %d and few more", n, calls)
	}
}
