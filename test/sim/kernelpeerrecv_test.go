package sim

import (
	"encoding/binary"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

func (k *kpeer) refill(n int) {
	if len(k.spare) > k.recvWR/2 {
		n = k.recvWR // rds_ib_ring_low
	}
	for ; n > 0 && len(k.spare) > 0 && k.qp != nil; n-- {
		i := k.spare[len(k.spare)-1]
		k.spare = k.spare[:len(k.spare)-1]
		off := uint64(i * kFrame)
		_, err := k.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: []verbs.SGE{
			{Addr: off, Length: wire.HeaderLen, LKey: k.recvMR.LKey()}, {Addr: off + wire.HeaderLen, Length: 4096, LKey: k.recvMR.LKey()}}}})
		must(err)
	}
}

// recv is rds_poll_rcq.
func (k *kpeer) recv() (work bool) {
	var wc [8]verbs.WC
	for n := k.rcq.Poll(wc[:]); n > 0; n = k.rcq.Poll(wc[:]) {
		work = true
		for i := range n {
			if wc[i].Status != verbs.WCSuccess {
				if wc[i].Status != verbs.WCWRFlushErr {
					k.fail("receive status %v: a frame longer than a kernel's buffers", wc[i].Status)
				}
				k.drop()
				return true
			}
			k.processRecv(k.recvMem[int(wc[i].WRID)*kFrame:][:wc[i].ByteLen])
			k.spare = append(k.spare, int(wc[i].WRID))
		}
	}
	if k.ackReq {
		k.ackReq = false
		k.ackDue = true // rds_ib_attempt_ack
	}
	return work
}

// processRecv is rds_ib_process_recv. It checks more than a kernel does.
func (k *kpeer) processRecv(b []byte) {
	var h wire.Header
	if err := wire.Parse(b, &h); err != nil {
		k.fail("%x: %v", b[:min(len(b), 48)], err)
		return
	}
	body := b[wire.HeaderLen:]
	isMap := h.Flags == wire.FlagCong
	switch {
	case h.Credit != 0 || h.SrcInc != 0 || binary.BigEndian.Uint16(b[30:]) == 0:
		k.fail("credit %d, padding %#x, checksum %#x", h.Credit, h.SrcInc, binary.BigEndian.Uint16(b[30:]))
	case h.Ack >= k.nextTx:
		k.fail("ack %d, the next sequence is %d", h.Ack, k.nextTx)
	case h.Flags&^(wire.FlagAckRequired|wire.FlagRetransmitted) != 0 && !isMap:
		k.fail("flags %#x", h.Flags)
	}
	if h.Ack > k.ackRecv {
		k.ackRecv = h.Ack
		k.acked(h.Ack)
	}
	if h.SPort == 0 && h.DPort == 0 && len(body) == 0 {
		if h.Seq != 0 || h.Flags != 0 || h.Len != 0 || h.Ext != [wire.ExtLen]byte{} {
			k.fail("ack frame %+v", h)
		}
		return
	}
	if k.inc == nil {
		var all [16]byte
		copy(all[:], b[32:48])
		k.inc = &kinc{h: h, ext: wire.ParseExts(all[:])}
	} else if i := &k.inc.h; h.Seq != i.Seq || h.Len != i.Len || h.SPort != i.SPort || h.DPort != i.DPort || h.Flags != i.Flags || h.Ext != i.Ext {
		k.fail("fragment %+v of %+v", h, *i)
	}
	if want := min(int(h.Len)-len(k.inc.data), 4096); len(body) != want {
		k.fail("fragment of %d bytes, want %d: %+v", len(body), want, h)
	}
	k.inc.data = append(k.inc.data, body...)
	if len(k.inc.data) < int(h.Len) {
		return
	}
	inc := k.inc
	k.inc = nil
	if isMap {
		if h.Seq != 0 || h.SPort|h.DPort != 0 || len(inc.data) != cong.Len {
			k.fail("map %+v", h)
		}
		must(k.remote.Load(inc.data, nil))
		return
	}
	k.incoming(inc)
	k.ackNext = h.Seq
	if h.Flags&wire.FlagAckRequired != 0 {
		k.ackReq = true
	}
}

// acked is rds_send_path_drop_acked.
func (k *kpeer) acked(ack uint64) {
	for len(k.retrans) > 0 && k.retrans[0].h.Seq <= ack && k.retrans[0] != k.cur {
		m := k.retrans[0]
		k.retrans = k.retrans[1:]
		if m.op != nil && m.op.status == kOpen {
			m.op.status = 0
		}
		m.end(true)
	}
}

// incoming is rds_recv_incoming.
func (k *kpeer) incoming(inc *kinc) {
	h := &inc.h
	if h.Seq < k.nextRx && h.Flags&wire.FlagRetransmitted != 0 {
		k.dups++
		return
	}
	k.nextRx = h.Seq + 1
	if h.DPort == 0 {
		if h.SPort != 0 {
			k.sendmsg(0, h.SPort, nil, 0, nil, 0, nil)
		}
		return
	}
	s := k.socks[h.DPort]
	if s == nil {
		return
	}
	s.queue = append(s.queue, inc)
	s.got(inc)
	s.bytes += len(inc.data)
	if s.bytes > s.limit {
		k.setCong(s, true)
	}
}

func (k *kpeer) setCong(s *ksock, on bool) {
	if s.congested == on {
		return
	}
	s.congested = on
	if on {
		k.cong.Set(s.port)
	} else {
		k.cong.Clear(s.port)
	}
	k.mapQueued = true
}

// recvmsg takes the first message of a socket, or returns false if there is none.
func (k *kpeer) recvmsg(s *ksock) bool {
	if len(s.queue) == 0 {
		return false
	}
	s.bytes -= len(s.queue[0].data)
	s.queue = s.queue[1:]
	if s.bytes < s.limit/2 || s.bytes == 0 {
		k.setCong(s, false)
	}
	return true
}
