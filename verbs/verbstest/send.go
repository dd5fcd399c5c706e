package verbstest

import (
	"github.com/rdsd/rdsd/verbs"
)

func sendCases() []testCase {
	return []testCase{
		{name: "A63 each SEND takes one receive, in order", run: testSendOrder},
		{name: "A65 gather and scatter in list order, the rest untouched", run: testScatter},
		{name: "A52 a zero-length SEND takes a receive", run: testSendEmpty},
		{name: "A52 a receive without SGEs takes an empty SEND", run: testRecvEmpty},
		{name: "A51 long messages arrive whole", run: testSendLong},
		{name: "A40 an unsignaled success makes no completion", run: testUnsignaled},
		{name: "A88 completions name request, opcode and QP", run: testWCFields},
		{name: "A25 requests and lists may be reused after the post", run: testReuseWR},
		{name: "A79 a source buffer is free after the completion", run: testReuseBuffer},
		{name: "A59 inline data is taken at the post", run: testInline},
		{name: "A66 a SEND without a receive waits", need: verbs.CapRNR, run: testRNR},
		{name: "A73 both directions at once", run: testBothWays},
		{name: "C1 data is intact with any choice of CRC", run: testCRC},
	}
}

func testSendOrder(p *Pair) {
	p.Connect()
	const n = 40 // more than the queues hold
	recvs, sends := 0, 0
	for len(p.B.Recvs) < n {
		for recvs < n && recvs-len(p.B.Recvs) < 8 {
			p.B.Recv(uint64(100+recvs), p.B.SGE(recvs*64, 64))
			recvs++
		}
		for sends < recvs && sends-len(p.A.Sends) < 8 {
			pattern(p.A.Mem[sends*64:][:sends+1], byte(sends))
			p.A.Post(p.A.Send(uint64(sends), verbs.SendSignaled, p.A.SGE(sends*64, sends+1)))
			sends++
		}
		want := min(len(p.A.Sends)+len(p.B.Recvs)+1, 2*n)
		p.Until("progress", func() bool { return len(p.A.Sends)+len(p.B.Recvs) >= want })
	}
	for i := range n {
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		p.B.WantRecv(i, uint64(100+i), verbs.WCSuccess)
		if got := p.B.Recvs[i].ByteLen; got != uint32(i+1) {
			p.Errorf("receive %d: ByteLen %d, want %d", i, got, i+1)
		}
		p.B.WantMem(i*64, patterned(i+1, byte(i)))
	}
}

func testScatter(p *Pair) {
	p.Connect()
	if p.A.QP.Cap().MaxSendSGE < 3 || p.B.QP.Cap().MaxRecvSGE < 3 {
		p.Skip("fewer than three SGEs")
	}
	data := patterned(100, 1)
	copy(p.A.Mem[0:], data[:10])
	copy(p.A.Mem[5000:], data[10:70])
	copy(p.A.Mem[2000:], data[70:])
	for i := range 4096 {
		p.B.Mem[i] = 0xee
	}
	p.B.Recv(1, p.B.SGE(3000, 1), p.B.SGE(100, 50), p.B.SGE(1000, 500))
	p.A.Post(p.A.Send(2, verbs.SendSignaled, p.A.SGE(0, 10), p.A.SGE(5000, 60), p.A.SGE(2000, 30)))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.A.WantSend(0, 2, verbs.WCSuccess)
	want := make([]byte, 4096)
	for i := range want {
		want[i] = 0xee
	}
	copy(want[3000:], data[:1])
	copy(want[100:], data[1:51])
	copy(want[1000:], data[51:])
	p.B.WantMem(0, want)
}

func testSendEmpty(p *Pair) {
	p.Connect()
	p.B.Mem[0] = 0xaa
	p.B.Recv(1, p.B.SGE(0, 64))
	p.B.Recv(2, p.B.SGE(64, 64))
	p.A.Mem[0] = 0x55
	p.A.Post(p.A.Send(1, verbs.SendSignaled), p.A.Send(2, verbs.SendSignaled, p.A.SGE(0, 1)))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantRecv(1, 2, verbs.WCSuccess)
	if a, b := p.B.Recvs[0].ByteLen, p.B.Recvs[1].ByteLen; a != 0 || b != 1 {
		p.Errorf("ByteLen %d, %d; want 0, 1", a, b)
	}
	p.B.WantMem(0, []byte{0xaa})
	p.B.WantMem(64, []byte{0x55})
	p.A.WantSend(1, 2, verbs.WCSuccess)
}

