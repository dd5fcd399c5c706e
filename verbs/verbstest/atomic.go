package verbstest

import (
	"encoding/binary"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func atomicCases() []testCase {
	return []testCase{
		{name: "A51 SEND_WITH_IMM", need: verbs.CapImm, run: testSendImm},
		{name: "A70 WRITE_WITH_IMM takes a receive, not its memory", need: verbs.CapImm, run: testWriteImm},
		{name: "A70 immediate data wait for receives with the SENDs they belong to", need: verbs.CapImm | verbs.CapRNR, run: testImmWaits},
		{name: "A148 FETCH_AND_ADD and CMP_AND_SWP", need: verbs.CapAtomics, run: testAtomics},
		{name: "A146 an atomic needs one SGE of 8 bytes", need: verbs.CapAtomics, run: testAtomicSGE},
		{name: "A150 a misaligned atomic fails", need: verbs.CapAtomics, run: func(p *Pair) {
			p.Connect()
			wr := p.A.fetchAdd(1, 4, 1, 0)
			if p.Env.Habits.PostAtomic {
				p.refusedAtPost(wr)
				return
			}
			p.remoteErrorAny(wr, verbs.WCRemInvReqErr, verbs.WCRemAccessErr)
		}},
		{name: "A149 an atomic needs REMOTE_ATOMIC", need: verbs.CapAtomics, run: func(p *Pair) {
			p.Connect()
			mr := p.B.RegMR(AlignedMem(page), lowIOVA, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
			wr := p.A.fetchAdd(1, 0, 1, 0)
			wr.RKey, wr.RemoteAddr = mr.RKey(), lowIOVA
			p.remoteErrorAny(wr, verbs.WCRemAccessErr)
		}},
		{name: "A147 atomics of several QPs are atomic among each other", need: verbs.CapAtomics, run: testAtomicsTogether},
		{name: "C40 masked atomics", need: verbs.CapMaskedAtomic, run: testMasked},
	}
}

func (s *Side) fetchAdd(id uint64, roff int, add uint64, loff int) verbs.SendWR {
	wr := s.Read(id, verbs.SendSignaled, roff, s.SGE(loff, 8))
	wr.Op, wr.Atomic.CompareAdd = verbs.OpAtomicFetchAdd, add
	return wr
}

// refusedAtPost: the device looks at an atomic's address when it is posted.
func (p *Pair) refusedAtPost(wr verbs.SendWR) {
	p.Helper()
	p.A.Refuse(syscall.EINVAL, wr)
	p.habit("refused by PostSend")
}

func (p *Pair) remoteErrorAny(bad verbs.SendWR, status ...verbs.WCStatus) {
	p.Helper()
	p.A.Post(bad)
	p.A.WantSend(0, bad.WRID, status...)
	p.A.Dead()
	p.B.Dead()
}

func testSendImm(p *Pair) {
	p.Connect()
	p.B.Recv(1, p.B.SGE(0, 64))
	pattern(p.A.Mem[:10], 1)
	wr := p.A.Send(2, verbs.SendSignaled, p.A.SGE(0, 10))
	wr.Op, wr.Imm = verbs.OpSendWithImm, 0x01020304
	p.A.Post(wr)
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	if wc := p.B.Recvs[0]; wc.Imm != 0x01020304 || wc.Flags&verbs.WCWithImm == 0 || wc.ByteLen != 10 || wc.Op != verbs.WCRecv {
		p.Errorf("receive %+v", wc)
	}
	p.A.WantSend(0, 2, verbs.WCSuccess)
	p.B.WantMem(0, patterned(10, 1))
}

func testWriteImm(p *Pair) {
	p.Connect()
	p.B.Recv(1, p.B.SGE(0, 64))
	p.B.Mem[0] = 0x11
	pattern(p.A.Mem[:1000], 1)
	wr := p.A.Write(2, verbs.SendSignaled, 8192, p.A.SGE(0, 1000))
	wr.Op, wr.Imm = verbs.OpRDMAWriteWithImm, 7
	p.A.Post(wr)
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	if wc := p.B.Recvs[0]; wc.Imm != 7 || wc.Flags&verbs.WCWithImm == 0 || wc.ByteLen != 1000 || wc.Op != verbs.WCRecvRDMAWithImm {
		p.Errorf("receive %+v", wc)
	}
	p.B.WantMem(8192, patterned(1000, 1))
	p.B.WantMem(0, []byte{0x11})
	p.A.WantSend(0, 2, verbs.WCSuccess)
}

// testImmWaits: messages with immediate data and without, short and long, for
// which there are no receives, or one at a time.
func testImmWaits(p *Pair) {
	const long = 200_000
	sizes := []int{8, 16, 24, long, 0, 32, long, 40}
	for _, together := range []int{1, 3, len(sizes)} {
		p.A.Sends, p.B.Recvs = nil, nil
		p.Connect()
		pattern(p.A.Mem[:long], byte(together))
		for i, n := range sizes {
			wr := p.A.Send(uint64(i), verbs.SendSignaled)
			if n > 0 {
				wr.SGL = []verbs.SGE{p.A.SGE(0, n)}
			}
			switch {
			case i == 5:
				wr.Op, wr.RKey, wr.RemoteAddr = verbs.OpRDMAWriteWithImm, p.B.MR.RKey(), p.B.Base+(3<<20)
			case i != 2 && i != 7:
				wr.Op = verbs.OpSendWithImm
			}
			wr.Imm = uint32(100 + i)
			p.A.Post(wr)
			p.Settle()
		}
		for i := range sizes {
			p.B.Recv(uint64(i), p.B.SGE(i*long, long))
			if (i+1)%together == 0 {
				p.Settle()
			}
		}
		for i, n := range sizes {
			p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
			p.A.WantSend(i, uint64(i), verbs.WCSuccess)
			wc := p.B.Recvs[i]
			if imm := wc.Flags&verbs.WCWithImm != 0; wc.ByteLen != uint32(n) || imm != (i != 2 && i != 7) || imm && wc.Imm != uint32(100+i) {
				p.Errorf("receive %d: %+v", i, wc)
			}
			if i != 5 {
				p.B.WantMem(i*long, p.A.Mem[:n])
			}
		}
		p.A.QP.ToError()
		p.B.Dead()
	}
}

func testAtomics(p *Pair) {
	p.Connect()
	le := binary.LittleEndian
	le.PutUint64(p.B.Mem[64:], ^uint64(0))
	cas := func(id, compare, swap uint64, loff int) verbs.SendWR {
		wr := p.A.fetchAdd(id, 64, compare, loff)
		wr.Op, wr.Atomic.Swap = verbs.OpAtomicCmpAndSwp, swap
		return wr
	}
	p.A.Post(p.A.fetchAdd(0, 64, 3, 0), cas(1, 2, 77, 8), cas(2, 5, 88, 16), p.A.fetchAdd(3, 64, 1, 24))
	for i, old := range []uint64{^uint64(0), 2, 77, 77} {
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		if got := le.Uint64(p.A.Mem[i*8:]); got != old {
			p.Errorf("atomic %d returned %d, want %d", i, got, old)
		}
		if n := p.A.Sends[i].ByteLen; n != 8 {
			p.Errorf("atomic %d: ByteLen %d", i, n)
		}
	}
	if got := le.Uint64(p.B.Mem[64:]); got != 78 {
		p.Errorf("the target holds %d, want 78", got)
	}
	if a, b := p.A.Sends[0].Op, p.A.Sends[1].Op; a != verbs.WCFetchAdd || b != verbs.WCCompSwap {
		p.Errorf("completion opcodes %d, %d", a, b)
	}
}

func testAtomicsTogether(p *Pair) {
	l := p.B.Listen()
	var qps []verbs.QP
	for range 3 {
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		qps = append(qps, p.A.QP)
	}
	const rounds = 20
	seen := map[uint64]bool{}
	for range rounds {
		p.A.Sends = nil
		for i, qp := range qps {
			p.A.QP = qp
			p.A.Post(p.A.fetchAdd(uint64(i), 0, 1, i*8))
		}
		for range p.A.SendsDone(len(qps)) {
		}
		for i := range qps {
			old := binary.LittleEndian.Uint64(p.A.Mem[i*8:])
			if seen[old] {
				p.Fatalf("%d was returned twice", old)
			}
			seen[old] = true
		}
	}
	if got := binary.LittleEndian.Uint64(p.B.Mem); got != uint64(rounds*len(qps)) {
		p.Errorf("the target holds %d", got)
	}
}

func testAtomicSGE(p *Pair) {
	p.Connect()
	wr := p.A.fetchAdd(1, 0, 1, 0)
	wr.SGL = []verbs.SGE{p.A.SGE(0, 4)}
	p.A.Refuse(syscall.EINVAL, wr)
	wr.SGL = nil
	p.A.Refuse(syscall.EINVAL, wr)
	wr.SGL = []verbs.SGE{p.A.SGE(0, 4), p.A.SGE(4, 4)}
	p.A.Refuse(syscall.EINVAL, wr)
}

func testMasked(p *Pair) {
	p.Connect()
	le := binary.LittleEndian
	le.PutUint64(p.B.Mem[0:], 0x00ff_0000_0000_00ff)
	add := p.A.fetchAdd(1, 0, 0x0001_0000_0000_0001, 0)
	// The mask marks the top bit of each field: no carry leaves it.
	add.Atomic.Masked, add.Atomic.CompareAddMask = true, 1<<7|1<<63
	swap := p.A.fetchAdd(2, 0, 0x12, 8)
	swap.Op = verbs.OpAtomicCmpAndSwp
	swap.Atomic = verbs.AtomicArgs{CompareAdd: 0x0100_0000_0000_0000, CompareAddMask: 0xff00_0000_0000_0000, Swap: 0x55, SwapMask: 0xff, Masked: true}
	p.A.Post(add, swap)
	p.A.WantSend(0, 1, verbs.WCSuccess)
	p.A.WantSend(1, 2, verbs.WCSuccess)
	if got := le.Uint64(p.A.Mem[8:]); got != 0x0100_0000_0000_0000 {
		p.Errorf("the masked FETCH_AND_ADD left %#x", got)
	}
	if got := le.Uint64(p.B.Mem[0:]); got != 0x0100_0000_0000_0055 {
		p.Errorf("the target holds %#x", got)
	}
}
