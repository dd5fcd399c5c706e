package soft

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// TestForeignInitiators: revision 1, unenhanced revision 2 and siw's frame are
// answered in kind, and CRC is used if either side wants it.
func TestForeignInitiators(t *testing.T) {
	for _, c := range []struct {
		name  string
		req   iwarp.MPA
		crc   verbs.CRCMode
		reply iwarp.MPA
		depth int // ours as initiator afterwards
	}{
		{"revision 1", iwarp.MPA{Rev: 1}, verbs.CRCOff, iwarp.MPA{Reply: true, Rev: 1}, 4},
		{"revision 1, CRC", iwarp.MPA{Rev: 1, CRC: true}, verbs.CRCOff, iwarp.MPA{Reply: true, Rev: 1, CRC: true}, 4},
		{"revision 1, our CRC", iwarp.MPA{Rev: 1}, verbs.CRCOn, iwarp.MPA{Reply: true, Rev: 1, CRC: true}, 4},
		{"unenhanced", iwarp.MPA{Rev: 2}, verbs.CRCOff, iwarp.MPA{Reply: true, Rev: 2}, 4},
		{"siw", iwarp.MPA{Rev: 2, Enhanced: true, IRD: 1, ORD: 2}, verbs.CRCOff,
			iwarp.MPA{Reply: true, Rev: 2, Enhanced: true, IRD: 2, ORD: 1}, 1},
		{"more than we have", iwarp.MPA{Rev: 2, Enhanced: true, IRD: 100, ORD: 100}, verbs.CRCOff,
			iwarp.MPA{Reply: true, Rev: 2, Enhanced: true, IRD: 6, ORD: 4}, 4},
		{"not negotiated", iwarp.MPA{Rev: 2, Enhanced: true, IRD: iwarp.NoDepth, ORD: iwarp.NoDepth}, verbs.CRCOff,
			iwarp.MPA{Reply: true, Rev: 2, Enhanced: true, IRD: 6, ORD: 4}, 4},
		{"RTR by READ only", iwarp.MPA{Rev: 2, Enhanced: true, IRD: 1, ORD: 1, P2P: true, RTRRead: true}, verbs.CRCOff,
			iwarp.MPA{Reply: true, Rev: 2, Enhanced: true, IRD: 1, ORD: 1, P2P: true, RTRRead: true}, 1},
		{"RTR by SEND only", iwarp.MPA{Rev: 2, Enhanced: true, IRD: 1, ORD: 1, P2P: true, RTRSend: true}, verbs.CRCOff,
			iwarp.MPA{Reply: true, Rev: 2, Enhanced: true, IRD: 1, ORD: 1, P2P: true, RTRWrite: true}, 1},
		{"all RTRs", iwarp.MPA{Rev: 2, Enhanced: true, IRD: 1, ORD: 1, P2P: true, RTRRead: true, RTRWrite: true, RTRSend: true}, verbs.CRCOff,
			iwarp.MPA{Reply: true, Rev: 2, Enhanced: true, IRD: 1, ORD: 1, P2P: true, RTRWrite: true}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, Options{})
			conn := dialRaw(t, listen(t, h).Addr())
			conn.Write(c.req.Append(nil))
			at := attrs()
			at.CRC = c.crc
			h.qp = h.newQP(at)
			if err := h.dev.Accept(h.event().Req, h.qp, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			c.reply.Private = []byte("hello")
			want := c.reply.Append(nil)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("reply %x, %v; want %x", got, err, want)
			}
			if e := h.event(); e.Type != verbs.CMEstablished {
				t.Fatalf("%+v", e)
			}
			if d := h.qp.Cap().ReadDepth; d != c.depth {
				t.Errorf("read depth %d, want %d", d, c.depth)
			}
			// What is posted waits for the initiator's first frame.
			copy(h.mem, "data")
			h.send(verbs.SendWR{WRID: 4, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: h.sge(0, 4)})
			for h.dev.Progress() {
			}
			h.collect()
			if len(h.wc) != 0 {
				t.Fatal("sent before the initiator's first frame")
			}
			conn.Write(writeFrame(1, 0, true, nil))
			if wc := h.take(1)[0]; wc.WRID != 4 || wc.Status != 0 {
				t.Fatalf("%+v", wc)
			}
			f := sendFrame(1, 0, true, []byte("data"))
			if !c.reply.CRC {
				clear(f[len(f)-4:])
			}
			got = make([]byte, len(f))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, f) {
				t.Errorf("frame %x, %v; want %x", got, err, f)
			}
		})
	}
}

// responder accepts one connection and answers its MPA request with reply.
func responderOnce(t *testing.T, reply []byte) (netip.AddrPort, chan []byte) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	rest := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(failsafe))
		io.ReadFull(c, make([]byte, iwarp.MPAHeaderLen+iwarp.EnhancedLen+iwarp.FeaturesLen))
		c.Write(reply)
		if reply == nil {
			return
		}
		b, _ := io.ReadAll(c)
		rest <- b
	}()
	return l.Addr().(*net.TCPAddr).AddrPort(), rest
}

