package soft

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

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

// TestRejectLeavesClosingToThePeer: a FIN in the segment of the reply makes
// Linux siw forget the reply.
func TestRejectLeavesClosingToThePeer(t *testing.T) {
	h := newHost(t, Options{LingerTimeout: failsafe})
	l, err := h.dev.Listen(loopback)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := iwarp.MPA{Rev: 2, Enhanced: true}
	if _, err := conn.Write(req.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := h.dev.Reject(h.event().Req, []byte("no")); err != nil {
		t.Fatal(err)
	}
	no := rejection(&req, []byte("no"))
	reply := make([]byte, len(no.Append(nil)))
	if _, err := io.ReadFull(conn, reply); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(reply); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("behind the reply: %d bytes, %v; want an open connection", n, err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(failsafe))
	if _, err := conn.Read(reply); err != io.EOF {
		t.Errorf("after closing: %v, want EOF", err)
	}
}

// TestRoundedReadDepth: Linux siw uses as many READs at a time as the next
// power of two has. A peer of our kind may not.
func TestRoundedReadDepth(t *testing.T) {
	for _, c := range []struct {
		depth, reads int
		known, ok    bool
	}{{3, 4, false, true}, {3, 5, false, false}, {4, 4, false, true}, {4, 5, false, false}, {0, 1, false, false},
		{3, 3, true, true}, {3, 4, true, false}} {
		h := newHost(t, Options{})
		at := attrs()
		at.Cap.ReadDepth = c.depth
		p := newPuppet(t, h, at)
		h.qp.(*qp).known, h.qp.(*qp).peer.RNRRetry = c.known, 7
		p.write(sendFrame(1, 0, true, nil)) // waits for a receive, and the READs behind it
		for i := range c.reads {
			p.write(readFrame(uint32(1+i), iwarp.ReadRequest{SinkSTag: 1}))
		}
		if !c.ok {
			if m := p.terminate(); m.Code != iwarp.TermStream {
				t.Errorf("%+v: %v", c, m.Code)
			}
			continue
		}
		h.recv(verbs.RecvWR{WRID: 1})
		size := len(responseFrame(1, 0, true, nil))
		p.until("the responses", func() bool { return len(p.in) == c.reads*size })
	}
}

// TestStaleAnswerToRead: the same of the consumer's own READ of no bytes.
func TestStaleAnswerToRead(t *testing.T) {
	for _, known := range []bool{false, true} {
		h := newHost(t, Options{})
		p := newPuppet(t, h, attrs())
		h.qp.(*qp).known = known
		for i := range 2 {
			h.send(verbs.SendWR{WRID: uint64(i), Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, RKey: 5})
		}
		p.settle()
		mem := bytes.Clone(h.mem)
		p.write(responseFrame(sinkSTag(1), 0, false, make([]byte, 64)))
		p.write(responseFrame(sinkSTag(1), 64, true, []byte("stale")))
		if known {
			if m := p.terminate(); m.Code != iwarp.TermTaggedBounds {
				t.Errorf("%v", m.Code)
			}
			continue
		}
		p.write(responseFrame(9, 9, true, nil)) // of no bytes, so unchecked
		for i, wc := range h.take(2) {
			if wc.WRID != uint64(i) || wc.Status != verbs.WCSuccess || wc.ByteLen != 0 {
				t.Errorf("%+v", wc)
			}
		}
		if !bytes.Equal(h.mem, mem) {
			t.Error("the data went into memory")
		}
	}
}

// TestStaleAnswer: what siw answers to a fence that comes while it is sending
// acknowledges, and its data goes nowhere. A peer of our kind may not do so.
func TestStaleAnswer(t *testing.T) {
	long := make([]byte, 60<<10) // read in place when alone
	for _, known := range []bool{false, true} {
		h := newHost(t, Options{})
		p := newPuppet(t, h, remoteAttrs())
		h.qp.(*qp).known = known
		h.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled})
		p.settle()
		mem := bytes.Clone(h.mem)
		p.write(responseFrame(sinkSTag(1), 0, false, long))
		if known {
			if m := p.terminate(); m.Code != iwarp.TermTaggedBounds {
				t.Errorf("%v", m.Code)
			}
			continue
		}
		p.write(sendFrame(1, 0, true, nil)) // may come between: it is of another kind
		p.settle()
		if len(h.wc) != 0 {
			t.Errorf("%+v before the last segment", h.wc)
		}
		p.write(responseFrame(sinkSTag(1), uint64(len(long)), true, []byte("x")))
		if wc := h.take(1)[0]; wc.WRID != 1 || wc.Status != verbs.WCSuccess {
			t.Errorf("%+v", wc)
		}
		if !bytes.Equal(h.mem, mem) {
			t.Error("the data went into memory")
		}
	}
}

