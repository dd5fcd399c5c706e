package verbstest

import (
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func stateCases() []testCase {
	return []testCase{
		{name: "A14 only legal transitions, others change nothing", run: testTransitions},
		{name: "A12 no SEND and no receive in RESET", run: testPostReset},
		{name: "A17 the first message of an accepted connection raises COMM_EST", run: testCommEst},
		{name: "A18 RESET discards requests without completions", run: testReset},
		{name: "A19 a QP in ERR connects again after RESET", run: testReconnectReset},
		{name: "A143 SQD holds back what is not begun, SQ_DRAINED", run: testSQD},
		{name: "C30 Disconnect ends SQD", run: testDisconnectSQD},
		{name: "A5 a QP on an SRQ ignores MaxRecvWR", run: testSRQIgnoresRecvWR},
		{name: "A26 a request's id is opaque and need not be unique", run: testSharedID},
		{name: "A54 a message above MaxMsg: LOC_LEN_ERR", run: testMaxMsg},
		{name: "A67 receives may share a buffer", run: testSharedBuffer},
		{name: "A153 no READ without read depth", run: testNoDepth},
		{name: "C50 counters of a QP", run: testQPStats},
		{name: "C51 what RDMA of the peer has moved", run: testServed},
	}
}

// modify changes the state, which must work.
func (s *Side) modify(to verbs.QPState) {
	s.p.Helper()
	if err := s.QP.Modify(to); err != nil || s.QP.State() != to {
		s.p.Fatalf("%s: Modify(%d): %v, state %d", s.Name, to, err, s.QP.State())
	}
}

func testTransitions(p *Pair) {
	refuse := func(s *Side, to ...verbs.QPState) {
		p.Helper()
		from := s.QP.State()
		for _, st := range to {
			if err := s.QP.Modify(st); !errors.Is(err, syscall.EINVAL) || s.QP.State() != from {
				p.Errorf("from state %d to %d: %v, then state %d; want EINVAL and no change", from, st, err, s.QP.State())
			}
		}
	}
	p.Connect()
	refuse(p.A, verbs.QPInit, verbs.QPRTR, verbs.QPSQE, 77)
	p.A.modify(verbs.QPRTS)
	p.A.modify(verbs.QPSQD)
	p.A.modify(verbs.QPSQD)
	refuse(p.A, verbs.QPInit, verbs.QPRTR, verbs.QPSQE)
	p.A.modify(verbs.QPRTS)
	p.A.modify(verbs.QPErr)
	p.A.modify(verbs.QPErr)
	refuse(p.A, verbs.QPInit, verbs.QPRTR, verbs.QPRTS, verbs.QPSQD)
	p.A.modify(verbs.QPReset)
	p.A.modify(verbs.QPReset)
	refuse(p.A, verbs.QPRTR, verbs.QPRTS, verbs.QPSQD)
	p.A.modify(verbs.QPInit)
	p.A.modify(verbs.QPInit)
	refuse(p.A, verbs.QPRTR, verbs.QPRTS, verbs.QPSQD)
	p.B.Dead()
}

func testPostReset(p *Pair) {
	p.A.QP = p.A.NewQP()
	p.A.modify(verbs.QPReset)
	p.A.Refuse(syscall.EINVAL, p.A.Send(1, verbs.SendSignaled))
	if n, err := p.A.QP.PostRecv([]verbs.RecvWR{{}}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		p.Errorf("PostRecv in RESET: %d, %v", n, err)
	}
	p.A.modify(verbs.QPInit)
	p.A.Recv(1)
}

// WantAsync waits for an event of type t about the side's QP, or about an object
// without a QP.
func (s *Side) WantAsync(t verbs.AsyncType) verbs.AsyncEvent {
	s.p.Helper()
	var ev verbs.AsyncEvent
	s.p.Until(s.Name+"'s event "+t.String(), func() bool {
		for _, ev = range s.Async {
			if ev.Type == t && (ev.QP == nil || ev.QP == s.QP) {
				return true
			}
		}
		return false
	})
	return ev
}

func (s *Side) countAsync(t verbs.AsyncType) (n int) {
	for _, ev := range s.Async {
		if ev.Type == t {
			n++
		}
	}
	return n
}

func testCommEst(p *Pair) {
	p.Connect()
	p.B.Recv(1)
	p.A.Post(p.A.Send(1, verbs.SendSignaled))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantAsync(verbs.AsyncCommEst)
	p.Settle()
	if a, b := p.A.countAsync(verbs.AsyncCommEst), p.B.countAsync(verbs.AsyncCommEst); a != 0 || b != 1 {
		p.Errorf("%d and %d events, want none at the active side and one at the passive", a, b)
	}
}

func testReset(p *Pair) {
	p.Connect()
	p.A.Recv(1, p.A.SGE(0, 8))
	p.A.Hold = true
	p.A.Post(p.A.Write(10, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.Settle()
	p.A.Post(p.A.Read(11, verbs.SendSignaled, 0, p.A.SGE(1<<20, 1<<20)))
	p.A.modify(verbs.QPReset)
	p.A.Hold = false
	p.B.Dead()
	p.Settle()
	if n := len(p.A.Sends); p.Env.Habits.Immediate && n == 2 && p.A.Sends[1].WRID == 11 && p.A.Sends[1].Status == verbs.WCSuccess {
		p.habit("the READ had completed before RESET")
		p.A.Sends = p.A.Sends[:1]
	}
	for _, wc := range p.A.Sends {
		if wc.WRID != 10 || wc.Status != verbs.WCSuccess {
			p.Errorf("completion%s", wcString([]verbs.WC{wc}))
		}
	}
	if len(p.A.Sends) != 1 || len(p.A.Recvs) != 0 {
		p.Errorf("completions%s%s; want the old one only", wcString(p.A.Sends), wcString(p.A.Recvs))
	}
}

func testReconnectReset(p *Pair) {
	l := p.B.Listen()
	p.A.Attr.Cap.MaxSendWR = 4
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	for round := range 4 {
		p.Join(p.A.QP, p.B.QP, l)
		p.A.Sends, p.B.Recvs = nil, nil
		for i := range p.A.QP.Cap().MaxSendWR {
			p.B.Recv(uint64(i), p.B.SGE(i*8, 8))
			p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(0, 8)))
		}
		for i := range p.A.QP.Cap().MaxSendWR {
			p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
			p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		}
		p.B.Recv(99, p.B.SGE(0, 8))
		if round%2 == 0 {
			p.A.QP.ToError()
			p.B.RecvsDone(len(p.A.Sends) + 1)
		}
		p.A.modify(verbs.QPReset)
		p.B.modify(verbs.QPReset)
		p.Settle()
		p.A.Events, p.B.Events, p.A.requests, p.B.requests = nil, nil, 0, 0
		p.A.modify(verbs.QPInit)
		p.B.modify(verbs.QPInit)
	}
}

func testSQD(p *Pair) {
	p.Connect()
	p.B.Recv(1, p.B.SGE(0, 8))
	p.B.Recv(2, p.B.SGE(8, 8))
	p.A.Recv(9, p.A.SGE(64, 8))
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.A.WantSend(0, 1, verbs.WCSuccess)
	p.A.modify(verbs.QPSQD)
	p.A.WantAsync(verbs.AsyncSQDrained)
	p.A.Post(p.A.Send(2, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.B.Post(p.B.Send(9, verbs.SendSignaled, p.B.SGE(0, 8)))
	p.A.WantRecv(0, 9, verbs.WCSuccess)
	p.Settle()
	if len(p.A.Sends) != 1 || len(p.B.Recvs) != 1 || p.A.countAsync(verbs.AsyncSQDrained) != 1 {
		p.Errorf("in SQD: sends%s, receives%s, %d events", wcString(p.A.Sends), wcString(p.B.Recvs), p.A.countAsync(verbs.AsyncSQDrained))
	}
	p.A.modify(verbs.QPRTS)
	p.A.WantSend(1, 2, verbs.WCSuccess)
	p.B.WantRecv(1, 2, verbs.WCSuccess)
}

// testDisconnectSQD: what SQD held back is what was posted, before Disconnect
// and after.
func testDisconnectSQD(p *Pair) {
	for _, late := range []bool{false, true} {
		p.A.Sends, p.B.Recvs = nil, nil
		p.Connect()
		p.B.Recv(1, p.B.SGE(0, 8))
		p.A.Recv(9, p.A.SGE(64, 8))
		if !late {
			p.A.modify(verbs.QPSQD)
		}
		p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 8)))
		p.A.QP.Disconnect()
		if late && p.A.QP.State() == verbs.QPRTS {
			p.A.modify(verbs.QPSQD)
		}
		p.B.WantRecv(0, 1, verbs.WCSuccess)
		p.A.WantSend(0, 1, verbs.WCSuccess, verbs.WCWRFlushErr)
		p.A.Dead()
		p.B.Dead()
	}
}

