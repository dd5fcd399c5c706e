package soft

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// TestReceivedTerminate: the status of the work requests for each Terminate,
// in RFC 5040's layout and in siw's. Outstanding are READ 1, READ 2 and, held
// by a fence, SEND 3; the SEND with MSN 1 before them is complete.
func TestReceivedTerminate(t *testing.T) {
	const flush = verbs.WCWRFlushErr
	quote := func(h *iwarp.Header, n int) func(*iwarp.Terminate) {
		return func(m *iwarp.Terminate) { m.Quote(seal(h, make([]byte, n))) }
	}
	read := func(msn uint32) func(*iwarp.Terminate) {
		return quote(&iwarp.Header{Op: iwarp.OpReadRequest, Last: true, QN: 1, MSN: msn}, 28)
	}
	send := quote(&iwarp.Header{Op: iwarp.OpSend, Last: true, MSN: 1}, 8)
	for _, c := range []struct {
		code  iwarp.Code
		quote func(*iwarp.Terminate)
		want  [3]verbs.WCStatus
	}{
		{iwarp.TermReadSTag, read(1), [3]verbs.WCStatus{verbs.WCRemAccessErr, flush, flush}},
		{iwarp.TermReadSTag, read(2), [3]verbs.WCStatus{flush, verbs.WCRemAccessErr, flush}},
		{iwarp.TermReadBounds, read(1), [3]verbs.WCStatus{verbs.WCRemAccessErr, flush, flush}},
		{iwarp.TermAccess, read(1), [3]verbs.WCStatus{verbs.WCRemAccessErr, flush, flush}},
		{iwarp.TermReadAssoc, read(1), [3]verbs.WCStatus{verbs.WCRemAccessErr, flush, flush}},
		{iwarp.TermReadWrap, read(1), [3]verbs.WCStatus{verbs.WCRemAccessErr, flush, flush}},
		{iwarp.TermProtection, read(1), [3]verbs.WCStatus{verbs.WCRemAccessErr, flush, flush}},
		{iwarp.TermCantInv, read(1), [3]verbs.WCStatus{verbs.WCRemInvReqErr, flush, flush}},
		{iwarp.TermInvalidate, read(1), [3]verbs.WCStatus{verbs.WCRemInvReqErr, flush, flush}},
		{iwarp.TermStream, read(2), [3]verbs.WCStatus{flush, verbs.WCRemOpErr, flush}},
		{iwarp.TermGlobal, read(1), [3]verbs.WCStatus{verbs.WCRemOpErr, flush, flush}},
		{iwarp.TermRDMAPVersion, read(1), [3]verbs.WCStatus{verbs.WCBadRespErr, flush, flush}},
		{iwarp.TermOpcode, read(1), [3]verbs.WCStatus{verbs.WCRemInvReqErr, flush, flush}}, // not enabled there
		{iwarp.TermMSN, read(1), [3]verbs.WCStatus{verbs.WCBadRespErr, flush, flush}},
		{iwarp.TermQN, read(1), [3]verbs.WCStatus{verbs.WCBadRespErr, flush, flush}},
		{iwarp.TermMO, read(1), [3]verbs.WCStatus{verbs.WCBadRespErr, flush, flush}},
		{iwarp.TermTaggedBounds, read(1), [3]verbs.WCStatus{verbs.WCRemAccessErr, flush, flush}},
		{iwarp.TermUntaggedVersion, read(1), [3]verbs.WCStatus{verbs.WCBadRespErr, flush, flush}},
		// No header: the oldest.
		{iwarp.TermCRC, nil, [3]verbs.WCStatus{verbs.WCRetryExcErr, flush, flush}},
		{iwarp.TermFraming, nil, [3]verbs.WCStatus{verbs.WCRetryExcErr, flush, flush}},
		{iwarp.TermLocal, nil, [3]verbs.WCStatus{verbs.WCRemOpErr, flush, flush}},
		{iwarp.TermDDPLocal, nil, [3]verbs.WCStatus{verbs.WCRemOpErr, flush, flush}},
		// A header of something complete, or not ours: nobody is to blame.
		{iwarp.TermNoBuffer, send, [3]verbs.WCStatus{flush, flush, flush}},
		{iwarp.TermTooLong, send, [3]verbs.WCStatus{flush, flush, flush}},
		{iwarp.TermReadSTag, read(9), [3]verbs.WCStatus{flush, flush, flush}},
	} {
		for _, siw := range []bool{false, true} {
			name := c.code.Error()
			if siw {
				name = "siw " + name
			}
			t.Run(name, func(t *testing.T) {
				h := newHost(t, Options{})
				p := newPuppet(t, h, attrs())
				h.recv(verbs.RecvWR{WRID: 9})
				h.send(verbs.SendWR{WRID: 7, Op: verbs.OpSend, Flags: verbs.SendSignaled},
					verbs.SendWR{WRID: 1, Op: verbs.OpRDMARead, SGL: h.sge(0, 64), RKey: 5},
					verbs.SendWR{WRID: 2, Op: verbs.OpRDMARead, SGL: h.sge(0, 64), RKey: 5},
					verbs.SendWR{WRID: 3, Op: verbs.OpSend, Flags: verbs.SendFence})
				if wc := h.take(1)[0]; wc.WRID != 7 || wc.Status != 0 {
					t.Fatalf("%+v", wc)
				}
				m := iwarp.Terminate{Code: c.code}
				if c.quote != nil {
					c.quote(&m)
				}
				f := terminateFrame(m)
				if siw {
					if c.quote == nil && c.code.Layer() != iwarp.LayerLLP {
						t.Skip("without flags siw's layout is not recognizable")
					}
					b := f[iwarp.UntaggedLen:]
					b[0] = b[0]<<4 | b[0]>>4
					b[2] = b[2]>>7&1 | b[2]>>5&2 | b[2]>>3&4
				}
				p.write(reseal(f))
				wc := h.take(4)
				for i, st := range c.want {
					if wc[i].WRID != uint64(i+1) || wc[i].Status != st {
						t.Errorf("completion %d is %+v, want status %d", i, wc[i], st)
					}
				}
				if wc[3].WRID != 9 || wc[3].Status != flush {
					t.Errorf("receive %+v", wc[3])
				}
				if e := h.event(); e.Type != verbs.CMDisconnected || !errors.Is(e.Err, c.code) {
					t.Errorf("%+v", e)
				}
				for _, f := range p.frames() {
					var hd iwarp.Header
					if iwarp.ParseHeader(f, &hd); hd.Op == iwarp.OpTerminate {
						t.Error("a Terminate was answered with one")
					}
				}
			})
		}
	}
}

