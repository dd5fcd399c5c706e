package soft

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// TestBrokenRules: each way a peer can break the rules gets the Terminate the
// RFCs name, quoting what they want quoted, touches no memory, and hurts no
// other QP.
func TestBrokenRules(t *testing.T) {
	data := bytes.Repeat([]byte{0x5a}, 64)
	const end = testIOVA + memSize
	type env struct {
		p                             *puppet
		key, noRead, noWrite, foreign uint32
	}
	for _, c := range []struct {
		name  string
		want  iwarp.Code
		quote bool
		frame func(e *env) []byte
		recv  verbs.WCStatus // of the first posted receive (of 32 bytes)
	}{
		{"write: unknown STag", iwarp.TermTaggedSTag, true, func(e *env) []byte { return writeFrame(e.key^0x100, testIOVA, true, data) }, 0},
		{"write: stale key", iwarp.TermTaggedSTag, true, func(e *env) []byte { return writeFrame(e.key^1, testIOVA, true, data) }, 0},
		{"write: STag 0", iwarp.TermTaggedSTag, true, func(e *env) []byte { return writeFrame(0, testIOVA, true, data) }, 0},
		{"write: before", iwarp.TermTaggedBounds, true, func(e *env) []byte { return writeFrame(e.key, testIOVA-1, true, data) }, 0},
		{"write: beyond", iwarp.TermTaggedBounds, true, func(e *env) []byte { return writeFrame(e.key, end-63, true, data) }, 0},
		{"write: wrap", iwarp.TermTaggedWrap, true, func(e *env) []byte { return writeFrame(e.key, 1<<64-32, true, data) }, 0},
		{"write: other PD", iwarp.TermTaggedAssoc, true, func(e *env) []byte { return writeFrame(e.foreign, testIOVA, true, data) }, 0},
		{"write: no right", iwarp.TermAccess, true, func(e *env) []byte { return writeFrame(e.noWrite, testIOVA, true, data) }, 0},
		{"read: unknown STag", iwarp.TermReadSTag, true, func(e *env) []byte {
			return readFrame(1, iwarp.ReadRequest{Size: 1, SrcSTag: e.key ^ 0x100, SrcTO: testIOVA})
		}, 0},
		{"read: beyond", iwarp.TermReadBounds, true, func(e *env) []byte {
			return readFrame(1, iwarp.ReadRequest{Size: 2, SrcSTag: e.key, SrcTO: end - 1})
		}, 0},
		{"read: wrap", iwarp.TermReadWrap, true, func(e *env) []byte {
			return readFrame(1, iwarp.ReadRequest{Size: 1 << 31, SrcSTag: e.key, SrcTO: 1<<64 - 5})
		}, 0},
		{"read: other PD", iwarp.TermReadAssoc, true, func(e *env) []byte {
			return readFrame(1, iwarp.ReadRequest{Size: 1, SrcSTag: e.foreign, SrcTO: testIOVA})
		}, 0},
		{"read: no right", iwarp.TermAccess, true, func(e *env) []byte {
			return readFrame(1, iwarp.ReadRequest{Size: 1, SrcSTag: e.noRead, SrcTO: testIOVA})
		}, 0},
		{"read: MSN 0", iwarp.TermMSN, true, func(e *env) []byte { return readFrame(0, iwarp.ReadRequest{}) }, 0},
		{"read: MSN 2 first", iwarp.TermMSN, true, func(e *env) []byte { return readFrame(2, iwarp.ReadRequest{}) }, 0},
		{"read: wrong queue", iwarp.TermQN, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpReadRequest, Last: true, QN: 0, MSN: 1}, make([]byte, 28))
		}, 0},
		{"read: MO 4", iwarp.TermMO, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpReadRequest, Last: true, QN: 1, MSN: 1, MO: 4}, make([]byte, 28))
		}, 0},
		{"read: header of 27 bytes", iwarp.TermTooLong, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpReadRequest, Last: true, QN: 1, MSN: 1}, make([]byte, 27))
		}, 0},
		{"read: header of 60000 bytes", iwarp.TermTooLong, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpReadRequest, Last: true, QN: 1, MSN: 1}, make([]byte, 60000))
		}, 0},
		{"response to nothing", iwarp.TermOpcode, true, func(e *env) []byte { return responseFrame(1, 0, true, data) }, 0},
		{"send: MSN 0", iwarp.TermMSN, true, func(e *env) []byte { return sendFrame(0, 0, true, data) }, 0},
		{"send: MSN 2 first", iwarp.TermMSN, true, func(e *env) []byte { return sendFrame(2, 0, true, data) }, 0},
		{"send: MO 1", iwarp.TermMO, true, func(e *env) []byte { return sendFrame(1, 1, true, data) }, 0},
		{"send: queue 1", iwarp.TermQN, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpSend, Last: true, QN: 1, MSN: 1}, data)
		}, 0},
		{"send: too long", iwarp.TermTooLong, true, func(e *env) []byte { return sendFrame(1, 0, true, data) }, verbs.WCLocLenErr},
		{"send: too long, large", iwarp.TermTooLong, true, func(e *env) []byte { return sendFrame(1, 0, true, make([]byte, 60000)) }, verbs.WCLocLenErr},
		{"send: second segment too long", iwarp.TermTooLong, true, func(e *env) []byte {
			return append(sendFrame(1, 0, false, data[:32]), sendFrame(1, 32, true, data[:1])...)
		}, verbs.WCLocLenErr},
		{"send: gap", iwarp.TermMO, true, func(e *env) []byte {
			return append(sendFrame(1, 0, false, data[:16]), sendFrame(1, 17, true, data[:1])...)
		}, 0},
		{"send: next message before the last segment", iwarp.TermMSN, true, func(e *env) []byte {
			return append(sendFrame(1, 0, false, data[:16]), sendFrame(2, 0, true, data[:1])...)
		}, 0},
		{"send: invalidates nothing", iwarp.TermInvalidate, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpSendInv, Last: true, MSN: 1}, nil)
		}, verbs.WCRemInvReqErr},
		{"opcode: immediate", iwarp.TermOpcode, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpImmediate, Last: true, MSN: 1}, data[:8])
		}, 0},
		{"opcode: atomic", iwarp.TermOpcode, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpAtomicRequest, Last: true, QN: 1, MSN: 1}, data[:52])
		}, 0},
		{"opcode 15", iwarp.TermOpcode, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: 15, Last: true, MSN: 1}, nil)
		}, 0},
		{"tagged send", iwarp.TermOpcode, true, func(e *env) []byte {
			return seal(&iwarp.Header{Op: iwarp.OpSend, Tagged: true, Last: true, STag: e.key, TO: testIOVA}, data)
		}, 0},
		{"DDP version, tagged", iwarp.TermTaggedVersion, true, func(e *env) []byte {
			f := writeFrame(e.key, testIOVA, true, data)
			f[2] &^= 3
			return reseal(f)
		}, 0},
		{"DDP version, untagged", iwarp.TermUntaggedVersion, true, func(e *env) []byte {
			f := sendFrame(1, 0, true, data[:4])
			f[2] |= 3
			return reseal(f)
		}, 0},
		{"RDMAP version", iwarp.TermRDMAPVersion, true, func(e *env) []byte {
			f := sendFrame(1, 0, true, data[:4])
			f[3] &^= 0xc0
			return reseal(f)
		}, 0},
		{"ULPDU of 0 bytes", iwarp.TermFraming, false, func(e *env) []byte { return reseal(make([]byte, 8)) }, 0},
		{"ULPDU of 13 bytes, tagged", iwarp.TermFraming, false, func(e *env) []byte {
			f := make([]byte, iwarp.FPDUSize(13))
			f[1], f[2], f[3] = 13, 0xc1, 0x40
			return reseal(f)
		}, 0},
	} {
		for _, mode := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
			t.Run(c.name+[...]string{"/crc", "/nocrc"}[mode], func(t *testing.T) {
				h := newHost(t, Options{})
				pd2, _ := h.dev.AllocPD()
				reg := func(pd verbs.PD, a verbs.Access) uint32 {
					m, err := pd.RegMR(h.mem, testIOVA, a)
					if err != nil {
						t.Fatal(err)
					}
					return m.RKey()
				}
				at := attrs()
				at.CRC = mode
				other := newPuppet(t, h, at) // must not notice anything
				p := newPuppet(t, h, at)
				e := &env{p: p, key: h.mr.RKey(), foreign: reg(pd2, allAccess),
					noRead: reg(h.pd, allAccess&^verbs.AccessRemoteRead), noWrite: reg(h.pd, allAccess&^verbs.AccessRemoteWrite)}
				h.recv(verbs.RecvWR{WRID: 1, SGL: h.sge(0, 32)}, verbs.RecvWR{WRID: 2, SGL: h.sge(64, 32)})
				f := c.frame(e)
				p.write(f)
				m := p.terminate()
				if m.Code != c.want {
					t.Errorf("terminated with %v, want %v", m.Code, c.want)
				}
				if m.HasDDP != c.quote {
					t.Errorf("DDP header quoted: %v", m.HasDDP)
				}
				if c.quote {
					last := f[lastFrame(f):]
					var want iwarp.Terminate
					want.Quote(last)
					if m.Raw != want.Raw || m.SegLen != want.SegLen || m.HasReq != want.HasReq || m.Req != want.Req {
						t.Errorf("quoted %+v of %x", m, last[:min(len(last), 48)])
					}
				}
				st := c.recv
				if st == 0 {
					st = verbs.WCWRFlushErr
				}
				wc := h.take(2)
				if wc[0].WRID != 1 || wc[0].Status != st || wc[1].WRID != 2 || wc[1].Status != verbs.WCWRFlushErr {
					t.Errorf("receives ended %+v, want status %d and flush", wc, st)
				}
				ev := h.event()
				if ev.Type != verbs.CMDisconnected || ev.QP != h.qp || !errors.Is(ev.Err, c.want) {
					t.Errorf("event %+v", ev)
				}
				if h.qp.State() != verbs.QPErr || len(h.ev)+len(h.wc) != 0 {
					t.Errorf("state %d, more events %v, more completions %v", h.qp.State(), h.ev, h.wc)
				}
				for i, b := range h.mem[32:] {
					if b != 0 {
						t.Fatalf("memory written at %d", 32+i)
					}
				}
				if s := h.dev.Stats(); s.TermSent != 1 {
					t.Errorf("stats %+v", s)
				}
				h.qp = nil
				other.check()
			})
		}
	}
}

