package verbstest

import (
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

// libertyCases are statements that promise little: what is left of them to
// show.
func libertyCases() []testCase {
	return []testCase{
		{name: "A43 FENCE with no READ to wait for holds nothing", run: testFenceIdle},
		{name: "A55 overlapping SGEs hold what came, and nothing else is touched", run: testOverlap},
		{name: "A82 a SEND completes though the peer's program has seen nothing", run: testUnseen},
		{name: "A83 either end's completion may be seen first", run: testEitherFirst},
		{name: "A106 a receive posted in time costs no RNR", run: testNoRNR},
		{name: "A154 many QPs read at full depth", run: testManyReaders},
		{name: "A156 WRITEs and READs leave no trace at the target", run: testNoNotice},
	}
}

func testFenceIdle(p *Pair) {
	p.Connect()
	p.B.Recv(1, p.B.SGE(0, 64))
	p.A.Post(p.A.Write(1, verbs.SendSignaled, 100, p.A.SGE(0, 8)), p.A.Send(2, verbs.SendSignaled|verbs.SendFence, p.A.SGE(0, 8)),
		p.A.Write(3, verbs.SendSignaled|verbs.SendFence, 100, p.A.SGE(0, 8)))
	for i := range 3 {
		p.A.WantSend(i, uint64(i+1), verbs.WCSuccess)
	}
	p.B.WantRecv(0, 1, verbs.WCSuccess)
}

func testOverlap(p *Pair) {
	p.Connect()
	if p.B.QP.Cap().MaxRecvSGE < 2 {
		p.notApplicable("one SGE only")
		return
	}
	pattern(p.A.Mem[:200], 5)
	p.B.Recv(1, p.B.SGE(1000, 100), p.B.SGE(1050, 100))
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 200)))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantMem(999, []byte{0})
	p.B.WantMem(1000, p.A.Mem[:50])
	for i := range 50 {
		if b := p.B.Mem[1050+i]; b != p.A.Mem[50+i] && b != p.A.Mem[100+i] {
			p.Fatalf("overlap at %d: %#x, from neither SGE's part", i, b)
		}
	}
	p.B.WantMem(1100, p.A.Mem[150:200])
	p.B.WantMem(1150, []byte{0})
}

func testUnseen(p *Pair) {
	p.Connect()
	p.B.Recv(1, p.B.SGE(0, 64))
	p.B.Hold = true
	pattern(p.A.Mem[:8], 1)
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.A.WantSend(0, 1, verbs.WCSuccess)
	if len(p.B.Recvs) != 0 {
		p.Fatal("B polled")
	}
	p.B.Hold = false
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantMem(0, p.A.Mem[:8])
}

func testEitherFirst(p *Pair) {
	p.Connect()
	for i, late := range []*Side{p.A, p.B} {
		late.Hold = true
		p.B.Recv(uint64(i))
		p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled))
		if late == p.A {
			p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
		} else {
			p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		}
		late.Hold = false
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
	}
}

func testNoRNR(p *Pair) {
	p.Connect()
	for i := range 30 {
		p.B.Recv(uint64(i), p.B.SGE(0, 64))
		p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(0, 8)))
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
	}
	if n := p.B.QP.Stats().RNR; n != 0 {
		p.Errorf("%d messages found no receive", n)
	}
}

func testManyReaders(p *Pair) {
	l := p.B.Listen()
	var qps []verbs.QP
	for range 12 {
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		qps = append(qps, p.A.QP)
	}
	pattern(p.B.Mem[:20000], 1)
	total := 0
	for i, qp := range qps {
		p.A.QP = qp
		for range 2 * qp.Cap().ReadDepth {
			p.A.Post(p.A.Read(uint64(i), verbs.SendSignaled, 0, p.A.SGE(total%50*20000, 20000)))
			total++
		}
	}
	for i, wc := range p.A.SendsDone(total) {
		if wc.Status != verbs.WCSuccess {
			p.Errorf("READ %d: status %d", i, wc.Status)
		}
	}
}

func testNoNotice(p *Pair) {
	p.Connect()
	p.B.Recv(1, p.B.SGE(0, 8))
	p.Settle()
	p.B.Async = nil
	p.B.arm(p.B.RecvCQ, false)
	p.B.arm(p.B.SendCQ, false)
	p.A.Post(p.A.Write(1, verbs.SendSignaled|verbs.SendSolicited, 100, p.A.SGE(0, 3000)),
		p.A.Read(2, verbs.SendSignaled|verbs.SendSolicited, 100, p.A.SGE(8192, 3000)))
	p.A.WantSend(0, 1, verbs.WCSuccess)
	p.A.WantSend(1, 2, verbs.WCSuccess)
	p.Settle()
	for _, ev := range p.B.Async {
		if ev.Type != verbs.AsyncCommEst { // the first message, whatever it is
			p.Errorf("event %v", ev.Type)
		}
	}
	if len(p.B.Recvs)+len(p.B.Sends) != 0 || p.B.RecvCQ.Notified() || p.B.SendCQ.Notified() || p.B.QP.Stats().Received != 0 {
		p.Errorf("the target saw%s%s", wcString(p.B.Recvs), wcString(p.B.Sends))
	}
	if _, err := p.B.QP.PostRecv(make([]verbs.RecvWR, p.B.QP.Cap().MaxRecvWR)); err == nil {
		p.Errorf("a receive was used up: %v", syscall.ENOMEM)
	}
}