func testSRQIgnoresRecvWR(p *Pair) {
	p.B.Attr.Cap.MaxRecvWR = 7
	srq := p.srq(8)
	p.Connect()
	if n := p.B.QP.Cap().MaxRecvWR; n != 0 {
		p.Errorf("MaxRecvWR %d on an SRQ", n)
	}
	p.srqPost(srq, 0, 8)
}

func testSharedID(p *Pair) {
	p.Connect()
	for range 3 {
		p.A.Post(p.A.Write(^uint64(0), verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	}
	for i := range 3 {
		p.A.WantSend(i, ^uint64(0), verbs.WCSuccess)
	}
}

func testMaxMsg(p *Pair) {
	p.Connect()
	wr := p.A.Write(1, verbs.SendSignaled, 0)
	for left := uint64(p.A.Dev.Attr().MaxMsg) + 1; left > 0; {
		n := min(left, 1<<31)
		wr.SGL = append(wr.SGL, verbs.SGE{Addr: p.A.Base, Length: uint32(n), LKey: p.A.MR.LKey()})
		left -= n
	}
	p.A.Post(wr)
	p.A.WantSend(0, 1, verbs.WCLocLenErr)
	p.A.Dead()
}

func testSharedBuffer(p *Pair) {
	p.Connect()
	for i := range 3 {
		p.B.Recv(uint64(i), p.B.SGE(0, 8))
		p.A.Post(p.A.Send(uint64(i), 0, p.A.SGE(0, 8)))
	}
	for i := range 3 {
		p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
	}
}

func testNoDepth(p *Pair) {
	p.A.Attr.Cap.ReadDepth = 0
	p.Connect()
	p.A.Refuse(syscall.EINVAL, p.A.Read(1, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.A.Post(p.A.Write(2, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.A.WantSend(0, 2, verbs.WCSuccess)
}

func testQPStats(p *Pair) {
	p.Connect()
	p.B.Recv(1)
	p.A.Post(p.A.Send(1, verbs.SendSignaled), p.A.Read(2, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.A.SendsDone(2)
	p.B.RecvsDone(1)
	if a, b := p.A.QP.Stats(), p.B.QP.Stats(); a.Sent != 2 || a.Received != 0 || b.Received != 1 || b.RNR != 0 {
		p.Errorf("%+v, %+v", a, b)
	}
}

// testServed: a device that counts what RDMA of its peer writes and reads tells it of the region and of the
// QP. SENDs and atomics do not count.
func testServed(p *Pair) {
	region, ok := p.B.MR.(verbs.Metered)
	if !ok {
		p.Skip("the device does not count")
	}
	all := &verbs.Served{}
	of := &verbs.Served{In: all}
	region.CountIn(of)
	p.Connect()
	p.B.Recv(1)
	p.A.Post(p.A.Send(1, verbs.SendSignaled),
		p.A.Write(2, verbs.SendSignaled, 0, p.A.SGE(0, 100), p.A.SGE(200, 11)),
		p.A.Read(3, verbs.SendSignaled, 8, p.A.SGE(0, 1000)), p.A.Read(4, verbs.SendSignaled, 0, p.A.SGE(0, 24)))
	p.A.SendsDone(4)
	p.B.RecvsDone(1)
	region.CountIn(nil)
	p.A.Post(p.A.Write(5, verbs.SendSignaled, 0, p.A.SGE(0, 8)), p.A.Read(6, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.A.SendsDone(6)
	if of.Written != 111 || of.Read != 1024 || all.Written != 111 || all.Read != 1024 {
		p.Errorf("%d written and %d read, %d and %d with others, want 111 and 1024", of.Written, of.Read, all.Written, all.Read)
	}
	if q := p.B.QP.Stats(); q.Written != 119 || q.Read != 1032 {
		p.Errorf("the QP has %d written and %d read, want 119 and 1032", q.Written, q.Read)
	}
	if q := p.A.QP.Stats(); q.Written != 0 || q.Read != 0 {
		p.Errorf("who asks has %d written and %d read", q.Written, q.Read)
	}
}
