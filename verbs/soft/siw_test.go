package soft

import (
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// TestSiwReadTerminate: Linux siw puts the size where the MSN of a refused
// READ belongs; the request behind it tells which one it was.
func TestSiwReadTerminate(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	for i := range 2 {
		h.send(verbs.SendWR{WRID: uint64(i), Op: verbs.OpRDMARead, SGL: h.sge(0, 64), RKey: 5, RemoteAddr: uint64(4096 * i)})
	}
	req := make([]byte, iwarp.ReadReqLen)
	(&iwarp.ReadRequest{Size: 64, SrcSTag: 5, SrcTO: 4096}).Put(req)
	m := iwarp.Terminate{Code: iwarp.TermReadSTag}
	m.Quote(seal(&iwarp.Header{Op: iwarp.OpReadRequest, Last: true, QN: iwarp.QNRead, MSN: 64}, req))
	f := terminateFrame(m)
	b := f[iwarp.UntaggedLen:]
	b[0] = b[0]<<4 | b[0]>>4
	b[2] = 7 // all three headers, in siw's place
	p.write(reseal(f))
	wc := h.take(2)
	if wc[0].Status != verbs.WCWRFlushErr || wc[1].WRID != 1 || wc[1].Status != verbs.WCRemAccessErr {
		t.Errorf("%+v", wc)
	}
}
