package verbstest

import (
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func resizeCases() []testCase {
	return []testCase{
		{name: "A4 a CQ is resized with what is in it", run: testResizeCQ},
		{name: "A131 an SRQ is resized with what is posted", run: testResizeSRQ},
		{name: "A39 sq_sig_all: every request has a completion", run: testSigAll},
		{name: "A59 inline data needs no region", run: testInlineData},
		{name: "A118 a zero-based region is addressed by offsets", run: testZeroBased},
		{name: "A118 a zero-based window is addressed by offsets", need: verbs.CapMW, run: testZeroBasedWindow},
		{name: "A118 a zero-based region has no other address", run: testZeroBasedInvalid},
	}
}

func testResizeCQ(p *Pair) {
	p.A.SendCQ = p.A.NewCQ(4)
	p.A.Attr.SendCQ, p.A.Attr.Cap.MaxSendWR = p.A.SendCQ, 64
	p.Connect()
	p.A.Hold = true
	n := min(p.A.SendCQ.Cap(), 4)
	for i := range n {
		p.A.Post(p.A.Write(uint64(i), verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	}
	p.Settle()
	if err := p.A.SendCQ.Resize(40); err != nil || p.A.SendCQ.Cap() < 40 {
		p.Fatalf("Resize: %v, %d entries", err, p.A.SendCQ.Cap())
	}
	for i := range 40 - n {
		p.A.Post(p.A.Write(uint64(n+i), verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	}
	p.Settle()
	granted := p.A.SendCQ.Cap()
	for _, bad := range []int{0, -1, 1 << 30} {
		if err := p.A.SendCQ.Resize(bad); !errors.Is(err, syscall.EINVAL) || p.A.SendCQ.Cap() != granted {
			p.Errorf("Resize to %d: %v, %d entries; want EINVAL and no change", bad, err, p.A.SendCQ.Cap())
		}
	}
	if err := p.A.SendCQ.Resize(39); err == nil && p.A.SendCQ.Cap() < 40 || err != nil && !errors.Is(err, syscall.EINVAL) {
		p.Errorf("Resize below what is in it: %v", err)
	}
	p.A.Hold = false
	for i := range 40 {
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
	}
	if err := p.A.SendCQ.Resize(1); err != nil {
		p.Errorf("Resize of an empty queue to 1: %v", err)
	}
	p.A.Post(p.A.Write(50, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.A.WantSend(40, 50, verbs.WCSuccess)
}

func testResizeSRQ(p *Pair) {
	srq := p.srq(4)
	p.srqPost(srq, 0, 4)
	p.Connect()
	p.A.Post(p.A.Send(1, verbs.SendSignaled))
	p.B.RecvsDone(1)
	if err := srq.Resize(8); err != nil || srq.Cap() != 8 {
		p.Fatalf("Resize: %v, %d", err, srq.Cap())
	}
	p.srqPost(srq, 4, 5)
	if n, err := srq.PostRecv([]verbs.RecvWR{{}}); n != 0 || !errors.Is(err, syscall.ENOMEM) {
		p.Errorf("the 9th receive of 8: %d, %v", n, err)
	}
	for _, bad := range []int{7, 0, -1, p.B.Dev.Attr().MaxRecvWR + 1} {
		if err := srq.Resize(bad); !errors.Is(err, syscall.EINVAL) || srq.Cap() != 8 {
			p.Errorf("Resize to %d with 8 posted: %v, then %d; want EINVAL and no change", bad, err, srq.Cap())
		}
	}
	seen := map[uint64]bool{p.B.Recvs[0].WRID: true}
	for i := range 6 {
		pattern(p.A.Mem[:8], byte(i))
		p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(0, 8)))
		wc := p.B.RecvsDone(i + 2)[i+1]
		if wc.Status != verbs.WCSuccess || seen[wc.WRID] {
			p.Errorf("receive%s", wcString([]verbs.WC{wc}))
		}
		seen[wc.WRID] = true
		p.B.WantMem(int(wc.WRID)*64, p.A.Mem[:8])
		p.A.SendsDone(i + 2)
	}
	if err := srq.Limit(2); err != nil {
		p.Fatal(err)
	}
	if err := srq.Resize(2); err != nil || srq.Cap() != 2 {
		p.Errorf("Resize to the 2 that are left: %v", err)
	}
	if n, err := srq.PostRecv([]verbs.RecvWR{{}}); n != 0 || !errors.Is(err, syscall.ENOMEM) {
		p.Errorf("the third receive of 2: %d, %v", n, err)
	}
	if err := srq.Resize(1); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("Resize below the limit armed: %v", err)
	}
}

func testSigAll(p *Pair) {
	p.A.Attr.SQSigAll, p.A.Attr.Cap.MaxSendWR = true, 4
	p.Connect()
	n := p.A.QP.Cap().MaxSendWR
	for i := range 5 * n {
		p.A.Post(p.A.Write(uint64(i), verbs.SendFlags(i%2)*verbs.SendSignaled, 0, p.A.SGE(0, 8)))
		if i%n == n-1 {
			p.A.SendsDone(i + 1)
		}
	}
	for i := range 5 * n {
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
	}
	p.quiet(5*n, 0, 0, 0)
}

func testInlineData(p *Pair) {
	p.Connect()
	n := p.A.QP.Cap().MaxInline
	if n < 16 {
		p.notApplicable("no inline data")
		return
	}
	data := patterned(n, 3)
	p.B.Recv(1, p.B.SGE(0, n))
	p.B.Recv(2, p.B.SGE(2*n, n))
	wr := p.A.Write(3, verbs.SendInline, 4096)
	wr.Inline = data[:9]
	p.A.Post(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendInline, Inline: data}, wr,
		verbs.SendWR{WRID: 2, Op: verbs.OpSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: data[:0]})
	clear(data) // was copied
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.B.WantRecv(1, 2, verbs.WCSuccess)
	if a, b := p.B.Recvs[0].ByteLen, p.B.Recvs[1].ByteLen; int(a) != n || b != 0 {
		p.Errorf("%d and %d bytes, want %d and 0", a, b, n)
	}
	p.B.WantMem(0, patterned(n, 3))
	p.B.WantMem(4096, append(patterned(n, 3)[:9:9], 0))
	p.A.WantSend(0, 2, verbs.WCSuccess)
	send := func(change func(*verbs.SendWR)) verbs.SendWR {
		wr := verbs.SendWR{WRID: 9, Op: verbs.OpSend, Flags: verbs.SendInline, Inline: data[:8]}
		change(&wr)
		return wr
	}
	p.A.Refuse(syscall.EINVAL, send(func(w *verbs.SendWR) { w.Inline = make([]byte, n+1) }))
	p.A.Refuse(syscall.EINVAL, send(func(w *verbs.SendWR) { w.Flags = 0 }))
	p.A.Refuse(syscall.EINVAL, send(func(w *verbs.SendWR) { w.SGL = []verbs.SGE{p.A.SGE(0, 8)} }))
	p.A.Refuse(syscall.EINVAL, send(func(w *verbs.SendWR) { w.Op = verbs.OpRDMARead }))
}

func testZeroBased(p *Pair) {
	p.Connect()
	right := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessZeroBased
	mem, local := AlignedMem(page), AlignedMem(page)
	if p.Env.Habits.OwnAddress {
		p.habit("no region is at 0 for the peer")
		if mr, err := p.B.PD.RegMR(mem, 0, right); !errors.Is(err, syscall.EOPNOTSUPP) {
			p.Errorf("RegMR at 0: %v, %v, want EOPNOTSUPP", mr, err)
		}
		return
	}
	there, here := p.B.RegMR(mem, 0, right), p.A.RegMR(local, 0, right)
	if there.IOVA() != 0 {
		p.Errorf("a zero-based region at %#x", there.IOVA())
	}
	pattern(local, 1)
	w := p.A.Write(1, 0, 0, verbs.SGE{Addr: 100, Length: 50, LKey: here.LKey()})
	w.RKey, w.RemoteAddr = there.RKey(), page-50
	r := p.A.Read(2, verbs.SendSignaled, 0, verbs.SGE{Addr: 0, Length: 60, LKey: here.LKey()})
	r.RKey, r.RemoteAddr = there.RKey(), page-60
	p.A.Post(w, r)
	p.A.WantSend(0, 2, verbs.WCSuccess)
	if string(mem[page-50:]) != string(local[100:150]) || string(local[10:60]) != string(local[100:150]) {
		p.Error("data differ")
	}
	w.RemoteAddr = page - 49
	p.A.Post(w, r)
	p.A.SendsDone(2)
	p.A.Dead()
	p.B.Dead()
}

func testZeroBasedWindow(p *Pair) {
	p.Connect()
	mem, mr := p.bindable(p.B)
	w := p.window(p.B, verbs.MWType2)
	wr := p.B.bindWR(1, w, mr, page, page, verbs.IncRKey(w.RKey()))
	wr.Bind.Access |= verbs.AccessZeroBased
	p.B.Post(wr)
	p.B.WantSend(0, 1, verbs.WCSuccess)
	pattern(p.A.Mem[:8], 1)
	out := p.A.Write(2, verbs.SendSignaled, 0, p.A.SGE(0, 8))
	out.RKey, out.RemoteAddr = w.RKey(), 0
	back := p.A.Read(3, verbs.SendSignaled, 0, p.A.SGE(64, 8))
	back.RKey, back.RemoteAddr = w.RKey(), 0
	p.A.Post(out, back)
	p.A.WantSend(0, 2, verbs.WCSuccess)
	p.A.WantSend(1, 3, verbs.WCSuccess)
	if string(mem[page:page+8]) != string(p.A.Mem[:8]) || string(p.A.Mem[64:72]) != string(p.A.Mem[:8]) {
		p.Error("data differ")
	}
	p.unreachable(w.RKey(), page) // the region's address is not the window's
}

func testZeroBasedInvalid(p *Pair) {
	if _, err := p.A.PD.RegMR(AlignedMem(page), 0x1000, verbs.AccessZeroBased); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("RegMR: %v, want EINVAL", err)
	}
	mr := p.A.RegMR(AlignedMem(page), 0, verbs.AccessZeroBased)
	if err := mr.Rereg(AlignedMem(page), 0x1000, verbs.AccessZeroBased); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("Rereg: %v, want EINVAL", err)
	}
	p.dereg(mr)
}