// check exercises a QP: a WRITE from the peer and a SEND.
func (p *puppet) check() {
	p.t.Helper()
	h := p.h
	for _, q := range h.dev.qps {
		if q != nil && q.state.connected() {
			h.qp = q
		}
	}
	h.recv(verbs.RecvWR{WRID: 77, SGL: h.sge(4096, 8)})
	p.write(append(writeFrame(h.mr.RKey(), testIOVA+8192, true, []byte("written")), sendFrame(1, 0, true, []byte("sent"))...))
	if wc := h.take(1)[0]; wc.WRID != 77 || wc.Status != 0 || string(h.mem[4096:4100]) != "sent" || string(h.mem[8192:8199]) != "written" {
		p.t.Errorf("the other QP: %+v", wc)
	}
}

func lastFrame(b []byte) int {
	off := 0
	for {
		n := iwarp.FPDUSize(iwarp.ULPDULen(b[off:]))
		if off+n >= len(b) {
			return off
		}
		off += n
	}
}

func TestBadCRC(t *testing.T) {
	h := newHost(t, Options{})
	at := attrs()
	at.CRC = verbs.CRCOn
	p := newPuppet(t, h, at)
	h.recv(verbs.RecvWR{SGL: h.sge(0, 64)})
	f := writeFrame(h.mr.RKey(), testIOVA+100, true, []byte("payload"))
	f[20] ^= 1
	p.write(append(f, sendFrame(1, 0, true, nil)...)) // nothing behind it is delivered
	if m := p.terminate(); m.Code != iwarp.TermCRC || m.HasDDP {
		t.Errorf("%+v", m)
	}
	if wc := h.take(1)[0]; wc.Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
	if h.mem[100] != 0 || h.dev.Stats().CRCErrors != 1 {
		t.Errorf("byte %x placed, stats %+v", h.mem[100], h.dev.Stats())
	}
}

