package soft

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// FuzzStream feeds a connected QP any bytes in any cuts. It must not panic,
// must complete each work request exactly once, write nothing outside of what
// the peer may reach, and end with whole frames.
func FuzzStream(f *testing.F) {
	const key = 0x11223344
	const ours = 0x8000 // in cut: the peer is of our kind, and AckRemote
	seed := func(b ...[]byte) {
		var all []byte
		for _, x := range b {
			all = append(all, x...)
		}
		f.Add(all, uint16(7), true)
		f.Add(all, uint16(1000), false)
		f.Add(all, uint16(ours|300), false)
	}
	seed(sendFrame(1, 0, true, []byte("hello")), sendFrame(2, 0, false, []byte("a")), sendFrame(2, 1, true, []byte("b")))
	seed(writeFrame(key, 0, true, []byte("hello")), writeFrame(key, 60, true, []byte("hello")))
	seed(readFrame(1, iwarp.ReadRequest{SinkSTag: 1, Size: 64, SrcSTag: key}), readFrame(2, iwarp.ReadRequest{Size: 65, SrcSTag: key}))
	seed(responseFrame(sinkSTag(1), 0, false, []byte("01234567")), responseFrame(sinkSTag(1), 8, true, []byte("01234567")))
	seed(atomicFrame(1, iwarp.AtomicRequest{STag: key, Data: 1}), immediateFrame(1, 1), sendFrame(2, 0, true, nil), immediateFrame(3, 0), immediateFrame(4, 0), immediateFrame(5, 0))
	seed(sendFrame(1, 0, true, nil), sendFrame(2, 0, true, nil), sendFrame(3, 0, true, nil), sendFrame(4, 0, false, []byte("a")), readFrame(1, iwarp.ReadRequest{}), sendFrame(4, 1, true, []byte("b")))
	seed(seal(&iwarp.Header{Op: iwarp.OpSendInv, Last: true, MSN: 1, InvSTag: key}, nil))
	seed(terminateFrame(iwarp.Terminate{Code: iwarp.TermCRC}))
	seed(writeFrame(key, 0, true, make([]byte, 40000)))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16, crc bool) {
		h := newHostMem(t, Options{}, 16<<10)
		at := attrs()
		if crc {
			at.CRC = verbs.CRCOn
		}
		at.Access |= verbs.AccessRemoteAtomic
		if cut&ours != 0 {
			at.Ack = verbs.AckRemote
		}
		p := newPuppet(t, h, at)
		if cut&ours != 0 {
			p.ours(7)
		}
		guard := make([]byte, 3*64)
		m, err := h.pd.RegMR(guard[64:128], 0, at.Access)
		if err != nil {
			t.Fatal(err)
		}
		// A key the corpus can know.
		delete(h.dev.keys.m, m.RKey()>>8)
		m.(*mr).key = key
		h.dev.keys.m[key>>8] = m.(*mr)

		const recvs, sends = 3, 3
		for i := range recvs {
			h.recv(verbs.RecvWR{WRID: uint64(i), SGL: h.sge(i*64, 64)})
		}
		h.send(verbs.SendWR{WRID: 10, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: h.sge(4096, 16), RKey: 1},
			verbs.SendWR{WRID: 11, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: h.sge(8192, 16), RKey: 1},
			verbs.SendWR{WRID: 12, Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendFence})
		step := int(cut)%2000 + 1
		for len(b) > 0 && h.qp.State() == verbs.QPRTS {
			k := min(step, len(b))
			if n, _ := unix.SendmsgN(p.fd, b[:k], nil, nil, ioFlags); n > 0 {
				b = b[n:]
			} else if !h.dev.Progress() {
				break // stalled
			}
			h.dev.Progress()
		}
		unix.Shutdown(p.fd, unix.SHUT_WR)
		for h.dev.Progress() {
		}
		h.qp.ToError()
		h.collect()
		seen := map[uint64]int{}
		for _, wc := range h.wc {
			seen[wc.WRID]++
		}
		for _, id := range []uint64{0, 1, 2, 10, 11, 12} {
			if seen[id] != 1 {
				t.Errorf("work request %d has %d completions", id, seen[id])
			}
		}
		if len(h.wc) != recvs+sends {
			t.Errorf("%d completions", len(h.wc))
		}
		for i, v := range guard {
			if (i < 64 || i >= 128) && v != 0 {
				t.Fatalf("written outside the region at %d", i-64)
			}
		}
	})
}
