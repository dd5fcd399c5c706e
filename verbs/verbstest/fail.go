package verbstest

import (
	"slices"

	"github.com/rdsd/rdsd/verbs"
)

func localErrorCases() []testCase {
	sink := verbs.AccessRemoteRead
	return []testCase{
		{name: "A92 SEND with an unknown lkey: LOC_PROT_ERR", run: func(p *Pair) {
			p.Connect()
			p.localError(p.A.Send(1, verbs.SendSignaled, verbs.SGE{Addr: p.A.Base, Length: 8, LKey: 0xdeadbeef}))
		}},
		{name: "A92 WRITE from beyond the region: LOC_PROT_ERR", run: func(p *Pair) {
			p.Connect()
			p.localError(p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(ArenaSize-7, 8)))
		}},
		{name: "A92 SEND from before the region: LOC_PROT_ERR", run: func(p *Pair) {
			p.Connect()
			p.localError(p.A.Send(1, verbs.SendSignaled, p.A.SGE(-1, 8)))
		}},
		{name: "A92 an SGE that wraps around: LOC_PROT_ERR", run: func(p *Pair) {
			p.Connect()
			p.localError(p.A.Send(1, verbs.SendSignaled, verbs.SGE{Addr: ^uint64(0) - 3, Length: 8, LKey: p.A.MR.LKey()}))
		}},
		{name: "A92 an unsignaled bad SEND completes in error", run: func(p *Pair) {
			p.Connect()
			p.localError(p.A.Send(1, 0, verbs.SGE{Addr: p.A.Base, Length: 8, LKey: 0xdeadbeef}))
		}},
		{name: "A92 SEND with a key of another PD: LOC_PROT_ERR", run: func(p *Pair) {
			p.Connect()
			mr := p.foreignMR(p.A)
			p.localError(p.A.Send(1, verbs.SendSignaled, verbs.SGE{Addr: mr.IOVA(), Length: 8, LKey: mr.LKey()}))
		}},
		{name: "A92 READ into a deregistered region: LOC_PROT_ERR", run: func(p *Pair) {
			p.Connect()
			mr := p.A.RegMR(AlignedMem(page), lowIOVA, verbs.AccessLocalWrite)
			sge := verbs.SGE{Addr: mr.IOVA(), Length: 8, LKey: mr.LKey()}
			p.dereg(mr)
			p.badSink(sge)
		}},
		{name: "A58 READ into memory without LOCAL_WRITE: LOC_PROT_ERR", run: func(p *Pair) {
			p.Connect()
			mr := p.A.RegMR(AlignedMem(page), lowIOVA, sink)
			p.badSink(verbs.SGE{Addr: mr.IOVA(), Length: 8, LKey: mr.LKey()})
		}},
	}
}

func (p *Pair) dereg(mr verbs.MR) {
	p.Helper()
	if err := mr.Dereg(); err != nil {
		p.Fatalf("Dereg: %v", err)
	}
}

// deregUntouched is dereg, until no thread of the device touches the memory.
func (p *Pair) deregUntouched(mr verbs.MR) {
	p.Helper()
	p.dereg(mr)
	free := false
	verbs.Untouched(mr, func() { free = true })
	p.Until("a region untouched", func() bool { return free })
}

