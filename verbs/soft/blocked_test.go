package soft

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// clog fills the output of p's QP as if the socket took no more. unclog drops
// it and goes on.
func (p *puppet) clog() (unclog func()) {
	q := p.h.qp.(*qp)
	q.flush()
	p.read()
	p.in = nil
	if !q.outRoom(stageSize, 0) {
		p.h.t.Fatal("no room in an empty output")
	}
	q.events |= unix.EPOLLOUT
	q.out.commit(stageSize)
	q.out.sent(stageSize - 1) // the room comes back when all has gone
	return func() {
		q.out.drop()
		q.events &^= unix.EPOLLOUT
		q.dev.markDirty(q)
	}
}

// TestAtomicOnce: an atomic whose answer finds no room is not done again.
func TestAtomicOnce(t *testing.T) {
	h := newHost(t, Options{})
	mr, err := h.pd.RegMR(h.mem, testIOVA, allAccess|verbs.AccessRemoteAtomic)
	if err != nil {
		t.Fatal(err)
	}
	at := attrs()
	at.Access |= verbs.AccessRemoteAtomic
	p := newPuppet(t, h, at)
	p.ours(7)
	unclog := p.clog()
	p.write(atomicFrame(1, iwarp.AtomicRequest{STag: mr.RKey(), TO: testIOVA, ID: 1, Op: iwarp.AtomicFetchAdd, Data: 5, CompareMask: ^uint64(0)}))
	p.settle()
	for range 3 {
		h.qp.(*qp).generate()
	}
	if v := binary.NativeEndian.Uint64(h.mem); v != 5 {
		t.Fatalf("%d, want 5", v)
	}
	unclog()
	p.until("the answer", func() bool { return len(p.in) > iwarp.UntaggedLen+iwarp.AtomicRespLen })
	if id, old := iwarp.ParseAtomicResponse(p.in[iwarp.UntaggedLen:]); id != 1 || old != 0 {
		t.Errorf("answer of %d: %d", id, old)
	}
	if v := binary.NativeEndian.Uint64(h.mem); v != 5 {
		t.Errorf("%d, want 5", v)
	}
}

// TestDisallowBeforeAnswer: who may not read any more when the turn of its READ
// comes, or whose region has gone, gets nothing.
func TestDisallowBeforeAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(verbs.MR)
		code iwarp.Code
	}{
		{"Disallow", func(m verbs.MR) { m.Disallow(7) }, iwarp.TermReadAssoc},
		{"Dereg", func(m verbs.MR) { m.Dereg() }, iwarp.TermReadSTag},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, Options{})
			secret := bytes.Repeat([]byte("secret"), 100)
			mr, err := h.pd.RegMR(secret, 0, verbs.AccessRemoteRead|verbs.AccessRestricted)
			if err != nil {
				t.Fatal(err)
			}
			mr.Allow(7)
			p := newPuppet(t, h, attrs())
			unclog := p.clog()
			p.write(readFrame(1, iwarp.ReadRequest{SinkSTag: 1, SrcSTag: mr.RKey(), Size: 600}))
			p.settle()
			if h.qp.(*qp).serve.empty() {
				t.Fatal("the READ does not wait")
			}
			c.end(mr)
			unclog()
			if m := p.terminate(); m.Code != c.code {
				t.Errorf("%v, want %v", m.Code, c.code)
			}
			if bytes.Contains(p.in, []byte("secret")) {
				t.Error("it was read")
			}
		})
	}
}

// TestReregKeepsNoKeys: the table holds one key of a region, however often it
// is registered anew.
func TestReregKeepsNoKeys(t *testing.T) {
	h := newHost(t, Options{})
	before := len(h.dev.keys.m)
	for range 10 {
		if err := h.mr.Rereg(h.mem, 0, allAccess); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(h.dev.keys.m); n != before {
		t.Errorf("%d keys, want %d", n, before)
	}
}

// TestNudgesEnd: a peer that only receives is left alone in the end.
func TestNudgesEnd(t *testing.T) {
	h := newHost(t, Options{})
	newPuppet(t, h, attrs())
	q := h.qp.(*qp)
	for i := range maxNudges {
		q.stopTimer(timerStart)
		q.nudge()
		if on := q.timers[timerStart] != 0; on != (i+1 < maxNudges) {
			t.Errorf("after %d: another to come: %v", i+1, on)
		}
	}
}

// TestReceiveStopsRNR: once a message has its receive, the time it might have
// waited means nothing.
func TestReceiveStopsRNR(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	p.ours(1)
	q := h.qp.(*qp)
	p.write(sendFrame(1, 0, true, nil))
	p.settle()
	if q.timers[timerRNR] == 0 {
		t.Fatal("no time limit")
	}
	h.recv(verbs.RecvWR{WRID: 1})
	h.take(1)
	if q.timers[timerRNR] != 0 {
		t.Error("the time runs on")
	}
}
