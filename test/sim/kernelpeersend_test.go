package sim

import (
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// xmit is rds_send_xmit.
func (k *kpeer) xmit() {
	for k.state == kUp {
		if k.cur == nil && k.mapSent == 0 && k.mapQueued {
			k.mapQueued = false
			k.mapSent = 1
		}
		if k.mapSent > 0 {
			if !k.sendMap() {
				return
			}
			continue
		}
		if k.cur == nil {
			if len(k.sendq) == 0 {
				break
			}
			m := k.sendq[0]
			k.sendq = k.sendq[1:]
			if m.op != nil && m.retrans {
				m.op.status = kDropped
				m.end(false)
				continue
			}
			k.retrans = append(k.retrans, m)
			k.cur, k.opSent, k.sent = m, false, 0
			if m.retrans || k.packets == 0 {
				m.h.Flags |= wire.FlagAckRequired
				k.packets = 8
			} else {
				k.packets--
			}
			if m.retrans {
				m.h.Flags |= wire.FlagRetransmitted
			}
		}
		if !k.xmitMessage(k.cur) {
			return
		}
		k.cur = nil
	}
	if k.state == kUp && k.ackDue && !k.ackBusy && len(k.ring) < kSendWR {
		k.ackDue = false
		k.ackBusy = true
		k.post(wire.Header{}, nil, nil, true, 0)
	}
}

func (m *kmsg) end(acked bool) {
	if m.op != nil && m.op.mr != nil {
		must(m.op.mr.Dereg())
		m.op.mr = nil
	}
	if m.done != nil {
		m.done(acked)
		m.done = nil
	}
}

// xmitMessage is rds_ib_xmit_rdma and rds_ib_xmit. It returns false if the ring is full.
func (k *kpeer) xmitMessage(m *kmsg) bool {
	flags := verbs.SendFlags(0)
	if o := m.op; o != nil {
		if !k.opSent {
			if len(k.ring) >= kSendWR-1 {
				return false
			}
			if o.mr == nil {
				var err error
				o.mr, err = k.pd.RegMR(o.mem, 0, verbs.AccessLocalWrite)
				must(err)
			}
			wr := verbs.SendWR{WRID: k.nextWRID(), Op: verbs.OpRDMARead, RKey: uint32(o.cookie), RemoteAddr: o.cookie>>32 + o.off,
				SGL: []verbs.SGE{{Length: uint32(len(o.mem)), LKey: o.mr.LKey()}}}
			if o.write {
				wr.Op = verbs.OpRDMAWrite
			}
			k.ring = append(k.ring, kslot{wrid: wr.WRID})
			if !k.postWR(wr) {
				return false
			}
			k.opSent = true
		}
		if o.fence {
			flags = verbs.SendFence
		}
	}
	for first := true; first || k.sent < len(m.data); first = false {
		if len(k.ring) == kSendWR {
			return false
		}
		n := min(len(m.data)-k.sent, 4096)
		piece := m.data[k.sent : k.sent+n]
		k.sent += n
		last := k.sent == len(m.data)
		if !k.post(m.h, piece, m, last, flags) {
			return false
		}
	}
	return true
}

// sendMap sends the congestion map of rds_cong_update_alloc. It returns false if the ring is
// full.
func (k *kpeer) sendMap() bool {
	var b [cong.Len]byte
	k.cong.Put(b[:])
	for k.mapSent > 0 {
		if len(k.ring) == kSendWR {
			return false
		}
		i := k.mapSent - 1
		if !k.post(wire.Header{Flags: wire.FlagCong, Len: cong.Len}, b[4096*i:4096*(i+1)], nil, i == 1, 0) {
			return false
		}
		k.mapSent = (k.mapSent + 1) % 3
	}
	return true
}

func (k *kpeer) nextWRID() uint64 {
	k.wrid++
	return k.wrid
}

// post posts a frame.
func (k *kpeer) post(h wire.Header, piece []byte, m *kmsg, last bool, flags verbs.SendFlags) bool {
	id := k.nextWRID()
	off := int(id%kSendWR) * kFrame
	h.Ack = k.ackNext
	k.ackDue = false // the frame carries the ack
	h.Put(k.sendMem[off:])
	n := wire.HeaderLen + copy(k.sendMem[off+wire.HeaderLen:], piece)
	s := kslot{wrid: id, ack: m == nil && len(piece) == 0}
	if last {
		s.last = m
		flags |= verbs.SendSolicited
	}
	if k.unsig++; last || k.unsig > 4 {
		flags |= verbs.SendSignaled
		k.unsig = 0
	}
	k.ring = append(k.ring, s)
	return k.postWR(verbs.SendWR{WRID: id, Op: verbs.OpSend, Flags: flags,
		SGL: []verbs.SGE{{Addr: uint64(off), Length: uint32(n), LKey: k.sendMR.LKey()}}})
}

func (k *kpeer) postWR(wr verbs.SendWR) bool {
	if _, err := k.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		k.drop()
		return false
	}
	return true
}

// sendDone is rds_ib_send_cqe_handler. A completion completes all frames before it, too.
func (k *kpeer) sendDone(wc *verbs.WC) {
	for len(k.ring) > 0 && k.ring[0].wrid <= wc.WRID {
		s := k.ring[0]
		k.ring = k.ring[1:]
		if s.ack {
			k.ackBusy = false
		}
		if s.last == nil || s.last.op == nil || s.last.op.status != kOpen {
			continue
		}
		switch wc.Status {
		case verbs.WCSuccess:
			s.last.op.status = 0
		case verbs.WCRemAccessErr:
			s.last.op.status = 1
		}
	}
	if wc.Status != verbs.WCSuccess && k.state == kUp {
		k.drop()
	}
}