func testRecvEmpty(p *Pair) {
	p.Connect()
	p.B.Recv(1)
	p.A.Post(p.A.Send(1, verbs.SendSignaled))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.A.WantSend(0, 1, verbs.WCSuccess)
}

func testSendLong(p *Pair) {
	p.Connect()
	sizes := []int{1, 1459, 4096, 65535, 65536, 65537, 1 << 20, ArenaSize}
	for i, n := range sizes {
		pattern(p.A.Mem[:n], byte(i))
		p.B.Recv(uint64(i), p.B.SGE(0, ArenaSize))
		p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(0, n)))
		p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
		if got := p.B.Recvs[i].ByteLen; got != uint32(n) {
			p.Errorf("ByteLen %d, want %d", got, n)
		}
		p.B.WantMem(0, p.A.Mem[:n])
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
	}
}

func testUnsignaled(p *Pair) {
	p.Connect()
	for i := range 4 {
		p.B.Recv(uint64(i), p.B.SGE(0, 64))
	}
	p.A.Post(p.A.Send(1, 0, p.A.SGE(0, 8)), p.A.Write(2, 0, 100, p.A.SGE(0, 8)), p.A.Read(3, 0, 100, p.A.SGE(200, 8)))
	p.B.RecvsDone(1)
	p.Settle()
	if len(p.A.Sends) != 0 {
		p.Fatalf("unsignaled requests completed:%s", wcString(p.A.Sends))
	}
	p.A.Post(p.A.Send(4, verbs.SendSignaled, p.A.SGE(0, 8)))
	p.A.WantSend(0, 4, verbs.WCSuccess)
}

func testWCFields(p *Pair) {
	p.Connect()
	p.B.Recv(1<<63, p.B.SGE(0, 64))
	p.A.Post(
		p.A.Send(^uint64(0), verbs.SendSignaled, p.A.SGE(0, 8)),
		p.A.Write(7, verbs.SendSignaled, 100, p.A.SGE(0, 8)),
		p.A.Read(7, verbs.SendSignaled, 100, p.A.SGE(200, 9)))
	p.A.WantSend(0, ^uint64(0), verbs.WCSuccess)
	p.A.WantSend(1, 7, verbs.WCSuccess)
	p.A.WantSend(2, 7, verbs.WCSuccess)
	p.B.WantRecv(0, 1<<63, verbs.WCSuccess)
	for i, op := range []verbs.WCOpcode{verbs.WCSend, verbs.WCRDMAWrite, verbs.WCRDMARead} {
		if wc := p.A.Sends[i]; wc.Op != op || wc.QPNum != p.A.QP.Num() {
			p.Errorf("completion %d: opcode %d QP %d, want %d %d", i, wc.Op, wc.QPNum, op, p.A.QP.Num())
		}
	}
	if n := p.A.Sends[2].ByteLen; n != 9 {
		p.Errorf("READ: ByteLen %d, want 9", n)
	}
	if wc := p.B.Recvs[0]; wc.Op != verbs.WCRecv || wc.QPNum != p.B.QP.Num() || wc.Flags != 0 {
		p.Errorf("receive: opcode %d QP %d flags %d", wc.Op, wc.QPNum, wc.Flags)
	}
	if p.A.QP.Context() != any(p.A) || p.B.QP.Context() != any(p.B) {
		p.Error("Context is not what CreateQP was given")
	}
}

func testReuseWR(p *Pair) {
	p.Connect()
	rsgl := []verbs.SGE{p.B.SGE(0, 64)}
	rwr := []verbs.RecvWR{{WRID: 1, SGL: rsgl}}
	if _, err := p.B.QP.PostRecv(rwr); err != nil {
		p.Fatal(err)
	}
	rsgl[0], rwr[0] = verbs.SGE{}, verbs.RecvWR{}
	pattern(p.A.Mem[:8], 3)
	sgl := []verbs.SGE{p.A.SGE(0, 8)}
	wr := []verbs.SendWR{p.A.Send(2, verbs.SendSignaled, sgl...), p.A.Write(3, verbs.SendSignaled, 100, sgl...)}
	p.A.Post(wr...)
	sgl[0], wr[0], wr[1] = verbs.SGE{}, verbs.SendWR{}, verbs.SendWR{}
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.A.WantSend(0, 2, verbs.WCSuccess)
	p.A.WantSend(1, 3, verbs.WCSuccess)
	p.B.WantMem(0, patterned(8, 3))
}

