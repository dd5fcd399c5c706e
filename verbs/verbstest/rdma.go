package verbstest

import (
	"math/rand/v2"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func rdmaCases() []testCase {
	return []testCase{
		{name: "A76 a delivered SEND proves the WRITEs before it", run: testWriteThenSend},
		{name: "A75 the later of two WRITEs wins", run: testWriteTwice},
		{name: "A47 a WRITE gathers into one remote block", run: testWriteGather},
		{name: "A56 SGEs may name different regions", run: testManyRegions},
		{name: "A57 an empty WRITE or READ checks no key", run: testEmptyRDMA},
		{name: "A58 a source needs no LOCAL_WRITE", run: testSourceReadOnly},
		{name: "A81 a WRITE's completion proves placement", need: verbs.CapRemoteAck, run: testWriteAcked},
	}
}

func readCases() []testCase {
	return []testCase{
		{name: "A85 a READ's completion says the data are there", run: testRead},
		{name: "A47 a READ scatters, up to MaxReadSGE", run: testReadScatter},
		{name: "A71 completions come in post order", need: verbs.CapOrderedCQ, run: testOrderedCQ},
		{name: "A42 FENCE waits for earlier READs", run: testFence},
		{name: "A44 FENCE on a READ is accepted", run: testFencedRead},
		{name: "A152 READs above the depth wait", run: testReadDepth},
		{name: "C2 the depth granted is the smaller one", run: testReadDepthGranted},
		{name: "A80 READs in both directions at once", run: testReadBothWays},
		{name: "A42 FENCEs of both ends do not stop each other's READs", run: testFenceBothWays},
		{name: "A152 READs above the depth do not stop the peer's", run: testDepthBothWays},
	}
}

func testWriteThenSend(p *Pair) {
	p.Connect()
	r := rand.New(rand.NewPCG(1, 2))
	model := make([]byte, ArenaSize)
	pattern(p.A.Mem, 0x77)
	done := 0
	for round := range 50 {
		p.B.Recv(uint64(round), p.B.SGE(0, 64))
		var wrs []verbs.SendWR
		for range 1 + r.IntN(6) {
			n := 1 << r.IntN(17)
			src, dst := r.IntN(ArenaSize-n), 4096+r.IntN(ArenaSize-n-4096)
			wrs = append(wrs, p.A.Write(1, 0, dst, p.A.SGE(src, n)))
			copy(model[dst:], p.A.Mem[src:src+n])
		}
		p.A.Post(append(wrs, p.A.Send(uint64(round), verbs.SendSignaled, p.A.SGE(0, 8)))...)
		p.B.WantRecv(done, uint64(round), verbs.WCSuccess)
		p.B.WantMem(4096, model[4096:])
		p.A.WantSend(done, uint64(round), verbs.WCSuccess)
		done++
	}
}

func testWriteTwice(p *Pair) {
	p.Connect()
	pattern(p.A.Mem[:3000], 1)
	pattern(p.A.Mem[4096:][:3000], 2)
	p.B.Recv(1, p.B.SGE(0, 8))
	p.A.Post(p.A.Write(1, 0, 8192, p.A.SGE(0, 3000)), p.A.Write(2, 0, 8192, p.A.SGE(4096, 3000)), p.A.Send(3, 0))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantMem(8192, patterned(3000, 2))
}

func testWriteGather(p *Pair) {
	p.Connect()
	if p.A.QP.Cap().MaxSendSGE < 2 {
		p.Skip("one SGE only")
	}
	pattern(p.A.Mem[:300], 1)
	p.B.Recv(1)
	p.A.Post(p.A.Write(1, 0, 4000, p.A.SGE(200, 100), p.A.SGE(0, 100)), p.A.Send(2, 0))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantMem(4000, p.A.Mem[200:300])
	p.B.WantMem(4100, p.A.Mem[:100])
	p.B.WantMem(4200, []byte{0})
}

func testManyRegions(p *Pair) {
	p.Connect()
	if p.A.QP.Cap().MaxSendSGE < 2 {
		p.Skip("one SGE only")
	}
	m1, m2 := AlignedMem(page), AlignedMem(page)
	pattern(m1, 1)
	pattern(m2, 2)
	mr1, mr2 := p.A.RegMR(m1, 0x1000, 0), p.A.RegMR(m2, 1<<40, 0)
	p.B.Recv(1, p.B.SGE(0, 64))
	p.A.Post(p.A.Send(1, verbs.SendSignaled,
		verbs.SGE{Addr: 0x1000, Length: 10, LKey: mr1.LKey()}, verbs.SGE{Addr: 1<<40 + 100, Length: 20, LKey: mr2.LKey()}))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantMem(0, append(m1[:10:10], m2[100:120]...))
}

func testEmptyRDMA(p *Pair) {
	p.Connect()
	p.B.Recv(1)
	bad := uint32(0xdeadbeef)
	p.A.Post(
		verbs.SendWR{WRID: 1, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, RKey: bad, RemoteAddr: 12345},
		verbs.SendWR{WRID: 2, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, RKey: bad, RemoteAddr: 12345},
		p.A.Send(3, verbs.SendSignaled))
	for i := range 3 {
		p.A.WantSend(i, uint64(i+1), verbs.WCSuccess)
	}
	p.B.WantRecv(0, 1, verbs.WCSuccess) // the empty WRITE took no receive
	if len(p.B.Recvs) != 1 {
		p.Errorf("receives%s", wcString(p.B.Recvs))
	}
}

func testSourceReadOnly(p *Pair) {
	p.Connect()
	src := AlignedMem(page)
	pattern(src, 4)
	a := p.A.RegMR(src, 0x4000, 0)
	ro := AlignedMem(page)
	pattern(ro, 5)
	b := p.B.RegMR(ro, lowIOVA, verbs.AccessRemoteRead)
	p.B.Recv(1)
	w := p.A.Write(1, 0, 100, verbs.SGE{Addr: 0x4000, Length: page, LKey: a.LKey()})
	r := p.A.Read(2, 0, 0, p.A.SGE(0, page))
	r.RKey, r.RemoteAddr = b.RKey(), lowIOVA
	p.A.Post(w, r, p.A.Send(3, verbs.SendSignaled|verbs.SendFence))
	p.A.WantSend(0, 3, verbs.WCSuccess)
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.A.WantMem(0, ro)
	p.B.WantMem(100, src)
}

func testWriteAcked(p *Pair) {
	if p.Mode != verbs.AckRemote {
		p.Log("not applicable: AckLocal promises less")
		return
	}
	p.Connect()
	for i, n := range []int{1, 5000, 300000} {
		pattern(p.A.Mem[:n], byte(i+1))
		p.A.Post(p.A.Write(uint64(i), verbs.SendSignaled, 100, p.A.SGE(0, n)))
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		p.B.WantMem(100, p.A.Mem[:n])
	}
}

func testRead(p *Pair) {
	p.Connect()
	for i, n := range []int{1, 4096, 65537, 1 << 20} {
		pattern(p.B.Mem[77:][:n], byte(i+1))
		p.A.Post(p.A.Read(uint64(i), verbs.SendSignaled, 77, p.A.SGE(500, n)))
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		p.A.WantMem(500, p.B.Mem[77:77+n])
		p.A.WantMem(500+n, []byte{0})
		if got := p.A.Sends[i].ByteLen; got != uint32(n) {
			p.Errorf("ByteLen %d, want %d", got, n)
		}
	}
	if len(p.B.Recvs) != 0 {
		p.Errorf("the target saw%s", wcString(p.B.Recvs))
	}
}

func testReadScatter(p *Pair) {
	p.Connect()
	limit := min(p.A.Dev.Attr().MaxReadSGE, p.A.QP.Cap().MaxSendSGE)
	if limit < p.A.QP.Cap().MaxSendSGE {
		sgl := make([]verbs.SGE, limit+1)
		for i := range sgl {
			sgl[i] = p.A.SGE(i*100, 10)
		}
		p.A.Refuse(syscall.EINVAL, p.A.Read(1, 0, 0, sgl...))
	}
	pattern(p.B.Mem[:300], 8)
	var sgl []verbs.SGE
	for i := range min(limit, 3) {
		sgl = append(sgl, p.A.SGE((3-i)*1000, 50+i))
	}
	p.A.Post(p.A.Read(2, verbs.SendSignaled, 10, sgl...))
	p.A.WantSend(0, 2, verbs.WCSuccess)
	from := 10
	for i := range sgl {
		p.A.WantMem((3-i)*1000, p.B.Mem[from:from+50+i])
		p.A.WantMem((3-i)*1000+50+i, []byte{0})
		from += 50 + i
	}
}

func testOrderedCQ(p *Pair) {
	p.Connect()
	next, id := 0, uint64(0)
	for range 20 {
		p.B.Recv(id, p.B.SGE(0, 8))
		first := id
		wrs := []verbs.SendWR{
			p.A.Read(id, verbs.SendSignaled, 4096, p.A.SGE(1<<20, 200000)),
			p.A.Send(id+1, verbs.SendSignaled, p.A.SGE(0, 8)),
			p.A.Write(id+2, verbs.SendSignaled, 100, p.A.SGE(0, 8)),
			p.A.Read(id+3, verbs.SendSignaled, 100, p.A.SGE(8, 8)),
		}
		p.A.Post(wrs...)
		for id = first; id < first+4; id++ {
			p.A.WantSend(next, id, verbs.WCSuccess)
			next++
		}
	}
}

func testFence(p *Pair) {
	p.Connect()
	for i := range 20 {
		p.Log("round", i)
		const n = 100000
		pattern(p.B.Mem[:n], byte(i))
		pattern(p.A.Mem[:n], byte(i+100))
		p.A.Post(p.A.Read(1, 0, 0, p.A.SGE(1<<20, n)), p.A.Write(2, verbs.SendFence, 0, p.A.SGE(0, n)),
			p.A.Read(3, verbs.SendSignaled, 0, p.A.SGE(2<<20, n)))
		p.A.WantSend(i, 3, verbs.WCSuccess)
		p.A.WantMem(1<<20, patterned(n, byte(i)))
		p.A.WantMem(2<<20, patterned(n, byte(i+100)))
	}
}

func testFencedRead(p *Pair) {
	p.Connect()
	pattern(p.B.Mem[:64], 6)
	p.A.Post(p.A.Read(1, 0, 0, p.A.SGE(0, 32)), p.A.Read(2, verbs.SendFence|verbs.SendSignaled, 32, p.A.SGE(32, 32)))
	p.A.WantSend(0, 2, verbs.WCSuccess)
	p.A.WantMem(0, patterned(64, 6))
}

func testReadDepth(p *Pair) {
	p.A.Attr.Cap.ReadDepth, p.B.Attr.Cap.ReadDepth = 2, 1
	p.Connect()
	pattern(p.B.Mem[:16*1000], 3)
	p.B.Recv(99)
	var wrs []verbs.SendWR
	for i := range 12 {
		wrs = append(wrs, p.A.Read(uint64(i), verbs.SendSignaled, i*1000, p.A.SGE(i*1000, 1000)))
	}
	p.A.Post(append(wrs, p.A.Send(12, verbs.SendSignaled))...)
	for i := range 13 {
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
	}
	p.A.WantMem(0, patterned(12*1000, 3))
	p.B.WantRecv(0, 99, verbs.WCSuccess)
}

func testReadDepthGranted(p *Pair) {
	p.A.Attr.Cap.ReadDepth, p.B.Attr.Cap.ReadDepth = 3, 2
	p.Connect()
	if a, b := p.A.QP.Cap().ReadDepth, p.B.QP.Cap().ReadDepth; a != 2 || b > 3 || b < 1 {
		p.Errorf("read depth %d and %d after Established; want 2 and 1 to 3", a, b)
	}
}

func testReadBothWays(p *Pair) {
	p.Connect()
	const n = 300000
	pattern(p.A.Mem[:n], 1)
	pattern(p.B.Mem[:n], 2)
	for _, s := range []*Side{p.A, p.B} {
		for k := range 8 {
			s.Post(s.Read(uint64(k), verbs.SendSignaled, k, s.SGE(1<<20+k*n, n-k)))
		}
	}
	for i, s := range []*Side{p.A, p.B} {
		for k := range 8 {
			s.WantSend(k, uint64(k), verbs.WCSuccess)
			s.WantMem(1<<20+k*n, patterned(n, byte(2-i))[k:])
		}
	}
}

func testFenceBothWays(p *Pair) {
	p.Connect()
	const n = 8
	for _, s := range []*Side{p.A, p.B} {
		for k := range n {
			s.Recv(uint64(k), s.SGE(0, 8))
		}
	}
	for k := range n {
		for _, s := range []*Side{p.A, p.B} {
			s.Post(s.Read(uint64(2*k), verbs.SendSignaled, 4096, s.SGE(8192, 1000)), s.Send(uint64(2*k+1), verbs.SendSignaled|verbs.SendFence, s.SGE(0, 8)))
		}
	}
	for _, s := range []*Side{p.A, p.B} {
		for k := range 2 * n {
			s.WantSend(k, uint64(k), verbs.WCSuccess)
		}
		for k := range n {
			s.WantRecv(k, uint64(k), verbs.WCSuccess)
		}
	}
}

func testDepthBothWays(p *Pair) {
	p.A.Attr.Cap.ReadDepth, p.B.Attr.Cap.ReadDepth = 1, 1
	p.Connect()
	const n = 16
	for k := range n {
		for _, s := range []*Side{p.A, p.B} {
			s.Post(s.Read(uint64(k), verbs.SendSignaled, 4096, s.SGE(8192, 1000)))
		}
	}
	for _, s := range []*Side{p.A, p.B} {
		for k := range n {
			s.WantSend(k, uint64(k), verbs.WCSuccess)
		}
	}
}
