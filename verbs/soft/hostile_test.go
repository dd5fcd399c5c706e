package soft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// ours makes the puppet a peer that knows what RFC 7306 adds, with the RNR
// retries it asks for.
func (p *puppet) ours(rnr uint8) {
	q := p.h.qp.(*qp)
	q.known = true
	q.peer = iwarp.Features{Immediate: true, Atomics: true, RNRRetry: rnr, Reserve: fenceReserve, ParkMsgs: parkMsgs / 16, ParkKiB: parkBytes >> 10}
}

func atomicFrame(msn uint32, r iwarp.AtomicRequest) []byte {
	var b [iwarp.AtomicReqLen]byte
	r.Put(b[:])
	return seal(&iwarp.Header{Op: iwarp.OpAtomicRequest, Last: true, QN: iwarp.QNRead, MSN: msn}, b[:])
}

func atomicResponseFrame(qn, msn, id uint32, n int) []byte {
	b := make([]byte, max(n, iwarp.AtomicRespLen))
	iwarp.PutAtomicResponse(b, id, 7)
	return seal(&iwarp.Header{Op: iwarp.OpAtomicResponse, Last: true, QN: qn, MSN: msn}, b[:n])
}

func immediateFrame(msn uint32, kind uint32) []byte {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 0x11223344), kind)
	return seal(&iwarp.Header{Op: iwarp.OpImmediate, Last: true, MSN: msn}, b)
}

// TestBrokenRFC7306 is TestBrokenRules for peers with whom immediate data and
// atomics were agreed, and for invalidation.
func TestBrokenRFC7306(t *testing.T) {
	const end = testIOVA + memSize
	for _, c := range []struct {
		name  string
		want  iwarp.Code
		frame func(key, noAtomic uint32) []byte
	}{
		{"atomic: unknown STag", iwarp.TermReadSTag, func(k, n uint32) []byte { return atomicFrame(1, iwarp.AtomicRequest{STag: k ^ 0x100, TO: testIOVA}) }},
		{"atomic: beyond", iwarp.TermReadBounds, func(k, n uint32) []byte { return atomicFrame(1, iwarp.AtomicRequest{STag: k, TO: end - 7}) }},
		{"atomic: wrap", iwarp.TermReadWrap, func(k, n uint32) []byte { return atomicFrame(1, iwarp.AtomicRequest{STag: k, TO: ^uint64(0) - 3}) }},
		{"atomic: no right", iwarp.TermAccess, func(k, n uint32) []byte { return atomicFrame(1, iwarp.AtomicRequest{STag: n, TO: testIOVA}) }},
		{"atomic: misaligned", iwarp.TermStream, func(k, n uint32) []byte { return atomicFrame(1, iwarp.AtomicRequest{STag: k, TO: testIOVA + 4}) }},
		{"atomic: operation 1", iwarp.TermOpcode, func(k, n uint32) []byte { return atomicFrame(1, iwarp.AtomicRequest{Op: 1, STag: k, TO: testIOVA}) }},
		{"atomic: MSN 2 first", iwarp.TermMSN, func(k, n uint32) []byte { return atomicFrame(2, iwarp.AtomicRequest{STag: k, TO: testIOVA}) }},
		{"atomic: queue 0", iwarp.TermQN, func(k, n uint32) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpAtomicRequest, Last: true, MSN: 1}, make([]byte, iwarp.AtomicReqLen))
		}},
		{"atomic: header of 51 bytes", iwarp.TermTooLong, func(k, n uint32) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpAtomicRequest, Last: true, QN: 1, MSN: 1}, make([]byte, iwarp.AtomicReqLen-1))
		}},
		{"atomic: header of 60000 bytes", iwarp.TermTooLong, func(k, n uint32) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpAtomicRequest, Last: true, QN: 1, MSN: 1}, make([]byte, 60000))
		}},
		{"atomic response to nothing", iwarp.TermOpcode, func(k, n uint32) []byte { return atomicResponseFrame(iwarp.QNAtomic, 1, 1, 12) }},
		{"immediate: 7 bytes", iwarp.TermTooLong, func(k, n uint32) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpImmediate, Last: true, MSN: 1}, make([]byte, 7))
		}},
		{"immediate: 60000 bytes", iwarp.TermTooLong, func(k, n uint32) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpImmediate, Last: true, MSN: 1}, make([]byte, 60000))
		}},
		{"immediate: not last", iwarp.TermTooLong, func(k, n uint32) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpImmediate, MSN: 1}, make([]byte, 8))
		}},
		{"immediate: MSN 2 first", iwarp.TermMSN, func(k, n uint32) []byte { return immediateFrame(2, 0) }},
		{"immediate: queue 1", iwarp.TermQN, func(k, n uint32) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpImmediate, Last: true, QN: 1, MSN: 1}, make([]byte, 8))
		}},
		{"immediate of a SEND twice", iwarp.TermOpcode, func(k, n uint32) []byte { return append(immediateFrame(1, 1), immediateFrame(2, 1)...) }},
		{"immediate within a SEND", iwarp.TermTooLong, func(k, n uint32) []byte {
			return append(sendFrame(1, 0, false, nil), immediateFrame(1, 0)...)
		}},
		{"invalidation of a region", iwarp.TermCantInv, func(k, n uint32) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpSendInv, Last: true, MSN: 1, InvSTag: k}, nil)
		}},
		{"invalidation of nothing", iwarp.TermInvalidate, func(k, n uint32) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpSendSEInv, Last: true, MSN: 1, InvSTag: 0}, nil)
		}},
		{"no receive, no retries", iwarp.TermNoBuffer, func(k, n uint32) []byte {
			return append(sendFrame(1, 0, true, nil), append(sendFrame(2, 0, true, nil), sendFrame(3, 0, true, nil)...)...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, Options{})
			noAtomic := h.mr.RKey()
			m, err := h.pd.RegMR(h.mem, testIOVA, allAccess|verbs.AccessRemoteAtomic)
			if err != nil {
				t.Fatal(err)
			}
			at := attrs()
			at.Access |= verbs.AccessRemoteAtomic
			other := newPuppet(t, h, at)
			p := newPuppet(t, h, at)
			p.ours(0)
			h.recv(verbs.RecvWR{WRID: 1}, verbs.RecvWR{WRID: 2})
			p.write(c.frame(m.RKey(), noAtomic))
			if m := p.terminate(); m.Code != c.want {
				t.Errorf("terminated with %v, want %v", m.Code, c.want)
			}
			h.take(2)
			if e := h.event(); e.Type != verbs.CMDisconnected || !errors.Is(e.Err, c.want) {
				t.Errorf("%+v", e)
			}
			if !bytes.Equal(h.mem[:64], make([]byte, 64)) {
				t.Error("memory was written")
			}
			h.qp = nil
			other.check()
		})
	}
}

