package soft

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
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
			if q.park.msgs != 0 || q.park.bytes != 0 || q.starving || q.stalled {
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

func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(fds, 0)
	return n > 0
}

// TestSRQIsAStack: few buffers are touched however many are posted.
func TestSRQIsAStack(t *testing.T) {
	h := newHost(t, Options{})
	at := attrs()
	s, _ := h.pd.CreateSRQ(64, 1)
	at.SRQ = s
	p := newPuppet(t, h, at)
	for i := range 64 {
		s.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: h.sge(i*64, 64)}})
	}
	if n, err := s.PostRecv([]verbs.RecvWR{{}}); n != 0 || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("65th receive: %d, %v", n, err)
	}
	for i := range 100 {
		p.write(sendFrame(uint32(i+1), 0, true, []byte{1}))
		wc := h.take(1)[0]
		if wc.WRID != 63 {
			t.Fatalf("message %d took receive %d", i, wc.WRID)
		}
		s.PostRecv([]verbs.RecvWR{{WRID: 63, SGL: h.sge(63*64, 64)}})
	}
}

// TestFDWakesForCompletions: an armed CQ's event keeps the FD readable until
// taken; so do connection events.
func TestFDWakesForCompletions(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	h.recv(verbs.RecvWR{WRID: 1})
	p.write(sendFrame(1, 0, true, nil))
	for h.dev.Progress() {
	}
	h.collect()
	if readable(h.dev.FD()) {
		t.Fatal("readable without work")
	}
	h.cq.ReqNotify(false)
	h.qp.ToError()
	h.qp.PostRecv([]verbs.RecvWR{{WRID: 2}})
	if !readable(h.dev.FD()) {
		t.Error("armed CQ with a completion does not wake")
	}
	h.collect()
	h.dev.Progress()
	if !readable(h.dev.FD()) || !h.cq.Notified() || h.cq.Notified() {
		t.Error("the event is not there once")
	}
	if readable(h.dev.FD()) {
		t.Error("readable after the event was taken")
	}
	// Solicited only: a plain receive does not count, a solicited one does.
	p = newPuppet(t, h, attrs())
	h.recv(verbs.RecvWR{}, verbs.RecvWR{})
	h.cq.ReqNotify(true)
	unix.Write(p.fd, sendFrame(1, 0, true, nil))
	for h.dev.Progress() {
	}
	if readable(h.dev.FD()) {
		t.Error("unsolicited receive woke")
	}
	unix.Write(p.fd, seal(&iwarp.Header{Op: iwarp.OpSendSE, Last: true, MSN: 2}, nil))
	for h.dev.Progress() {
	}
	if !readable(h.dev.FD()) {
		t.Error("solicited receive did not wake")
	}
	h.collect()
	h.cq.Notified()
	// Connection events.
	h.qp.(*qp).lost(nil)
	if !readable(h.dev.FD()) {
		t.Error("CMDisconnected does not wake")
	}
	h.event()
	h.dev.Progress()
	if readable(h.dev.FD()) {
		t.Error("readable after PollCM")
	}
}

