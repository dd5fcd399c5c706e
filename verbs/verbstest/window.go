package verbstest

import (
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func windowCases() []testCase {
	mw := verbs.CapMW
	return []testCase{
		{name: "A117 Dereg fails while a window is bound", need: mw, run: testDeregBound},
		{name: "A121 key values do not come back soon", run: testKeysFresh},
		{name: "A122 a type 1 window is bound, bound anew, unbound", need: mw, run: testWindow1},
		{name: "A122 a type 2 window has the key its owner chose", need: mw, run: testWindow2},
		{name: "A123 binds that are refused: MW_BIND_ERR", need: mw, run: testBindRefused},
		{name: "A123 binds that cannot be right: EINVAL", need: mw, run: testBindInvalid},
		{name: "A124 LOCAL_INV ends a type 2 window", need: mw | verbs.CapInvalidate, run: testLocalInv},
		{name: "A124 LOCAL_INV of anything else fails", need: verbs.CapInvalidate, run: testLocalInvWrong},
		{name: "A125 a type 2 window is good on its QP only", need: mw, run: testWindowOwner},
		{name: "A125 SEND_WITH_INV of a foreign key fails both ends", need: verbs.CapInvalidate, run: testInvWrong},
		{name: "A126 SEND_WITH_INV ends a window before its completion", need: mw | verbs.CapInvalidate, run: testSendInv},
		{name: "A120 Rereg gives other memory and other keys", run: testRereg},
	}
}

const mwBase = 0x40000 // of the region windows are bound to

// bindable registers pages that windows may be bound to.
func (p *Pair) bindable(s *Side) ([]byte, verbs.MR) {
	p.Helper()
	mem := AlignedMem(4 * page)
	return mem, s.RegMR(mem, mwBase, verbs.AccessLocalWrite|verbs.AccessMWBind)
}

func (p *Pair) window(s *Side, t verbs.MWType) verbs.MW {
	p.Helper()
	w, err := s.PD.AllocMW(t)
	if err != nil {
		p.Fatalf("AllocMW: %v", err)
	}
	if w.Type() != t {
		p.Errorf("type %d, want %d", w.Type(), t)
	}
	return w
}

// bind posts a bind of one page at off.
func (s *Side) bindWR(id uint64, w verbs.MW, mr verbs.MR, off, n int, key uint32) verbs.SendWR {
	return verbs.SendWR{WRID: id, Op: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: &verbs.BindMW{
		MW: w, MR: mr, Addr: mwBase + uint64(off), Length: uint64(n), RKey: key,
		Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
	}}
}

// bound posts a bind on B and waits for it.
func (p *Pair) bound(w verbs.MW, mr verbs.MR, off int, key uint32) {
	p.Helper()
	n := len(p.B.Sends)
	p.B.Post(p.B.bindWR(77, w, mr, off, page, key))
	p.B.WantSend(n, 77, verbs.WCSuccess)
	if op := p.B.Sends[n].Op; op != verbs.WCBindMW {
		p.Errorf("completion opcode %d", op)
	}
}

// reach writes through a key of B, which must work.
func (p *Pair) reach(mem []byte, key uint32, off int) {
	p.Helper()
	n := len(p.A.Sends)
	pattern(p.A.Mem[:8], byte(n+1))
	wr := p.A.Write(uint64(n), 0, 0, p.A.SGE(0, 8))
	wr.RKey, wr.RemoteAddr = key, mwBase+uint64(off)
	rd := p.A.Read(uint64(n), verbs.SendSignaled, 0, p.A.SGE(64, 8))
	rd.RKey, rd.RemoteAddr = wr.RKey, wr.RemoteAddr
	p.A.Post(wr, rd)
	p.A.WantSend(n, uint64(n), verbs.WCSuccess)
	if string(p.A.Mem[:8]) != string(p.A.Mem[64:72]) || string(mem[off:off+8]) != string(p.A.Mem[:8]) {
		p.Fatalf("through the window: read %x, memory %x, want %x", p.A.Mem[64:72], mem[off:off+8], p.A.Mem[:8])
	}
}

// unreachable reads through a key of B, which must fail and ends the pair.
func (p *Pair) unreachable(key uint32, off int) {
	p.Helper()
	n := len(p.A.Sends)
	rd := p.A.Read(99, verbs.SendSignaled, 0, p.A.SGE(64, 8))
	rd.RKey, rd.RemoteAddr = key, mwBase+uint64(off)
	p.A.Post(rd)
	p.A.WantSend(n, 99, p.remote(verbs.WCRemAccessErr)...)
	p.inexact(p.A.Sends[n], verbs.WCRemAccessErr)
	p.A.Dead()
	p.B.Dead()
}

func testDeregBound(p *Pair) {
	p.Connect()
	_, mr := p.bindable(p.B)
	w := p.window(p.B, verbs.MWType1)
	p.bound(w, mr, 0, 0)
	if err := mr.Dereg(); !errors.Is(err, syscall.EBUSY) {
		p.Errorf("Dereg of a region with a window: %v, want EBUSY", err)
	}
	if err := mr.Rereg(AlignedMem(page), 0, 0); !errors.Is(err, syscall.EBUSY) {
		p.Errorf("Rereg of a region with a window: %v, want EBUSY", err)
	}
	if err := w.Dealloc(); err != nil {
		p.Fatal(err)
	}
	p.dereg(mr)
}

func testKeysFresh(p *Pair) {
	seen := map[uint32]bool{}
	mem := AlignedMem(page)
	for range 200 {
		mr := p.A.RegMR(mem, 0, verbs.AccessLocalWrite)
		if seen[mr.RKey()] || mr.RKey() == 0 || mr.RKey()>>8 == 0 {
			p.Fatalf("key %#x again", mr.RKey())
		}
		seen[mr.RKey()] = true
		if mr.IOVA() != 0 || mr.Len() != page {
			p.Errorf("region at %#x, %d bytes", mr.IOVA(), mr.Len())
		}
		p.dereg(mr)
	}
}

func testWindow1(p *Pair) {
	p.Connect()
	mem, mr := p.bindable(p.B)
	w := p.window(p.B, verbs.MWType1)
	p.bound(w, mr, page, 0)
	first := w.RKey()
	p.reach(mem, first, page)
	p.bound(w, mr, 2*page, 0)
	if w.RKey() == first {
		p.Error("a new bind has the old key")
	}
	p.reach(mem, w.RKey(), 2*page)
	n := len(p.B.Sends)
	p.B.Post(p.B.bindWR(78, w, mr, 0, 0, 0))
	p.B.WantSend(n, 78, verbs.WCSuccess)
	p.dereg(mr)
	p.unreachable(first, page)
}

func testWindow2(p *Pair) {
	p.Connect()
	mem, mr := p.bindable(p.B)
	w := p.window(p.B, verbs.MWType2)
	key := verbs.IncRKey(w.RKey())
	p.bound(w, mr, 0, key)
	if w.RKey() != key {
		p.Errorf("key %#x, want %#x", w.RKey(), key)
	}
	p.reach(mem, key, 0)
	p.reach(mem, key, page-8)
	p.unreachable(key, page-7)
}

func testBindRefused(p *Pair) {
	l := p.B.Listen()
	for name, f := range map[string]func(b *verbs.BindMW){
		"no right to bind": func(b *verbs.BindMW) { b.MR = p.B.MR; b.Addr = p.B.Base },
		"out of bounds":    func(b *verbs.BindMW) { b.Addr += 4*page - 7 },
		"another PD":       func(b *verbs.BindMW) { b.MR = p.foreignMR(p.B); b.Addr = b.MR.IOVA() },
		"write without LOCAL_WRITE": func(b *verbs.BindMW) {
			b.MR = p.B.RegMR(AlignedMem(page), mwBase, verbs.AccessMWBind)
		},
	} {
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		p.B.Sends = nil
		_, mr := p.bindable(p.B)
		w := p.window(p.B, verbs.MWType2)
		wr := p.B.bindWR(5, w, mr, 0, 8, verbs.IncRKey(w.RKey()))
		f(wr.Bind)
		p.B.Post(wr)
		p.B.WantSend(0, 5, verbs.WCMWBindErr)
		if s := p.B.QP.State(); s != verbs.QPErr {
			p.Errorf("%s: state %d", name, s)
		}
	}
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.Join(p.A.QP, p.B.QP, l)
	p.B.Sends = nil
	_, mr := p.bindable(p.B)
	w := p.window(p.B, verbs.MWType2)
	p.bound(w, mr, 0, verbs.IncRKey(w.RKey()))
	p.B.Post(p.B.bindWR(6, w, mr, 0, 8, verbs.IncRKey(w.RKey()))) // bound already
	p.B.WantSend(1, 6, verbs.WCMWBindErr)
}

func testBindInvalid(p *Pair) {
	p.Connect()
	_, mr := p.bindable(p.B)
	w := p.window(p.B, verbs.MWType2)
	for name, f := range map[string]func(wr *verbs.SendWR){
		"no arguments":   func(wr *verbs.SendWR) { wr.Bind = nil },
		"no window":      func(wr *verbs.SendWR) { wr.Bind.MW = nil },
		"no region":      func(wr *verbs.SendWR) { wr.Bind.MR = nil },
		"local rights":   func(wr *verbs.SendWR) { wr.Bind.Access |= verbs.AccessLocalWrite },
		"another's key":  func(wr *verbs.SendWR) { wr.Bind.RKey ^= 0x100 },
		"with an SGL":    func(wr *verbs.SendWR) { wr.SGL = []verbs.SGE{p.B.SGE(0, 8)} },
		"another device": func(wr *verbs.SendWR) { wr.Bind.MW = p.window(p.A, verbs.MWType2) },
	} {
		wr := p.B.bindWR(1, w, mr, 0, 8, verbs.IncRKey(w.RKey()))
		f(&wr)
		if n, err := p.B.QP.PostSend([]verbs.SendWR{wr}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			p.Errorf("%s: %d, %v; want 0, EINVAL", name, n, err)
		}
	}
	if _, err := p.B.PD.AllocMW(9); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("a window of type 9: %v", err)
	}
}

