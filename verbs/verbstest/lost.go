package verbstest

import (
	"encoding/binary"

	"github.com/rdsd/rdsd/verbs"
)

// lostCases are about what was done and not acknowledged, and about the exact
// statuses when a request fails.
func lostCases() []testCase {
	return []testCase{
		{name: "A84 a SEND is delivered, its acknowledgement lost: RETRY_EXC", run: testAckLost},
		{name: "A84 an atomic is done, its answer lost: RETRY_EXC", need: verbs.CapAtomics, run: testAnswerLost},
		{name: "A96 the failing request has its status, all others of both queues are flushed", run: testFlushAll},
		{name: "A114 a region can be used to its very edges", run: testEdges},
		{name: "A127 an invalidated key denies WRITEs in flight", need: verbs.CapMW | verbs.CapInvalidate, run: testInvalidateTarget},
		{name: "A132 an SRQ's receives use its PD, not the queue pair's", run: testSRQPD},
	}
}

// lose makes A deaf for what B says, or notes that the provider cannot.
func (p *Pair) lose() (cut func(), ok bool) {
	if p.Env.Lose == nil {
		p.notApplicable("the provider cannot be made to lose an acknowledgement")
		return nil, false
	}
	return p.Env.Lose(), true
}

func testAckLost(p *Pair) {
	p.Connect()
	cut, ok := p.lose()
	if !ok {
		return
	}
	pattern(p.A.Mem[:8], 1)
	p.B.Recv(1, p.B.SGE(0, 8))
	p.A.Post(p.A.Send(1, 0, p.A.SGE(0, 8)), p.A.Read(2, verbs.SendSignaled, 0, p.A.SGE(64, 8)))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantMem(0, p.A.Mem[:8])
	cut()
	p.A.Dead()
	p.B.Dead()
	if p.Mode == verbs.AckRemote {
		p.A.WantSend(0, 1, verbs.WCRetryExcErr)
		p.A.WantSend(1, 2, verbs.WCWRFlushErr)
	} else { // the SEND's success promises less; the READ's answer is what is missing
		last := p.A.SendsDone(1)[len(p.A.Sends)-1]
		if len(p.A.Sends) > 2 || last.WRID != 2 || last.Status == verbs.WCSuccess {
			p.Errorf("completions%s", wcString(p.A.Sends))
		}
		if len(p.A.Sends) == 1 {
			p.A.WantSend(0, 2, verbs.WCRetryExcErr)
		}
	}
	p.Settle()
	if len(p.B.Recvs) != 1 {
		p.Errorf("receives%s", wcString(p.B.Recvs))
	}
}

func testAnswerLost(p *Pair) {
	p.Connect()
	cut, ok := p.lose()
	if !ok {
		return
	}
	binary.NativeEndian.PutUint64(p.B.Mem, 40)
	p.B.Recv(9) // for the SEND, which B may see or not
	p.A.Post(p.A.fetchAdd(1, 0, 2, 64), p.A.Write(2, 0, 4096, p.A.SGE(0, 8)), p.A.Send(3, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.Until("the atomic", func() bool { return binary.NativeEndian.Uint64(p.B.Mem) == 42 })
	cut()
	p.A.WantSend(0, 1, verbs.WCRetryExcErr)
	p.A.WantSend(1, 2, verbs.WCWRFlushErr)
	p.A.WantSend(2, 3, verbs.WCWRFlushErr)
	p.A.Dead()
	p.B.Dead()
	p.quiet(3, 0, 0, 1)
	p.A.WantMem(64, make([]byte, 8))
	if got := binary.NativeEndian.Uint64(p.B.Mem); got != 42 {
		p.Errorf("the target holds %d", got)
	}
}

// testFlushAll: the request that fails is a READ, whose status nothing can come
// before.
func testFlushAll(p *Pair) {
	p.Connect()
	for i := range 3 {
		p.A.Recv(uint64(10+i), p.A.SGE(i*64, 64))
		p.B.Recv(uint64(20+i), p.B.SGE(8192+i*64, 64))
	}
	bad := p.A.Read(2, 0, 0, p.A.SGE(4096, 64))
	bad.RKey ^= 0x5a5a5a00
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 8)), bad, p.A.Write(3, 0, 0, p.A.SGE(0, 8)),
		p.A.Send(4, 0, p.A.SGE(0, 8)), p.A.Read(5, 0, 0, p.A.SGE(4096, 64)), p.A.Send(6, verbs.SendSignaled|verbs.SendFence))
	p.A.WantSend(0, 1, verbs.WCSuccess)
	p.A.WantSend(1, 2, p.remote(verbs.WCRemAccessErr)...)
	p.inexact(p.A.Sends[1], verbs.WCRemAccessErr)
	for i := 2; i < 6; i++ {
		p.A.WantSend(i, uint64(i+1), verbs.WCWRFlushErr)
	}
	p.B.WantRecv(0, 20, verbs.WCSuccess)
	for i := range 3 {
		p.A.WantRecv(i, uint64(10+i), verbs.WCWRFlushErr)
		if i > 0 {
			p.B.WantRecv(i, uint64(20+i), verbs.WCWRFlushErr)
		}
	}
	p.A.Dead()
	p.B.Dead()
	p.quiet(6, 3, 0, 3)
}