// TestDeregFinishesFrames: deregistering memory that is being sent leaves the
// frames begun as they were, and fails the rest of the request.
// TestDeregDuringPlacement: the rest of a payload that is being read in place
// goes nowhere.
// TestScribble: with CRC, memory that changes while it is being sent breaks
// nothing.
// TestPrivateMemory: with CRC and AccessPrivate the payload is summed in
// place; the peer checks it.
// TestBothDirections: random traffic both ways at once, READs included, on
// several QPs of one device pair; every byte is checked.
func TestBothDirections(t *testing.T) {
	crcModes(t, func(t *testing.T, at verbs.QPInitAttr) {
		seed := uint64(time.Now().UnixNano())
		if s := os.Getenv("SOFT_SEED"); s != "" {
			fmt.Sscan(s, &seed)
		}
		t.Logf("SOFT_SEED=%d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		a, b := pair(t, at, at)
		type op struct {
			wr       verbs.SendWR
			src, dst []byte
		}
		hosts := [2]*host{a, b}
		// Each host's memory: source area, sink area of its READs, area the
		// peer writes to, area receives land in.
		const area = memSize / 4
		for i, h := range hosts {
			fill(h.mem[:area], i)
			for j := range 100 {
				h.recv(verbs.RecvWR{WRID: uint64(j), SGL: h.sge(3*area, area)})
			}
		}
		for round := range 60 {
			var ops [2][]op
			for i, h := range hosts {
				peer := hosts[1-i]
				n := 1 + rng.IntN(6)
				for range n {
					size := sizes[1+rng.IntN(len(sizes)-3)]
					from, to := rng.IntN(area-size), rng.IntN(area-size)
					o := op{wr: verbs.SendWR{WRID: uint64(round), RKey: peer.mr.RKey(), Flags: verbs.SendFlags(rng.IntN(2)) * verbs.SendFence}}
					switch rng.IntN(3) {
					case 0:
						o.wr.Op = verbs.OpRDMARead
						o.wr.RemoteAddr = testIOVA + uint64(from)
						o.wr.SGL = h.sge(area+to, size)
						o.src, o.dst = peer.mem[from:from+size], h.mem[area+to:area+to+size]
					case 1:
						o.wr.Op = verbs.OpRDMAWrite
						o.wr.RemoteAddr = testIOVA + uint64(2*area+to)
						o.wr.SGL = h.sge(from, size)
						o.src, o.dst = h.mem[from:from+size], peer.mem[2*area+to:2*area+to+size]
					case 2:
						o.wr.Op = verbs.OpSend
						o.wr.SGL = h.sge(from, size)
					}
					ops[i] = append(ops[i], o)
				}
				ops[i] = append(ops[i], op{wr: verbs.SendWR{WRID: 1000, Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendFence}})
			}
			want := [2]int{1, 1} // the last SEND's completion
			for i, h := range hosts {
				for _, o := range ops[i] {
					h.send(o.wr)
					if o.wr.Op == verbs.OpSend {
						want[1-i]++
					}
				}
			}
			run(t, "the round", func() bool { return len(a.wc) >= want[0] && len(b.wc) >= want[1] }, a, b)
			for i, h := range hosts {
				if len(h.wc) != want[i] {
					t.Fatalf("%d completions, want %d: %+v", len(h.wc), want[i], h.wc)
				}
				for _, wc := range h.wc {
					if wc.Status != 0 {
						t.Fatalf("%+v", wc)
					}
					if wc.Op == verbs.WCRecv {
						h.recv(verbs.RecvWR{SGL: h.sge(3*area, area)})
					}
				}
				h.wc = h.wc[:0]
				// Sources never change; of the targets only the last is sure
				// not to have been overwritten by a later operation.
				for k := len(ops[i]) - 1; k >= 0; k-- {
					if o := ops[i][k]; o.dst != nil {
						if !bytes.Equal(o.src, o.dst) {
							t.Fatalf("round %d: op %d of %d bytes: data differ", round, o.wr.Op, len(o.src))
						}
						break
					}
				}
			}
		}
	})
}

// TestTap: the tap's stream is the stream.
func TestTap(t *testing.T) {
	rec := [2]*recorder{{}, {}}
	a, b := newHost(t, Options{Tap: rec[0]}), newHost(t, Options{Tap: rec[1]})
	at := attrs()
	link(t, a, b, at, at)
	fill(a.mem[:300000], 1)
	b.recv(verbs.RecvWR{SGL: b.sge(0, 300000)})
	a.send(verbs.SendWR{Op: verbs.OpSend, SGL: a.sge(0, 300000)})
	a.send(verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.sge(1<<20, 300000), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
	b.take(1, a)
	a.take(1, b)
	run(t, "same streams", func() bool {
		return bytes.Equal(rec[0].out, rec[1].in) && bytes.Equal(rec[0].in, rec[1].out)
	}, a, b)
	if len(rec[0].out) < 300000 || !strings.HasPrefix(string(rec[0].out), "MPA ID Req") || !strings.HasPrefix(string(rec[0].in), "MPA ID Rep") {
		t.Errorf("%d bytes out, %d in", len(rec[0].out), len(rec[0].in))
	}
}

type recorder struct{ out, in []byte }

func (r *recorder) Stream(local, remote netip.AddrPort, out bool, b []byte) {
	if out {
		r.out = append(r.out, b...)
	} else {
		r.in = append(r.in, b...)
	}
}

// TestCongestion: a refused algorithm is reported and costs nothing.
func TestCongestion(t *testing.T) {
	a, b := newHost(t, Options{Congestion: "reno"}), newHost(t, Options{Congestion: "no-such-thing"})
	link(t, a, b, attrs(), attrs())
	if name, err := a.dev.Congestion(); name != "reno" && err == nil {
		t.Errorf("%q, %v", name, err)
	}
	if name, err := b.dev.Congestion(); name == "" || err == nil {
		t.Errorf("%q, %v", name, err)
	}
}

// TestPeerLacks: what a foreign peer does not understand is refused by name.
func TestPeerLacks(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	for op, name := range map[verbs.Opcode]string{
		verbs.OpSendWithImm: "SEND_WITH_IMM", verbs.OpRDMAWriteWithImm: "RDMA_WRITE_WITH_IMM",
		verbs.OpAtomicCmpAndSwp: "ATOMIC_CMP_AND_SWP", verbs.OpAtomicFetchAdd: "ATOMIC_FETCH_AND_ADD",
	} {
		n, err := h.qp.PostSend([]verbs.SendWR{{Op: op, SGL: h.sge(0, 8)}})
		if n != 0 || !errors.Is(err, unix.EINVAL) || !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), name) {
			t.Errorf("opcode %d: %d, %v", op, n, err)
		}
	}
	if c := h.qp.Cap().Caps; c&(verbs.CapImm|verbs.CapAtomics|verbs.CapMaskedAtomic|verbs.CapRNRRetry) != 0 || c&verbs.CapInvalidate == 0 {
		t.Errorf("capabilities %#x", c)
	}
	if n, err := h.qp.PostSend([]verbs.SendWR{{Op: 99}}); n != 0 || !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "99") {
		t.Errorf("opcode 99: %d, %v", n, err)
	}
	p.close()
}

