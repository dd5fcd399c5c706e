package soft

import (
	"bytes"
	"crypto/fips140"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

const bulk = 60 << 10 // one frame

// byHand connects two hosts. The first has an I/O thread, which is the test.
func byHand(t *testing.T) (a, b *host) {
	a, b = pair(t, attrs(), attrs())
	a.threadByHand()
	fill(a.mem, 3)
	return a, b
}

// threadByHand gives h an I/O thread that is the test.
func (h *host) threadByHand() {
	th := h.dev.newThreads(1)
	th.late = math.MaxInt64
	h.t.Cleanup(func() { // Close would wait for it
		th.done.Run()
		if j := th.jobs[0]; j.q != nil {
			h.done(j)
		}
	})
}

// bulkWrite writes n bytes to b.
func (h *host) bulkWrite(b *host, n int) {
	h.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: h.sge(0, n), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
}

// taken returns the job that h has given to its thread.
func (h *host) taken() *job {
	h.t.Helper()
	h.dev.Progress()
	h.collect()
	select {
	case j := <-h.dev.threads.work:
		return j
	default:
		h.t.Fatal("no job")
		return nil
	}
}

// done does j.
func (h *host) done(j *job) {
	j.do()
	h.dev.threads.done.Add(j.back)
}

// TestAside: what a thread has is neither complete nor untouched, whatever the owner does meanwhile. Both come when
// the thread has let go of it.
func TestAside(t *testing.T) {
	a, b := byHand(t)
	a.bulkWrite(b, bulk)
	j := a.taken()
	a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.sge(0, 8), RKey: b.mr.RKey(), RemoteAddr: testIOVA + bulk})
	if err := a.mr.Dereg(); err != nil {
		t.Fatal(err)
	}
	free := false
	verbs.Untouched(a.mr, func() { free = true })
	for range 3 {
		a.dev.Progress()
		b.dev.Progress()
		a.collect()
	}
	if len(a.wc) > 0 || free {
		t.Fatalf("a thread has the memory: completions %+v, untouched %v", a.wc, free)
	}
	a.done(j)
	for i, wc := range a.take(2, b) {
		if wc.Status != verbs.WCSuccess {
			t.Errorf("write %d: %+v", i, wc)
		}
	}
	if !free || len(a.dev.threads.idle) != 1 {
		t.Errorf("after the job: untouched %v, idle %d", free, len(a.dev.threads.idle))
	}
	want := append(bytes.Clone(a.mem[:bulk]), a.mem[:8]...)
	run(t, "the payload", func() bool { return bytes.Equal(b.mem[:bulk+8], want) }, a, b)
	if n := a.dev.Threads().Calls; n != 1 {
		t.Errorf("%d calls aside", n)
	}
}

// TestAsideRevoked: a frame whose payload is missing gets it when its region ends, unless a thread has it.
func TestAsideRevoked(t *testing.T) {
	a, b := byHand(t)
	a.bulkWrite(b, bulk)
	want := bytes.Clone(a.mem[:bulk])
	free := false
	if err := a.mr.Dereg(); err != nil {
		t.Fatal(err)
	}
	verbs.Untouched(a.mr, func() { free = true })
	if !free {
		t.Fatal("nobody touches it")
	}
	clear(a.mem)
	end, err := a.pd.RegMR([]byte{9}, testIOVA, allAccess)
	if err != nil {
		t.Fatal(err)
	}
	a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, SGL: []verbs.SGE{{Addr: testIOVA, Length: 1, LKey: end.LKey()}}, RKey: b.mr.RKey(), RemoteAddr: testIOVA + bulk})
	a.done(a.taken())
	run(t, "what comes behind", func() bool { return b.mem[bulk] == 9 }, a, b)
	if !bytes.Equal(b.mem[:bulk], want) {
		t.Error("the payload is what the memory had later")
	}
}

// TestAsideFails: a queue pair fails when its thread has let go of it, and reads nothing until then.
func TestAsideFails(t *testing.T) {
	a, b := byHand(t)
	a.bulkWrite(b, bulk)
	j := a.taken()
	a.qp.ToError()
	b.send(verbs.SendWR{Op: verbs.OpSend, SGL: b.sge(0, 8)})
	for range 3 {
		a.dev.Progress()
		b.dev.Progress()
		a.collect()
	}
	q := a.qp.(*qp)
	if len(a.wc) > 0 || !q.Releasing() || q.events&unixIn != 0 {
		t.Fatalf("a thread has the memory: completions %+v, state %v, events %#x", a.wc, q.state, q.events)
	}
	a.done(j)
	a.dev.Progress()
	if a.collect(); q.state != failed || q.Releasing() || len(a.wc) != 1 || len(a.ev) != 0 {
		t.Errorf("state %v, completions %+v, events %+v", q.state, a.wc, a.ev)
	}
	if e := b.event(a); e.Type != verbs.CMDisconnected {
		t.Errorf("event %+v", e)
	}
}