// TestTerminateNamesWrite: a WRITE still queued behind a full socket.
func TestTerminateNamesWrite(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	h.send(verbs.SendWR{WRID: 1, Op: verbs.OpRDMAWrite, SGL: h.sge(0, 4), RKey: 5, RemoteAddr: 1000},
		verbs.SendWR{WRID: 2, Op: verbs.OpRDMAWrite, SGL: h.sge(0, 2<<20), RKey: 5, RemoteAddr: 1000},
		verbs.SendWR{WRID: 3, Op: verbs.OpRDMAWrite, SGL: h.sge(0, 4), RKey: 5, RemoteAddr: 1000})
	for h.dev.Progress() {
	}
	m := iwarp.Terminate{Code: iwarp.TermTaggedBounds}
	m.Quote(writeFrame(5, 1000+64512, false, make([]byte, 64512)))
	p.write(terminateFrame(m))
	wc := h.take(2)
	if wc[0].WRID != 2 || wc[0].Status != verbs.WCRemAccessErr || wc[1].WRID != 3 || wc[1].Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
}

// TestMalformedTerminate: too short for its fields, or cut off.
func TestMalformedTerminate(t *testing.T) {
	for n := range 30 {
		h := newHost(t, Options{})
		p := newPuppet(t, h, attrs())
		h.recv(verbs.RecvWR{})
		body := make([]byte, n)
		for i := range body {
			body[i] = 0xff
		}
		p.write(seal(&iwarp.Header{Op: iwarp.OpTerminate, Last: true, QN: 2, MSN: 1}, body))
		if wc := h.take(1)[0]; wc.Status != verbs.WCWRFlushErr {
			t.Errorf("%d bytes: %+v", n, wc)
		}
	}
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	f := seal(&iwarp.Header{Op: iwarp.OpTerminate, Last: true, QN: 2, MSN: 1}, make([]byte, 60000))
	p.write(f[:40])
	if m := p.terminate(); m.Code != iwarp.TermFraming {
		t.Errorf("%+v", m)
	}
}
