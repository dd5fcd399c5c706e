package shm

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newTestDoorbell(t *testing.T) *Doorbell {
	t.Helper()
	d, err := NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// readable reports whether fd polls readable now.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return fds[0].Revents != 0
	}
}

func TestDoorbell(t *testing.T) {
	d := newTestDoorbell(t)
	ClearBell(d.Recv) // does not block
	if readable(t, d.Recv) {
		t.Error("rings before anybody rang")
	}
	for range 20 {
		Ring(d.Send)
	}
	if !readable(t, d.Recv) {
		t.Error("does not ring")
	}
	if ClearBell(d.Recv); readable(t, d.Recv) {
		t.Error("still rings")
	}
}

// Whatever the other side does with its end, ringing does not block, and the doorbell does
// not ring by itself.
func TestDoorbellHostile(t *testing.T) {
	d := newTestDoorbell(t)
	for range 100_000 { // full long before
		Ring(d.Send)
	}
	n := 0
	for readable(t, d.Recv) {
		ClearBell(d.Recv)
		n++
	}
	if n == 0 || n > 1000 {
		t.Errorf("silent after %d calls", n)
	}
	// The other side's end is its own open file: clearing O_NONBLOCK there
	// changes nothing here.
	if err := unix.SetNonblock(d.Recv, false); err != nil {
		t.Fatal(err)
	}
	for range 100_000 {
		Ring(d.Send)
	}
	if err := unix.SetNonblock(d.Recv, true); err != nil {
		t.Fatal(err)
	}
	for readable(t, d.Recv) {
		ClearBell(d.Recv)
	}
	theirs, err := unix.FcntlInt(uintptr(d.Send), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(theirs)
	if readable(t, d.Recv) {
		t.Error("rings for ever after the ringer has closed its end")
	}

	d = newTestDoorbell(t)
	unix.Close(d.Recv)
	d.Recv = -1
	Ring(d.Send) // the other end is closed: neither a signal nor an error
}

// TestAdoptDoorbell: ends that another process had are taken only if their use cannot block.
// The other side can make its own end block, which is no reason.
func TestAdoptDoorbell(t *testing.T) {
	d := newTestDoorbell(t)
	for name, ends := range map[string][2]int{"the wrong ends": {d.Send, d.Recv}, "to ring, the wrong end": {-1, d.Recv}, "nothing": {-1, -1},
		"no pipe": {0, d.Send}, "half": {d.Recv, -1}} {
		if a, err := AdoptDoorbell(ends[0], ends[1]); err == nil {
			t.Errorf("%s: adopted as %+v", name, a)
		}
	}
	if err := unix.SetNonblock(d.Send, false); err != nil {
		t.Fatal(err)
	}
	if a, err := AdoptDoorbell(d.Recv, d.Send); err != nil || a.Recv != d.Recv || a.Send != d.Send {
		t.Errorf("to sleep: %+v, %v", a, err)
	}
	if a, err := AdoptDoorbell(-1, d.Send); err == nil {
		t.Errorf("to ring, and block: adopted as %+v", a)
	}
	if err := unix.SetNonblock(d.Send, true); err != nil {
		t.Fatal(err)
	}
	if a, err := AdoptDoorbell(-1, d.Send); err != nil || a.Recv != -1 || a.Send != d.Send {
		t.Errorf("to ring: %+v, %v", a, err)
	}
}

func TestFDWaiter(t *testing.T) {
	before := openFDs(t)
	d, err := NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	now := func() int64 { return int64(time.Since(start)) }
	w, err := NewFDWaiter(d.Recv, now)
	if err != nil {
		t.Fatal(err)
	}
	d.Recv = -1

	deadline := now() + int64(20*time.Millisecond)
	w.Wait(deadline)
	if now() < deadline {
		t.Error("returned before the deadline with nobody ringing")
	}
	w.Wait(1) // has passed

	for name, ring := range map[string]func(){"daemon": func() { Ring(d.Send) }, "self": w.Ring} {
		ring() // before the wait
		w.Wait(0)
		done := make(chan struct{})
		go func() {
			w.Wait(0)
			close(done)
		}()
		ring()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: a ring does not end the wait", name)
		}
	}
	if n := testing.AllocsPerRun(100, func() { w.Ring(); w.Wait(0) }); n != 0 {
		t.Errorf("%v allocations per wait", n)
	}

	// The daemon is gone. The wait is no busy loop, and this process can still ring.
	d.Close()
	w.Wait(now() + int64(time.Hour)) // notices it
	deadline = now() + int64(20*time.Millisecond)
	w.Wait(deadline)
	if now() < deadline {
		t.Error("a closed doorbell ends every wait")
	}
	w.Ring()
	w.Wait(0)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func BenchmarkDoorbell(b *testing.B) {
	d, err := NewDoorbell()
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	for range b.N {
		Ring(d.Send)
		ClearBell(d.Recv)
	}
}
