package verbstest

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/rdsd/rdsd/verbs"
)

// Side is one end: a device with a PD, its queues, a QP, and a registered arena with
// all rights.
type Side struct {
	p              *Pair
	Name           string
	Dev            verbs.Device
	PD             verbs.PD
	SendCQ, RecvCQ verbs.CQ
	Mem            []byte
	Base           uint64 // address of Mem in work requests
	MR             verbs.MR
	Attr           verbs.QPInitAttr
	QP             verbs.QP

	Hold         bool       // completions stay in the queues
	Sends, Recvs []verbs.WC // polled so far
	Events       []verbs.CMEvent
	Async        []verbs.AsyncEvent
	requests     int // connect requests taken
}

func (p *Pair) newSide(name string, dev verbs.Device, base uint64) *Side {
	p.Helper()
	s := &Side{p: p, Name: name, Dev: dev, Mem: AlignedMem(ArenaSize), Base: base}
	var err error
	if s.PD, err = dev.AllocPD(); err != nil {
		p.Fatalf("%s: AllocPD: %v", name, err)
	}
	s.SendCQ, s.RecvCQ = s.NewCQ(256), s.NewCQ(256)
	s.MR = s.RegMR(s.Mem, base, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|s.atomicRight())
	a := dev.Attr()
	s.Attr = verbs.QPInitAttr{
		SendCQ: s.SendCQ,
		RecvCQ: s.RecvCQ,
		Cap: verbs.QPCap{
			MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: min(3, a.MaxSGE), MaxRecvSGE: min(3, a.MaxSGE),
			MaxInline: min(64, a.MaxInline), ReadDepth: min(4, a.MaxReadDepth),
		},
		Ack:     p.Mode,
		Peer:    7,
		Access:  verbs.AccessRemoteRead | verbs.AccessRemoteWrite | s.atomicRight(),
		Context: s,
	}
	return s
}

func (s *Side) atomicRight() verbs.Access {
	if s.Dev.Attr().Caps&verbs.CapAtomics != 0 {
		return verbs.AccessRemoteAtomic
	}
	return 0
}

// AlignedMem returns n bytes that start on a page boundary.
func AlignedMem(n int) []byte {
	if Memory != nil {
		return Memory(n)
	}
	b := make([]byte, n+page)
	off := -uintptr(unsafe.Pointer(&b[0])) % page
	return b[off : off+uintptr(n) : off+uintptr(n)]
}

// NewCQ makes a completion queue.
func (s *Side) NewCQ(n int) verbs.CQ {
	s.p.Helper()
	cq, err := s.Dev.CreateCQ(n)
	if err != nil {
		s.p.Fatalf("%s: CreateCQ: %v", s.Name, err)
	}
	return cq
}

// RegMR registers memory in the side's PD.
func (s *Side) RegMR(mem []byte, iova uint64, access verbs.Access) verbs.MR {
	s.p.Helper()
	mr, err := s.PD.RegMR(mem, iova, access)
	if err != nil {
		s.p.Fatalf("%s: RegMR: %v", s.Name, err)
	}
	return mr
}

// NewQP makes a QP with the side's Attr.
func (s *Side) NewQP() verbs.QP {
	s.p.Helper()
	qp, err := s.PD.CreateQP(s.Attr)
	if err != nil {
		s.p.Fatalf("%s: CreateQP: %v", s.Name, err)
	}
	return qp
}

// SGE returns the piece of n bytes at off of the arena.
func (s *Side) SGE(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.Base + uint64(off), Length: uint32(n), LKey: s.MR.LKey()}
}

// Send returns a SEND of pieces of the side's arena.
func (s *Side) Send(id uint64, flags verbs.SendFlags, sgl ...verbs.SGE) verbs.SendWR {
	return verbs.SendWR{WRID: id, Op: verbs.OpSend, Flags: flags, SGL: sgl}
}

// Write returns an RDMA WRITE to off of the peer's arena.
func (s *Side) Write(id uint64, flags verbs.SendFlags, off int, sgl ...verbs.SGE) verbs.SendWR {
	r := s.peer()
	return verbs.SendWR{WRID: id, Op: verbs.OpRDMAWrite, Flags: flags, RKey: r.MR.RKey(), RemoteAddr: r.Base + uint64(off), SGL: sgl}
}

// Read returns an RDMA READ from off of the peer's arena.
func (s *Side) Read(id uint64, flags verbs.SendFlags, off int, sgl ...verbs.SGE) verbs.SendWR {
	wr := s.Write(id, flags, off, sgl...)
	wr.Op = verbs.OpRDMARead
	return wr
}

func (s *Side) peer() *Side {
	if s == s.p.A {
		return s.p.B
	}
	return s.p.A
}

// Post posts send requests, all of which must be accepted.
func (s *Side) Post(wr ...verbs.SendWR) {
	s.p.Helper()
	if n, err := s.QP.PostSend(wr); n != len(wr) || err != nil {
		s.p.Fatalf("%s: PostSend took %d of %d: %v", s.Name, n, len(wr), err)
	}
}

// Refuse posts one send request that must fail with want.
func (s *Side) Refuse(want error, wr verbs.SendWR) {
	s.p.Helper()
	if n, err := s.QP.PostSend([]verbs.SendWR{wr}); n != 0 || !errors.Is(err, want) {
		s.p.Fatalf("%s: PostSend of a bad request: %d, %v; want 0, %v", s.Name, n, err, want)
	}
}