func testReuseBuffer(p *Pair) {
	p.Connect()
	sizes := []int{8, 3000, 200000}
	for i, n := range sizes {
		p.B.Recv(uint64(i), p.B.SGE(i<<18, 1<<18))
		pattern(p.A.Mem[:n], byte(i+1))
		p.A.Post(p.A.Write(1, 0, 1<<20+i<<18, p.A.SGE(0, n)), p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(0, n)))
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		clear(p.A.Mem[:n]) // poison: the peer must not see it
	}
	for i, n := range sizes {
		p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
		p.B.WantMem(i<<18, patterned(n, byte(i+1)))
		p.B.WantMem(1<<20+i<<18, patterned(n, byte(i+1)))
	}
}

func testInline(p *Pair) {
	p.Connect()
	n := p.A.QP.Cap().MaxInline
	if n == 0 {
		p.Skip("no inline data")
	}
	p.B.Recv(1, p.B.SGE(0, n))
	pattern(p.A.Mem[:n], 9)
	sge := p.A.SGE(0, n)
	p.A.Post(p.A.Send(1, verbs.SendInline|verbs.SendSignaled, sge), p.A.Write(2, verbs.SendInline|verbs.SendSignaled, 4096, sge))
	clear(p.A.Mem[:n])
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.A.WantSend(1, 2, verbs.WCSuccess)
	p.B.WantMem(0, patterned(n, 9))
	p.Until("the inline WRITE", func() bool { return p.B.Mem[4096+n-1] == patterned(n, 9)[n-1] })
	p.B.WantMem(4096, patterned(n, 9))
}

func testRNR(p *Pair) {
	p.Connect()
	pattern(p.A.Mem[:100], 5)
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 100)), p.A.Send(2, verbs.SendSignaled, p.A.SGE(100, 50)))
	p.Settle()
	if len(p.B.Recvs) != 0 || p.B.QP.State() != verbs.QPRTS {
		p.Fatalf("without a receive: completions%s, state %d", wcString(p.B.Recvs), p.B.QP.State())
	}
	p.B.Recv(1, p.B.SGE(0, 200))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantMem(0, patterned(100, 5))
	p.B.Recv(2, p.B.SGE(200, 200))
	p.B.WantRecv(1, 2, verbs.WCSuccess)
	p.A.WantSend(0, 1, verbs.WCSuccess)
	p.A.WantSend(1, 2, verbs.WCSuccess)
}

func testBothWays(p *Pair) {
	p.Connect()
	const n = 8
	for _, s := range []*Side{p.A, p.B} {
		for i := range n {
			s.Recv(uint64(i), s.SGE(i*1000, 1000))
		}
	}
	for i := range n {
		for _, s := range []*Side{p.A, p.B} {
			pattern(s.Mem[1<<20+i*1000:][:500+i], byte(i))
			s.Post(s.Send(uint64(i), verbs.SendSignaled, s.SGE(1<<20+i*1000, 500+i)))
		}
	}
	for _, s := range []*Side{p.A, p.B} {
		for i := range n {
			s.WantRecv(i, uint64(i), verbs.WCSuccess)
			s.WantSend(i, uint64(i), verbs.WCSuccess)
			s.WantMem(i*1000, patterned(500+i, byte(i)))
		}
	}
}

func testCRC(p *Pair) {
	l := p.B.Listen()
	total := 0
	for _, a := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
		for _, b := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
			p.A.Attr.CRC, p.B.Attr.CRC = a, b
			p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
			p.Join(p.A.QP, p.B.QP, l)
			p.Logf("CRC mode %d to %d", a, b)
			const n = 150001
			pattern(p.A.Mem[:n], byte(total))
			p.B.Recv(1, p.B.SGE(0, n))
			p.A.Post(p.A.Write(1, 0, 1<<20, p.A.SGE(0, n)), p.A.Read(2, verbs.SendFence, 1<<20, p.A.SGE(1<<20, n)),
				p.A.Send(3, verbs.SendSignaled|verbs.SendFence, p.A.SGE(1<<20, n)))
			p.A.WantSend(total, 3, verbs.WCSuccess)
			p.B.WantRecv(total, 1, verbs.WCSuccess)
			p.B.WantMem(0, patterned(n, byte(total)))
			p.B.WantMem(1<<20, patterned(n, byte(total)))
			p.A.WantMem(1<<20, patterned(n, byte(total)))
			clear(p.B.Mem)
			total++
		}
	}
}