// foreignMR registers memory in another PD of s's device.
func (p *Pair) foreignMR(s *Side) verbs.MR {
	p.Helper()
	pd, err := s.Dev.AllocPD()
	if err != nil {
		p.Fatal(err)
	}
	mr, err := pd.RegMR(AlignedMem(page), 0x20000,
		verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	if err != nil {
		p.Fatal(err)
	}
	return mr
}

// badSink is localError for a READ into sge.
func (p *Pair) badSink(sge verbs.SGE) {
	p.Helper()
	bad := p.A.Read(1, verbs.SendSignaled, 0, sge)
	if !p.Env.Habits.LateSink {
		p.localError(bad)
		return
	}
	p.habit("the sink is looked at when the response comes")
	p.A.Recv(10, p.A.SGE(0, 64))
	p.A.Post(bad, p.A.Read(2, 0, 0, p.A.SGE(0, 8)))
	p.A.WantSend(0, 1, p.local(verbs.WCLocProtErr)...)
	p.A.WantSend(1, 2, verbs.WCWRFlushErr)
	p.A.WantRecv(0, 10, verbs.WCWRFlushErr)
	p.A.Dead()
	p.B.Dead()
	p.quiet(2, 1, 0, 0)
}

// localError posts a request (id 1) that fails at its own side.
func (p *Pair) localError(bad verbs.SendWR) {
	p.Helper()
	p.A.Recv(10, p.A.SGE(0, 64))
	p.B.Recv(20, p.B.SGE(0, 64))
	p.A.Post(bad, p.A.Send(2, 0, p.A.SGE(0, 8)))
	p.A.WantSend(0, 1, p.local(verbs.WCLocProtErr)...)
	p.inexact(p.A.Sends[0], verbs.WCLocProtErr)
	p.A.WantSend(1, 2, verbs.WCWRFlushErr)
	p.A.WantRecv(0, 10, verbs.WCWRFlushErr)
	p.B.WantRecv(0, 20, verbs.WCWRFlushErr)
	p.A.Dead()
	p.B.Dead()
	p.quiet(2, 1, 0, 1)
}

// quiet lets everything settle and checks how many completions came in all,
// and that each side's QP was reported disconnected at most once.
func (p *Pair) quiet(aSends, aRecvs, bSends, bRecvs int) {
	p.Helper()
	p.Settle()
	got := []int{len(p.A.Sends), len(p.A.Recvs), len(p.B.Sends), len(p.B.Recvs)}
	if !slices.Equal(got, []int{aSends, aRecvs, bSends, bRecvs}) {
		p.Errorf("completions A %d+%d, B %d+%d; want A %d+%d, B %d+%d", got[0], got[1], got[2], got[3], aSends, aRecvs, bSends, bRecvs)
	}
	for _, s := range []*Side{p.A, p.B} {
		n := 0
		for _, ev := range s.Events {
			if ev.Type == verbs.CMDisconnected && ev.QP == s.QP {
				n++
			}
		}
		if n > 1 {
			p.Errorf("%s: %d CMDisconnected events", s.Name, n)
		}
	}
}

func remoteErrorCases() []testCase {
	type change func(p *Pair, wr *verbs.SendWR)
	variants := []struct {
		name string
		make change
	}{
		{"unknown rkey", func(_ *Pair, wr *verbs.SendWR) { wr.RKey ^= 0x5a5a5a00 }},
		{"stale key bits", func(_ *Pair, wr *verbs.SendWR) { wr.RKey ^= 1 }},
		{"before the region", func(p *Pair, wr *verbs.SendWR) { wr.RemoteAddr = p.B.Base - 1 }},
		{"beyond the region", func(p *Pair, wr *verbs.SendWR) { wr.RemoteAddr = p.B.Base + ArenaSize - 63 }},
		{"address wrap", func(_ *Pair, wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(0) - 10 }},
		{"missing right", func(p *Pair, wr *verbs.SendWR) {
			right := verbs.AccessRemoteRead
			if wr.Op == verbs.OpRDMARead {
				right = verbs.AccessRemoteWrite
			}
			mr := p.B.RegMR(p.B.Mem[:page], 0x40000, verbs.AccessLocalWrite|right)
			wr.RKey, wr.RemoteAddr = mr.RKey(), mr.IOVA()
		}},
		{"region of another PD", func(p *Pair, wr *verbs.SendWR) {
			mr := p.foreignMR(p.B)
			wr.RKey, wr.RemoteAddr = mr.RKey(), mr.IOVA()
		}},
		{"deregistered region", func(p *Pair, wr *verbs.SendWR) {
			mr := p.B.RegMR(p.B.Mem[:page], 0x40000, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
			wr.RKey, wr.RemoteAddr = mr.RKey(), mr.IOVA()
			p.dereg(mr)
		}},
	}
	cases := []testCase{
		{name: "A115 missing QP right: REM_INV_REQ", run: testMissingQPRight},
		{name: "A64 a SEND longer than the receive fails both ends", run: testTooLong},
		{name: "A116 a receive with a dead lkey fails both ends", run: testRecvDeadKey},
	}
	for _, v := range variants {
		for _, op := range []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpRDMARead} {
			kind := map[verbs.Opcode]string{verbs.OpRDMAWrite: "WRITE", verbs.OpRDMARead: "READ"}[op]
			cases = append(cases, testCase{name: "A114 " + kind + ", " + v.name + ": REM_ACCESS_ERR", run: func(p *Pair) {
				p.Connect()
				wr := p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(0, 64))
				wr.Op = op
				v.make(p, &wr)
				if op == verbs.OpRDMARead && v.name == "missing right" && p.Env.Habits.AnyRead {
					p.anyRead(wr)
					return
				}
				p.remoteError(wr, verbs.WCRemAccessErr)
			}})
		}
	}
	return cases
}

