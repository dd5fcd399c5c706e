package soft

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// followPair is byHand with the thread at b, which receives.
func followPair(t *testing.T) (a, b *host) {
	a, b = pair(t, attrs(), attrs())
	b.threadByHand()
	fill(a.mem, 3)
	return a, b
}

// begun has b receive the beginning of a WRITE of n bytes, and returns its thread's job.
func begun(a, b *host, n int) *job {
	a.t.Helper()
	a.bulkWrite(b, n)
	run(a.t, "a job", func() bool { return len(b.dev.threads.work) > 0 }, a, b)
	return <-b.dev.threads.work
}

// TestFollow: a WRITE goes on in a thread, nothing behind it is delivered meanwhile, and its region is not free.
func TestFollow(t *testing.T) {
	a, b := followPair(t)
	b.recv(verbs.RecvWR{})
	j := begun(a, b, 3*bulk)
	a.send(verbs.SendWR{Op: verbs.OpSend})
	q := b.qp.(*qp)
	q.Hold(true)
	if q.Hold(false); q.events&unixIn != 0 {
		b.done(j)
		t.Fatal("input that a thread has wakes the owner")
	}
	if err := b.mr.Rereg(b.mem, testIOVA, allAccess); err == nil {
		t.Error("a region that a thread writes is registered anew")
	}
	for range 3 {
		a.dev.Progress()
		b.dev.Progress()
		b.dev.trim()
		b.collect()
	}
	if len(b.wc) > 0 {
		t.Errorf("a thread has the input: completions %+v", b.wc)
	}
	b.done(j)
	for len(b.wc) == 0 {
		a.dev.Progress()
		b.dev.Progress()
		if b.collect(); len(b.dev.threads.work) > 0 {
			b.done(b.taken())
		}
	}
	if !bytes.Equal(b.mem[:3*bulk], a.mem[:3*bulk]) {
		t.Error("what came is not what was written")
	}
	if n := b.mr.(*mr).used; n != 0 || q.events&unixIn == 0 {
		t.Errorf("%d uses, events %#x", n, q.events)
	}
	if n := b.qp.Stats().Written; n != 3*bulk {
		t.Errorf("%d bytes counted", n)
	}
}

// TestFollowRevoked: a region that ends is free when the thread has let go, and what is missing of the WRITE is refused.
func TestFollowRevoked(t *testing.T) {
	a, b := followPair(t)
	j := begun(a, b, 1<<20)
	free := false
	if err := b.mr.Dereg(); err != nil {
		t.Fatal(err)
	}
	verbs.Untouched(b.mr, func() { free = true })
	for range 3 {
		b.dev.Progress()
	}
	if free {
		t.Error("the thread has it")
	}
	b.done(j)
	if b.dev.Progress(); !free {
		t.Error("no thread has it")
	}
	if e := b.event(a); e.Type != verbs.CMDisconnected {
		t.Errorf("event %+v", e)
	}
	if len(b.dev.threads.work) > 0 {
		t.Error("a thread goes on")
	}
}

// TestFollowFails: a queue pair fails when its thread has let go of it.
func TestFollowFails(t *testing.T) {
	a, b := followPair(t)
	j := begun(a, b, 1<<20)
	b.qp.ToError()
	q := b.qp.(*qp)
	if b.dev.Progress(); !q.Releasing() {
		t.Errorf("state %v", q.state)
	}
	b.done(j)
	if b.dev.Progress(); q.state != failed || b.mr.(*mr).used != 0 {
		t.Errorf("state %v", q.state)
	}
}

// TestFollowDestroy: Destroy waits for the thread, and not for all that the peer sends.
func TestFollowDestroy(t *testing.T) {
	b := newHost(t, Options{})
	b.threadByHand()
	p := newPuppet(t, b, attrs())
	payload := make([]byte, 40_000)
	f := writeFrame(b.mr.RKey(), testIOVA, false, payload)
	f = append(f, writeFrame(b.mr.RKey(), testIOVA+40_000, true, payload)...)
	f = append(f, writeFrame(b.mr.RKey(), testIOVA, true, payload)...)
	p.write(f[:100])
	if n, err := unix.SendmsgN(p.fd, f[100:], nil, nil, ioFlags); err != nil || n != len(f)-100 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	j := b.taken()
	stop, further := make(chan bool), make(chan int)
	go func() {
		b.done(j)
		for n := 0; ; n++ {
			select {
			case j := <-b.dev.threads.work:
				b.done(j)
			case <-stop:
				further <- n
				return
			}
		}
	}()
	if err := b.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	close(stop)
	if n := <-further; n > 0 || b.mr.(*mr).used != 0 {
		t.Errorf("%d more jobs, %d uses", n, b.mr.(*mr).used)
	}
}

// stopped returns a host, a puppet that has sent 1000 bytes of f, and the thread's job that the rest is for.
func stopped(t *testing.T, f []byte, of *host) (*puppet, *job) {
	t.Helper()
	of.threadByHand()
	p := newPuppet(t, of, attrs())
	for _, b := range [][]byte{f[:1000], f[1000:]} {
		if n, err := unix.SendmsgN(p.fd, b, nil, nil, ioFlags); err != nil || n != len(b) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if len(of.dev.threads.work) == 0 {
			of.dev.Progress()
		}
	}
	return p, <-of.dev.threads.work
}