// TestNothingIsLeft: descriptors and goroutines after Close.
func TestNothingIsLeft(t *testing.T) {
	fds := func() int {
		e, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	newHost(t, Options{}).dev.Close() // what the runtime opens once
	wasFDs, wasGo := fds(), runtime.NumGoroutine()
	a, b := pair(t, attrs(), attrs())
	for range 5 {
		link(t, a, b, attrs(), attrs())
		a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, SGL: a.sge(0, 1<<20), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
		a.dev.Progress()
	}
	listen(t, b)
	a.qp.ToError()
	b.dev.Close()
	a.dev.Close()
	if now := fds(); now != wasFDs {
		t.Errorf("%d descriptors, before %d", now, wasFDs)
	}
	for limit := time.Now().Add(failsafe); runtime.NumGoroutine() > wasGo; {
		if time.Now().After(limit) {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), wasGo)
		}
		runtime.Gosched()
	}
}

// TestIdleConnectionHoldsNoStage: large buffers are in use only while data is
// in motion.
func TestIdleConnectionHoldsNoStage(t *testing.T) {
	a, b := pair(t, attrs(), attrs())
	b.recv(verbs.RecvWR{SGL: b.sge(0, 300000)})
	a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, 300000)})
	a.take(1, b)
	b.take(1, a)
	for _, h := range []*host{a, b} {
		if q := h.qp.(*qp); q.rx.stage != nil || q.out.stage != nil {
			t.Error("an idle QP holds a stage")
		}
	}
}
