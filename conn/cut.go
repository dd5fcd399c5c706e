package conn

import (
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/mutant"
)

// Runs for a peer that knows none, a Linux kernel: each datagram is a message of its own,
// a part of the run. A run that has come to the head of its queue stays there, and its
// datagrams are cut off one by one as they can be sent. Each goes ahead of the run in the
// queue, and from there on as any message. The run ends with its last part. When a part
// is lost, because the peer has restarted, so is all that is left of its run.

// cutter has the runs of which a part is under way.
type cutter struct {
	runs     *cutRun
	n        int // parts under way
	free     *runPart
	freeRuns *cutRun
}

// maxParts bounds the parts of a connection that are under way, whatever the runs are: a
// run of empty datagrams has one for 4 bytes.
const maxParts = 1 << 12

// cutRun is a run of which a part is under way.
type cutRun struct {
	run         *Msg
	prev, next  *cutRun // in cutter.runs; next in cutter.freeRuns
	data        []byte  // of the run: its own Data and Run are those of what is still to be cut off
	datagrams   int
	first, last *runPart // those under way, in order
	acked       int      // parts
	stopped     bool     // nothing more is cut off
	busy        bool     // stop goes through its parts
	outcome     Outcome  // of what was not acked
}

// runPart is one datagram of a run.
type runPart struct {
	Msg
	prev, next *runPart // in cutRun; next in cutter.free
	off        int      // of its frame in the run
}

// full reports whether no more can be cut off for now.
func (k *cutter) full() bool { return k.n == maxParts }

// next cuts the next datagram off run, which is in l and has one left, and puts it ahead
// of run. It returns nil while too many are under way.
//
// The sender may write to the frames at any time, so a length is read once. What does not
// fit the run any more is an empty datagram: there are as many as were said.
func (k *cutter) next(l *msgList, run *Msg) *Msg {
	if k.full() {
		return nil
	}
	x := run.priv.cut
	if x == nil {
		x = k.begin(run)
	}
	behind := run.priv.next
	l.remove(run)
	p := k.take(x)
	payload, rest, ok := frames.Next(run.Data)
	if mutant.On(mutant.RunMergedForKernel) && ok {
		payload, rest, run.Run = run.Data[frames.Head:], nil, 1
	}
	if !ok {
		rest = nil
	}
	run.Data = x.data[len(x.data)-len(rest):]
	run.Run--
	last := run.Run == 0
	p.Msg = Msg{
		Owner: p, SPort: run.SPort, DPort: run.DPort, SrcInc: run.SrcInc, DstInc: run.DstInc,
		Data: payload, Addr: run.Addr + uint64(p.off+frames.Head), LKey: run.LKey,
		// Who waits for room below maxParts waits for an ack.
		AckNow: last && run.AckNow || k.full(),
		At:     run.At,
	}
	p.priv.cut, p.priv.own, p.priv.state = x, true, msgQueued
	l.insert(&p.Msg, behind)
	if !last {
		l.insert(run, behind)
	}
	return &p.Msg
}

// begin prepares to cut run.
func (k *cutter) begin(run *Msg) *cutRun {
	x := k.freeRuns
	if x == nil {
		x = new(cutRun)
	} else {
		k.freeRuns = x.next
	}
	*x = cutRun{run: run, next: k.runs, data: run.Data, datagrams: run.Run}
	if k.runs != nil {
		k.runs.prev = x
	}
	k.runs = x
	run.priv.cut = x
	return x
}

// forget ends the cutting of x, of which nothing is under way.
func (k *cutter) forget(x *cutRun) {
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		k.runs = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	x.run.Data, x.run.Run, x.run.priv.cut = x.data, x.datagrams, nil
	*x = cutRun{next: k.freeRuns}
	k.freeRuns = x
}

// take returns a part behind the others of x.
func (k *cutter) take(x *cutRun) *runPart {
	k.n++
	p := k.free
	if p == nil {
		p = new(runPart)
	} else {
		k.free = p.next
	}
	p.prev, p.next, p.off = x.last, nil, len(x.data)-len(x.run.Data)
	if x.last != nil {
		x.last.next = p
	} else {
		x.first = p
	}
	x.last = p
	return p
}

// give takes back p, which is in no list.
func (k *cutter) give(p *runPart) {
	x := p.priv.cut
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		x.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		x.last = p.prev
	}
	k.n--
	p.Data, p.priv.cut = nil, nil
	p.prev, p.next, k.free = nil, k.free, p
}

// ended notes that p ended with o. done is true if its run ends with it, with outcome
// all.
func (k *cutter) ended(p *runPart, o Outcome) (run *Msg, all Outcome, done bool) {
	x := p.priv.cut
	k.give(p)
	if o == Acked {
		x.acked++
	} else {
		x.outcome = o
	}
	return k.over(x)
}

// over ends x if nothing of it is under way or to come.
func (k *cutter) over(x *cutRun) (run *Msg, all Outcome, done bool) {
	run = x.run
	if x.first != nil || x.busy || run.Run > 0 && !x.stopped {
		return nil, Acked, false
	}
	if all, run.Ended = x.outcome, x.datagrams-x.acked; run.Ended == 0 {
		all, run.Ended = Acked, x.datagrams
	}
	k.forget(x)
	return run, all, true
}

// stop ends run, which is in no list, with o, but for what was acked. The parts of it
// that are in lists are taken out of there and passed to end; those that are not end later,
// as ended is told. done is true if there are none.
func (k *cutter) stop(run *Msg, o Outcome, end func(*Msg, Outcome)) (all Outcome, done bool) {
	x := run.priv.cut
	x.outcome, x.stopped, x.busy = o, true, true
	for p := x.first; p != nil; {
		next := p.next
		if l := p.priv.list; l != nil {
			l.remove(&p.Msg)
			end(&p.Msg, o)
		}
		p = next
	}
	x.busy = false
	_, all, done = k.over(x)
	return all, done
}

// rejoin gives back to their runs the parts that were never posted.
func (k *cutter) rejoin() {
	for x := k.runs; x != nil; {
		next := x.next
		for p := x.last; p != nil && !p.priv.posted && p.priv.list != nil; p = x.last {
			k.giveBack(p)
		}
		if x.run.Run == x.datagrams {
			k.forget(x)
		}
		x = next
	}
}

// giveBack gives p, which is in a list, back to its run.
func (k *cutter) giveBack(p *runPart) {
	x, l, behind := p.priv.cut, p.priv.list, p.priv.next
	l.remove(&p.Msg)
	if x.run.priv.list != nil {
		behind = x.run.priv.next
		l.remove(x.run)
	}
	x.run.Data, x.run.Run = x.data[p.off:], x.run.Run+1
	k.give(p)
	l.insert(x.run, behind)
}

// isCut reports whether m is a run of which a part is under way.
func (m *Msg) isCut() bool { return m.priv.cut != nil && m.priv.cut.run == m }

// isPart reports whether m is a datagram that was cut off a run.
func (m *Msg) isPart() bool { return m.priv.cut != nil && m.priv.cut.run != m }
