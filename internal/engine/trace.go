package engine

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
)

// A trace follows single messages and notes when something happened to each: rdsctl trace.
// A message is chosen once, at the first moment at which its sequence is known: when it is
// posted, and when it arrives. Both ends of a connection see the same sequence, so both
// choose the same messages of every Nth. From then on the message has the set of the traces
// that follow it, which is empty while there is no trace.
//
// The engine writes events into a ring that another goroutine reads, and never waits for
// it: an event that does not fit is counted.

// MaxTraces is how many traces there are at a time.
const MaxTraces = 8

// traceSet is a set of traces, by their places in traces.all.
type traceSet uint8

const (
	traceBurst = 1             // seconds of the rate that may be chosen at once
	nsPerSec   = 1_000_000_000 // of a rate
)

// TraceStep is what happened to a message.
type TraceStep uint8

// The steps of a message's life. At its sender TraceSubmitted to TraceEnded, at its receiver
// TraceArrived to TraceNoSocket; on the same host there is no TracePosted and TraceArrived.
const (
	TraceSubmitted TraceStep = iota // the daemon took it from the process
	TracePosted                     // it was handed to the queue pair or the TCP connection
	TraceResent                     // ... again, on another connection or because it was refused
	TraceLocal                      // its operations are locally complete
	TracePlaced                     // the data of its operations is in place
	TraceSettled                    // the status of an operation is known
	TraceAcked                      // the peer has acked it
	TraceEnded                      // it has ended in another way
	TraceArrived                    // its header arrived
	TraceDelivered                  // it is in the process's event ring
	TraceRead                       // the process has read it
	TraceRefused                    // there was no room; it comes again
	TraceNoSocket                   // no socket is bound to its port
)

var traceNames = [...]string{TraceSubmitted: "submitted", TracePosted: "posted", TraceResent: "resent", TraceLocal: "local",
	TracePlaced: "placed", TraceSettled: "settled", TraceAcked: "acked", TraceEnded: "ended", TraceArrived: "arrived",
	TraceDelivered: "delivered", TraceRead: "read", TraceRefused: "refused", TraceNoSocket: "nosocket"}

// traceEvent is a step of one message.
type traceEvent struct {
	at            Wall
	local, remote netip.AddrPort
	seq           uint64
	datagrams     uint32
	bytes         uint32
	ops           uint8
	lane          uint8
	step          TraceStep
	outcome       string
}

// traces are those that are on. Engine-owned.
type traces struct {
	on       bool
	all      [MaxTraces]*Trace
	sameHost uint64       // numbers messages that have no sequence
	clock    func() int64 // the engine's time at this moment, nil: that of the turn
}

// KeepTime says what the engine's time is between two turns, for traces.
func (e *Engine) KeepTime(clock func() int64) { e.traces.clock = clock }

// BeginTrace starts t; false: there are MaxTraces.
func (e *Engine) BeginTrace(t *Trace) bool {
	for i, at := range e.traces.all {
		if at == nil {
			t.until = e.now + int64(t.spec.Duration)
			t.looked, t.credit = e.now, traceBurst*nsPerSec
			e.traces.all[i], e.traces.on = t, true
			return true
		}
	}
	return false
}

// EndTrace stops t. It may have ended before.
func (e *Engine) EndTrace(t *Trace) {
	on := false
	for i, at := range e.traces.all {
		if at == t {
			e.traces.all[i] = nil
		}
		on = on || e.traces.all[i] != nil
	}
	e.traces.on = on
}

// stamp is this moment.
func (e *Engine) stamp() Wall {
	if e.traces.clock == nil {
		return e.wall
	}
	return e.epoch() + Wall(e.traces.clock())
}

// follow chooses the traces that ev's message is for. uid is whose socket it is about,
// known is false if there is none.
func (e *Engine) follow(ev *traceEvent, uid uint32, known bool) (set traceSet) {
	for i, t := range e.traces.all {
		if t != nil && t.matches(ev, uid, known) && t.takes(e.now) {
			set |= 1 << i
		}
	}
	return set
}

// put gives ev to the traces in set that may see it. A place in all may belong to another
// trace by now.
func (e *Engine) put(set traceSet, ev *traceEvent, uid uint32, known bool) {
	for i, t := range e.traces.all {
		if set&(1<<i) != 0 && t != nil && t.matches(ev, uid, known) {
			t.put(ev)
		}
	}
}

// matches reports whether the trace may see ev and wants to.
func (t *Trace) matches(ev *traceEvent, uid uint32, known bool) bool {
	s := &t.spec
	return (t.admin || known && uid == t.uid) &&
		(!s.Local.IsValid() || s.Local == ev.local.Addr()) && (s.LocalPort == 0 || s.LocalPort == ev.local.Port()) &&
		(!s.Remote.IsValid() || s.Remote == ev.remote.Addr()) && (s.RemotePort == 0 || s.RemotePort == ev.remote.Port()) &&
		(s.Every <= 1 || ev.seq%s.Every == 0)
}

// takes reports whether one more message is followed.
func (t *Trace) takes(now int64) bool {
	n := t.messages.Load()
	if now > t.until || t.spec.Count != 0 && n >= t.spec.Count {
		return false
	}
	each := int64(nsPerSec / t.spec.Rate)
	t.credit = min(t.credit+now-t.looked, traceBurst*nsPerSec)
	t.looked = now
	if t.credit < each {
		t.skipped.Add(1)
		return false
	}
	t.credit -= each
	t.messages.Store(n + 1)
	return true
}

