package conn

import (
	"encoding/binary"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// The hosts of the world check what their Conn tells them as it comes.

func (h *worldHost) check(hd *wire.Header, b []byte) *sent {
	w := h.w
	if len(b) < 32 {
		w.fatalf("payload of %d bytes", len(b))
	}
	s := w.byID[binary.BigEndian.Uint64(b)]
	if s == nil || s.from == h.i {
		w.fatalf("unknown message delivered")
	}
	if n, ok := hd.Run(); n != s.msg.Run || !ok {
		w.fatalf("message %d: %d datagrams, sent %d", s.id, n, s.msg.Run)
	}
	if len(b) != len(s.msg.Data) {
		w.fatalf("message %d: %d bytes, sent %d", s.id, len(b), len(s.msg.Data))
	}
	for i := 8; i < len(b); i++ {
		if b[i] != byte(uint64(i)+s.id) {
			w.fatalf("message %d: byte %d is wrong", s.id, i)
		}
	}
	if hd.SPort != s.key.sport || hd.DPort != s.key.dport || hd.SrcInc != uint32(s.life) {
		w.fatalf("message %d: wrong header %+v", s.id, *hd)
	}
	return s
}

func (h *worldHost) verdict(dport uint16) Verdict {
	switch {
	case h.unbound[dport]:
		return NoSocket
	case h.full[dport] && h.w.rng.IntN(4) > 0:
		return Refused
	}
	return Accepted
}

// met is the incarnation of this host's sockets.
func (h *worldHost) met() uint32 { return uint32(h.life) + 1000 }

// Bound checks what the sender of a message is told.
func (h *worldHost) Bound(_ *Conn, m *msg.Msg, inc uint32) {
	s := m.Owner.(*sent)
	if s.done || s.got != 1 || s.metBy != inc {
		h.w.fatalf("BOUND %d of message %d: done %v, delivered %d times, taken by %d", inc, s.id, s.done, s.got, s.metBy)
	}
	s.bound = inc
}

// took checks a delivery.
func (h *worldHost) took(s *sent) {
	w := h.w
	s.metBy = h.met()
	w.logf("%d: got %d", h.i, s.id)
	if s.msg.Run != 0 {
		h.c.TookRun(s.msg.Payload)
	}
	if s.silent {
		w.fatalf("silent message %d delivered", s.id)
	}
	if s.got++; s.got > 1 {
		w.fatalf("message %d delivered twice", s.id)
	}
	if s.done && s.outcome != msg.Cancelled && s.outcome != msg.Unknown && s.outcome != msg.Lost && s.outcome != msg.GaveUp {
		w.fatalf("message %d delivered after its end with outcome %v", s.id, s.outcome)
	}
	if h.lastLife[s.key] != s.life {
		h.lastLife[s.key], h.last[s.key] = s.life, 0
	}
	if s.n <= h.last[s.key] {
		w.fatalf("message %d: number %d of its flow after %d", s.id, s.n, h.last[s.key])
	}
	h.last[s.key] = s.n
	wrs := s.wrs
	if s.msg.Carried() { // it runs now
		wrs--
	}
	if s.op && (s.applied != wrs || wrs > 0 && s.appLife != h.life) {
		w.fatalf("message %d delivered, but %d of %d RDMA requests done in life %d of %d", s.id, s.applied, s.wrs, s.appLife, h.life)
	}
}

func (h *worldHost) Deliver(c *Conn, hd *wire.Header, b []byte) (Verdict, uint32) {
	s := h.check(hd, b)
	v := h.verdict(hd.DPort)
	h.w.logf("%d: Deliver %d seq %d flags %#x: %d", h.i, s.id, hd.Seq, hd.Flags, v)
	if v == Accepted {
		h.took(s)
	}
	return v, h.met()
}

func (h *worldHost) Begin(c *Conn, hd *wire.Header) ([]byte, any, Verdict) {
	v := h.verdict(hd.DPort)
	if v != Accepted {
		return nil, nil, v
	}
	p := &part{buf: make([]byte, hd.Len)}
	h.parts[p] = true
	return p.buf, p, v
}

func (h *worldHost) Commit(c *Conn, hd *wire.Header, token any) uint32 {
	p := token.(*part)
	if !h.parts[p] {
		h.w.fatalf("Commit of a part that is not open")
	}
	delete(h.parts, p)
	h.took(h.check(hd, p.buf))
	return h.met()
}

func (h *worldHost) Abort(c *Conn, token any) {
	if !h.parts[token.(*part)] {
		h.w.fatalf("Abort of a part that is not open")
	}
	delete(h.parts, token.(*part))
}

func (h *worldHost) Internal(c *Conn, t wire.InternalType, body []byte) {
	r, err := wire.ParseRevoke(body)
	if t != wire.TypeRevoke || err != nil {
		h.w.fatalf("internal %v: %v", t, err)
	}
	s := h.w.byID[uint64(r.RKey)]
	if s.got++; s.got > 1 {
		h.w.fatalf("internal message %d delivered twice", s.id)
	}
}

func (h *worldHost) CanPost(c *Conn, m *msg.Msg) bool {
	s := m.Owner.(*sent)
	if s.asked {
		h.w.fatalf("CanPost asked twice for %d", s.id)
	}
	s.asked = true
	if h.w.rng.IntN(20) == 0 {
		return false
	}
	h.asked[s] = true
	return true
}

func (h *worldHost) OpLocal(c *Conn, m *msg.Msg) {
	s := m.Owner.(*sent)
	h.w.logf("%d: OpLocal %d", h.i, s.id)
	if s.local || !h.asked[s] || s.done {
		h.w.fatalf("OpLocal of %d: local %v, asked %v, done %v", s.id, s.local, h.asked[s], s.done)
	}
	s.local = true
	for _, q := range h.dev.qps {
		for _, wr := range append(append([]*fakeWR(nil), q.posted...), q.wire...) {
			if wr.done {
				continue
			}
			for _, g := range wr.sgl {
				if g.LKey == s.lkey {
					h.w.fatalf("OpLocal of %d while a work request uses its buffer", s.id)
				}
			}
		}
	}
}

func (h *worldHost) MsgDone(c *Conn, m *msg.Msg, o msg.Outcome) {
	w := h.w
	s := m.Owner.(*sent)
	w.logf("%d: done %d outcome %v", h.i, s.id, o)
	if o == msg.Returned {
		w.saw["Returned"]++
		h.returned(m)
		return
	}
	if s.done {
		w.fatalf("message %d ended twice, %v and %v", s.id, s.outcome, o)
	}
	s.done, s.outcome = true, o
	w.saw[o.String()]++
	h.ended[o] += max(m.Run, 1)
	if m.Ended != max(m.Run, 1) {
		w.fatalf("message %d ended for %d of %d datagrams", s.id, m.Ended, m.Run)
	}
	if h.asked[s] != s.local {
		w.fatalf("message %d ended: posted %v, local %v", s.id, h.asked[s], s.local)
	}
	if m.LKey != 0 {
		for _, q := range h.dev.qps {
			for _, wr := range append(append([]*fakeWR(nil), q.posted...), q.wire...) {
				for _, g := range wr.sgl {
					if !wr.done && g.LKey == m.LKey {
						w.fatalf("message %d ended while a work request uses its payload", s.id)
					}
				}
			}
		}
	}
	w.checkOutcome(s, m, o)
	for i := range m.Data { // the memory is the owner's again
		m.Data[i] = 0xee
	}
	if s.got == 0 && (o == msg.Acked || o == msg.Unknown || o == msg.Lost || o == msg.Cancelled || o == msg.GaveUp) {
		for i := range m.Data {
			m.Data[i] = byte(uint64(i) + s.id)
		}
		if !s.internal {
			binary.BigEndian.PutUint64(m.Data, s.id)
		}
	}
	for i := range s.buf {
		s.buf[i] = 0xee
	}
}

// checkOutcome checks that o is an end that s, which was m, can have had.
func (w *world) checkOutcome(s *sent, m *msg.Msg, o msg.Outcome) {
	switch o {
	case msg.Acked:
		if s.got != 1 && !s.silent {
			w.fatalf("message %d acked, delivered %d times", s.id, s.got)
		}
		if s.bound != s.metBy {
			w.fatalf("message %d acked by %d, told %d", s.id, s.metBy, s.bound)
		}
		if s.op && s.applied != s.wrs {
			w.fatalf("operation %d acked, %d of %d requests done", s.id, s.applied, s.wrs)
		}
		if m.Carried() && s.results != 1 {
			w.fatalf("message %d acked, %d results of its atomic", s.id, s.results)
		}
	case msg.NoSock, msg.Dropped, msg.OpRefused, msg.OpFailed, msg.Withdrawn:
		if s.got != 0 {
			w.fatalf("message %d ended with %v, but was delivered", s.id, o)
		}
		if m.Carried() && s.added != 0 {
			w.fatalf("message %d ended with %v, but its atomic ran", s.id, o)
		}
		if o == msg.OpRefused && s.applied != 0 {
			w.fatalf("operation %d refused, but ran", s.id)
		}
		if o == msg.OpFailed && (!s.bad || m.WCStatus != verbs.WCRemAccessErr || m.Bad != m.Op && m.Bad != m.Op2) {
			w.fatalf("operation %d failed (%d), it was good", s.id, m.WCStatus)
		}
		if o == msg.Withdrawn && !s.gaveUp {
			w.fatalf("message %d given up by nobody", s.id)
		}
	case msg.Lost, msg.Unknown:
		if w.restart == 0 {
			w.fatalf("message %d ended with %v without a restart", s.id, o)
		}
	case msg.GaveUp:
		if !s.gaveUp {
			w.fatalf("message %d given up by nobody", s.id)
		}
	case msg.Cancelled:
		if !s.cancel {
			w.fatalf("message %d cancelled by nobody", s.id)
		}
	}
}