// TestCRCIgnoredWhenOff: without CRC the field may hold anything.
func TestCRCIgnoredWhenOff(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	f := writeFrame(h.mr.RKey(), testIOVA+100, true, []byte("payload"))
	f[len(f)-1] ^= 1
	h.recv(verbs.RecvWR{})
	p.write(append(f, sendFrame(1, 0, true, nil)...))
	if wc := h.take(1)[0]; wc.Status != 0 || string(h.mem[100:107]) != "payload" {
		t.Errorf("%+v", wc)
	}
}

// TestTooManyReads: one READ more than negotiated.
func TestTooManyReads(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	var b []byte
	for i := range uint32(5) { // depth 4; they arrive together, before any is answered
		b = append(b, readFrame(i+1, iwarp.ReadRequest{SinkSTag: i, Size: 8, SrcSTag: h.mr.RKey(), SrcTO: testIOVA})...)
	}
	p.write(b)
	m := p.terminate()
	if m.Code != iwarp.TermStream || m.DDP.MSN != 5 || !m.HasReq {
		t.Errorf("%+v", m)
	}
	if n := len(p.frames()); n != 5 {
		t.Errorf("%d frames, want the 4 responses and the Terminate", n)
	}
}

// TestEarlierReadsAreAnswered: the READs before a bad request are answered
// before the Terminate, what follows it is not handled.
func TestEarlierReadsAreAnswered(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	fill(h.mem[:1<<20], 3)
	h.recv(verbs.RecvWR{WRID: 1, SGL: h.sge(2<<20, 64)})
	b := readFrame(1, iwarp.ReadRequest{SinkSTag: 9, SinkTO: 100, Size: 1 << 20, SrcSTag: h.mr.RKey(), SrcTO: testIOVA})
	b = append(b, readFrame(2, iwarp.ReadRequest{SinkSTag: 10, Size: 5, SrcSTag: h.mr.RKey(), SrcTO: testIOVA})...)
	b = append(b, writeFrame(1, 0, true, []byte("bad"))...)
	b = append(b, sendFrame(1, 0, true, []byte("never"))...)
	p.write(b)
	if m := p.terminate(); m.Code != iwarp.TermTaggedSTag {
		t.Errorf("%+v", m)
	}
	fs := p.frames()
	var got []byte
	for _, f := range fs[:len(fs)-2] {
		var hd iwarp.Header
		if err := iwarp.ParseHeader(f, &hd); err != nil || hd.Op != iwarp.OpReadResponse || hd.STag != 9 || hd.TO != 100+uint64(len(got)) {
			t.Fatalf("%v, %v", &hd, err)
		}
		got = append(got, f[iwarp.TaggedLen:iwarp.TaggedLen+hd.Payload()]...)
	}
	if !bytes.Equal(got, h.mem[:1<<20]) {
		t.Errorf("read %d bytes, different", len(got))
	}
	if wc := h.take(1)[0]; wc.Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
}

