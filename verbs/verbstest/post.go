package verbstest

import (
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func listCases() []testCase {
	return []testCase{
		{name: "A22 a list stops at the first bad request", run: testListStops},
		{name: "A23 immediate checks", run: testImmediate},
		{name: "A53 an SGE of length 0 is refused", run: testEmptySGE},
		{name: "A61 too much inline data is refused", run: testInlineLimit},
		{name: "A12 no SEND before Connect", run: testPostInit},
		{name: "A13 receives may be posted before Connect", run: testRecvInit},
		{name: "A48 immediate data without the capability is refused", lack: verbs.CapImm, run: testNoImm},
		{name: "A48 atomics without the capability are refused", lack: verbs.CapAtomics, run: testNoAtomics},
	}
}

func accountCases() []testCase {
	return []testCase{
		{name: "A31 unsignaled requests fill the queue for good", run: testSQFull},
		{name: "A30 slots are held until the completion is polled", run: testSlotsHeld},
		{name: "A32 a polled completion releases all before it", run: testSlotsReleased},
		{name: "A34 after ENOMEM the same request can be posted", run: testAfterENOMEM},
		{name: "A36 a full receive queue is ENOMEM", run: testRQFull},
		{name: "A3 granted capacities are at least those asked for", run: testGranted},
		{name: "A134 a short poll means empty", run: testPoll},
	}
}

func testListStops(p *Pair) {
	p.Connect()
	p.B.Recv(1, p.B.SGE(0, 64))
	p.B.Recv(2, p.B.SGE(0, 64))
	pattern(p.A.Mem[:8], 1)
	bad := p.A.Send(2, verbs.SendSignaled)
	bad.Op = 200
	wrs := []verbs.SendWR{p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 8)), bad, p.A.Send(3, verbs.SendSignaled, p.A.SGE(0, 8))}
	if n, err := p.A.QP.PostSend(wrs); n != 1 || !errors.Is(err, syscall.EINVAL) {
		p.Fatalf("PostSend: %d, %v; want 1, EINVAL", n, err)
	}
	p.A.WantSend(0, 1, verbs.WCSuccess)
	p.Settle()
	if len(p.A.Sends) != 1 || len(p.B.Recvs) != 1 {
		p.Errorf("requests at and behind the bad one ran:%s; receives%s", wcString(p.A.Sends), wcString(p.B.Recvs))
	}
	p.A.Post(p.A.Send(4, verbs.SendSignaled, p.A.SGE(0, 8))) // the QP is in good shape
	p.A.WantSend(1, 4, verbs.WCSuccess)

	rwr := []verbs.RecvWR{{WRID: 5}, {WRID: 6, SGL: make([]verbs.SGE, p.B.QP.Cap().MaxRecvSGE+1)}, {WRID: 7}}
	if n, err := p.B.QP.PostRecv(rwr); n != 1 || !errors.Is(err, syscall.EINVAL) {
		p.Fatalf("PostRecv: %d, %v; want 1, EINVAL", n, err)
	}
}

func testImmediate(p *Pair) {
	p.Connect()
	for _, op := range []verbs.Opcode{verbs.OpBindMW, 10, 99, 255} {
		p.A.Refuse(syscall.EINVAL, verbs.SendWR{Op: op, Flags: verbs.SendSignaled})
	}
	sgl := make([]verbs.SGE, p.A.QP.Cap().MaxSendSGE+1)
	for i := range sgl {
		sgl[i] = p.A.SGE(i*8, 8)
	}
	p.A.Refuse(syscall.EINVAL, p.A.Send(1, verbs.SendSignaled, sgl...))
	p.A.Refuse(syscall.EINVAL, p.A.Write(1, verbs.SendSignaled, 0, sgl...))
	p.Settle()
	if len(p.A.Sends) != 0 || p.A.QP.State() != verbs.QPRTS {
		p.Errorf("refused requests left completions%s, state %d", wcString(p.A.Sends), p.A.QP.State())
	}
}

func testEmptySGE(p *Pair) {
	p.Connect()
	p.A.Refuse(syscall.EINVAL, p.A.Send(1, verbs.SendSignaled, verbs.SGE{}))
	p.A.Refuse(syscall.EINVAL, p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(0, 8), p.A.SGE(0, 0)))
	p.A.Refuse(syscall.EINVAL, p.A.Read(1, verbs.SendSignaled, 0, p.A.SGE(0, 0)))
	if n, err := p.B.QP.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{p.B.SGE(0, 0)}}}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		p.Errorf("PostRecv: %d, %v; want 0, EINVAL", n, err)
	}
}

func testInlineLimit(p *Pair) {
	p.Connect()
	n := p.A.QP.Cap().MaxInline
	p.A.Refuse(syscall.EINVAL, p.A.Send(1, verbs.SendInline|verbs.SendSignaled, p.A.SGE(0, n+1)))
	p.A.Refuse(syscall.EINVAL, p.A.Read(1, verbs.SendInline|verbs.SendSignaled, 0, p.A.SGE(0, 1)))
}