// Recv posts one receive, which must be accepted.
func (s *Side) Recv(id uint64, sgl ...verbs.SGE) {
	s.p.Helper()
	if n, err := s.QP.PostRecv([]verbs.RecvWR{{WRID: id, SGL: sgl}}); n != 1 || err != nil {
		s.p.Fatalf("%s: PostRecv took %d: %v", s.Name, n, err)
	}
}

// Poll takes completions and events, and reports whether there were any.
func (s *Side) Poll() (any bool) {
	var ev [8]verbs.CMEvent
	for n := s.Dev.PollCM(ev[:]); n > 0; n = s.Dev.PollCM(ev[:]) {
		s.Events, any = append(s.Events, ev[:n]...), true
	}
	var async [8]verbs.AsyncEvent
	for n := s.Dev.PollAsync(async[:]); n > 0; n = s.Dev.PollAsync(async[:]) {
		s.Async, any = append(s.Async, async[:n]...), true
	}
	if s.Hold {
		return any
	}
	var wc [16]verbs.WC
	for n := s.SendCQ.Poll(wc[:]); n > 0; n = s.SendCQ.Poll(wc[:]) {
		s.Sends, any = append(s.Sends, wc[:n]...), true
	}
	for n := s.RecvCQ.Poll(wc[:]); n > 0; n = s.RecvCQ.Poll(wc[:]) {
		s.Recvs, any = append(s.Recvs, wc[:n]...), true
	}
	return any
}

// SendsDone waits for n send completions in all and returns them.
func (s *Side) SendsDone(n int) []verbs.WC {
	s.p.Helper()
	s.p.Until(s.Name+"'s send completions", func() bool { return len(s.Sends) >= n })
	return s.Sends
}

// RecvsDone waits for n receive completions in all and returns them.
func (s *Side) RecvsDone(n int) []verbs.WC {
	s.p.Helper()
	s.p.Until(s.Name+"'s receive completions", func() bool { return len(s.Recvs) >= n })
	return s.Recvs
}

// WantSend checks send completion i.
func (s *Side) WantSend(i int, id uint64, status ...verbs.WCStatus) {
	s.p.Helper()
	s.want("send", s.SendsDone(i + 1)[i], id, status)
}

// WantRecv checks receive completion i.
func (s *Side) WantRecv(i int, id uint64, status ...verbs.WCStatus) {
	s.p.Helper()
	s.want("receive", s.RecvsDone(i + 1)[i], id, status)
}

func (s *Side) want(kind string, wc verbs.WC, id uint64, status []verbs.WCStatus) {
	s.p.Helper()
	if wc.WRID != id || !bytes.Contains(toBytes(status), toBytes([]verbs.WCStatus{wc.Status})) {
		s.p.Fatalf("%s: %s completion%s; want id %d, status %d", s.Name, kind, wcString([]verbs.WC{wc}), id, status)
	}
}

// WantMem checks the arena at off.
func (s *Side) WantMem(off int, want []byte) {
	s.p.Helper()
	got := s.Mem[off : off+len(want)]
	if bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if got[i] != want[i] {
			s.p.Fatalf("%s: memory at %d+%d is %#x, want %#x", s.Name, off, i, got[i], want[i])
		}
	}
}

// eventTexts are the types of the events, and what failures say.
func (s *Side) eventTexts() (t []string) {
	for i := range s.Events {
		text := fmt.Sprint(s.Events[i].Type)
		if err := s.Events[i].Err; err != nil {
			text += fmt.Sprintf(" (%v)", err)
		}
		t = append(t, text)
	}
	return t
}

// FindEvent returns qp's first event of one of these types, or nil.
func (s *Side) FindEvent(qp verbs.QP, types ...verbs.CMEventType) *verbs.CMEvent {
	for i := range s.Events {
		for _, t := range types {
			if ev := &s.Events[i]; ev.Type == t && ev.QP == qp {
				return ev
			}
		}
	}
	return nil
}

// Event waits for qp's event of one of these types.
func (s *Side) Event(qp verbs.QP, types ...verbs.CMEventType) *verbs.CMEvent {
	s.p.Helper()
	var ev *verbs.CMEvent
	s.p.Until(s.Name+"'s connection event", func() bool { ev = s.FindEvent(qp, types...); return ev != nil })
	return ev
}

// Request waits for the next connect request.
func (s *Side) Request() verbs.CMEvent {
	s.p.Helper()
	var ev verbs.CMEvent
	s.p.Until(s.Name+"'s connect request", func() bool {
		n := 0
		for i := range s.Events {
			if s.Events[i].Type != verbs.CMConnectRequest {
				continue
			}
			if n++; n > s.requests {
				ev = s.Events[i]
				return true
			}
		}
		return false
	})
	s.requests++
	return ev
}

// Listen starts a listener that ends with the test.
func (s *Side) Listen() verbs.Listener {
	s.p.Helper()
	addr := s.p.Env.AddrA
	if s == s.p.B {
		addr = s.p.Env.AddrB
	}
	l, err := s.Dev.Listen(addr)
	if err != nil {
		s.p.Fatalf("%s: Listen(%v): %v", s.Name, addr, err)
	}
	s.p.Cleanup(func() { l.Close() })
	return l
}

// Dead waits until the QP of s is in ERR, without a call of its owner, and until the
// owner has been told once.
func (s *Side) Dead() {
	s.p.Helper()
	s.Event(s.QP, verbs.CMDisconnected)
	if got := s.QP.State(); got != verbs.QPErr {
		s.p.Errorf("%s: QP in state %d after CMDisconnected, want ERR", s.Name, got)
	}
}