// TestBadResponses: wrong answers to a READ.
func TestBadResponses(t *testing.T) {
	stag := sinkSTag(1)
	data := make([]byte, 64)
	for _, c := range []struct {
		name string
		want iwarp.Code
		f    []byte
	}{
		{"other STag", iwarp.TermTaggedSTag, responseFrame(stag+1, 0, true, data)},
		{"other offset", iwarp.TermTaggedBounds, responseFrame(stag, 1, true, data[:63])},
		{"short", iwarp.TermTaggedBounds, responseFrame(stag, 0, true, data[:63])},
		{"long", iwarp.TermTaggedBounds, responseFrame(stag, 0, true, make([]byte, 65))},
		{"no last", iwarp.TermTaggedBounds, responseFrame(stag, 0, false, data)},
		{"empty", iwarp.TermTaggedBounds, responseFrame(stag, 0, true, nil)},
		{"empty, not last", iwarp.TermTaggedBounds, responseFrame(stag, 0, false, nil)},
		{"gap", iwarp.TermTaggedBounds, append(responseFrame(stag, 0, false, data[:32]), responseFrame(stag, 33, true, data[:31])...)},
		{"twice", iwarp.TermOpcode, append(responseFrame(stag, 0, true, data), responseFrame(stag, 0, true, data)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, Options{})
			p := newPuppet(t, h, attrs())
			h.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend}, // done before
				verbs.SendWR{WRID: 2, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: h.sge(0, 64), RKey: 5},
				verbs.SendWR{WRID: 3, Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendFence})
			p.until("the request", func() bool { return len(p.in) > 0 })
			p.write(c.f)
			if m := p.terminate(); m.Code != c.want {
				t.Errorf("%+v, want %v", m, c.want)
			}
			wc := h.take(2)
			want := verbs.WCBadRespErr
			if c.name == "twice" {
				want = verbs.WCSuccess
			}
			if wc[0].WRID != 2 || wc[0].Status != want || wc[1].WRID != 3 || wc[1].Status != verbs.WCSuccess && wc[1].Status != verbs.WCWRFlushErr {
				t.Errorf("%+v", wc)
			}
			if c.name != "twice" && wc[1].Status != verbs.WCWRFlushErr {
				t.Errorf("fenced SEND: %+v", wc[1])
			}
		})
	}
}

