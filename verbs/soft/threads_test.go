package soft

import (
	"bytes"
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
	th := &threads{work: make(chan *job, 1)}
	th.done.Wake = func() { ring(a.dev.ctl.fd) }
	j := &job{}
	j.back = func() { a.dev.takeBack(j) }
	th.idle = []*job{j}
	a.dev.threads = th
	fill(a.mem, 3)
	return a, b
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
	if len(a.wc) > 0 || free || !a.dev.Working() {
		t.Fatalf("a thread has the memory: completions %+v, untouched %v, working %v", a.wc, free, a.dev.Working())
	}
	a.done(j)
	for i, wc := range a.take(2, b) {
		if wc.Status != verbs.WCSuccess {
			t.Errorf("write %d: %+v", i, wc)
		}
	}
	if !free || a.dev.Working() {
		t.Errorf("after the job: untouched %v, working %v", free, a.dev.Working())
	}
	want := append(bytes.Clone(a.mem[:bulk]), a.mem[:8]...)
	run(t, "the payload", func() bool { return bytes.Equal(b.mem[:bulk+8], want) }, a, b)
	if s := a.dev.Stats(); s.CallsAside != 1 {
		t.Errorf("%d calls aside", s.CallsAside)
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

// TestAsideFails: a queue pair that fails does not wait for its thread. The memory does, and the connection ends
// behind what the thread has written.
func TestAsideFails(t *testing.T) {
	a, b := byHand(t)
	a.bulkWrite(b, bulk)
	j := a.taken()
	if a.qp.ToError(); j.q != nil {
		t.Error("the connection is closed under the thread")
	}
	if wc := a.take(1); wc[0].Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc[0])
	}
	if err := a.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	free := false
	_ = a.mr.Dereg()
	verbs.Untouched(a.mr, func() { free = true })
	if free {
		t.Error("a thread has the memory")
	}
	if e := b.event(a); e.Type != verbs.CMDisconnected {
		t.Errorf("event %+v", e)
	}
	if _, err := unix.FcntlInt(uintptr(j.fd), unix.F_GETFD, 0); err != nil {
		t.Errorf("the thread's descriptor: %v", err)
	}
	a.done(j)
	run(t, "end of the job", func() bool { return free }, a)
	if len(a.dev.threads.idle) != 1 || bytes.Equal(b.mem[:bulk], a.mem[:bulk]) {
		t.Error("not back, or written behind the end")
	}
}

// TestAsideTerminate: a Terminate goes behind the frames that a thread has.
func TestAsideTerminate(t *testing.T) {
	a, b := byHand(t)
	a.bulkWrite(b, bulk)
	j := a.taken()
	a.qp.(*qp).refuse(iwarp.TermQN, nil)
	a.dev.Progress()
	if s := a.qp.(*qp).state; s != terminating {
		t.Errorf("state %v", s)
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
	if !q.aside([]piece{{a.mem, m}}, bulk) || q.aside([]piece{{a.mem, m}}, asideMin-1) || q.aside([]piece{{a.mem, m}, {a.mem, &mr{parent: m}}}, bulk) {
		t.Error("which payload is for a thread")
	}
	if s := a.dev.Stats(); s.CallsAside != 0 {
		t.Errorf("%d calls aside", s.CallsAside)
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
	if !readAside(b[:5], []piece{{from[:2], nil}, {from[2:], nil}}) || string(b[:5]) != "whole" {
		t.Skipf("process_vm_readv is not allowed here: %q", b[:5])
	}
	if readAside(b, []piece{{make([]byte, 1<<16), nil}, {mem, nil}}) {
		t.Error("memory that is not there")
	}
}

// TestAsideStream: threads and owner together write streams of mixed sizes, with checksums and without.
func TestAsideStream(t *testing.T) {
	for _, crc := range []verbs.CRCMode{verbs.CRCOff, verbs.CRCOn} {
		a, b := newHost(t, Options{Threads: 2}), newHost(t, Options{Threads: 2})
		at := attrs()
		at.CRC = crc
		link(t, a, b, at, at)
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
		if s, r := a.dev.Stats(), b.dev.Stats(); s.CallsAside == 0 || r.CRCErrors != 0 {
			t.Errorf("%d calls aside, %d bad checksums", s.CallsAside, r.CRCErrors)
		}
	}
}