// remoteError posts a request (id 1) that the peer refuses. Under AckLocal its
// completion, unless it is a READ, may have come before; that of the READ
// behind it cannot, and the responder tells its owner in any case.
func (p *Pair) remoteError(bad verbs.SendWR, status verbs.WCStatus) {
	p.Helper()
	for i := range p.B.Mem[:page] {
		p.B.Mem[i] = 0xbb
	}
	p.A.Recv(10, p.A.SGE(0, 64))
	p.B.Recv(20, p.B.SGE(page, 64))
	p.B.Recv(21, p.B.SGE(page, 64))
	p.A.Post(bad, p.A.Send(2, verbs.SendSignaled, p.A.SGE(0, 8)), p.A.Read(3, 0, 0, p.A.SGE(2*page, 8)))
	p.wantRefused(0, 1, status, bad.Op == verbs.OpRDMARead)
	if p.A.Sends[0].Status != verbs.WCSuccess {
		p.A.WantSend(1, 2, verbs.WCWRFlushErr)
	} else {
		p.A.WantSend(1, 2, verbs.WCSuccess, verbs.WCWRFlushErr)
	}
	p.A.WantSend(2, 3, verbs.WCWRFlushErr)
	p.A.WantRecv(0, 10, verbs.WCWRFlushErr)
	behind := []verbs.WCStatus{verbs.WCWRFlushErr}
	if p.Env.Habits.LateSink && bad.Op == verbs.OpRDMARead {
		behind = append(behind, verbs.WCSuccess)
	}
	p.B.WantRecv(0, 20, behind...)
	p.inexact(p.B.Recvs[0], verbs.WCWRFlushErr)
	p.B.WantRecv(1, 21, verbs.WCWRFlushErr)
	p.A.Dead()
	p.B.Dead()
	p.quiet(3, 1, 0, 2)
	event := verbs.AsyncQPAccessErr
	if status == verbs.WCRemInvReqErr {
		event = verbs.AsyncQPReqErr
	}
	if n, all := p.B.countAsync(event), p.B.countAsync(verbs.AsyncQPFatal); n == 0 && all == 0 && p.Env.Habits.Silent {
		p.habit("no asynchronous event at the responder")
	} else if n != 1 || all != 0 {
		p.Errorf("the responder saw %d events %v, %d %v; want 1 and 0", n, event, all, verbs.AsyncQPFatal)
	}
	for i, b := range p.B.Mem[:page] {
		if b != 0xbb {
			p.Fatalf("the refused request changed the target at %d", i)
		}
	}
}

func (p *Pair) wantRefused(i int, id uint64, status verbs.WCStatus, exact bool) {
	p.Helper()
	allowed := p.remote(status)
	if !exact && p.Mode != verbs.AckRemote {
		allowed = append(allowed, verbs.WCSuccess)
	}
	p.A.WantSend(i, id, allowed...)
	p.inexact(p.A.Sends[i], status)
}

// anyRead asserts that a READ without the right is served.
func (p *Pair) anyRead(wr verbs.SendWR) {
	p.Helper()
	p.habit("READs need no right")
	p.A.Post(wr)
	p.A.WantSend(0, 1, verbs.WCSuccess)
}

func testMissingQPRight(p *Pair) {
	p.B.Attr.Access = verbs.AccessRemoteWrite
	p.Connect()
	if p.Env.Habits.AnyRead {
		p.anyRead(p.A.Read(1, verbs.SendSignaled, 0, p.A.SGE(0, 64)))
		return
	}
	p.remoteError(p.A.Read(1, verbs.SendSignaled, 0, p.A.SGE(0, 64)), verbs.WCRemInvReqErr)
}

func testTooLong(p *Pair) {
	p.Connect()
	p.B.Recv(20, p.B.SGE(0, 64))
	p.B.Recv(21, p.B.SGE(100, 64))
	p.B.Mem[64] = 0xcc
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 65)))
	p.B.WantRecv(0, 20, p.localRecv(verbs.WCLocLenErr)...)
	p.inexact(p.B.Recvs[0], verbs.WCLocLenErr)
	p.B.WantRecv(1, 21, verbs.WCWRFlushErr)
	if p.B.Recvs[0].Status == verbs.WCLocLenErr {
		p.wantRefused(0, 1, verbs.WCRemInvReqErr, false)
	} else {
		p.A.WantSend(0, 1, append(p.remote(verbs.WCRemInvReqErr), verbs.WCRemOpErr, verbs.WCSuccess)...)
	}
	p.A.Dead()
	p.B.Dead()
	p.B.WantMem(64, []byte{0xcc})
	p.quiet(1, 0, 0, 2)
}

func testRecvDeadKey(p *Pair) {
	p.Connect()
	mem := AlignedMem(page)
	mr := p.B.RegMR(mem, 0x1000, verbs.AccessLocalWrite)
	p.B.Recv(20, verbs.SGE{Addr: 0x1000, Length: 64, LKey: mr.LKey()})
	p.B.Recv(21, p.B.SGE(0, 64))
	p.dereg(mr)
	pattern(p.A.Mem[:8], 1)
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.B.WantRecv(0, 20, p.localRecv(verbs.WCLocProtErr)...)
	p.inexact(p.B.Recvs[0], verbs.WCLocProtErr)
	p.B.WantRecv(1, 21, verbs.WCWRFlushErr)
	p.wantRefused(0, 1, verbs.WCRemOpErr, false)
	p.A.Dead()
	p.B.Dead()
	p.quiet(1, 0, 0, 2)
	if mem[0] != 0 {
		p.Error("deregistered memory was written")
	}
}