// TestStaleSum: the CRC of stale data may be wrong, for siw's memory changes
// while siw sends it. Nothing else may be wrong, and nothing else than that.
func TestStaleSum(t *testing.T) {
	read := func(n int) func(h *host) {
		return func(h *host) {
			h.send(verbs.SendWR{WRID: 1, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: h.sge(0, n), RKey: 5})
		}
	}
	none := func(h *host) {
		h.send(verbs.SendWR{WRID: 1, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, RKey: 5})
	}
	fence := func(h *host) { h.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled}) }
	data := make([]byte, 1436)
	longer := responseFrame(sinkSTag(1), 0, false, data[:8])
	longer[1] += 4 // swallows the beginning of what comes next
	for _, c := range []struct {
		name  string
		post  func(h *host)
		known bool
		bad   []byte
		ok    bool
	}{
		{"READ of no bytes", none, false, responseFrame(sinkSTag(1), 0, false, data), true},
		{"fence", fence, false, responseFrame(sinkSTag(1), 0, false, data), true},
		{"peer of our kind", none, true, responseFrame(sinkSTag(1), 0, false, data), false},
		{"READ of some bytes", read(2000), false, responseFrame(sinkSTag(1), 0, false, data), false},
		{"other STag", none, false, responseFrame(sinkSTag(2), 0, false, data), false},
		{"other offset", none, false, responseFrame(sinkSTag(1), 4, false, data), false},
		{"no data", none, false, responseFrame(sinkSTag(1), 0, true, nil), false},
		{"nothing asked", func(*host) {}, false, responseFrame(sinkSTag(1), 0, false, data), false},
		{"SEND", none, false, sendFrame(1, 0, true, data), false},
		{"wrong length", none, false, longer, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, Options{})
			at := remoteAttrs()
			at.CRC = verbs.CRCOn
			p := newPuppet(t, h, at)
			h.qp.(*qp).known = c.known
			c.post(h)
			p.settle()
			mem := bytes.Clone(h.mem)
			c.bad[len(c.bad)-1] ^= 1
			p.write(append(c.bad, responseFrame(sinkSTag(1), uint64(len(data)), true, []byte("stale"))...))
			if c.name == "wrong length" {
				p.write(make([]byte, 1<<16)) // as much as the length out of place may ask for
			}
			if !c.ok {
				if m := p.terminate(); m.Code != iwarp.TermCRC || h.dev.Stats().CRCErrors != 1 {
					t.Errorf("%v, %+v", m.Code, h.dev.Stats())
				}
			} else if wc := h.take(1)[0]; wc.WRID != 1 || wc.Status != verbs.WCSuccess {
				t.Errorf("%+v", wc)
			} else if s := h.dev.Stats(); s.StaleAnswers != 2 || s.StaleCRC != 1 || s.CRCErrors != 0 {
				t.Errorf("%+v", s)
			}
			if !bytes.Equal(h.mem, mem) {
				t.Error("the data went into memory")
			}
		})
	}
}