// TestMSNWrap: sequence numbers go on at 0 behind 2^32-1, in both directions,
// and only there.
func TestMSNWrap(t *testing.T) {
	const last = ^uint32(0)
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	q := h.qp.(*qp)
	q.rx.sendMSN, q.serve.msn, q.sq.sendMSN, q.sq.readMSN = last, last, last, last
	for i := range 3 {
		h.recv(verbs.RecvWR{WRID: uint64(i)})
	}
	for i := range uint32(3) {
		p.write(append(sendFrame(last+i, 0, true, nil), readFrame(last+i, iwarp.ReadRequest{})...))
		h.send(verbs.SendWR{WRID: uint64(10 + i), Op: verbs.OpSend, Flags: verbs.SendSignaled},
			verbs.SendWR{WRID: uint64(20 + i), Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: h.sge(0, 4)})
		p.write(responseFrame(sinkSTag(last+i), 0, true, []byte("data")))
		for _, wc := range h.take(3) {
			if wc.Status != 0 {
				t.Fatalf("%+v", wc)
			}
		}
	}
	p.write(sendFrame(last, 0, true, nil))
	if m := p.terminate(); m.Code != iwarp.TermMSN {
		t.Errorf("%v", m.Code)
	}
	var msns []uint32
	for _, f := range p.frames() {
		var hd iwarp.Header
		if iwarp.ParseHeader(f, &hd) == nil && hd.Op == iwarp.OpSend {
			msns = append(msns, hd.MSN)
		}
	}
	if len(msns) != 3 || msns[0] != last || msns[1] != 0 || msns[2] != 1 {
		t.Errorf("SENDs numbered %d", msns)
	}
}
