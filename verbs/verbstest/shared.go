package verbstest

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func sharedCases() []testCase {
	return []testCase{
		{name: "A129 QPs share the receives of an SRQ", run: testSRQ},
		{name: "A29 no receives on a QP with an SRQ", run: testSRQPost},
		{name: "A131 a full SRQ is ENOMEM", run: testSRQFull},
		{name: "A100 a QP in ERR does not flush its SRQ", run: testSRQFlush},
		{name: "A66 an empty SRQ delays a SEND", need: verbs.CapRNR, run: testSRQEmpty},
		{name: "A142 an SRQ in use cannot be destroyed", run: testSRQBusy},
		{name: "A72 QPs share completion queues", run: testSharedCQ},
	}
}

// srq gives B's QPs a shared receive queue.
func (p *Pair) srq(maxWR int) verbs.SRQ {
	p.Helper()
	srq, err := p.B.PD.CreateSRQ(maxWR, 2)
	if err != nil {
		p.Fatalf("CreateSRQ: %v", err)
	}
	p.B.Attr.SRQ = srq
	return srq
}

func (p *Pair) srqPost(srq verbs.SRQ, from, n int) {
	p.Helper()
	for i := from; i < from+n; i++ {
		if k, err := srq.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: []verbs.SGE{p.B.SGE(i*64, 64)}}}); k != 1 || err != nil {
			p.Fatalf("SRQ.PostRecv: %d, %v", k, err)
		}
	}
}

func testSRQ(p *Pair) {
	srq := p.srq(32)
	p.srqPost(srq, 0, 12)
	l := p.B.Listen()
	qps := map[uint32]verbs.QP{}
	var as []verbs.QP
	for range 3 {
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		as = append(as, p.A.QP)
		qps[p.B.QP.Num()] = p.A.QP
	}
	for round := range 4 {
		for i, qp := range as {
			p.A.QP = qp
			off := 1<<20 + (round*3+i)*8
			binary.LittleEndian.PutUint32(p.A.Mem[off:], qp.Num())
			binary.LittleEndian.PutUint32(p.A.Mem[off+4:], uint32(round))
			p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(off, 8)))
		}
	}
	seen, round := map[uint64]bool{}, map[uint32]uint32{}
	for _, wc := range p.B.RecvsDone(12) {
		b := p.B.Mem[wc.WRID*64:]
		from, r := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		if wc.Status != verbs.WCSuccess || seen[wc.WRID] || qps[wc.QPNum] == nil || qps[wc.QPNum].Num() != from || round[from] != r {
			p.Errorf("receive%s on QP %d: from %d round %d", wcString([]verbs.WC{wc}), wc.QPNum, from, r)
		}
		seen[wc.WRID] = true
		round[from]++
	}
}

func testSRQPost(p *Pair) {
	p.srq(8)
	p.Connect()
	if n, err := p.B.QP.PostRecv([]verbs.RecvWR{{WRID: 1}}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		p.Errorf("PostRecv: %d, %v; want 0, EINVAL", n, err)
	}
}

func testSRQFull(p *Pair) {
	srq := p.srq(8)
	n := 0
	for ; n < 4096; n++ {
		if k, err := srq.PostRecv([]verbs.RecvWR{{WRID: uint64(n)}}); err != nil {
			if k != 0 || !errors.Is(err, syscall.ENOMEM) {
				p.Errorf("SRQ.PostRecv: %d, %v; want 0, ENOMEM", k, err)
			}
			break
		}
	}
	if n < 8 || n == 4096 {
		p.Errorf("an SRQ of 8 took %d", n)
	}
}

func testSRQFlush(p *Pair) {
	srq := p.srq(8)
	p.srqPost(srq, 0, 4)
	l := p.B.Listen()
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.Join(p.A.QP, p.B.QP, l)
	p.A.QP.ToError()
	p.B.Dead()
	p.Settle()
	if len(p.B.Recvs) != 0 {
		p.Fatalf("receives of the SRQ were flushed:%s", wcString(p.B.Recvs))
	}
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.Join(p.A.QP, p.B.QP, l)
	for i := range 4 {
		p.A.Post(p.A.Send(uint64(i), 0))
		if wc := p.B.RecvsDone(i + 1)[i]; wc.Status != verbs.WCSuccess || wc.QPNum != p.B.QP.Num() {
			p.Errorf("receive%s", wcString([]verbs.WC{wc}))
		}
	}
}

func testSRQEmpty(p *Pair) {
	srq := p.srq(8)
	p.Connect()
	pattern(p.A.Mem[:64], 3)
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 64)))
	p.Settle()
	p.srqPost(srq, 2, 1)
	p.B.WantRecv(0, 2, verbs.WCSuccess)
	p.B.WantMem(2*64, patterned(64, 3))
	p.A.WantSend(0, 1, verbs.WCSuccess)
}

func testSRQBusy(p *Pair) {
	srq := p.srq(8)
	p.Connect()
	if err := srq.Destroy(); !errors.Is(err, syscall.EBUSY) {
		p.Errorf("Destroy in use: %v, want EBUSY", err)
	}
	if err := p.B.QP.Destroy(); err != nil {
		p.Fatal(err)
	}
	if err := srq.Destroy(); err != nil {
		p.Errorf("Destroy: %v", err)
	}
}

func testSharedCQ(p *Pair) {
	p.A.Attr.RecvCQ, p.B.Attr.RecvCQ = p.A.SendCQ, p.B.SendCQ
	p.Connect()
	p.B.Recv(1, p.B.SGE(0, 64))
	p.A.Recv(1, p.A.SGE(0, 64))
	p.A.Post(p.A.Send(2, verbs.SendSignaled, p.A.SGE(100, 8)))
	p.B.Post(p.B.Send(2, verbs.SendSignaled, p.B.SGE(100, 8)))
	for _, s := range []*Side{p.A, p.B} {
		got := map[uint64]verbs.WCOpcode{}
		for _, wc := range s.SendsDone(2) {
			got[wc.WRID] = wc.Op
		}
		if len(s.Recvs) != 0 || len(got) != 2 || got[1] != verbs.WCRecv || got[2] != verbs.WCSend {
			p.Errorf("%s: completions%s", s.Name, wcString(s.Sends))
		}
	}
}