// TestBadAtomicResponses: answers to an atomic that are not.
func TestBadAtomicResponses(t *testing.T) {
	for _, c := range []struct {
		name  string
		want  iwarp.Code
		frame []byte
	}{
		{"queue 0", iwarp.TermQN, atomicResponseFrame(0, 1, 1, 12)},
		{"MSN 2", iwarp.TermMSN, atomicResponseFrame(iwarp.QNAtomic, 2, 1, 12)},
		{"another id", iwarp.TermMSN, atomicResponseFrame(iwarp.QNAtomic, 1, 2, 12)},
		{"32 bytes", iwarp.TermTooLong, atomicResponseFrame(iwarp.QNAtomic, 1, 1, 32)},
		{"8 bytes", iwarp.TermTooLong, atomicResponseFrame(iwarp.QNAtomic, 1, 1, 8)},
		{"a READ's answer", iwarp.TermOpcode, responseFrame(sinkSTag(1), 0, true, make([]byte, 8))},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, Options{})
			p := newPuppet(t, h, attrs())
			p.ours(7)
			h.send(verbs.SendWR{WRID: 1, Op: verbs.OpAtomicFetchAdd, SGL: h.sge(0, 8)}, verbs.SendWR{WRID: 2, Op: verbs.OpSend})
			p.write(c.frame)
			if m := p.terminate(); m.Code != c.want {
				t.Errorf("terminated with %v, want %v", m.Code, c.want)
			}
			if wc := h.take(1)[0]; wc.WRID != 1 || wc.Status == 0 || binary.NativeEndian.Uint64(h.mem) != 0 {
				t.Errorf("%+v", wc)
			}
		})
	}
}

