package soft

import (
	"bytes"
	"crypto/fips140"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// TestPark: a SEND without a receive is put aside, also when its sender has
// gone; a WRITE behind it goes on, a READ behind it does not; a receive lets it
// go on, without further input.
func TestPark(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("srq=%v", shared), func(t *testing.T) {
			h := newHost(t, Options{})
			at := attrs()
			var s verbs.SRQ
			post := func(wr ...verbs.RecvWR) { h.recv(wr...) }
			if shared {
				s, _ = h.pd.CreateSRQ(16, 1)
				at.SRQ = s
				post = func(wr ...verbs.RecvWR) {
					if n, err := s.PostRecv(wr); n != len(wr) || err != nil {
						t.Fatal(n, err)
					}
				}
			}
			p := newPuppet(t, h, at)
			p.write(append(sendFrame(1, 0, true, []byte("one")), sendFrame(2, 0, true, []byte("two"))...))
			p.write(writeFrame(h.mr.RKey(), testIOVA+100, true, []byte("later")))
			p.write(readFrame(1, iwarp.ReadRequest{}))
			for h.dev.Progress() {
			}
			h.collect()
			p.read()
			if len(h.wc) != 0 || string(h.mem[100:105]) != "later" || len(p.in) != 0 {
				t.Fatalf("%d completions, memory %q, answer %x", len(h.wc), h.mem[100:105], p.in)
			}
			if readable(h.dev.FD()) {
				t.Error("FD is readable: the owner would spin")
			}
			post(verbs.RecvWR{WRID: 1, SGL: h.sge(0, 8)})
			if !readable(h.dev.FD()) {
				t.Error("FD is not readable although there is something to deliver")
			}
			if wc := h.take(1)[0]; wc.WRID != 1 || string(h.mem[:3]) != "one" {
				t.Errorf("%+v", wc)
			}
			unix.Shutdown(p.fd, unix.SHUT_WR)
			for h.dev.Progress() {
			}
			if len(h.ev) != 0 {
				t.Fatalf("%+v", h.ev)
			}
			post(verbs.RecvWR{WRID: 2, SGL: h.sge(0, 8)})
			if wc := h.take(1)[0]; wc.WRID != 2 || string(h.mem[:3]) != "two" {
				t.Errorf("%+v", wc)
			}
			if e := h.event(); e.Type != verbs.CMDisconnected {
				t.Errorf("%+v", e)
			}
			p.until("the READ's answer", func() bool { return p.eof })
			if len(p.in) == 0 {
				t.Error("the READ was not answered although the stream was only half closed")
			}
			if st := h.dev.Stats(); st.RNRWaits == 0 || st.RNRParked != 2 || st.RNRStalls != 0 || h.qp.Stats().RNR == 0 {
				t.Errorf("%+v, %+v", st, h.qp.Stats())
			}
			if shared {
				if err := h.qp.Destroy(); err != nil {
					t.Error(err)
				}
				if err := s.Destroy(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestParkLimit: what is put aside is bounded, in messages and in bytes; beyond
// it the stream stands still, and goes on with receives, every byte intact.
func TestParkLimit(t *testing.T) {
	for _, size := range []int{0, 60000, memSize / 4} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			a, b := pair(t, attrs(), attrs())
			n := 3 * parkMsgs
			if size > 0 {
				n = 100
			}
			if size > 100000 {
				n = 6
			}
			fill(a.mem[:memSize/4], 1)
			posted := 0
			post := func() {
				for posted < n {
					k, err := a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, size)}})
					if k == 0 && errors.Is(err, unix.ENOMEM) {
						return
					}
					posted++
				}
			}
			post()
			for a.dev.Progress() || b.dev.Progress() {
				a.collect()
				a.wc = a.wc[:0]
				post()
			}
			q := b.qp.(*qp)
			if q.park.msgs > parkMsgs || q.park.bytes > parkBytes {
				t.Fatalf("%d messages of %d bytes put aside", q.park.msgs, q.park.bytes)
			}
			if len(q.park.q) == 0 || b.dev.Stats().RNRStalls == 0 {
				t.Errorf("%d messages put aside, %+v", len(q.park.q), b.dev.Stats())
			}
			for i := range n {
				clear(b.mem[memSize/2 : memSize/2+size])
				b.recv(verbs.RecvWR{WRID: uint64(i), SGL: b.sge(memSize/2, max(size, 1))})
				run(t, "a receive", func() bool { post(); a.wc = a.wc[:0]; return len(b.wc) > 0 }, a, b)
				wc := b.take(1)[0]
				if wc.WRID != uint64(i) || wc.Status != 0 || int(wc.ByteLen) != size || !bytes.Equal(b.mem[memSize/2:memSize/2+size], a.mem[:size]) {
					t.Fatalf("message %d: %+v", i, wc)
				}
			}
			if q.park.msgs != 0 || q.park.bytes != 0 || q.starving || !q.intake.reads() {
				t.Errorf("left: %+v", q.park)
			}
		})
	}
}