// TestFollowReset: a connection that breaks while a thread has the input is the thread's to notice.
func TestFollowReset(t *testing.T) {
	a, b := followPair(t)
	j := begun(a, b, 3*bulk)
	q := a.qp.(*qp)
	_ = unix.SetsockoptLinger(q.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	q.hangUp(nil, 0)
	a.dev.ctl.close()
	in, x := b.dev.Stats().BytesIn, &b.qp.(*qp).rx
	left := x.left
	for range 3 {
		b.dev.Progress()
	}
	if b.dev.Progress() || b.dev.Stats().BytesIn != in || x.left != left || x.job != j {
		have := x.left
		j.q, x.job = nil, nil // what the owner has left of it is not for a thread
		t.Fatalf("the owner has read %d bytes, %d are left of %d", b.dev.Stats().BytesIn-in, have, left)
	}
	b.done(j)
	if e := b.event(); e.Type != verbs.CMDisconnected {
		t.Errorf("event %+v", e)
	}
}

// TestFollowEnd: a stream that ends in the middle of a WRITE ends the connection.
func TestFollowEnd(t *testing.T) {
	b := newHost(t, Options{})
	p, j := stopped(t, writeFrame(b.mr.RKey(), testIOVA, false, make([]byte, bulk))[:2000], b)
	p.close()
	b.done(j)
	for n := 0; len(b.ev) == 0; n++ {
		b.dev.Progress()
		b.collect()
		if len(b.dev.threads.work) > 0 {
			b.done(<-b.dev.threads.work)
		}
		if n > 100 {
			t.Fatal("nobody notices")
		}
	}
	if e := b.ev[0]; e.Type != verbs.CMDisconnected {
		t.Errorf("event %+v", e)
	}
}

// TestFollowPause: a message behind what a thread has read leaves its owner a round to post a receive.
func TestFollowPause(t *testing.T) {
	b := newHost(t, Options{})
	_, j := stopped(t, append(writeFrame(b.mr.RKey(), testIOVA, true, make([]byte, bulk)), sendFrame(1, 0, true, nil)...), b)
	b.done(j)
	b.dev.Progress()
	if q := b.qp.(*qp); q.intake != pausing || b.dev.Stats().RNRWaits != 0 {
		t.Errorf("intake %d, %d waits", q.intake, b.dev.Stats().RNRWaits)
	}
}

// TestFollowEnough: a thread begins nothing more when its queue pair fails, its region ends or its owner holds the input, and small
// segments are the owner's.
func TestFollowEnough(t *testing.T) {
	for name, end := range map[string]func(h *host){
		"failed":  func(h *host) { h.qp.ToError() },
		"held":    func(h *host) { h.qp.(*qp).Hold(true) },
		"revoked": func(h *host) { _ = h.mr.Dereg() },
		"nothing": func(*host) {},
		"small":   func(*host) {},
	} {
		b := newHost(t, Options{})
		n := 40_000
		if name == "small" {
			n = asideMin - 4
		}
		payload, f := make([]byte, n), []byte(nil)
		f = append(f, writeFrame(b.mr.RKey(), testIOVA, false, make([]byte, bulk))...)
		f = append(f, writeFrame(b.mr.RKey(), testIOVA+bulk, false, payload)...)
		f = append(f, writeFrame(b.mr.RKey(), testIOVA+bulk+uint64(n), true, payload)...)
		_, j := stopped(t, f, b)
		end(b)
		j.do()
		if want := map[bool]int{true: 2}[name == "nothing"]; j.segs != want {
			t.Errorf("%s: %d segments begun, want %d", name, j.segs, want)
		}
		b.dev.threads.done.Add(j.back)
		b.dev.Progress()
	}
}

// TestFollowEnoughMeanwhile: a thread that has read two segments begins none of them when it is told that it is enough.
func TestFollowEnoughMeanwhile(t *testing.T) {
	b := newHost(t, Options{})
	f := writeFrame(b.mr.RKey(), testIOVA, false, make([]byte, bulk))
	next := writeFrame(b.mr.RKey(), testIOVA+bulk, false, make([]byte, bulk))
	_, j := stopped(t, append(f, next...), b)
	was, following := *j.x, j.following
	defer func() { *j.x, j.following = was, following }()
	j.enough.Store(true)
	if begun, more := j.segment(next); begun || more {
		t.Errorf("begun %v, more %v", begun, more)
		return
	}
	j.enough.Store(false)
	if begun, _ := j.segment(next); !begun {
		t.Error("not begun")
	}
}

// TestFollowNot: small frames, memory windows and a connection that somebody looks at are the owner's.
func TestFollowNot(t *testing.T) {
	a, b := followPair(t)
	b.dev.threads.idle = nil
	a.bulkWrite(b, 1<<20)
	a.take(1, b)
	run(t, "the payload", func() bool { return bytes.Equal(b.mem[:1<<20], a.mem[:1<<20]) }, a, b)
	q, x := b.qp.(*qp), &b.qp.(*qp).rx
	b.dev.threads.idle = b.dev.threads.jobs
	m := b.mr.(*mr)
	x.placing, x.left, x.h, x.to = true, asideMin-1, iwarp.Header{Op: iwarp.OpWrite}, target{mr: m, key: m.key, addr: testIOVA}
	if q.follow() {
		t.Error("a little")
	}
	x.left = bulk
	x.to.mr = &mr{mem: m.mem, iova: testIOVA, key: m.key, parent: m}
	if q.follow() {
		t.Error("a window")
	}
	x.placing, x.to = false, target{}
}
