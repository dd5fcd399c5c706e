package soft

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// fences counts the zero-length Read Requests in what the puppet got.
func (p *puppet) fences() (n int) {
	for b := p.in; len(b) >= 2; {
		k := iwarp.FPDUSize(iwarp.ULPDULen(b))
		if k > len(b) {
			break
		}
		var h iwarp.Header
		if iwarp.ParseHeader(b, &h) == nil && h.Op == iwarp.OpReadRequest {
			var r iwarp.ReadRequest
			r.Parse(b[iwarp.UntaggedLen:])
			if r.Size == 0 {
				n++
			}
		}
		b = b[k:]
	}
	return n
}

func (p *puppet) settle() {
	for p.h.dev.Progress() {
		p.h.collect()
	}
	p.h.collect()
	p.read()
}

func remoteAttrs() verbs.QPInitAttr {
	at := attrs()
	at.Ack = verbs.AckRemote
	return at
}

// TestFence: one fence covers all requests before it, nothing completes before
// its answer, and a lost connection fails what was not acknowledged.
func TestFence(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, remoteAttrs())
	wrs := make([]verbs.SendWR, 50)
	for i := range wrs {
		wrs[i] = verbs.SendWR{WRID: uint64(i), Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, RKey: 7, SGL: h.sge(0, 8)}
	}
	h.send(wrs...)
	p.settle()
	if n := p.fences(); n != 1 || len(h.wc) != 0 {
		t.Fatalf("%d fences for 50 WRITEs, %d completions", n, len(h.wc))
	}
	p.write(responseFrame(0, 0, true, nil))
	if wc := h.take(50); wc[49].WRID != 49 || wc[49].Status != 0 {
		t.Fatalf("%+v", wc[49])
	}
	h.send(wrs[:2]...)
	p.settle()
	if n := p.fences(); n != 2 {
		t.Errorf("%d fences", n)
	}
	unix.Shutdown(p.fd, unix.SHUT_RDWR)
	if wc := h.take(2); wc[0].Status != verbs.WCRetryExcErr || wc[1].Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
}

// TestReadIsAFence: a READ of the consumer acknowledges what is before it; a
// foreign peer gets no fence while one is on its way.
func TestReadIsAFence(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, remoteAttrs())
	h.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled},
		verbs.SendWR{WRID: 2, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: h.sge(0, 8)},
		verbs.SendWR{WRID: 3, Op: verbs.OpSend, Flags: verbs.SendSignaled})
	p.settle()
	if n := p.fences(); n != 0 {
		t.Fatalf("%d fences while a READ is on its way", n)
	}
	p.write(responseFrame(sinkSTag(1), 0, true, make([]byte, 8)))
	if wc := h.take(2); wc[0].WRID != 1 || wc[1].WRID != 2 {
		t.Fatalf("%+v", wc)
	}
	p.settle()
	if n := p.fences(); n != 1 || len(h.wc) != 0 {
		t.Fatalf("%d fences, %d completions", n, len(h.wc))
	}
	p.write(responseFrame(0, 0, true, nil))
	if wc := h.take(1)[0]; wc.WRID != 3 || wc.Status != 0 {
		t.Errorf("%+v", wc)
	}
}

// TestFenceAnswers: a fence answered with data that cannot be siw's stale ones
// ends the connection.
func TestFenceAnswers(t *testing.T) {
	for name, answer := range map[string][]byte{
		"other sink":    responseFrame(sinkSTag(2), 0, true, make([]byte, 8)),
		"other offset":  responseFrame(sinkSTag(1), 1, true, make([]byte, 8)),
		"empty segment": responseFrame(sinkSTag(1), 0, false, nil),
	} {
		h := newHost(t, Options{})
		p := newPuppet(t, h, remoteAttrs())
		h.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend})
		p.settle()
		p.write(answer)
		if m := p.terminate(); m.Code != iwarp.TermTaggedBounds {
			t.Errorf("%s: %v", name, m.Code)
		}
		if wc := h.take(1)[0]; wc.Status != verbs.WCBadRespErr {
			t.Errorf("%s: %+v", name, wc)
		}
	}
}