// TestBothParked: with AckRemote both sides send more than fits without
// receives, and post receives only when their own SENDs are acknowledged but
// for what the other has put aside: nothing stands still for ever.
func TestBothParked(t *testing.T) {
	at := attrs()
	at.Ack = verbs.AckRemote
	at.Cap.MaxSendWR, at.Cap.MaxRecvWR = 2000, 2000
	a, b := pair(t, at, at)
	const n = 1000
	for _, h := range []*host{a, b} {
		for i := range n {
			h.send(verbs.SendWR{WRID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: h.sge(0, 3000)})
		}
	}
	for a.dev.Progress() || b.dev.Progress() {
		a.collect()
		b.collect()
	}
	if len(a.wc)+len(b.wc) != 0 {
		t.Fatal("a SEND without a receive is complete")
	}
	for _, h := range []*host{a, b} {
		if s := h.dev.Stats(); s.RNRStalls != 0 {
			t.Errorf("a stream stands still: %+v", s)
		}
	}
	// Only b posts: a's SENDs complete, for their fences' answers get through
	// b's SENDs that a has no receives for.
	for range n {
		b.recv(verbs.RecvWR{SGL: b.sge(8192, 3000)})
	}
	run(t, "a's SENDs", func() bool { return len(a.wc) == n && len(b.wc) == n }, a, b)
	for i, wc := range a.wc {
		if wc.Status != 0 || wc.WRID != uint64(i) {
			t.Fatalf("%+v", wc)
		}
	}
	for range n {
		a.recv(verbs.RecvWR{SGL: a.sge(8192, 3000)})
	}
	run(t, "b's SENDs", func() bool { return len(a.wc) == 2*n && len(b.wc) == 2*n }, a, b)
	if s := a.dev.Stats(); s.FencesSent == 0 || s.FencesSent > n/2 {
		t.Errorf("%d fences for %d SENDs", s.FencesSent, n)
	}
}

// TestDestroyStalled: a stalled QP leaves its SRQ.
func TestDestroyStalled(t *testing.T) {
	h := newHost(t, Options{})
	at := attrs()
	s, _ := h.pd.CreateSRQ(4, 1)
	at.SRQ = s
	p := newPuppet(t, h, at)
	p.write(sendFrame(1, 0, true, nil))
	for h.dev.Progress() {
	}
	if err := h.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PostRecv([]verbs.RecvWR{{WRID: 1}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	h.dev.Progress()
	h.collect()
	if len(h.wc) != 0 {
		t.Errorf("%+v", h.wc)
	}
}

// TestHoldMeets: what a throttle lets go of is read again though a message waited for its receive meanwhile, and what it holds is not.
func TestHoldMeets(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	q := h.qp.(*qp)
	q.Meter(func(int) { q.Hold(true) })
	p.write(sendFrame(1, 0, true, []byte("waits")))
	if q.intake != pausing || q.events&unixIn != 0 {
		t.Fatalf("intake %d, events %#x", q.intake, q.events)
	}
	if q.Hold(false); q.events&unixIn == 0 {
		t.Error("it stays deaf")
	}
	q.Hold(true)
	q.intake = full
	if q.resume(); q.events&unixIn != 0 {
		t.Error("it reads what it is to hold")
	}
}

// TestParkClosed: a message that waits for its receive is not lost when the peer ends its direction, with TLS as without.
func TestParkClosed(t *testing.T) {
	for _, tls := range []bool{false, !fips140.Enabled()} {
		h := newHost(t, Options{})
		var sec *secure
		var far *tls13.Session
		if tls {
			sec = &secure{}
			sec.Session, far = sessions(t)
		}
		p := newPuppetOver(t, h, attrs(), sec)
		b := sendFrame(1, 0, true, []byte("hello"))
		if tls {
			r, err := far.Out.Append(nil, b)
			if err != nil {
				t.Fatal(err)
			}
			b = far.Out.AppendAlert(r, tls13.AlertCloseNotify)
		}
		if n, err := unix.SendmsgN(p.fd, b, nil, nil, ioFlags); err != nil || n != len(b) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		_ = unix.Shutdown(p.fd, unix.SHUT_WR)
		h.dev.Progress()
		h.recv(verbs.RecvWR{SGL: h.sge(0, 64)})
		p.until("the end", func() bool { h.collect(); return len(h.ev) > 0 })
		if len(h.wc) != 1 || h.wc[0].Status != verbs.WCSuccess || !errors.Is(h.ev[0].Err, verbs.ErrEnded) {
			t.Errorf("TLS %v: %+v, %+v", tls, h.wc, h.ev)
		}
	}
}