func testLocalInv(p *Pair) {
	p.Connect()
	mem, mr := p.bindable(p.B)
	w := p.window(p.B, verbs.MWType2)
	key := verbs.IncRKey(w.RKey())
	p.bound(w, mr, 0, key)
	p.reach(mem, key, 0)
	n := len(p.B.Sends)
	p.B.Post(verbs.SendWR{WRID: 3, Op: verbs.OpLocalInv, Flags: verbs.SendSignaled, Imm: key})
	p.B.WantSend(n, 3, verbs.WCSuccess)
	if op := p.B.Sends[n].Op; op != verbs.WCLocalInv {
		p.Errorf("completion opcode %d", op)
	}
	p.bound(w, mr, page, verbs.IncRKey(key))
	p.reach(mem, verbs.IncRKey(key), page)
	p.unreachable(key, 0)
}

func testLocalInvWrong(p *Pair) {
	p.Connect()
	p.B.Post(verbs.SendWR{WRID: 3, Op: verbs.OpLocalInv, Imm: p.B.MR.RKey()})
	p.B.WantSend(0, 3, verbs.WCMWBindErr)
	p.B.Dead()
	p.A.Dead()
}

func testWindowOwner(p *Pair) {
	l := p.B.Listen()
	a1, b1 := p.A.NewQP(), p.B.NewQP()
	p.A.QP, p.B.QP = a1, b1
	p.Join(a1, b1, l)
	mem, mr := p.bindable(p.B)
	w := p.window(p.B, verbs.MWType2)
	key := verbs.IncRKey(w.RKey())
	p.bound(w, mr, 0, key)
	a2, b2 := p.A.NewQP(), p.B.NewQP()
	p.A.QP, p.B.QP = a2, b2
	p.Join(a2, b2, l)
	p.unreachable(key, 0)
	p.A.QP, p.B.QP = a1, b1
	p.reach(mem, key, 0)
}