// posted is the up-call of connections for watched messages.
func (e *Engine) posted(m *conn.Msg) {
	t, ok := m.Owner.(*txMsg)
	if !ok || !e.traces.on {
		return
	}
	if t.traceSeq != 0 {
		if t.traced != 0 {
			e.traceTx(t, TraceResent, "")
		}
		return
	}
	t.traceSeq, _ = m.Sent()
	e.traceFirst(t)
	if t.traced != 0 {
		e.traceTx(t, TracePosted, "")
	}
}

// traceFirst chooses who follows t, whose traceSeq is known, and tells when it was
// submitted.
func (e *Engine) traceFirst(t *txMsg) {
	ev := e.sent(t, TraceSubmitted, "")
	ev.at = e.epoch() + Wall(t.m.At)
	uid := t.sock.cl.user.UID
	t.traced = e.follow(&ev, uid, true)
	e.put(t.traced, &ev, uid, true)
}

// sent is an event of t.
func (e *Engine) sent(t *txMsg, step TraceStep, outcome string) traceEvent {
	data, run := t.m.Whole()
	return traceEvent{at: e.stamp(), local: netip.AddrPortFrom(t.sock.local.addr, t.sock.port), remote: netip.AddrPortFrom(t.slot.addr, t.slot.port),
		seq: t.traceSeq, datagrams: uint32(max(run, 1)), bytes: uint32(len(data)), ops: uint8(t.nops), lane: t.sock.lane, step: step, outcome: outcome}
}

// traceTx notes a step of t, which is traced.
func (e *Engine) traceTx(t *txMsg, step TraceStep, outcome string) {
	ev := e.sent(t, step, outcome)
	e.put(t.traced, &ev, t.sock.cl.user.UID, true)
}

// traceEnd notes the end of t.
func (e *Engine) traceEnd(t *txMsg, o conn.Outcome) {
	if o == conn.Acked {
		e.traceTx(t, TraceAcked, "")
	} else {
		e.traceTx(t, TraceEnded, o.String())
	}
}

// traceSameHost chooses who follows t, which goes to the socket s of this host, and passes that
// on to a.
func (e *Engine) traceSameHost(t *txMsg, s *socket, a *arrival) {
	if !e.traces.on {
		return
	}
	if t.traceSeq == 0 {
		e.traces.sameHost++
		t.traceSeq = e.traces.sameHost
		e.traceFirst(t)
		a.seq = t.traceSeq
		e.followReceiver(t, s, a)
		if t.nops > 0 && t.traced != 0 {
			e.traceTx(t, TracePlaced, "")
		}
	}
	a.traced, a.seq = t.traced, t.traceSeq
}

// followReceiver adds to t's traces those that want what happens at its receiver alone.
func (e *Engine) followReceiver(t *txMsg, s *socket, a *arrival) {
	sent, ev := e.sent(t, TraceSubmitted, ""), came(s, a, TraceDelivered)
	for i, tr := range e.traces.all {
		if tr != nil && tr.matches(&ev, s.cl.user.UID, true) && !tr.matches(&sent, t.sock.cl.user.UID, true) && tr.takes(e.now) {
			t.traced |= 1 << i
		}
	}
}

// traceArrived chooses who follows a message that arrived for s at the moment at.
func (e *Engine) traceArrived(p *peer, s *socket, h *wire.Header, a *arrival, x *wire.Exts, at Wall) {
	a.seq = h.Seq
	ev := came(s, a, TraceArrived)
	ev.at, ev.remote, ev.lane, ev.ops = at, netip.AddrPortFrom(p.addr, h.SPort), p.lane, uint8(x.RDMA)
	a.traced = e.follow(&ev, s.cl.user.UID, true)
	e.put(a.traced, &ev, s.cl.user.UID, true)
	if x.RDMA > 0 {
		ev.step = TracePlaced
		e.put(a.traced, &ev, s.cl.user.UID, true)
	}
}

// traceNobody notes a message that arrived for a port without a socket: for
// administrators, because it is nobody's.
func (e *Engine) traceNobody(p *peer, h *wire.Header) {
	run, _ := h.Run()
	ev := traceEvent{at: e.stamp(), local: netip.AddrPortFrom(p.local.addr, h.DPort), remote: netip.AddrPortFrom(p.addr, h.SPort),
		seq: h.Seq, datagrams: uint32(max(run, 1)), bytes: h.Len, lane: p.lane, step: TraceNoSocket}
	e.put(e.follow(&ev, 0, false), &ev, 0, false)
}

// came is an event of a message that came for s.
func came(s *socket, a *arrival, step TraceStep) traceEvent {
	ev := traceEvent{local: netip.AddrPortFrom(s.local.addr, s.port), seq: a.seq, datagrams: uint32(max(a.run, 1)), bytes: uint32(a.n),
		lane: s.lane, step: step}
	if a.src != nil {
		ev.remote = netip.AddrPortFrom(netip.AddrFrom16(*a.src).Unmap(), a.sport)
	}
	return ev
}

// traceArrival notes a step of a message that arrived for s and is traced.
func (e *Engine) traceArrival(s *socket, a *arrival, step TraceStep) {
	ev := came(s, a, step)
	ev.at = e.stamp()
	e.put(a.traced, &ev, s.cl.user.UID, true)
}

// traceRead notes that the process has read r, which is traced.
func (e *Engine) traceRead(r *rxEntry) {
	a := arrival{src: r.src, sport: r.sport, n: int(r.n), run: r.run, traced: r.traced, seq: r.seq}
	e.traceArrival(r.sock, &a, TraceRead)
}
