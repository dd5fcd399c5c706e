package conn

import (
	"encoding/binary"
	"fmt"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// The checkers of the search: the invariants of docs/guarantees.md, as far as
// a connection makes them hold.

// rdma is asked before an RDMA request runs in h's memory.
func (h *searchHost) rdma(wr *verbs.SendWR) bool {
	s := h.w.all[wr.RKey-keyBase-1]
	if s.done && s.outcome != msg.Cancelled && s.outcome != msg.Unknown && s.outcome != msg.GaveUp {
		failf("the RDMA of message %d runs after its end, %v", s.id, s.outcome)
	}
	if h.retired {
		failf("the RDMA of message %d runs on a key that was given back", s.id)
	}
	if s.local && responds(wr.Op) {
		failf("the RDMA of message %d runs after it was locally complete", s.id)
	}
	if s.applied++; s.applied > 1 {
		failf("the RDMA of message %d runs twice", s.id)
	}
	s.appLife = h.life
	return true
}

func (h *searchHost) Deliver(_ *Conn, hd *wire.Header, b []byte) (Verdict, uint32) {
	switch {
	case h.unbound:
		return NoSocket, 0
	case h.full:
		return Refused, 0
	}
	s := h.w.all[binary.BigEndian.Uint64(b)-1]
	if s.from == h.i || hd.DPort != searchPort {
		failf("message %d delivered to host %d, port %d", s.id, h.i, hd.DPort)
	}
	if s.got++; s.got > 1 {
		failf("message %d delivered twice", s.id)
	}
	if s.done && s.outcome != msg.Cancelled && s.outcome != msg.Unknown && s.outcome != msg.Lost && s.outcome != msg.GaveUp {
		failf("message %d delivered after its end, %v", s.id, s.outcome)
	}
	if s.op() && (s.applied != 1 || s.appLife != h.life) {
		failf("message %d delivered without its data", s.id)
	}
	if h.lastOf == s.life && s.id <= h.last {
		failf("message %d delivered after %d", s.id, h.last)
	}
	h.last, h.lastOf = s.id, s.life
	return Accepted, 0
}

func (h *searchHost) Begin(*Conn, *wire.Header) ([]byte, any, Verdict) {
	failf("a message in fragments")
	return nil, nil, Refused
}
func (h *searchHost) Commit(*Conn, *wire.Header, any) uint32 { return 0 }
func (h *searchHost) Abort(*Conn, any)                       {}

// Internal plays the daemon's part of a revocation: the key is given back when
// no operation uses it any more.
func (h *searchHost) Internal(_ *Conn, t wire.InternalType, _ []byte) {
	switch t {
	case wire.TypeRevoke:
		if h.revoked {
			failf("REVOKE twice")
		}
		h.revoked, h.owes = true, true
		h.giveBack()
	case wire.TypeRevoked:
		h.retired = true
	}
}

func (h *searchHost) giveBack() {
	if h.owes && h.active == 0 {
		h.owes = false
		h.c.Send(&msg.Msg{Owner: (*searchMsg)(nil), Internal: wire.TypeRevoked, Data: (&wire.Revoke{RKey: keyBase, Lanes: 1}).Append(nil)})
	}
}

func (h *searchHost) CanPost(_ *Conn, m *msg.Msg) bool {
	s := m.Owner.(*searchMsg)
	if s.asked {
		failf("asked twice whether message %d may be posted", s.id)
	}
	if h.revoked {
		return false
	}
	s.asked = true
	h.active++
	return true
}

func (h *searchHost) OpLocal(_ *Conn, m *msg.Msg) {
	s := m.Owner.(*searchMsg)
	if s.local || !s.asked || s.done {
		failf("message %d locally complete: again %v, posted %v, ended %v", s.id, s.local, s.asked, s.done)
	}
	for _, q := range h.dev.qps {
		for _, wr := range append(append([]*fakeWR(nil), q.posted...), q.wire...) {
			for _, g := range wr.sgl {
				if !wr.done && g.LKey == s.lkey {
					failf("message %d locally complete while a work request uses its buffer", s.id)
				}
			}
		}
	}
	s.local = true
	h.complete(s)
	h.active--
	h.giveBack()
}

// complete lets the high-water mark pass s.
func (h *searchHost) complete(s *searchMsg) {
	was := h.mark.HWM()
	_, err := h.mark.Complete(&s.place)
	h.must(err)
	if h.mark.HWM() < was {
		failf("the high-water mark fell from %d to %d", was, h.mark.HWM())
	}
}

func (h *searchHost) MsgDone(_ *Conn, m *msg.Msg, o msg.Outcome) {
	s := m.Owner.(*searchMsg)
	if s == nil { // a REVOKED
		return
	}
	if o == msg.Returned {
		h.returned(m)
		return
	}
	if s.done {
		failf("message %d ended %v, and %v before", s.id, o, s.outcome)
	}
	if s.asked != s.local {
		failf("message %d ended %v: posted %v, locally complete %v", s.id, o, s.asked, s.local)
	}
	s.done, s.outcome = true, o
	if s.op() && !s.asked {
		h.complete(s)
	}
	switch o {
	case msg.Acked:
		if s.got != 1 && s.kind != 'R' || s.op() && s.applied != 1 {
			failf("message %d acked: delivered %d times, its RDMA ran %d times", s.id, s.got, s.applied)
		}
	case msg.NoSock, msg.Dropped, msg.Withdrawn:
		if s.got != 0 {
			failf("message %d ended %v and was delivered", s.id, o)
		}
	case msg.OpRefused:
		if s.got != 0 || s.applied != 0 || !h.revoked {
			failf("message %d ended %v: delivered %d, ran %d, revoked %v", s.id, o, s.got, s.applied, h.revoked)
		}
	case msg.Lost, msg.Unknown:
		if !h.w.died {
			failf("message %d ended %v, and nobody restarted", s.id, o)
		}
	case msg.OpFailed:
		failf("message %d: its operation failed, status %d", s.id, m.WCStatus)
	}
	if (o == msg.Cancelled || o == msg.GaveUp || o == msg.Withdrawn) && !s.ended {
		failf("message %d ended %v by itself", s.id, o)
	}
}

// atRest checks a state in which nothing happens any more.
func (w *searchWorld) atRest() {
	for _, h := range w.h {
		if h.next < len(h.script) {
			failf("host %d never sent all", h.i)
		}
		if h.c.wanted() {
			failf("host %d is stuck: %+v, settling %v, gate %d", h.i, h.c.Info(), h.c.settling.on, h.c.settling.gate)
		}
		if n := h.c.Stats().ProtocolErrors; n != 0 {
			failf("host %d: %d protocol errors, last: %v", h.i, n, h.lastTrace)
		}
		if h.c.State() == Down && h.out != 0 {
			failf("host %d: %d send buffers not returned", h.i, h.out)
		}
		if !h.mark.AllDone() {
			failf("host %d: high-water mark %d of %d", h.i, h.mark.HWM(), h.mark.Last())
		}
		if h.owes || h.peer().revoked && !h.retired && !w.died {
			failf("host %d: its key was not given back", h.i)
		}
		for _, s := range h.script {
			if s.life != h.life {
				continue
			}
			if !s.done {
				failf("message %d never ended", s.id)
			}
			if s.outcome == msg.NoSock && w.c.unbound == false {
				failf("message %d found no socket", s.id)
			}
			if s.outcome == msg.Dropped && w.c.cuts == 0 && !w.died {
				failf("message %d dropped without a break", s.id)
			}
		}
	}
}

// ends describes how the messages ended.
func (w *searchWorld) ends() string {
	var b []byte
	for _, s := range w.all {
		if s.msg != nil && s.done {
			b = fmt.Appendf(b, "%c:%v ", s.kind, s.outcome)
		} else {
			b = fmt.Appendf(b, "%c:- ", s.kind)
		}
	}
	return string(b[:len(b)-1])
}

// calm lets things take their course: they must come to rest soon.
func (w *searchWorld) calm() {
	for range 400 {
		was := w.fingerprint()
		for _, a := range actions {
			if a.kind < actCut && w.can(a) {
				w.do(a)
			}
		}
		if w.fingerprint() != was {
			continue
		}
		if w.can(wait) {
			w.do(wait)
		}
		if w.fingerprint() == was {
			w.atRest()
			return
		}
	}
	failf("it does not come to rest")
}