// TestNoFence: AckRemote needs a peer that serves a READ.
func TestNoFence(t *testing.T) {
	h := newHost(t, Options{})
	conn := dialRaw(t, listen(t, h).Addr())
	req := iwarp.MPA{Rev: 2, Enhanced: true}
	conn.Write(req.Append(nil))
	q := h.newQP(remoteAttrs())
	if err := h.dev.Accept(h.event().Req, q, nil); err != nil {
		t.Fatal(err)
	}
	if e := h.event(); e.Type != verbs.CMConnectError || e.Err == nil {
		t.Errorf("%+v", e)
	}
	if b, _ := io.ReadAll(conn); len(b) != 0 {
		t.Errorf("a reply: %x", b)
	}
}

// TestStartNudge: a responder that is not of our kind and says nothing gets a
// second empty WRITE, which makes a siw look at what it may have missed.
func TestStartNudge(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := newHost(t, Options{PlainMPA: true})
	h.qp = h.newQP(attrs())
	if err := h.dev.Connect(h.qp, verbs.ConnectParam{Remote: l.Addr().(*net.TCPAddr).AddrPort(), Private: []byte("abc")}); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make([]byte, iwarp.MPAHeaderLen+iwarp.EnhancedLen+3)
	if _, err := io.ReadFull(c, got); err != nil || string(got[24:]) != "abc" {
		t.Fatalf("%x, %v", got, err)
	}
	reply := iwarp.MPA{Reply: true, Rev: 2, Enhanced: true, IRD: 4, ORD: 4}
	c.Write(reply.Append(nil))
	if e := h.event(); e.Type != verbs.CMEstablished {
		t.Fatalf("%+v", e)
	}
	eventually(t, "second WRITE", h, func() bool { return h.dev.Stats().StartNudges == 1 })
	eventually(t, "third WRITE", h, func() bool { return h.dev.Stats().StartNudges == 2 })
	h.qp.Disconnect()
	h.event()
	b, _ := io.ReadAll(io.LimitReader(c, 3*20))
	f := writeFrame(1, 0, true, nil)
	n := len(f)
	if len(b) != 3*n {
		t.Fatalf("%x", b)
	}
	for ; len(b) > 0; b = b[n:] {
		if string(b[:n-4]) != string(f[:n-4]) {
			t.Errorf("%x", b)
		}
	}
}

// TestSegmentToMSS: FPDUs fit the TCP segment if so asked.
func TestSegmentToMSS(t *testing.T) {
	rec := &recorder{}
	a, b := newHost(t, Options{SegmentToMSS: true, Tap: rec}), newHost(t, Options{})
	link(t, a, b, attrs(), attrs())
	mss, err := unix.GetsockoptInt(a.qp.(*qp).fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	if err != nil {
		t.Fatal(err)
	}
	fill(a.mem[:300000], 1)
	a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, SGL: a.sge(0, 300000), RKey: b.mr.RKey(), RemoteAddr: testIOVA},
		verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.sge(1<<20, 300000), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
	a.take(1, b)
	if string(a.mem[:300000]) != string(a.mem[1<<20:1<<20+300000]) {
		t.Error("data differ")
	}
	stream := rec.out[iwarp.MPAHeaderLen+iwarp.EnhancedLen+4+iwarp.FeaturesLen:]
	for n := 0; len(stream) > 0; n++ {
		k := iwarp.FPDUSize(iwarp.ULPDULen(stream))
		if k > mss || k > len(stream) {
			t.Fatalf("frame %d of %d bytes, MSS %d", n, k, mss)
		}
		stream = stream[k:]
	}
}

// TestRNRDeadline: the responder ends the wait after the tries its peer wants,
// and counts.
func TestRNRDeadline(t *testing.T) {
	aa, ba := attrs(), attrs()
	aa.RNRRetry, ba.MinRNRTimer = 2, 15 // 2 times 1.92 ms
	a, b := pair(t, aa, ba)
	start := now()
	a.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend}, verbs.SendWR{WRID: 2, Op: verbs.OpRDMARead, SGL: a.sge(0, 8), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
	if wc := a.take(1, b)[0]; wc.WRID != 2 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("%+v", wc)
	}
	if d := now() - start; d < 2*verbs.RNRTimer(15).Ns() {
		t.Errorf("ended after %d ns", d)
	}
	if s := b.dev.Stats(); s.RNRWaits != 1 || s.RNRExceeded != 1 || b.qp.Stats().RNR != 1 {
		t.Errorf("%+v", s)
	}
}
