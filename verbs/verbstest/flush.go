package verbstest

import "github.com/rdsd/rdsd/verbs"

func flushCases() []testCase {
	return []testCase{
		{name: "A97 ToError completes each request exactly once", run: testFlushOnce},
		{name: "A98 requests posted in ERR are flushed", run: testPostInErr},
		{name: "A96 ToError in INIT flushes receives", run: testFlushInit},
		{name: "C3 nothing touches a buffer once the flush is polled", run: testFlushQuiet},
		{name: "C4 ToError is idempotent and takes the peer down", run: testToErrorTwice},
		{name: "A102 Destroy ends a QP without completions", run: testDestroy},
	}
}

// wantFlushed checks completions with the ids from..from+n-1: in order, each
// once, successes first, then flushes. The first that failed may say why.
func (p *Pair) wantFlushed(name string, wc []verbs.WC, from uint64, n int) {
	p.Helper()
	if len(wc) != n {
		p.Fatalf("%s: %d completions%s; want %d", name, len(wc), wcString(wc), n)
	}
	failed := false
	for i := range wc {
		first := !failed
		failed = failed || wc[i].Status != verbs.WCSuccess
		ok := wc[i].Status == verbs.WCWRFlushErr || wc[i].Status == verbs.WCSuccess && !failed ||
			first && (wc[i].Status == verbs.WCRetryExcErr || wc[i].Status == verbs.WCGeneralErr || p.Env.Habits.Flushed && wc[i].Status == p.Env.Habits.LocalStatus)
		if wc[i].WRID != from+uint64(i) || !ok {
			p.Fatalf("%s: completion %d out of order:%s", name, i, wcString(wc))
		}
	}
}

func testFlushOnce(p *Pair) {
	l := p.B.Listen()
	for steps := range 12 {
		p.A.Sends, p.A.Recvs, p.B.Sends, p.B.Recvs = nil, nil, nil, nil
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		for i := range 5 {
			p.A.Recv(uint64(100+i), p.A.SGE(i*64, 64))
			p.B.Recv(uint64(200+i), p.B.SGE(i*64, 64))
		}
		const big = 100000
		p.A.Post(
			p.A.Send(0, verbs.SendSignaled, p.A.SGE(0, 8)),
			p.A.Read(1, verbs.SendSignaled, 0, p.A.SGE(1<<20, big)),
			p.A.Write(2, verbs.SendSignaled, 1<<20, p.A.SGE(0, big)),
			p.A.Send(3, verbs.SendSignaled|verbs.SendFence, p.A.SGE(0, 8)),
			p.A.Read(4, verbs.SendSignaled, 0, p.A.SGE(1<<20, big)),
			p.A.Send(5, verbs.SendSignaled, p.A.SGE(0, 8)))
		p.B.Post(p.B.Send(0, verbs.SendSignaled, p.B.SGE(0, 8)), p.B.Read(1, verbs.SendSignaled, 0, p.B.SGE(1<<20, big)))
		for range steps {
			p.Step()
		}
		p.A.QP.ToError()
		if s := p.A.QP.State(); s != verbs.QPErr {
			p.Fatalf("state %d after ToError", s)
		}
		p.A.SendsDone(6)
		p.A.RecvsDone(5)
		p.B.SendsDone(2)
		p.B.RecvsDone(5)
		p.Settle()
		p.wantFlushed("A sends", p.A.Sends, 0, 6)
		p.wantFlushed("A receives", p.A.Recvs, 100, 5)
		p.wantFlushed("B sends", p.B.Sends, 0, 2)
		p.wantFlushed("B receives", p.B.Recvs, 200, 5)
		if err := p.A.QP.Destroy(); err != nil {
			p.Fatal(err)
		}
		if err := p.B.QP.Destroy(); err != nil {
			p.Fatal(err)
		}
	}
}

