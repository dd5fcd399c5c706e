package msg

import (
	"iter"

	"github.com/rdsd/rdsd/conn/frames"
)

// Runs for a peer that knows none, a Linux kernel: each datagram is a message of its own,
// a part of the run. A run that has come to the head of its queue stays there, and its
// datagrams are cut off one by one as they can be sent. Each goes ahead of the run in the
// queue, and from there on as any message. The run ends with its last part. When a part
// is lost, because the peer has restarted, so is all that is left of its run.

// Cutter has the runs of which a part is under way.
type Cutter struct {
	Runs     *CutRun
	N        int // parts under way
	free     *RunPart
	freeRuns *CutRun
}

// MaxParts bounds the parts of a connection that are under way, whatever the runs are: a
// run of empty datagrams has one for 4 bytes.
const MaxParts = 1 << 12

// CutRun is a run of which a part is under way.
type CutRun struct {
	Run         *Msg
	prev, Next  *CutRun // in Cutter.Runs; Next in Cutter.freeRuns
	Data        []byte  // of the run: its own Data and Run are those of what is still to be cut off
	Datagrams   int
	First, Last *RunPart // those under way, in order
	Acked       int      // parts
	Stopped     bool     // nothing more is cut off
	busy        bool     // stop goes through its parts
	outcome     Outcome  // of what was not acked
}

// RunPart is one datagram of a run.
type RunPart struct {
	Msg
	prev, Next *RunPart // in CutRun; Next in Cutter.free
	Off        int      // of its frame in the run
}

// All yields the runs. The one that is yielded may end.
func (k *Cutter) All() iter.Seq[*CutRun] {
	return func(yield func(*CutRun) bool) {
		for x := k.Runs; x != nil; {
			next := x.Next
			if !yield(x) {
				return
			}
			x = next
		}
	}
}

// Full reports whether no more can be cut off for now.
func (k *Cutter) Full() bool { return k.N == MaxParts }

// Next cuts the next datagram off run, which is in l and has one left, and puts it ahead
// of run. It returns nil while too many are under way.
//
// The sender may write to the frames at any time, so a length is read once. What does not
// fit the run any more is an empty datagram: there are as many as were said.
func (k *Cutter) Next(l *List, run *Msg) *Msg {
	if k.Full() {
		return nil
	}
	x := run.Track.Cut
	if x == nil {
		x = k.Begin(run)
	}
	p := k.Take(x)
	payload, rest, ok := frames.Next(run.Data)
	if !ok {
		rest = nil
	}
	l.resize(run, x.Data[len(x.Data)-len(rest):], run.Run-1)
	last := run.Run == 0
	p.Msg = Msg{
		Owner: p, SPort: run.SPort, DPort: run.DPort, SrcInc: run.SrcInc, DstInc: run.DstInc,
		Data: payload, Addr: run.Addr + uint64(p.Off+frames.Head), LKey: run.LKey,
		// Who waits for room below maxParts waits for an ack.
		AckNow: last && run.AckNow || k.Full(),
		At:     run.At,
	}
	p.Track.Cut, p.Track.Own, p.Track.State = x, true, Queued
	l.Insert(&p.Msg, run)
	if last {
		l.Remove(run)
	}
	return &p.Msg
}

// Begin prepares to cut run.
func (k *Cutter) Begin(run *Msg) *CutRun {
	x := k.freeRuns
	if x == nil {
		x = new(CutRun)
	} else {
		k.freeRuns = x.Next
	}
	*x = CutRun{Run: run, Next: k.Runs, Data: run.Data, Datagrams: run.Run}
	if k.Runs != nil {
		k.Runs.prev = x
	}
	k.Runs = x
	run.Track.Cut = x
	return x
}

// forget ends the cutting of x, of which nothing is under way.
func (k *Cutter) forget(x *CutRun) {
	if x.prev != nil {
		x.prev.Next = x.Next
	} else {
		k.Runs = x.Next
	}
	if x.Next != nil {
		x.Next.prev = x.prev
	}
	x.Run.Data, x.Run.Run, x.Run.Track.Cut = x.Data, x.Datagrams, nil
	*x = CutRun{Next: k.freeRuns}
	k.freeRuns = x
}