// TestAsideTerminate: a Terminate goes behind the frames that a thread has, and the first fault counts.
func TestAsideTerminate(t *testing.T) {
	a, b := byHand(t)
	a.bulkWrite(b, bulk)
	j := a.taken()
	q := a.qp.(*qp)
	q.refuse(iwarp.TermQN, nil)
	q.lost(unix.ECONNRESET)
	if a.dev.Progress(); q.state != releasing || a.qp.State() != verbs.QPErr {
		t.Errorf("state %v", q.state)
	}
	a.done(j)
	e := b.event(a)
	if e.Type != verbs.CMDisconnected || e.Err == nil || !strings.Contains(e.Err.Error(), "terminated by the peer") {
		t.Errorf("event %+v", e)
	}
	if !bytes.Equal(b.mem[:bulk], a.mem[:bulk]) {
		t.Error("the payload is missing")
	}
	if wc := a.take(1, b); wc[0].Status != verbs.WCSuccess {
		t.Errorf("%+v", wc[0])
	}
	if e := a.event(b); !errors.Is(e.Err, iwarp.TermQN) {
		t.Errorf("event %+v", e)
	}
}

// TestAsideDestroy: Destroy waits for the thread.
func TestAsideDestroy(t *testing.T) {
	a, b := byHand(t)
	a.bulkWrite(b, bulk)
	j := a.taken()
	go a.done(j)
	if err := a.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	if j.q != nil || a.mr.(*mr).used != 0 {
		t.Error("the thread has something of it")
	}
}

// TestAsideSlow: a job that takes long counts once, when it still goes on. Its region is busy.
func TestAsideSlow(t *testing.T) {
	a, b := byHand(t)
	a.bulkWrite(b, bulk)
	j := a.taken()
	if err := a.mr.Rereg(a.mem, testIOVA, allAccess); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Rereg: %v", err)
	}
	j.began = now()
	if n := a.dev.Threads().Slow; n != 0 {
		t.Errorf("%d slow ones at the beginning", n)
	}
	for range 2 {
		j.began = now() - 2*slowNs
		if n := a.dev.Threads().Slow; n != 1 {
			t.Errorf("%d slow ones", n)
		}
	}
	a.done(j)
	a.take(1, b)
	if n := a.dev.Threads().Slow; n != 1 {
		t.Errorf("%d slow ones at the end", n)
	}
}

// TestAsideLate: while CPUs are short the owner does without threads, and then tries again.
func TestAsideLate(t *testing.T) {
	a, b := byHand(t)
	a.bulkWrite(b, bulk)
	j, th := a.taken(), a.dev.threads
	th.late = lateNs
	j.began = now() - 2*lateNs
	a.done(j)
	a.take(1, b)
	a.bulkWrite(b, bulk)
	a.dev.Progress()
	if left := th.rests - now(); len(th.work) > 0 || left <= 0 || left > restFor*failsafe.Nanoseconds() {
		t.Fatalf("%d jobs, it rests for %d ns", len(th.work), left)
	}
	a.take(1, b)
	th.rests = now()
	a.bulkWrite(b, bulk)
	a.done(a.taken())
	a.take(1, b)
}

// TestAsideOwned: a thread gets no output that is still in a region, which would not wait for it.
func TestAsideOwned(t *testing.T) {
	a, b := byHand(t)
	q, th := a.qp.(*qp), a.dev.threads
	th.idle = nil
	a.bulkWrite(b, bulk)
	q.generate()
	th.idle = th.jobs
	a.bulkWrite(b, bulk)
	q.generate()
	if !slices.ContainsFunc(q.out.segs, piece.owned) || len(q.out.frames) == 0 {
		t.Fatalf("output %+v, frames %+v", q.out.segs, q.out.frames)
	}
	if a.dev.Progress(); len(th.work) > 0 {
		t.Fatal("a thread has it")
	}
	a.take(2, b)
	if !bytes.Equal(b.mem[:bulk], a.mem[:bulk]) {
		t.Error("what came is not what was written")
	}
}

