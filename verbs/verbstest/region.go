package verbstest

import (
	"bytes"
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func regionCases() []testCase {
	return []testCase{
		{name: "A110 RegMR refuses bad regions", run: testRegMR},
		{name: "A112 one range may be registered many times", run: testRegTwice},
		{name: "A116 Dereg stops remote writes at once", run: testDeregTarget},
		{name: "A116 Dereg stops a READ into the region at once", run: testDeregSink},
		{name: "A116 Dereg of a READ's source fails the READ", run: testDeregSource},
		{name: "C5 a restricted region serves allowed peers only", need: verbs.CapRestrictedMR, run: testRestricted},
		{name: "C6 a disallowed peer is refused", need: verbs.CapRestrictedMR, run: testDisallow},
		{name: "C6 a window of a restricted region is for the same peers", need: verbs.CapRestrictedMR | verbs.CapMW, run: testRestrictedWindow},
		{name: "C7 a region under a key that somebody else chose", run: testKeyed},
		{name: "A142 objects in use cannot be destroyed", run: testBusy},
	}
}

func testRegMR(p *Pair) {
	mem := AlignedMem(page)
	for name, c := range map[string]struct {
		mem    []byte
		iova   uint64
		access verbs.Access
	}{
		"empty":                          {nil, 0x1000, 0},
		"wrap-around":                    {mem, ^uint64(0) - page + 2, 0},
		"remote write, no local write":   {mem, 0x1000, verbs.AccessRemoteWrite},
		"remote atomic, no local write":  {mem, 0x1000, verbs.AccessRemoteAtomic},
		"restricted write, nothing else": {mem, 0x1000, verbs.AccessRestricted | verbs.AccessRemoteWrite},
	} {
		if _, err := p.A.PD.RegMR(c.mem, c.iova, c.access); !errors.Is(err, syscall.EINVAL) {
			p.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
	mr := p.A.RegMR(mem, 0x123000, verbs.AccessRemoteRead)
	if mr.IOVA() != 0x123000 || mr.Len() != page || mr.RKey() == 0 {
		p.Errorf("IOVA %#x, Len %d, RKey %#x", mr.IOVA(), mr.Len(), mr.RKey())
	}
	p.dereg(mr)
}

func testRegTwice(p *Pair) {
	p.Connect()
	ro := p.B.RegMR(p.B.Mem[:page], 0x10000, verbs.AccessRemoteRead)
	rw := p.B.RegMR(p.B.Mem[:page], 0x90000, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if ro.RKey() == rw.RKey() {
		p.Fatal("two regions share a key")
	}
	pattern(p.A.Mem[:100], 1)
	w, r := p.A.Write(1, 0, 0, p.A.SGE(0, 100)), p.A.Read(2, verbs.SendSignaled, 0, p.A.SGE(1000, 100))
	w.RKey, w.RemoteAddr = rw.RKey(), 0x90000+10
	r.RKey, r.RemoteAddr = ro.RKey(), 0x10000+10
	p.A.Post(w, r)
	p.A.WantSend(0, 2, verbs.WCSuccess)
	p.A.WantMem(1000, patterned(100, 1))
}

func testDeregTarget(p *Pair) {
	l := p.B.Listen()
	const big = 1 << 20
	for steps := range 12 {
		p.A.Sends, p.A.Recvs, p.B.Sends, p.B.Recvs = nil, nil, nil, nil
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		mem := AlignedMem(big)
		mr := p.B.RegMR(mem, lowIOVA, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		pattern(p.A.Mem[:big], 1)
		for i := range 3 {
			w := p.A.Write(uint64(i), verbs.SendSignaled, 0, p.A.SGE(0, big))
			w.RKey, w.RemoteAddr = mr.RKey(), lowIOVA
			p.A.Post(w)
		}
		for range steps {
			p.Step()
		}
		p.deregUntouched(mr)
		clear(mem)
		p.A.SendsDone(3)
		p.Settle()
		if !onlyByte(mem, 0) {
			p.Fatalf("after %d steps: memory written after Dereg", steps)
		}
		p.A.QP.Destroy()
		p.B.QP.Destroy()
	}
}

func testDeregSink(p *Pair) {
	l := p.B.Listen()
	const big = 1 << 20
	pattern(p.B.Mem, 1)
	for steps := range 12 {
		p.A.Sends = nil
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		mem := AlignedMem(big)
		mr := p.A.RegMR(mem, 0x1000, verbs.AccessLocalWrite)
		p.A.Post(p.A.Read(1, verbs.SendSignaled, 0, verbs.SGE{Addr: 0x1000, Length: big, LKey: mr.LKey()}))
		for range steps {
			p.Step()
		}
		p.deregUntouched(mr)
		done := len(p.A.Sends) > 0
		clear(mem)
		p.A.SendsDone(1)
		if !done {
			// Complete but not yet reported is a success as well.
			p.A.WantSend(0, 1, verbs.WCLocProtErr, verbs.WCSuccess)
		}
		p.Settle()
		if late := !onlyByte(mem, 0); late && p.Env.Habits.LateDereg {
			p.habit("the response went on into deregistered memory")
		} else if late {
			p.Fatalf("after %d steps: memory written after Dereg", steps)
		}
		p.A.QP.Destroy()
		p.B.QP.Destroy()
	}
}

func testDeregSource(p *Pair) {
	p.Connect()
	mr := p.B.RegMR(AlignedMem(1<<20), lowIOVA, verbs.AccessRemoteRead)
	r := p.A.Read(1, verbs.SendSignaled, 0, p.A.SGE(0, 1<<20))
	r.RKey, r.RemoteAddr = mr.RKey(), lowIOVA
	p.A.Post(r)
	p.dereg(mr) // B has not progressed since: the request cannot have been served
	if p.Env.Habits.Immediate && p.A.SendsDone(1)[0].Status == verbs.WCSuccess {
		p.habit("the READ was served before the region ended")
		return
	}
	p.A.WantSend(0, 1, p.remote(verbs.WCRemAccessErr)...)
	p.inexact(p.A.Sends[0], verbs.WCRemAccessErr)
	p.A.Dead()
	p.B.Dead()
}

func testKeyed(p *Pair) {
	pd, ok := p.B.PD.(verbs.Keyed)
	if !ok {
		p.Skip("the device chooses all keys")
	}
	p.Connect()
	const rights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	mem := AlignedMem(page)
	own := p.B.RegMR(AlignedMem(page), lowIOVA, rights)
	key := own.RKey() ^ 1<<20
	mr, err := pd.RegMRKey(mem, lowIOVA, rights, key)
	if err != nil || mr.RKey() != key || mr.IOVA() != lowIOVA || mr.Len() != page {
		p.Fatalf("RegMRKey(%#x): %+v, %v", key, mr, err)
	}
	for _, c := range []struct {
		key  uint32
		want error
	}{{key, syscall.EEXIST}, {key ^ 1, syscall.EEXIST}, {own.RKey(), syscall.EEXIST}, {255, syscall.EINVAL}} {
		if _, err := pd.RegMRKey(mem, lowIOVA, rights, c.key); !errors.Is(err, c.want) {
			p.Errorf("RegMRKey(%#x): %v, want %v", c.key, err, c.want)
		}
	}
	if _, err := pd.RegMRKey(nil, lowIOVA, rights, key^1<<19); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("no memory: %v, want EINVAL", err)
	}
	pattern(p.A.Mem[:64], 1)
	w := p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(0, 64))
	w.RKey, w.RemoteAddr = key, lowIOVA
	p.A.Post(w)
	p.A.WantSend(0, 1, verbs.WCSuccess)
	p.Settle()
	if !bytes.Equal(mem[:64], patterned(64, 1)) {
		p.Error("a WRITE to the region did not arrive")
	}
	p.dereg(mr)
	if mr, err = pd.RegMRKey(mem, lowIOVA, rights, key); err != nil {
		p.Fatalf("the key of a region that ended: %v", err)
	}
	p.dereg(mr)
	p.dereg(own)
	testKeysApart(p)
}

// testKeysApart: no region of one's own has the key of one that peers use, also on another device. So many
// that some would have by chance.
func testKeysApart(p *Pair) {
	own, used := map[uint32]bool{}, map[uint32]bool{}
	mem := AlignedMem(page)
	var all []verbs.MR
	for range 4096 {
		for _, e := range []*Side{p.A, p.B} {
			m, r := e.RegMR(mem, lowIOVA, verbs.AccessLocalWrite), e.RegMR(mem, lowIOVA, verbs.AccessRemoteRead)
			own[m.RKey()>>8], used[r.RKey()>>8] = true, true
			all = append(all, m, r)
		}
	}
	for key := range own {
		if used[key] {
			p.Errorf("key %#x is that of a region for peers and of one without rights for them", key<<8)
		}
	}
	for _, m := range all {
		p.dereg(m)
	}
}

func testRestricted(p *Pair) {
	p.B.Attr.Peer = 42
	l := p.B.Listen()
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.Join(p.A.QP, p.B.QP, l)
	mem := AlignedMem(page)
	mr := p.B.RegMR(mem, lowIOVA, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRestricted)
	mr.Allow(42)
	mr.Allow(43)
	w := p.A.Write(1, 0, 0, p.A.SGE(0, 64))
	w.RKey, w.RemoteAddr = mr.RKey(), lowIOVA
	r := p.A.Read(2, verbs.SendSignaled, 0, p.A.SGE(1000, 64))
	r.RKey, r.RemoteAddr = mr.RKey(), lowIOVA
	pattern(p.A.Mem[:64], 1)
	p.A.Post(w, r)
	p.A.WantSend(0, 2, verbs.WCSuccess)
	p.A.WantMem(1000, patterned(64, 1))

	// A QP that leads to someone else is refused, the first one goes on.
	a, b := p.A.QP, p.B.QP
	p.B.Attr.Peer = 44
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.Join(p.A.QP, p.B.QP, l)
	r.SGL = []verbs.SGE{p.A.SGE(2000, 64)}
	p.A.Post(r)
	p.A.WantSend(1, 2, verbs.WCRemAccessErr)
	p.A.Dead()
	p.B.Dead()
	p.A.WantMem(2000, make([]byte, 64))
	if a.State() != verbs.QPRTS || b.State() != verbs.QPRTS {
		p.Errorf("the other connection is in states %d, %d", a.State(), b.State())
	}
}

func testDisallow(p *Pair) {
	p.Connect()
	mem := AlignedMem(page)
	mr := p.B.RegMR(mem, lowIOVA, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRestricted)
	mr.Allow(7)
	w := p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(0, 64))
	w.RKey, w.RemoteAddr = mr.RKey(), lowIOVA
	pattern(p.A.Mem[:64], 1)
	p.B.Recv(1)
	p.A.Post(w, p.A.Send(2, 0))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	if !bytes.Equal(mem[:64], patterned(64, 1)) {
		p.Error("the allowed WRITE is not there")
	}
	p.A.WantSend(0, 1, verbs.WCSuccess)
	mr.Disallow(7)
	clear(mem)
	p.A.Post(w)
	p.wantRefused(1, 1, verbs.WCRemAccessErr, false)
	p.A.Dead()
	p.B.Dead()
	if !onlyByte(mem, 0) {
		p.Error("the disallowed WRITE was placed")
	}
}

func testRestrictedWindow(p *Pair) {
	p.Connect()
	mem := AlignedMem(page)
	mr := p.B.RegMR(mem, mwBase, verbs.AccessLocalWrite|verbs.AccessMWBind|verbs.AccessRestricted)
	mr.Allow(7)
	w := p.window(p.B, verbs.MWType2)
	p.bound(w, mr, 0, verbs.IncRKey(w.RKey()))
	wr := p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(0, 64))
	wr.RKey, wr.RemoteAddr = w.RKey(), mwBase
	pattern(p.A.Mem[:64], 1)
	p.B.Recv(1)
	p.A.Post(wr, p.A.Send(2, 0))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.A.WantSend(0, 1, verbs.WCSuccess)
	if !bytes.Equal(mem[:64], patterned(64, 1)) {
		p.Error("the allowed WRITE is not there")
	}
	mr.Disallow(7)
	clear(mem)
	p.A.Post(wr)
	p.wantRefused(1, 1, verbs.WCRemAccessErr, false)
	p.A.Dead()
	p.B.Dead()
	if !onlyByte(mem, 0) {
		p.Error("the disallowed WRITE was placed")
	}
}

func testBusy(p *Pair) {
	p.Connect()
	if err := p.A.PD.Dealloc(); !errors.Is(err, syscall.EBUSY) {
		p.Errorf("Dealloc of a PD in use: %v, want EBUSY", err)
	}
	if err := p.A.SendCQ.Destroy(); !errors.Is(err, syscall.EBUSY) {
		p.Errorf("Destroy of a CQ in use: %v, want EBUSY", err)
	}
	if err := p.A.QP.Destroy(); err != nil {
		p.Errorf("QP.Destroy: %v", err)
	}
	if err := p.A.PD.Dealloc(); !errors.Is(err, syscall.EBUSY) {
		p.Errorf("Dealloc of a PD with a region: %v, want EBUSY", err)
	}
	p.dereg(p.A.MR)
	if err := p.A.PD.Dealloc(); err != nil {
		p.Errorf("Dealloc: %v", err)
	}
	for _, cq := range []verbs.CQ{p.A.SendCQ, p.A.RecvCQ} {
		if err := cq.Destroy(); err != nil {
			p.Errorf("CQ.Destroy: %v", err)
		}
	}
	p.A.Hold = true
	p.B.Dead()
}