// TestFlood: endless messages without a receive, of any size, cost what may be
// put aside and no more, and no other QP notices.
func TestFlood(t *testing.T) {
	for _, size := range []int{0, 1, 5000, 60000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h := newHost(t, Options{})
			other := newPuppet(t, h, attrs())
			p := newPuppet(t, h, attrs())
			q := h.qp.(*qp)
			var flood []byte
			for i := range min(3<<20/(size+24), 2000) {
				flood = append(flood, sendFrame(uint32(i+1), 0, true, make([]byte, size))...)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for idle := 0; len(flood) > 0 && idle < 3; {
				n, err := unix.SendmsgN(p.fd, flood, nil, nil, ioFlags)
				if err != nil && err != unix.EAGAIN {
					t.Fatal(err)
				}
				flood = flood[max(n, 0):]
				if idle++; h.dev.Progress() {
					idle = 0
				}
			}
			for h.dev.Progress() {
			}
			if q.park.msgs > parkMsgs || q.park.bytes > parkBytes || len(q.park.q) > parkMsgs {
				t.Errorf("%d messages, %d bytes put aside", q.park.msgs, q.park.bytes)
			}
			if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 4*parkBytes {
				t.Errorf("%d bytes allocated", after.TotalAlloc-before.TotalAlloc)
			}
			if q.intake != full || !q.state.connected() {
				t.Errorf("intake %d, state %d", q.intake, q.state)
			}
			if readable(h.dev.FD()) {
				t.Error("FD is readable: the owner would spin")
			}
			for _, x := range h.dev.qps {
				if x != nil && x != q {
					h.qp = x
				}
			}
			h.recv(verbs.RecvWR{WRID: 77, SGL: h.sge(4096, 8)})
			other.write(sendFrame(1, 0, true, []byte("sent")))
			if wc := h.take(1)[0]; wc.WRID != 77 || wc.Status != 0 {
				t.Errorf("the other QP: %+v", wc)
			}
			q.ToError()
			if q.park.bytes != 0 || len(q.park.q) != 0 {
				t.Error("what was put aside outlives the connection")
			}
		})
	}
}

// TestReadsBehindParked: a peer that sends READs behind a SEND without a
// receive gets as many put aside as were negotiated.
func TestReadsBehindParked(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	p.write(sendFrame(1, 0, true, nil))
	for i := range 4 + fenceReserve {
		p.write(readFrame(uint32(i+1), iwarp.ReadRequest{}))
		if h.qp.State() != verbs.QPRTS {
			if i < 4 {
				t.Fatalf("READ %d ended the connection", i+1)
			}
			break
		}
	}
	p.write(readFrame(99, iwarp.ReadRequest{}))
	if m := p.terminate(); m.Code != iwarp.TermStream && m.Code != iwarp.TermMSN {
		t.Errorf("%v", m.Code)
	}
}

// TestSlowLoris: a peer that sends byte by byte and stops anywhere holds its own
// QP only; one that closes there ends it.
func TestSlowLoris(t *testing.T) {
	f := append(sendFrame(1, 0, true, []byte("hello")), writeFrame(1, 0, true, nil)...)
	for stop := 1; stop < len(f); stop++ {
		h := newHost(t, Options{})
		other := newPuppet(t, h, attrs())
		p := newPuppet(t, h, attrs())
		h.recv(verbs.RecvWR{WRID: 5, SGL: h.sge(0, 8)})
		q := h.qp.(*qp)
		for i := range stop {
			unix.Write(p.fd, f[i:i+1])
			h.dev.Progress()
		}
		if q.State() != verbs.QPRTS {
			t.Fatalf("after %d bytes: state %d", stop, q.State())
		}
		h.collect()
		h.wc = nil
		for _, x := range h.dev.qps {
			if x != nil && x != q {
				h.qp = x
			}
		}
		h.recv(verbs.RecvWR{WRID: 77, SGL: h.sge(4096, 8)})
		other.write(sendFrame(1, 0, true, []byte("sent")))
		if wc := h.take(1)[0]; wc.WRID != 77 {
			t.Fatalf("%+v", wc)
		}
		unix.Shutdown(p.fd, unix.SHUT_WR)
		if e := h.event(); e.Type != verbs.CMDisconnected || e.QP != q {
			t.Fatalf("after %d bytes and the end: %+v", stop, e)
		}
		h.dev.Close()
	}
}

// TestHalfOpen: a peer that closes its half and reads nothing is given up after
// the linger time, with what it asked for unsent.
func TestHalfOpen(t *testing.T) {
	h := newHost(t, Options{LingerTimeout: 30e6})
	p := newPuppet(t, h, attrs())
	for i := range 4 {
		p.write(readFrame(uint32(i+1), iwarp.ReadRequest{Size: memSize / 2, SrcSTag: h.mr.RKey(), SrcTO: testIOVA}))
	}
	unix.Shutdown(p.fd, unix.SHUT_WR)
	if e := h.event(); e.Type != verbs.CMDisconnected {
		t.Errorf("%+v", e)
	}
	if h.qp.State() != verbs.QPErr {
		t.Errorf("state %d", h.qp.State())
	}
}
