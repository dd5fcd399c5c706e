package soft

import (
	"bytes"
	"crypto/fips140"
	"errors"
	"fmt"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// sealedByHand is byHand with TLS. The kernel takes few bytes of the first host at once.
func sealedByHand(t *testing.T) (a, b *host, q *qp) {
	t.Helper()
	if fips140.Enabled() {
		t.Skip("crypto/tls carries the records, and threads have none")
	}
	a, b = securePair(t, attrs(), nil)
	a.threadByHand()
	fill(a.mem, 3)
	q = a.qp.(*qp)
	if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 16<<10); err != nil {
		t.Fatal(err)
	}
	return a, b, q
}

// block has threads write for a until the kernel takes no more.
func (q *qp) block(a *host) {
	a.t.Helper()
	run(a.t, "a blocked stream", func() bool {
		select {
		case j := <-a.dev.threads.work:
			a.done(j)
		default:
		}
		return q.out.job == nil && q.events&unix.EPOLLOUT != 0
	}, a)
	if len(q.tls.sealed) == 0 {
		a.t.Fatal("nothing is sealed")
	}
}

// byThreads returns cond behind what a's thread has to do.
func byThreads(a *host, cond func() bool) func() bool {
	return func() bool {
		select {
		case j := <-a.dev.threads.work:
			a.done(j)
		default:
		}
		return cond()
	}
}

// TestAsideSealed: a thread goes on with what was sealed and not written, and memory is given back when all is.
func TestAsideSealed(t *testing.T) {
	const n = 1 << 20
	a, b, q := sealedByHand(t)
	a.bulkWrite(b, n)
	q.block(a)
	run(t, "the completion", byThreads(a, func() bool { return len(a.wc) > 0 }), a, b)
	run(t, "the data", byThreads(a, func() bool { return bytes.Equal(b.mem[:n], a.mem[:n]) }), a, b)
	if a.wc[0].Status != verbs.WCSuccess || q.tls.sealed != nil || b.qp.(*qp).tls.rest != nil {
		t.Errorf("%+v, %d bytes wait, memory is kept: %v", a.wc[0], len(q.tls.sealed), q.tls.sealed != nil)
	}
	s, calls := a.dev.Stats(), a.dev.Threads().Calls
	if s.CallsOut < calls || s.BytesOut < n+n/tls13.MaxPlain*tls13.Overhead {
		t.Errorf("%d calls of threads, counted %d; %d bytes", calls, s.CallsOut, s.BytesOut)
	}
}

// TestAsideSealedWhole: frames that were left to a thread are whole when the owner seals them.
func TestAsideSealedWhole(t *testing.T) {
	a, b, q := sealedByHand(t)
	a.bulkWrite(b, bulk)
	q.generate()
	if len(q.out.frames) == 0 {
		t.Fatal("no frame is left to a thread")
	}
	a.dev.threads.idle = nil
	a.take(1, b)
	run(t, "the payload", func() bool { return bytes.Equal(b.mem[:bulk], a.mem[:bulk]) }, a, b)
}

// TestAsideSealedMeanwhile: what is posted while a thread seals is not among what it seals.
func TestAsideSealedMeanwhile(t *testing.T) {
	a, b, _ := sealedByHand(t)
	a.bulkWrite(b, bulk)
	j := a.taken()
	a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.sge(0, 8), RKey: b.mr.RKey(), RemoteAddr: testIOVA + bulk})
	size := 0
	for _, p := range j.content {
		size += len(p.mem)
	}
	if size != j.size {
		t.Errorf("a thread has %d bytes, it was given %d", size, j.size)
	}
	a.done(j)
	run(t, "completions", byThreads(a, func() bool { return len(a.wc) == 2 }), a, b)
}