func TestForeignResponders(t *testing.T) {
	enhanced := iwarp.MPA{Reply: true, Rev: 2, Enhanced: true, IRD: 2, ORD: 3}
	with := func(f func(m *iwarp.MPA)) []byte {
		m := enhanced
		f(&m)
		return m.Append(nil)
	}
	for _, c := range []struct {
		name  string
		reply []byte
		want  verbs.CMEventType
		term  iwarp.Code // sent
		depth int
	}{
		{"siw", with(func(*iwarp.MPA) {}), verbs.CMEstablished, 0, 2},
		{"siw, p2p", with(func(m *iwarp.MPA) { m.P2P, m.RTRWrite = true, true }), verbs.CMEstablished, 0, 2},
		{"revision 1", (&iwarp.MPA{Reply: true, Rev: 1}).Append(nil), verbs.CMEstablished, 0, 4},
		{"p2p by READ only", with(func(m *iwarp.MPA) { m.P2P, m.RTRRead = true, true }), verbs.CMConnectError, iwarp.TermNoRTR, 0},
		{"reads more than we serve", with(func(m *iwarp.MPA) { m.ORD = 7 }), verbs.CMConnectError, iwarp.TermIRD, 0},
		{"rejection", with(func(m *iwarp.MPA) { m.Reject, m.Private = true, []byte("why") }), verbs.CMRejected, 0, 0},
		{"garbage", bytes.Repeat([]byte("x"), 24), verbs.CMConnectError, 0, 0},
		{"a request", (&iwarp.MPA{Rev: 2}).Append(nil), verbs.CMConnectError, 0, 0},
		{"revision 3", func() []byte { b := enhanced.Append(nil); b[17] = 3; return b }(), verbs.CMConnectError, 0, 0},
		{"closes", nil, verbs.CMConnectError, 0, 0},
		{"silent", []byte{}, verbs.CMUnreachable, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, Options{})
			addr, rest := responderOnce(t, c.reply)
			h.qp = h.newQP(attrs())
			h.recv(verbs.RecvWR{WRID: 8})
			param := verbs.ConnectParam{Local: loopback, Remote: addr}
			if c.name == "silent" {
				param.TimeoutNs = 50e6
			}
			if err := h.dev.Connect(h.qp, param); err != nil {
				t.Fatal(err)
			}
			h.send(verbs.SendWR{WRID: 9, Op: verbs.OpSend, Flags: verbs.SendSignaled})
			e := h.event()
			if e.Type != c.want || (e.Err == nil) != (c.want == verbs.CMEstablished) {
				t.Fatalf("%+v", e)
			}
			if e.Type == verbs.CMRejected && string(e.Private) != "why" {
				t.Errorf("private data %q", e.Private)
			}
			if e.Type != verbs.CMEstablished {
				wc := h.take(2)
				if wc[0].WRID != 9 || wc[0].Status != verbs.WCWRFlushErr || wc[1].WRID != 8 || wc[1].Status != verbs.WCWRFlushErr {
					t.Errorf("%+v", wc)
				}
				if h.qp.State() != verbs.QPErr {
					t.Errorf("state %d", h.qp.State())
				}
				if c.term != 0 {
					f := terminateFrame(iwarp.Terminate{Code: c.term})
					clear(f[len(f)-4:])
					if b := <-rest; !bytes.Equal(b, f) {
						t.Errorf("sent %x, want %x", b, f)
					}
				}
				return
			}
			if d := h.qp.Cap().ReadDepth; d != c.depth {
				t.Errorf("read depth %d, want %d", d, c.depth)
			}
			if wc := h.take(1)[0]; wc.Status != 0 {
				t.Errorf("%+v", wc)
			}
			h.qp.ToError()
			rtr, send := writeFrame(1, 0, true, nil), sendFrame(1, 0, true, nil)
			clear(rtr[len(rtr)-4:])
			clear(send[len(send)-4:])
			if b := <-rest; !bytes.Equal(b, append(rtr, send...)) {
				t.Errorf("sent %x, want the RTR and the SEND", b)
			}
		})
	}
}

// TestRequestOnTheWire is the request's exact bytes.
func TestRequestOnTheWire(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := newHost(t, Options{})
	at := attrs()
	at.CRC = verbs.CRCOn
	if err := h.dev.Connect(h.newQP(at), verbs.ConnectParam{Remote: l.Addr().(*net.TCPAddr).AddrPort(), Private: []byte("abc")}); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := "MPA ID Req Frame\x50\x02\x00\x17\x80\x06\x80\x04abc" + "rdsd/RC1\x03\x07\x02\x10\x04\x00\x00\x00"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
