package soft

import (
	"bytes"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// TestLongSendParked: with AckRemote a SEND of more than can be put aside, for
// which there is no receive, stops neither its stream nor the other: the
// acknowledgements for the peer's requests get through. It arrives intact.
func TestLongSendParked(t *testing.T) {
	crcModes(t, func(t *testing.T, at verbs.QPInitAttr) {
		const size = 3<<20 - 5
		at.Ack = verbs.AckRemote
		a, b := newHostMem(t, Options{}, 16<<20), newHostMem(t, Options{}, 16<<20)
		link(t, a, b, at, at)
		for i, h := range []*host{a, b} {
			fill(h.mem[:size], i)
			h.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: h.sge(0, size)})
		}
		for a.dev.Progress() || b.dev.Progress() {
		}
		for _, h := range []*host{a, b} {
			q := h.qp.(*qp)
			h.collect()
			if len(h.wc) != 0 || !q.intake.reads() || h.dev.Stats().RNRStalls != 0 || q.park.bytes > parkBytes || q.sq.room != roomAsked {
				t.Fatalf("%d completions, intake %d, %d bytes put aside, room %d", len(h.wc), q.intake, q.park.bytes, q.sq.room)
			}
		}
		for i, h := range []*host{b, a} {
			h.recv(verbs.RecvWR{WRID: 2, SGL: h.sge(8<<20, size)})
			for k, wc := range h.take(1, a, b) {
				if wc.WRID != 2 || wc.Status != 0 || wc.ByteLen != size {
					t.Fatalf("%d: %+v", k, wc)
				}
			}
			if wc := []*host{a, b}[i].take(1, h)[0]; wc.WRID != 1 || wc.Status != 0 {
				t.Errorf("%+v", wc)
			}
		}
		if !bytes.Equal(b.mem[8<<20:8<<20+size], a.mem[:size]) || !bytes.Equal(a.mem[8<<20:8<<20+size], b.mem[:size]) {
			t.Error("data differ")
		}
	})
}

// TestLongSendAcks: while a's long SEND waits for a receive, b's WRITEs and
// READs are answered.
func TestLongSendAcks(t *testing.T) {
	at := remoteAttrs()
	a, b := pair(t, at, at)
	a.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, 2<<20)})
	for a.dev.Progress() || b.dev.Progress() {
	}
	fill(a.mem[3<<20:][:300000], 3)
	for range 20 {
		b.send(verbs.SendWR{WRID: 2, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: b.sge(0, 5000), RKey: a.mr.RKey(), RemoteAddr: testIOVA + 4000000},
			verbs.SendWR{WRID: 3, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: b.sge(3<<20, 300000), RKey: a.mr.RKey(), RemoteAddr: testIOVA + 3<<20})
		for i, wc := range b.take(2, a) {
			if wc.WRID != uint64(2+i) || wc.Status != 0 {
				t.Fatalf("%+v", wc)
			}
		}
		if !bytes.Equal(b.mem[3<<20:][:300000], a.mem[3<<20:][:300000]) {
			t.Fatal("data differ")
		}
	}
	if len(a.wc) != 0 {
		t.Error("the SEND is complete")
	}
	b.recv(verbs.RecvWR{SGL: b.sge(0, 2<<20)})
	if wc := a.take(1, b)[0]; wc.Status != 0 {
		t.Errorf("%+v", wc)
	}
}

// TestLongSendRefused: where the wait for a receive is bounded, it ends.
func TestLongSendRefused(t *testing.T) {
	at, ba := remoteAttrs(), remoteAttrs()
	at.RNRRetry, ba.MinRNRTimer = 2, 15
	a, b := pair(t, at, ba)
	a.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend, SGL: a.sge(0, 2<<20)}, verbs.SendWR{WRID: 2, Op: verbs.OpSend})
	if wc := a.take(2, b); wc[0].Status != verbs.WCRNRRetryExcErr || wc[1].Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
}

// TestForeignLongSend: a peer that does not pause is no longer read at the
// limit, and what it gets put aside stays bounded until there is a receive.
func TestForeignLongSend(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	q := h.qp.(*qp)
	data := make([]byte, 3<<20)
	fill(data, 1)
	var b []byte
	for off := 0; off < len(data); off += 60000 {
		n := min(60000, len(data)-off)
		b = append(b, sendFrame(1, uint32(off), off+n == len(data), data[off:off+n])...)
	}
	posted := false
	for len(b) > 0 {
		n := len(b)
		p.writeSome(&b)
		if h.dev.Progress() || len(b) < n {
			continue
		}
		if posted || q.intake.reads() || q.park.bytes > parkBytes || q.park.bytes < parkBytes/2 {
			t.Fatalf("posted %v, intake %d, %d bytes put aside", posted, q.intake, q.park.bytes)
		}
		h.recv(verbs.RecvWR{WRID: 1, SGL: h.sge(0, len(data))})
		posted = true
	}
	if wc := h.take(1)[0]; wc.Status != 0 || wc.ByteLen != uint32(len(data)) || !bytes.Equal(h.mem[:len(data)], data) {
		t.Errorf("%+v", wc)
	}
	if !posted {
		t.Error("the stream was never stopped")
	}
}