func testPostInit(p *Pair) {
	p.A.QP = p.A.NewQP()
	if s := p.A.QP.State(); s != verbs.QPInit {
		p.Fatalf("a new QP is in state %d, want INIT", s)
	}
	p.A.Refuse(syscall.EINVAL, p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.B.QP = p.B.NewQP()
	p.B.Recv(1, p.B.SGE(0, 64))
	p.Join(p.A.QP, p.B.QP, p.B.Listen())
	p.Settle()
	if len(p.A.Sends) != 0 || len(p.B.Recvs) != 0 {
		p.Errorf("the refused SEND ran:%s%s", wcString(p.A.Sends), wcString(p.B.Recvs))
	}
	if a, b := p.A.QP.State(), p.B.QP.State(); a != verbs.QPRTS || b != verbs.QPRTS {
		p.Errorf("established QPs are in states %d, %d, want RTS", a, b)
	}
}

func testRecvInit(p *Pair) {
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.A.Recv(1, p.A.SGE(0, 64))
	p.B.Recv(1, p.B.SGE(0, 64))
	p.Join(p.A.QP, p.B.QP, p.B.Listen())
	p.A.Post(p.A.Send(2, verbs.SendSignaled, p.A.SGE(100, 8)))
	p.B.Post(p.B.Send(2, verbs.SendSignaled, p.B.SGE(100, 8)))
	p.A.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantRecv(0, 1, verbs.WCSuccess)
}

func testNoImm(p *Pair) {
	p.Connect()
	p.A.Refuse(syscall.EINVAL, verbs.SendWR{Op: verbs.OpSendWithImm, Flags: verbs.SendSignaled})
	p.A.Refuse(syscall.EINVAL, verbs.SendWR{Op: verbs.OpRDMAWriteWithImm, Flags: verbs.SendSignaled})
}

func testNoAtomics(p *Pair) {
	p.Connect()
	for _, op := range []verbs.Opcode{verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd} {
		p.A.Refuse(syscall.EINVAL, verbs.SendWR{Op: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.SGE(0, 8)}, RKey: p.B.MR.RKey(), RemoteAddr: p.B.MR.IOVA()})
	}
}