func testSendInv(p *Pair) {
	p.Connect()
	mem, mr := p.bindable(p.B)
	w := p.window(p.B, verbs.MWType2)
	key := verbs.IncRKey(w.RKey())
	p.bound(w, mr, 0, key)
	p.reach(mem, key, 0)
	p.B.Recv(5, p.B.SGE(0, 64))
	n := len(p.A.Sends)
	wr := p.A.Send(6, verbs.SendSignaled|verbs.SendSolicited, p.A.SGE(0, 10))
	wr.Op, wr.Imm = verbs.OpSendWithInv, key
	p.A.Post(wr)
	p.B.WantRecv(0, 5, verbs.WCSuccess)
	if wc := p.B.Recvs[0]; wc.Flags&verbs.WCWithInv == 0 || wc.Imm != key || wc.ByteLen != 10 || wc.Op != verbs.WCRecv {
		p.Errorf("receive %+v", wc)
	}
	p.dereg(mr) // the window is gone
	p.A.WantSend(n, 6, verbs.WCSuccess)
	p.unreachable(key, 0)
}

func testInvWrong(p *Pair) {
	l := p.B.Listen()
	for _, key := range []uint32{p.B.MR.RKey(), p.B.MR.RKey() ^ 0x5a5a00} {
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		p.A.Sends, p.B.Recvs = nil, nil
		p.B.Recv(5, p.B.SGE(0, 64))
		wr := p.A.Send(6, verbs.SendSignaled, p.A.SGE(0, 10))
		wr.Op, wr.Imm = verbs.OpSendWithInv, key
		p.A.Post(wr)
		p.B.WantRecv(0, 5, verbs.WCRemInvReqErr)
		p.wantRefused(0, 6, verbs.WCRemInvReqErr, false)
		p.A.Dead()
		p.B.Dead()
	}
}

func testRereg(p *Pair) {
	p.Connect()
	old, mem := AlignedMem(page), AlignedMem(2*page)
	mr := p.B.RegMR(old, lowIOVA, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	key := mr.RKey()
	if err := mr.Rereg(nil, 0, 0); !errors.Is(err, syscall.EINVAL) || mr.RKey() != key {
		p.Errorf("Rereg of nothing: %v", err)
	}
	if err := mr.Rereg(mem, mwBase, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead); err != nil {
		p.Fatal(err)
	}
	if mr.RKey() == key || mr.IOVA() != mwBase || mr.Len() != 2*page {
		p.Errorf("key %#x, at %#x, %d bytes", mr.RKey(), mr.IOVA(), mr.Len())
	}
	p.reach(mem, mr.RKey(), page)
	if !onlyByte(old, 0) {
		p.Error("the old memory was written")
	}
	p.unreachable(key, 0)
}
