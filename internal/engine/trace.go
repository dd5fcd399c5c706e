package engine

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/trace"
)

// tracing is what the engine tells package trace. Engine-owned.
type tracing struct {
	trace.Traces
	*moment
	looped uint64 // numbers messages on this host, which have no sequence
}

// BeginTrace starts t; false: there are trace.Max.
func (e *Engine) BeginTrace(t *trace.Trace) bool { return e.traces.Begin(t, e.now) }

// EndTrace stops t. It may have ended before.
func (e *Engine) EndTrace(t *trace.Trace) { e.traces.End(t) }

// whose is the user of s.
func whose(s *socket) trace.User { return trace.User{UID: s.cl.user.UID, Known: true} }

// stamp is this moment.
func (t *tracing) stamp() Wall { return t.wallAt(t.present()) }

// posted is the up-call of connections for watched messages.
func (t *tracing) posted(m *msg.Msg) {
	x, ok := m.Owner.(*txMsg)
	if !ok || !t.On {
		return
	}
	if x.traceSeq != 0 {
		if x.traced != 0 {
			t.tx(x, trace.Resent, "")
		}
		return
	}
	x.traceSeq, _ = m.Sent()
	t.first(x)
	if x.traced != 0 {
		t.tx(x, trace.Posted, "")
	}
}

// first chooses who follows x, whose traceSeq is known, and tells when it was submitted.
func (t *tracing) first(x *txMsg) {
	ev := t.sent(x, trace.Submitted, "")
	ev.At = int64(t.wallAt(x.m.At))
	x.traced = t.Follow(&ev, whose(x.sock), t.now)
	t.Put(x.traced, &ev, whose(x.sock))
}

// sent is an event of x.
func (t *tracing) sent(x *txMsg, step trace.Step, outcome string) trace.Event {
	data, run := x.m.Whole()
	path := uint8(0)
	if p, ok := x.slot.way.(*peer); ok {
		path = p.path
	}
	return trace.Event{At: int64(t.stamp()), Local: netip.AddrPortFrom(x.sock.local.addr, x.sock.port), Remote: netip.AddrPortFrom(x.slot.addr, x.slot.port),
		Seq: x.traceSeq, Datagrams: uint32(max(run, 1)), Bytes: uint32(len(data)), Ops: uint8(x.nops), Lane: x.sock.lane, Path: path, Step: step, Outcome: outcome}
}

// tx notes a step of x, which is traced.
func (t *tracing) tx(x *txMsg, step trace.Step, outcome string) {
	ev := t.sent(x, step, outcome)
	t.Put(x.traced, &ev, whose(x.sock))
}

// end notes the end of x.
func (t *tracing) end(x *txMsg, o msg.Outcome) {
	if o == msg.Acked {
		t.tx(x, trace.Acked, "")
	} else {
		t.tx(x, trace.Ended, o.String())
	}
}

// onHost chooses who follows x, which goes to the socket s of this host, and passes that on to a.
func (t *tracing) onHost(x *txMsg, s *socket, a *arrival) {
	if !t.On {
		return
	}
	if x.traceSeq == 0 {
		t.looped++
		x.traceSeq = t.looped
		t.first(x)
		a.seq = x.traceSeq
		sent, ev := t.sent(x, trace.Submitted, ""), came(s, a, trace.Delivered)
		x.traced |= t.FollowReceiver(&sent, whose(x.sock), &ev, whose(s), t.now)
		if x.nops > 0 && x.traced != 0 {
			t.tx(x, trace.Placed, "")
		}
	}
	a.traced, a.seq = x.traced, x.traceSeq
}

// arrived chooses who follows a message that arrived for s at the moment at.
func (t *tracing) arrived(p *peer, s *socket, h *wire.Header, a *arrival, x *wire.Exts, at Wall) {
	a.seq = h.Seq
	ev := came(s, a, trace.Arrived)
	ev.At, ev.Remote, ev.Lane, ev.Ops = int64(at), netip.AddrPortFrom(p.addr, h.SPort), p.lane, uint8(x.RDMA)
	a.traced = t.Follow(&ev, whose(s), t.now)
	t.Put(a.traced, &ev, whose(s))
	if x.RDMA > 0 {
		ev.Step = trace.Placed
		t.Put(a.traced, &ev, whose(s))
	}
}

// nobody notes a message that arrived for a port without a socket: for
// administrators, because it is nobody's.
func (t *tracing) nobody(p *peer, h *wire.Header) {
	run, _ := h.Run()
	ev := trace.Event{At: int64(t.stamp()), Local: netip.AddrPortFrom(p.local.addr, h.DPort), Remote: netip.AddrPortFrom(p.addr, h.SPort),
		Seq: h.Seq, Datagrams: uint32(max(run, 1)), Bytes: h.Len, Lane: p.lane, Path: p.path, Step: trace.NoSocket}
	t.Put(t.Follow(&ev, trace.User{}, t.now), &ev, trace.User{})
}

// came is an event of a message that came for s.
func came(s *socket, a *arrival, step trace.Step) trace.Event {
	ev := trace.Event{Local: netip.AddrPortFrom(s.local.addr, s.port), Seq: a.seq, Datagrams: uint32(max(a.run, 1)), Bytes: uint32(a.payload()),
		Lane: s.lane, Path: a.path, Step: step}
	if a.src != nil {
		ev.Remote = netip.AddrPortFrom(netip.AddrFrom16(*a.src).Unmap(), a.sport)
	}
	return ev
}

// rx notes a step of a message that arrived for s and is traced.
func (t *tracing) rx(s *socket, a *arrival, step trace.Step) {
	ev := came(s, a, step)
	ev.At = int64(t.stamp())
	t.Put(a.traced, &ev, whose(s))
}

// read notes that the process has read r, which is traced.
func (t *tracing) read(r *rxEntry) {
	a := arrival{src: r.src, sport: r.sport, n: int(r.n), run: r.run, traced: r.traced, path: r.path, seq: r.seq}
	t.rx(r.sock, &a, trace.Read)
}