// Take returns a part behind the others of x.
func (k *Cutter) Take(x *CutRun) *RunPart {
	k.N++
	p := k.free
	if p == nil {
		p = new(RunPart)
	} else {
		k.free = p.Next
	}
	p.prev, p.Next, p.Off = x.Last, nil, len(x.Data)-len(x.Run.Data)
	if x.Last != nil {
		x.Last.Next = p
	} else {
		x.First = p
	}
	x.Last = p
	return p
}

// give takes back p, which is in no list.
func (k *Cutter) give(p *RunPart) {
	x := p.Track.Cut
	if p.prev != nil {
		p.prev.Next = p.Next
	} else {
		x.First = p.Next
	}
	if p.Next != nil {
		p.Next.prev = p.prev
	} else {
		x.Last = p.prev
	}
	k.N--
	p.Data, p.Track.Cut = nil, nil
	p.prev, p.Next, k.free = nil, k.free, p
}

// TakeBack takes m, a connection's own message that has ended with o, back into own or k. It returns
// the run whose last part m was, with what became of it; else nil.
func (k *Cutter) TakeBack(m *Msg, o Outcome, own *OwnMsgs) (run *Msg, all Outcome) {
	m.Track.State = Idle
	p, ok := m.Owner.(*RunPart)
	if !ok {
		own.Give(m.Owner.(*OwnMsg))
		return nil, o
	}
	x := p.Track.Cut
	k.give(p)
	if o == Acked {
		x.Acked++
	} else {
		x.outcome = o
	}
	return k.over(x)
}

// over ends x and returns its run, if nothing of it is under way or to come.
func (k *Cutter) over(x *CutRun) (run *Msg, all Outcome) {
	run = x.Run
	if x.First != nil || x.busy || run.Run > 0 && !x.Stopped {
		return nil, Acked
	}
	if all, run.Ended = x.outcome, x.Datagrams-x.Acked; run.Ended == 0 {
		all, run.Ended = Acked, x.Datagrams
	}
	run.Track.State = Idle
	k.forget(x)
	return run, all
}

// Stop ends run, which is in no list, with o, but for what was acked. The parts of it
// that are in lists are taken out of there and passed to end; those that are not end later,
// by TakeBack. It returns run if there are none, with what became of it.
func (k *Cutter) Stop(run *Msg, o Outcome, end func(*Msg, Outcome)) (back *Msg, all Outcome) {
	x := run.Track.Cut
	x.outcome, x.Stopped, x.busy = o, true, true
	for p := x.First; p != nil; {
		next := p.Next
		if l := p.Track.List; l != nil {
			l.Remove(&p.Msg)
			end(&p.Msg, o)
		}
		p = next
	}
	x.busy = false
	return k.over(x)
}

// Rejoin gives back to their runs the parts that were never posted.
func (k *Cutter) Rejoin() {
	for x := range k.All() {
		for p := x.Last; p != nil && !p.Track.Posted && p.Track.List != nil; p = x.Last {
			k.giveBack(p)
		}
		if x.Run.Run == x.Datagrams {
			k.forget(x)
		}
	}
}

// giveBack gives p, which is in a list, back to its run.
func (k *Cutter) giveBack(p *RunPart) {
	x, l := p.Track.Cut, p.Track.List
	run := x.Run
	if run.Track.List != nil { // behind p
		l.resize(run, x.Data[p.Off:], run.Run+1)
	} else {
		run.Data, run.Run = x.Data[p.Off:], run.Run+1
		l.Insert(run, &p.Msg)
	}
	l.Remove(&p.Msg)
	k.give(p)
}

// IsCut reports whether m is a run of which a part is under way.
func (m *Msg) IsCut() bool { return m.Track.Cut != nil && m.Track.Cut.Run == m }

// IsPart reports whether m is a datagram that was cut off a run.
func (m *Msg) IsPart() bool { return m.Track.Cut != nil && m.Track.Cut.Run != m }
