package soft

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// host is one end of a test: a device with the objects most tests need. All
// hosts of a test are driven by the test's goroutine.
type host struct {
	t   testing.TB
	dev *Device
	pd  verbs.PD
	cq  verbs.CQ
	mem []byte
	mr  verbs.MR
	qp  verbs.QP
	ev  []verbs.CMEvent
	wc  []verbs.WC
}

const (
	testIOVA   = 0x10000
	allAccess  = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	memSize    = 4 << 20
	failsafe   = 2 * time.Minute
	testInline = 256
)

func attrs() verbs.QPInitAttr {
	return verbs.QPInitAttr{
		Ack: verbs.AckLocal, Access: allAccess, CRC: verbs.CRCOff, Peer: 7,
		Cap: verbs.QPCap{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: testInline, ReadDepth: 4},
	}
}

func newHost(t testing.TB, opt Options) *host {
	t.Helper()
	return newHostMem(t, opt, memSize)
}

func newHostMem(t testing.TB, opt Options, size int) *host {
	t.Helper()
	h := &host{t: t}
	var err error
	if h.dev, err = New(opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.dev.Close() })
	h.pd, _ = h.dev.AllocPD()
	if h.cq, err = h.dev.CreateCQ(512); err != nil {
		t.Fatal(err)
	}
	h.mem = make([]byte, size)
	if h.mr, err = h.pd.RegMR(h.mem, testIOVA, allAccess); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) newQP(a verbs.QPInitAttr) verbs.QP {
	h.t.Helper()
	a.SendCQ, a.RecvCQ = h.cq, h.cq
	q, err := h.pd.CreateQP(a)
	if err != nil {
		h.t.Fatal(err)
	}
	return q
}

func (h *host) sge(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return []verbs.SGE{{Addr: testIOVA + uint64(off), Length: uint32(n), LKey: h.mr.LKey()}}
}

func (h *host) send(wr ...verbs.SendWR) {
	h.t.Helper()
	if n, err := h.qp.PostSend(wr); err != nil || n != len(wr) {
		h.t.Fatalf("PostSend: %d of %d, %v", n, len(wr), err)
	}
}

func (h *host) recv(wr ...verbs.RecvWR) {
	h.t.Helper()
	if n, err := h.qp.PostRecv(wr); err != nil || n != len(wr) {
		h.t.Fatalf("PostRecv: %d of %d, %v", n, len(wr), err)
	}
}

// collect takes events and completions.
func (h *host) collect() {
	var ev [8]verbs.CMEvent
	for n := h.dev.PollCM(ev[:]); n > 0; n = h.dev.PollCM(ev[:]) {
		h.ev = append(h.ev, ev[:n]...)
	}
	var wc [64]verbs.WC
	for n := h.cq.Poll(wc[:]); n > 0; n = h.cq.Poll(wc[:]) {
		h.wc = append(h.wc, wc[:n]...)
	}
}

// event takes the first event collected, driving until there is one.
func (h *host) event(others ...*host) verbs.CMEvent {
	h.t.Helper()
	run(h.t, "a connection event", func() bool { return len(h.ev) > 0 }, append(others, h)...)
	e := h.ev[0]
	h.ev = h.ev[1:]
	return e
}

// take drives until n completions are there and takes them.
func (h *host) take(n int, others ...*host) []verbs.WC {
	h.t.Helper()
	run(h.t, "completions", func() bool { return len(h.wc) >= n }, append(others, h)...)
	wc := h.wc[:n:n]
	h.wc = h.wc[n:]
	return wc
}

// run drives the hosts until done, blocking in poll(2) on their descriptors
// when nothing moves.
func run(t testing.TB, what string, done func() bool, hosts ...*host) {
	t.Helper()
	runWith(t, what, done, nil, hosts...)
}

// runWith also wakes up for the other descriptors.
func runWith(t testing.TB, what string, done func() bool, others []int, hosts ...*host) {
	t.Helper()
	limit := time.Now().Add(failsafe)
	for {
		did := false
		for _, h := range hosts {
			did = h.dev.Progress() || did
			h.collect()
		}
		if done() {
			return
		}
		if did {
			continue
		}
		left := time.Until(limit)
		if left <= 0 {
			t.Fatalf("no %s within %v", what, failsafe)
		}
		fds := make([]unix.PollFd, len(hosts))
		for i, h := range hosts {
			fds[i] = unix.PollFd{Fd: int32(h.dev.FD()), Events: unix.POLLIN}
		}
		for _, fd := range others {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
		unix.Poll(fds, int(left.Milliseconds())+1)
	}
}

// eventually is run for conditions that no descriptor reports.
func eventually(t testing.TB, what string, h *host, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(failsafe); !done(); {
		if time.Now().After(limit) {
			t.Fatalf("no %s within %v", what, failsafe)
		}
		if !h.dev.Progress() {
			unix.Poll([]unix.PollFd{{Fd: int32(h.dev.FD()), Events: unix.POLLIN}}, 1)
		}
		h.collect()
	}
}

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// pair connects two hosts; a is the active side.
func pair(t testing.TB, aa, ba verbs.QPInitAttr) (a, b *host) {
	t.Helper()
	a, b = newHost(t, Options{}), newHost(t, Options{})
	link(t, a, b, aa, ba)
	return a, b
}

func link(t testing.TB, a, b *host, aa, ba verbs.QPInitAttr) {
	t.Helper()
	linkVia(t, a, b, aa, ba, func(at netip.AddrPort) netip.AddrPort { return at }).Close()
}

// linkVia connects a to where via leads to b's listener, which it returns.
func linkVia(t testing.TB, a, b *host, aa, ba verbs.QPInitAttr, via func(netip.AddrPort) netip.AddrPort) verbs.Listener {
	t.Helper()
	l, err := b.dev.Listen(loopback)
	if err != nil {
		t.Fatal(err)
	}
	a.qp, b.qp = a.newQP(aa), b.newQP(ba)
	if err := a.dev.Connect(a.qp, verbs.ConnectParam{Local: loopback, Remote: via(l.Addr()), Private: []byte("ping")}); err != nil {
		t.Fatal(err)
	}
	req := b.event(a)
	if req.Type != verbs.CMConnectRequest || string(req.Private) != "ping" {
		t.Fatalf("event %+v", req)
	}
	if err := b.dev.Accept(req.Req, b.qp, []byte("pong")); err != nil {
		t.Fatal(err)
	}
	if e := b.event(a); e.Type != verbs.CMEstablished || e.QP != b.qp {
		t.Fatalf("event %+v", e)
	}
	if e := a.event(b); e.Type != verbs.CMEstablished || e.QP != a.qp || string(e.Private) != "pong" {
		t.Fatalf("event %+v", e)
	}
	return l
}

func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed)
	}
}