// TestControlRests: what the threads and the set-up ring for does not keep the device's descriptor readable when
// it is taken.
func TestControlRests(t *testing.T) {
	a, _ := pair(t, attrs(), attrs())
	readable := func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(a.dev.FD()), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	}
	for range 100 {
		a.dev.Progress()
	}
	ran := false
	th := a.dev.newThreads(1)
	th.done.Add(func() { ran = true })
	if !readable() {
		t.Error("a thread's end wakes nobody")
	}
	if a.dev.Progress(); !ran || readable() {
		t.Errorf("ran %v, still readable %v", ran, readable())
	}
}

// TestAsideBusy: without an idle thread the owner writes; small payload and that of memory windows is always its own.
func TestAsideBusy(t *testing.T) {
	a, b := byHand(t)
	a.dev.threads.idle = nil
	a.bulkWrite(b, 1<<20)
	if wc := a.take(1, b); wc[0].Status != verbs.WCSuccess {
		t.Errorf("%+v", wc[0])
	}
	run(t, "the payload", func() bool { return bytes.Equal(b.mem[:1<<20], a.mem[:1<<20]) }, a, b)
	q, m := a.qp.(*qp), a.mr.(*mr)
	a.dev.threads.idle = a.dev.threads.jobs
	if !q.lends(&q.out.share) || !aside([]piece{{a.mem, m}}, bulk) || aside([]piece{{a.mem, m}}, asideMin-1) || aside([]piece{{a.mem, m}, {a.mem, &mr{parent: m}}}, bulk) {
		t.Error("which payload is for a thread")
	}
	if n := a.dev.Threads().Calls; n != 0 {
		t.Errorf("%d calls aside", n)
	}
}

// TestAsideGone: memory that the system call does not read is copied.
func TestAsideGone(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	b := make([]byte, 1<<17)
	from := []byte("whole")
	if !moveAside(unix.SYS_PROCESS_VM_READV, b[:5], []piece{{from[:2], nil}, {from[2:], nil}}) || string(b[:5]) != "whole" {
		t.Skipf("process_vm_readv is not allowed here: %q", b[:5])
	}
	if moveAside(unix.SYS_PROCESS_VM_READV, b, []piece{{make([]byte, 1<<16), nil}, {mem, nil}}) {
		t.Error("memory that is not there")
	}
}

// TestAsideStream: threads and owner together write streams of mixed sizes, however they are guarded.
func TestAsideStream(t *testing.T) {
	for how := range sealed + 1 {
		a, b := guardedPair(t, how, attrs(), Options{Threads: 2})
		fill(a.mem, 5)
		sizes := []int{1 << 20, 100, 40 << 10, 9 << 10, 200 << 10, 8, asideMin, 300 << 10}
		for round := range 4 {
			clear(b.mem)
			off := uint64(0)
			for _, n := range sizes {
				a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, RKey: b.mr.RKey(), RemoteAddr: testIOVA + off,
					SGL: []verbs.SGE{{Addr: testIOVA + off, Length: uint32(n / 2), LKey: a.mr.LKey()}, {Addr: testIOVA + off + uint64(n/2), Length: uint32(n - n/2), LKey: a.mr.LKey()}}})
				off += uint64(n)
			}
			for _, wc := range a.take(len(sizes), b) {
				if wc.Status != verbs.WCSuccess {
					t.Fatalf("round %d: %+v", round, wc)
				}
			}
			run(t, "the payload", func() bool { return bytes.Equal(b.mem[:off], a.mem[:off]) }, a, b)
			for range 2 {
				b.send(verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: b.sge(0, 1<<20), RKey: a.mr.RKey(), RemoteAddr: testIOVA + 1<<20})
			}
			b.take(2, a)
			if !bytes.Equal(b.mem[:1<<20], a.mem[1<<20:2<<20]) {
				t.Fatal("what was read")
			}
		}
		for _, h := range []*host{a, b} {
			if n, bad := h.dev.Threads().Calls, h.dev.Stats().CRCErrors; (n == 0) != (how == sealed && fips140.Enabled()) || bad != 0 {
				t.Errorf("%v: %d calls aside, %d bad checksums", how, n, bad)
			}
		}
	}
}

// TestRegionEndsLooks: the end of a region looks at queue pairs with output alone, however many there are.
func TestRegionEndsLooks(t *testing.T) {
	a, b := byHand(t)
	for range 3 {
		a.newQP(attrs())
	}
	if n := a.dev.writes.N; n != 0 {
		t.Errorf("nothing to write: %d queue pairs", n)
	}
	a.bulkWrite(b, bulk)
	if n := a.dev.writes.N; n != 1 {
		t.Errorf("one has output: %d queue pairs", n)
	}
	a.done(a.taken())
	a.take(1, b)
	if n := a.dev.writes.N; n != 0 {
		t.Errorf("all is written: %d queue pairs", n)
	}
}