func testPostInErr(p *Pair) {
	p.Connect()
	p.A.Recv(1, p.A.SGE(0, 64))
	p.A.QP.ToError()
	p.A.Recv(2, p.A.SGE(0, 64))
	p.A.Post(p.A.Send(1, 0, p.A.SGE(0, 8)), p.A.Write(2, 0, 0, p.A.SGE(0, 8)), p.A.Read(3, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.A.RecvsDone(2)
	p.A.SendsDone(3)
	p.A.Recv(3, p.A.SGE(0, 64))
	p.A.Post(p.A.Send(4, 0))
	for i := range 3 {
		p.A.WantRecv(i, uint64(i+1), verbs.WCWRFlushErr)
	}
	for i := range 4 {
		p.A.WantSend(i, uint64(i+1), verbs.WCWRFlushErr)
	}
	p.B.Dead()
	p.quiet(4, 3, 0, 0)
}

func testFlushInit(p *Pair) {
	p.A.QP = p.A.NewQP()
	p.A.Recv(1, p.A.SGE(0, 64))
	p.A.Recv(2, p.A.SGE(0, 64))
	p.A.QP.ToError()
	p.A.WantRecv(0, 1, verbs.WCWRFlushErr)
	p.A.WantRecv(1, 2, verbs.WCWRFlushErr)
	if s := p.A.QP.State(); s != verbs.QPErr {
		p.Errorf("state %d, want ERR", s)
	}
	p.quiet(0, 2, 0, 0)
}

func testFlushQuiet(p *Pair) {
	l := p.B.Listen()
	const big = 200000
	for steps := range 15 {
		p.A.Sends, p.A.Recvs, p.B.Sends, p.B.Recvs = nil, nil, nil, nil
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		pattern(p.B.Mem[:big], byte(steps+1))
		for i := range 3 {
			p.A.Recv(uint64(i), p.A.SGE(i*big, big))
			p.A.Post(p.A.Read(uint64(i), verbs.SendSignaled, 0, p.A.SGE(1<<20+i*big, big)))
			p.B.Post(p.B.Send(uint64(i), verbs.SendSignaled, p.B.SGE(0, big)))
		}
		for range steps {
			p.Step()
		}
		p.A.QP.ToError()
		p.A.SendsDone(3)
		p.A.RecvsDone(3)
		fillByte(p.A.Mem[:2<<20], 0x99)
		p.B.SendsDone(3)
		p.Settle()
		if !onlyByte(p.A.Mem[:2<<20], 0x99) {
			p.Fatalf("after %d steps: memory written after the flush", steps)
		}
		p.A.QP.Destroy()
		p.B.QP.Destroy()
	}
}

func testToErrorTwice(p *Pair) {
	p.Connect()
	p.A.Recv(1)
	p.B.Recv(1)
	p.A.QP.ToError()
	p.A.QP.ToError()
	p.A.WantRecv(0, 1, verbs.WCWRFlushErr)
	p.A.QP.ToError()
	p.B.WantRecv(0, 1, verbs.WCWRFlushErr)
	p.B.Dead()
	p.B.QP.ToError()
	p.quiet(0, 1, 0, 1)
}

func testDestroy(p *Pair) {
	p.Connect()
	p.A.Recv(1, p.A.SGE(0, 64))
	p.A.Post(p.A.Read(1, verbs.SendSignaled, 0, p.A.SGE(1<<20, 1<<20)), p.A.Send(2, verbs.SendSignaled, p.A.SGE(0, 8)))
	pattern(p.B.Mem[:1<<20], 3)
	if err := p.A.QP.Destroy(); err != nil {
		p.Fatal(err)
	}
	p.A.Poll()
	sends, recvs := len(p.A.Sends), len(p.A.Recvs)
	clear(p.A.Mem)
	p.B.Dead()
	p.quiet(sends, recvs, 0, 0)
	if !onlyByte(p.A.Mem, 0) {
		p.Error("memory written after Destroy")
	}
}
