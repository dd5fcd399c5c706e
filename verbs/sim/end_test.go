package sim_test

import (
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

const (
	iova = 1 << 32
	all  = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	port = 18634
)

// end is one side of a connection under test.
type end struct {
	t            testing.TB
	net          *sim.Network
	dev          *sim.Device
	pd           verbs.PD
	scq, rcq     verbs.CQ
	mem          []byte
	mr           verbs.MR
	qp           *sim.QP
	ack          verbs.AckMode
	sends, recvs []verbs.WC
	events       []verbs.CMEvent
	diedAt       int64 // of the QP's end
}

func newEnd(t testing.TB, n *sim.Network, addr netip.Addr, ack verbs.AckMode) *end {
	t.Helper()
	e := &end{t: t, net: n, dev: n.Device(addr), mem: make([]byte, 1<<16), ack: ack}
	var err error
	check := func(what string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	e.pd, err = e.dev.AllocPD()
	check("AllocPD")
	e.scq, err = e.dev.CreateCQ(1024)
	check("CreateCQ")
	e.rcq, err = e.dev.CreateCQ(1024)
	check("CreateCQ")
	e.mr, err = e.pd.RegMR(e.mem, iova, all)
	check("RegMR")
	_, err = e.dev.Listen(netip.AddrPortFrom(addr, port))
	check("Listen")
	e.newQP()
	return e
}

func (e *end) newQP() {
	e.t.Helper()
	qp, err := e.pd.CreateQP(verbs.QPInitAttr{
		SendCQ: e.scq, RecvCQ: e.rcq, Ack: e.ack, Access: all,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64, ReadDepth: 4},
	})
	if err != nil {
		e.t.Fatalf("CreateQP: %v", err)
	}
	e.qp = qp.(*sim.QP)
}

func (e *end) sge(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return []verbs.SGE{{Addr: iova + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}}
}

func (e *end) post(wr ...verbs.SendWR) {
	e.t.Helper()
	if n, err := e.qp.PostSend(wr); n != len(wr) {
		e.t.Fatalf("PostSend: %d of %d: %v", n, len(wr), err)
	}
}

func (e *end) recv(id uint64, off, n int) {
	e.t.Helper()
	if _, err := e.qp.PostRecv([]verbs.RecvWR{{WRID: id, SGL: e.sge(off, n)}}); err != nil {
		e.t.Fatalf("PostRecv: %v", err)
	}
}

func (e *end) poll() {
	var wc [8]verbs.WC
	for n := e.scq.Poll(wc[:]); n > 0; n = e.scq.Poll(wc[:]) {
		e.sends = append(e.sends, wc[:n]...)
	}
	for n := e.rcq.Poll(wc[:]); n > 0; n = e.rcq.Poll(wc[:]) {
		e.recvs = append(e.recvs, wc[:n]...)
	}
	var ev [4]verbs.CMEvent
	for n := e.dev.PollCM(ev[:]); n > 0; n = e.dev.PollCM(ev[:]) {
		e.events = append(e.events, ev[:n]...)
	}
	if e.diedAt == 0 && e.qp.State() == verbs.QPErr {
		e.diedAt = e.net.Now()
	}
}

func (e *end) has(t verbs.CMEventType) *verbs.CMEvent {
	for i := range e.events {
		if e.events[i].Type == t {
			return &e.events[i]
		}
	}
	return nil
}

// run steps until nothing is left, accepting what B is asked.
func run(n *sim.Network, ends ...*end) {
	for {
		for _, e := range ends {
			e.poll()
			if req := e.has(verbs.CMConnectRequest); req != nil {
				req.Type = 0
				if err := e.dev.Accept(req.Req, e.qp, nil); err != nil {
					e.t.Fatalf("Accept: %v", err)
				}
			}
		}
		if !n.Step() {
			return
		}
	}
}

func (e *end) dial(to *end) {
	e.t.Helper()
	err := e.dev.Connect(e.qp, verbs.ConnectParam{Remote: netip.AddrPortFrom(to.dev.Addr(), port)})
	if err != nil {
		e.t.Fatalf("Connect: %v", err)
	}
}

// pair makes two connected ends.
func pair(t testing.TB, n *sim.Network, ack verbs.AckMode) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, n, hostA, ack), newEnd(t, n, hostB, ack)
	a.dial(b)
	run(n, a, b)
	if a.qp.State() != verbs.QPRTS || b.qp.State() != verbs.QPRTS {
		t.Fatalf("states %d, %d after the set-up", a.qp.State(), b.qp.State())
	}
	return a, b
}

func status(wc []verbs.WC) (s []verbs.WCStatus) {
	for i := range wc {
		s = append(s, wc[i].Status)
	}
	return s
}