func testSQFull(p *Pair) {
	p.A.Attr.Cap.MaxSendWR = 4
	p.Connect()
	n := p.A.QP.Cap().MaxSendWR
	for range n {
		p.A.Post(p.A.Write(1, 0, 0, p.A.SGE(0, 8)))
	}
	p.A.Refuse(syscall.ENOMEM, p.A.Write(2, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.Settle()
	p.A.Refuse(syscall.ENOMEM, p.A.Write(2, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	// The receive side goes on (A33).
	p.A.Recv(3, p.A.SGE(100, 8))
	p.B.Post(p.B.Send(4, verbs.SendSignaled, p.B.SGE(0, 8)))
	p.A.WantRecv(0, 3, verbs.WCSuccess)
	if len(p.A.Sends) != 0 || p.A.QP.State() != verbs.QPRTS {
		p.Errorf("completions%s, state %d", wcString(p.A.Sends), p.A.QP.State())
	}
}

func testSlotsHeld(p *Pair) {
	p.A.Attr.Cap.MaxSendWR = 4
	p.Connect()
	p.A.Hold = true
	for range p.A.QP.Cap().MaxSendWR {
		p.A.Post(p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	}
	p.Settle()
	p.A.Refuse(syscall.ENOMEM, p.A.Write(2, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.A.Hold = false
	p.A.SendsDone(1)
	p.A.Post(p.A.Write(2, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
}

func testSlotsReleased(p *Pair) {
	p.A.Attr.Cap.MaxSendWR = 8
	p.Connect()
	n := p.A.QP.Cap().MaxSendWR
	for i := range n {
		var f verbs.SendFlags
		if i == n/2 {
			f = verbs.SendSignaled
		}
		p.A.Post(p.A.Write(uint64(i), f, 0, p.A.SGE(0, 8)))
	}
	p.A.WantSend(0, uint64(n/2), verbs.WCSuccess)
	wrs := make([]verbs.SendWR, n)
	for i := range wrs {
		wrs[i] = p.A.Write(uint64(100+i), verbs.SendSignaled, 0, p.A.SGE(0, 8))
	}
	if got, err := p.A.QP.PostSend(wrs); got != n/2+1 || !errors.Is(err, syscall.ENOMEM) {
		p.Fatalf("PostSend after one completion released %d: took %d, %v", n/2+1, got, err)
	}
	for i := range n/2 + 1 {
		p.A.WantSend(1+i, uint64(100+i), verbs.WCSuccess)
	}
}

func testAfterENOMEM(p *Pair) {
	p.A.Attr.Cap.MaxSendWR = 4
	p.Connect()
	n := p.A.QP.Cap().MaxSendWR
	posted := 0
	for len(p.A.Sends) < 10*n {
		wr := p.A.Write(uint64(posted), verbs.SendSignaled, posted*8, p.A.SGE(posted*8, 8))
		pattern(p.A.Mem[posted*8:][:8], byte(posted))
		k, err := p.A.QP.PostSend([]verbs.SendWR{wr})
		switch {
		case k == 1 && err == nil:
			posted++
		case k == 0 && errors.Is(err, syscall.ENOMEM):
			p.A.SendsDone(len(p.A.Sends) + 1)
		default:
			p.Fatalf("PostSend: %d, %v", k, err)
		}
		if posted-len(p.A.Sends) > n {
			p.Fatalf("%d requests outstanding, granted %d", posted-len(p.A.Sends), n)
		}
	}
	p.A.SendsDone(posted)
	for i := range posted {
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
	}
	p.Settle()
	p.B.WantMem(0, p.A.Mem[:posted*8])
}

func testRQFull(p *Pair) {
	p.B.Attr.Cap.MaxRecvWR = 4
	p.Connect()
	n := p.B.QP.Cap().MaxRecvWR
	wrs := make([]verbs.RecvWR, n+1)
	for i := range wrs {
		wrs[i] = verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{p.B.SGE(i*8, 8)}}
	}
	if got, err := p.B.QP.PostRecv(wrs); got != n || !errors.Is(err, syscall.ENOMEM) {
		p.Fatalf("PostRecv of %d: took %d, %v; want %d, ENOMEM", n+1, got, err, n)
	}
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.B.WantRecv(0, 0, verbs.WCSuccess)
	p.B.Recv(100, p.B.SGE(100, 8))
	if got, err := p.B.QP.PostRecv(wrs[:1]); got != 0 || !errors.Is(err, syscall.ENOMEM) {
		p.Errorf("PostRecv on a full queue: %d, %v", got, err)
	}
	p.B.Hold = true // two messages have come, one completion is polled
	p.A.Post(p.A.Send(2, verbs.SendSignaled, p.A.SGE(0, 8)), p.A.Send(3, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.A.SendsDone(3)
	p.Until("both", func() bool { return p.B.QP.Stats().Received == 3 })
	if n := p.B.RecvCQ.Poll(make([]verbs.WC, 1)); n != 1 {
		p.Fatalf("polled %d", n)
	}
	if got, err := p.B.QP.PostRecv(wrs[:2]); got != 1 || !errors.Is(err, syscall.ENOMEM) {
		p.Errorf("PostRecv with one slot free: %d, %v", got, err)
	}
}

func testGranted(p *Pair) {
	p.Connect()
	ask, got := p.A.Attr.Cap, p.A.QP.Cap()
	if got.MaxSendWR < ask.MaxSendWR || got.MaxRecvWR < ask.MaxRecvWR || got.MaxSendSGE < ask.MaxSendSGE ||
		got.MaxRecvSGE < ask.MaxRecvSGE || got.MaxInline < ask.MaxInline || got.ReadDepth != ask.ReadDepth {
		p.Errorf("asked for %+v, granted %+v", ask, got)
	}
	a := p.A.Dev.Attr()
	for name, change := range map[string]func(*verbs.QPInitAttr){
		"MaxSendWR":  func(q *verbs.QPInitAttr) { q.Cap.MaxSendWR = a.MaxSendWR + 1 },
		"MaxRecvWR":  func(q *verbs.QPInitAttr) { q.Cap.MaxRecvWR = a.MaxRecvWR + 1 },
		"MaxSendSGE": func(q *verbs.QPInitAttr) { q.Cap.MaxSendSGE = a.MaxSGE + 1 },
		"MaxInline":  func(q *verbs.QPInitAttr) { q.Cap.MaxInline = a.MaxInline + 1 },
	} {
		attr := p.A.Attr
		change(&attr)
		if qp, err := p.A.PD.CreateQP(attr); err == nil {
			p.Errorf("CreateQP with %s above the device's limit succeeded: %+v", name, qp.Cap())
		}
	}
}

func testPoll(p *Pair) {
	p.Connect()
	p.A.Hold = true
	for i := range 5 {
		p.A.Post(p.A.Write(uint64(i), verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	}
	p.Settle()
	wc := make([]verbs.WC, 3)
	for i, want := range []int{3, 2, 0} {
		if n := p.A.SendCQ.Poll(wc); n != want {
			p.Fatalf("poll %d: %d completions, want %d", i, n, want)
		}
		for k := range want {
			if wc[k].WRID != uint64(i*3+k) {
				p.Errorf("poll %d: id %d", i, wc[k].WRID)
			}
		}
	}
	if n := p.A.SendCQ.Poll(nil); n != 0 {
		p.Errorf("Poll(nil) = %d", n)
	}
}