func testEdges(p *Pair) {
	p.Connect()
	mem := AlignedMem(page)
	mr := p.B.RegMR(mem, 0x40000, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	pattern(p.A.Mem[:page], 1)
	for i, c := range []struct{ off, n int }{{0, 1}, {page - 1, 1}, {0, page}, {page - 100, 100}} {
		w := p.A.Write(1, 0, 0, p.A.SGE(c.off, c.n))
		w.RKey, w.RemoteAddr = mr.RKey(), 0x40000+uint64(c.off)
		r := p.A.Read(2, verbs.SendSignaled, 0, p.A.SGE(1<<20, c.n))
		r.RKey, r.RemoteAddr = w.RKey, w.RemoteAddr
		clear(p.A.Mem[1<<20:][:page])
		p.A.Post(w, r)
		p.A.WantSend(i, 2, verbs.WCSuccess)
		p.A.WantMem(1<<20, p.A.Mem[c.off:c.off+c.n])
	}
}

func testInvalidateTarget(p *Pair) {
	l := p.B.Listen()
	const big = 1 << 20
	pattern(p.A.Mem[:big], 1)
	for steps := range 12 {
		p.A.Sends, p.B.Sends = nil, nil
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		mem := AlignedMem(big)
		mr := p.B.RegMR(mem, mwBase, verbs.AccessLocalWrite|verbs.AccessMWBind)
		w := p.window(p.B, verbs.MWType2)
		bind := p.B.bindWR(1, w, mr, 0, big, verbs.IncRKey(w.RKey()))
		p.B.Post(bind)
		p.B.WantSend(0, 1, verbs.WCSuccess)
		for i := range 3 {
			wr := p.A.Write(uint64(i), verbs.SendSignaled, 0, p.A.SGE(0, big))
			wr.RKey, wr.RemoteAddr = w.RKey(), mwBase
			p.A.Post(wr)
		}
		for range steps {
			p.Step()
		}
		p.B.Post(verbs.SendWR{WRID: 2, Op: verbs.OpLocalInv, Flags: verbs.SendSignaled, Imm: w.RKey()})
		p.B.SendsDone(2) // done, or the WRITE behind the key's end came first
		clear(mem)
		p.A.SendsDone(3)
		p.Settle()
		if !onlyByte(mem, 0) {
			p.Fatalf("after %d steps: memory written through a dead key", steps)
		}
		p.A.QP.Destroy()
		p.B.QP.Destroy()
	}
}

func testSRQPD(p *Pair) {
	pd, err := p.B.Dev.AllocPD()
	if err != nil {
		p.Fatal(err)
	}
	mem := AlignedMem(page)
	mr, err := pd.RegMR(mem, 0x1000, verbs.AccessLocalWrite)
	if err != nil {
		p.Fatal(err)
	}
	srq, err := pd.CreateSRQ(8, 1)
	if err != nil {
		p.Fatal(err)
	}
	p.B.Attr.SRQ = srq
	p.Connect()
	sges, status := []verbs.SGE{{Addr: 0x1000, Length: 64, LKey: mr.LKey()}, p.B.SGE(0, 64)}, [][]verbs.WCStatus{{verbs.WCSuccess}, p.localRecv(verbs.WCLocProtErr)}
	if p.Env.Habits.SRQOfQP {
		p.habit("the queue pair's PD counts")
		sges, status = sges[:1], status[1:]
	}
	for i, sge := range sges {
		if _, err := srq.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: []verbs.SGE{sge}}}); err != nil {
			p.Fatal(err)
		}
		pattern(p.A.Mem[:8], byte(i+1))
		p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(0, 8)))
		p.B.WantRecv(i, uint64(i), status[i]...)
	}
	if p.Env.Habits.SRQOfQP {
		if !onlyByte(mem, 0) {
			p.Error("memory of another PD was written")
		}
	} else if string(mem[:8]) != string(patterned(8, 1)) || !onlyByte(p.B.Mem[:64], 0) {
		p.Error("the wrong memory was written")
	}
	p.A.Dead()
	p.B.Dead()
}
