package verbstest

import "github.com/rdsd/rdsd/verbs"

func closeCases() []testCase {
	return []testCase{
		{name: "C30 Disconnect sends first what was posted", run: testDisconnect},
		{name: "C31 a dying peer fails what is outstanding, once", run: testPeerDies},
		{name: "C32 a new QP gets nothing of an old connection", run: testReconnect},
		{name: "C33 Close ends everything", run: testClose},
	}
}

func testDisconnect(p *Pair) {
	p.Connect()
	const n, size = 8, 100000
	for i := range n {
		p.B.Recv(uint64(i), p.B.SGE(i*size, size))
	}
	p.A.Recv(50, p.A.SGE(0, 8))
	pattern(p.A.Mem[1<<20:][:n*size], 4)
	for i := range n {
		p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(1<<20+i*size, size)))
	}
	p.A.QP.Disconnect()
	for i := range n {
		p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
	}
	p.B.WantMem(0, patterned(n*size, 4))
	p.B.Dead()
	for i := range n {
		if p.Mode == verbs.AckLocal {
			p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		} else {
			p.A.WantSend(i, uint64(i), verbs.WCSuccess, verbs.WCWRFlushErr)
		}
	}
	p.A.WantRecv(0, 50, verbs.WCWRFlushErr)
	if s := p.A.QP.State(); s != verbs.QPErr {
		p.Errorf("state %d after Disconnect, want ERR", s)
	}
	p.quiet(n, 1, 0, n)
}

func testPeerDies(p *Pair) {
	p.Connect()
	for i := range 3 {
		p.A.Recv(uint64(100+i), p.A.SGE(i*8, 8))
		p.B.Recv(uint64(100+i), p.B.SGE(i*8, 8))
	}
	p.A.Post(p.A.Send(0, verbs.SendSignaled, p.A.SGE(0, 8)), p.A.Read(1, verbs.SendSignaled, 0, p.A.SGE(1<<20, 1<<20)),
		p.A.Write(2, verbs.SendSignaled, 0, p.A.SGE(0, 8)), p.A.Send(3, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.B.Hold = true
	if err := p.B.Dev.Close(); err != nil {
		p.Fatal(err)
	}
	p.A.SendsDone(4)
	p.A.RecvsDone(3)
	p.A.Dead()
	p.Settle()
	p.wantFlushed("sends", p.A.Sends, 0, 4)
	p.wantFlushed("receives", p.A.Recvs, 100, 3)
	if p.A.Sends[1].Status == verbs.WCSuccess && p.Env.Habits.Immediate {
		p.habit("the READ was served before the peer died")
	} else if p.A.Sends[1].Status == verbs.WCSuccess {
		p.Error("a READ that could not be served succeeded")
	}
}

func testReconnect(p *Pair) {
	l := p.B.Listen()
	for round := range 10 {
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		p.A.Sends, p.B.Recvs = nil, nil
		for i := range 4 {
			p.B.Recv(uint64(i), p.B.SGE(i*8, 8))
		}
		p.A.Mem[0] = byte(round)
		p.A.Post(p.A.Send(0, verbs.SendSignaled, p.A.SGE(0, 1)))
		p.B.WantRecv(0, 0, verbs.WCSuccess)
		p.B.WantMem(0, []byte{byte(round)})
		p.A.WantSend(0, 0, verbs.WCSuccess)
		// These may arrive or not, but never on the next connection.
		p.A.Mem[0] = 0xff
		for i := range 3 {
			p.A.Post(p.A.Send(uint64(i+1), verbs.SendSignaled|verbs.SendInline*inlineFlag(p.A), p.A.SGE(0, 1)))
		}
		for range round {
			p.Step()
		}
		p.A.QP.ToError()
		p.A.SendsDone(4)
		p.B.RecvsDone(4)
		p.B.Dead()
	}
	p.Settle()
}

// inlineFlag is 1 when the QP takes inline data.
func inlineFlag(s *Side) verbs.SendFlags {
	if s.QP.Cap().MaxInline > 0 {
		return 1
	}
	return 0
}

func testClose(p *Pair) {
	p.Connect()
	p.A.Recv(1, p.A.SGE(0, 64))
	p.A.Post(p.A.Read(1, verbs.SendSignaled, 0, p.A.SGE(1<<20, 1<<20)))
	p.B.Recv(1, p.B.SGE(0, 64))
	p.A.Hold = true
	if err := p.A.Dev.Close(); err != nil {
		p.Fatal(err)
	}
	p.B.WantRecv(0, 1, verbs.WCWRFlushErr)
	p.B.Dead()
	if _, err := p.A.Dev.AllocPD(); err == nil {
		p.Error("AllocPD on a closed device succeeded")
	}
}