// TestAsideSealedFails: a Terminate and an alert go behind a record of which a part is written.
func TestAsideSealedFails(t *testing.T) {
	for _, busy := range []bool{false, true} {
		a, b, q := sealedByHand(t)
		a.bulkWrite(b, 1<<20)
		q.block(a)
		if busy {
			run(t, "a job", func() bool { return len(a.dev.threads.work) > 0 }, a, b)
		}
		q.refuse(iwarp.TermQN, nil)
		if q.Releasing() != busy {
			t.Errorf("state %v", q.state)
		}
		e := verbs.CMEvent{}
		run(t, "the end", byThreads(a, func() bool {
			if len(b.ev) > 0 {
				e = b.ev[0]
			}
			return len(b.ev) > 0
		}), a, b)
		if e.Type != verbs.CMDisconnected || !errors.Is(e.Err, iwarp.TermQN) {
			t.Errorf("busy %v: event %+v", busy, e)
		}
	}
}

// TestAsideSealedRecords: a payload of a record or more begins one, as without a thread.
func TestAsideSealedRecords(t *testing.T) {
	const size, segments = 1 << 20, 17
	a, b, q := sealedByHand(t)
	if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20); err != nil {
		t.Fatal(err)
	}
	before := a.dev.Stats().BytesOut
	a.bulkWrite(b, size)
	jobs := 0
	run(t, "the completion", func() bool {
		jobs += len(a.dev.threads.work)
		return byThreads(a, func() bool { return len(a.wc) > 0 })()
	}, a, b)
	plain := size + segments*(iwarp.TaggedLen+iwarp.CRCLen)
	records := (int(a.dev.Stats().BytesOut-before) - plain) / tls13.Overhead
	if want := segments*4 + jobs; jobs == 0 || records != want { // a job begins with a header or a trailer
		t.Errorf("%d records in %d jobs, want %d", records, jobs, want)
	}
}

// TestFollowSealedShare: a thread reads nearly all of messages that are worth one, and the owner what is between them.
func TestFollowSealedShare(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("crypto/tls carries the records, and threads have none")
	}
	for _, size := range []int{bulk, 256 << 10, 1 << 20} {
		a, b := securePair(t, attrs(), nil)
		b.threadByHand()
		placed := 0
		for range 8 {
			a.bulkWrite(b, size)
			a.wc = nil
			run(t, "the completion", func() bool {
				select {
				case j := <-b.dev.threads.work:
					j.do()
					placed += j.placed
					b.dev.threads.done.Add(j.back)
				default:
				}
				return len(a.wc) > 0
			}, a, b)
		}
		if least := 6 * size; placed < least {
			t.Errorf("messages of %d bytes: %d bytes by the thread, less than %d", size, placed, least)
		}
	}
}

// TestFollowSealedEnds: a stream that ends while a thread reads it ends as one that the owner reads.
func TestFollowSealedEnds(t *testing.T) {
	raw := func(q *qp, b []byte) {
		if n, err := unix.Write(q.fd, b); err != nil || n != len(b) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	for name, end := range map[string]func(q *qp){
		"cut off":      func(q *qp) { _ = unix.Shutdown(q.fd, unix.SHUT_WR) },
		"close_notify": func(q *qp) { raw(q, q.tls.Out.AppendAlert(nil, tls13.AlertCloseNotify)) },
		"alert":        func(q *qp) { raw(q, q.tls.Out.AppendAlert(nil, tls13.AlertInternal)) },
		"no record":    func(q *qp) { raw(q, make([]byte, 40)) },
		"forged":       func(q *qp) { raw(q, append([]byte{23, 3, 3, 0, 40}, make([]byte, 40)...)) },
	} {
		var said [2]string
		for thread := range said {
			a, b, q := sealedByHand(t)
			a.dev.threads.idle = nil
			b.threadByHand()
			if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20); err != nil {
				t.Fatal(err)
			}
			j := begun(a, b, 1<<20)
			if q.tls.sealed != nil {
				t.Fatal("a part of a record is written")
			}
			for n := -1; thread == 1 && n != j.n; j.do() { // what is there, so that it finds the end next
				n = j.n
			}
			end(q)
			if thread == 0 { // the owner goes on
				j.enough.Store(true)
				b.dev.threads.rests = math.MaxInt64
			}
			b.done(j)
			run(t, "the end", byThreads(b, func() bool { return len(b.ev) > 0 }), b)
			said[thread] = fmt.Sprint(b.ev[0].Type, b.ev[0].Err)
		}
		if said[0] != said[1] {
			t.Errorf("%s: the owner says %s, with a thread it says %s", name, said[0], said[1])
		}
	}
}
