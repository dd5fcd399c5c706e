package verbstest

import (
	"bytes"
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func connectCases() []testCase {
	return []testCase{
		{name: "C10 private data travels both ways", run: testPrivate},
		{name: "C11 too much private data is refused", run: testPrivateLimit},
		{name: "C12 Reject carries private data", run: testReject},
		{name: "C13 nobody listens: Unreachable", run: testUnreachable},
		{name: "C14 a closed listener: Unreachable", run: testListenerClosed},
		{name: "C15 an unanswered request times out", run: testConnectTimeout},
		{name: "C16 an address in use cannot be listened on", run: testAddrInUse},
		{name: "C17 a request can be answered once", run: testAnswerOnce},
		{name: "C18 sends posted before Established arrive", run: testEarlySends},
		{name: "C19 crossing connects make two connections", run: testCrossing},
		{name: "C20 ToError ends a set-up", run: testToErrorConnecting},
		{name: "C21 Destroy ends a set-up", run: testDestroyConnecting},
		{name: "C22 many connections are kept apart", run: testMany},
		{name: "C23 a QP connects once", run: testConnectTwice},
	}
}

func testPrivate(p *Pair) {
	l := p.B.Listen()
	limit := p.A.Dev.Attr().MaxPrivate
	for i, n := range []int{0, 1, 56, limit} {
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		ask, reply := patterned(n, byte(i)), patterned(n, byte(i+100))
		err := p.A.Dev.Connect(p.A.QP, verbs.ConnectParam{Local: p.Env.AddrA, Remote: l.Addr(), Private: ask})
		if err != nil {
			p.Fatal(err)
		}
		clear(ask) // was copied
		req := p.B.Request()
		if !p.samePrivate(req.Private, patterned(n, byte(i))) {
			p.Errorf("request: %d bytes of private data %x, sent %d", len(req.Private), req.Private, n)
		}
		if req.Local.Addr() != l.Addr().Addr() || req.Remote.Addr() != p.Env.AddrA.Addr() {
			p.Errorf("request from %v to %v, want %v to %v", req.Remote, req.Local, p.Env.AddrA, l.Addr())
		}
		if err := p.B.Dev.Accept(req.Req, p.B.QP, reply); err != nil {
			p.Fatal(err)
		}
		clear(reply)
		ev := p.A.Event(p.A.QP, verbs.CMEstablished)
		if !p.samePrivate(ev.Private, patterned(n, byte(i+100))) {
			p.Errorf("reply: %d bytes of private data %x, sent %d", len(ev.Private), ev.Private, n)
		}
		p.B.Event(p.B.QP, verbs.CMEstablished)
	}
}

// samePrivate compares private data; some connection managers pad it.
func (p *Pair) samePrivate(got, sent []byte) bool {
	if p.Env.Habits.Padded && len(got) > len(sent) && bytes.Equal(got[:len(sent)], sent) {
		p.habit("private data are padded with zeros")
		return len(bytes.Trim(got[len(sent):], "\x00")) == 0
	}
	return bytes.Equal(got, sent)
}

func testPrivateLimit(p *Pair) {
	l := p.B.Listen()
	limit := p.A.Dev.Attr().MaxPrivate
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	err := p.A.Dev.Connect(p.A.QP, verbs.ConnectParam{Local: p.Env.AddrA, Remote: l.Addr(), Private: make([]byte, limit+1)})
	if !errors.Is(err, syscall.EINVAL) {
		p.Errorf("Connect with %d bytes: %v, want EINVAL", limit+1, err)
	}
	p.Join(p.A.QP, p.B.QP, l) // the QP can still be used
}

func testReject(p *Pair) {
	l := p.B.Listen()
	for i, n := range []int{0, 4, 148} {
		p.A.Recvs = nil
		p.A.QP = p.A.NewQP()
		p.A.Recv(1, p.A.SGE(0, 64))
		p.Dial(p.A.QP, l)
		if err := p.B.Dev.Reject(p.B.Request().Req, patterned(n, byte(i))); err != nil {
			p.Fatal(err)
		}
		ev := p.A.Event(p.A.QP, verbs.CMRejected)
		if !p.samePrivate(ev.Private, patterned(n, byte(i))) {
			p.Errorf("reject: %d bytes of private data %x, sent %d", len(ev.Private), ev.Private, n)
		}
		p.failedSetUp()
	}
}

// failedSetUp checks that A's QP, whose connection was refused, is in ERR with
// its one receive flushed.
func (p *Pair) failedSetUp() {
	p.Helper()
	p.A.WantRecv(0, 1, verbs.WCWRFlushErr)
	if s := p.A.QP.State(); s != verbs.QPErr {
		p.Errorf("state %d after a failed set-up, want ERR", s)
	}
	p.Settle()
	if ev := p.A.FindEvent(p.A.QP, verbs.CMEstablished, verbs.CMDisconnected); ev != nil {
		p.Errorf("event %d after a failed set-up", ev.Type)
	}
	if err := p.A.QP.Destroy(); err != nil {
		p.Error(err)
	}
}

func testUnreachable(p *Pair) {
	p.A.QP = p.A.NewQP()
	p.A.Recv(1, p.A.SGE(0, 64))
	if err := p.A.Dev.Connect(p.A.QP, verbs.ConnectParam{Local: p.Env.AddrA, Remote: p.Env.Dead}); err != nil {
		p.Fatal(err)
	}
	if ev := p.A.Event(p.A.QP, verbs.CMUnreachable); ev.Err == nil {
		p.Error("CMUnreachable without Err")
	}
	p.failedSetUp()
}

func testListenerClosed(p *Pair) {
	l := p.B.Listen()
	if err := l.Close(); err != nil {
		p.Fatal(err)
	}
	p.A.QP = p.A.NewQP()
	p.A.Recv(1, p.A.SGE(0, 64))
	p.Dial(p.A.QP, l)
	p.A.Event(p.A.QP, verbs.CMUnreachable)
	p.failedSetUp()
}

func testConnectTimeout(p *Pair) {
	l := p.B.Listen()
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.A.Recv(1, p.A.SGE(0, 64))
	// Long enough for the request to get through on a machine with other work.
	err := p.A.Dev.Connect(p.A.QP, verbs.ConnectParam{Local: p.Env.AddrA, Remote: l.Addr(), TimeoutNs: 500e6})
	if err != nil {
		p.Fatal(err)
	}
	req := p.B.Request()
	p.A.Event(p.A.QP, verbs.CMUnreachable, verbs.CMConnectError)
	p.failedSetUp()
	if p.B.Dev.Accept(req.Req, p.B.QP, nil) == nil { // too late
		p.B.Event(p.B.QP, verbs.CMConnectError, verbs.CMDisconnected)
	}
}

func testAddrInUse(p *Pair) {
	l := p.B.Listen()
	if l2, err := p.B.Dev.Listen(l.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
		p.Errorf("second Listen(%v): %v, %v; want EADDRINUSE", l.Addr(), l2, err)
	}
	if err := l.Close(); err != nil {
		p.Fatal(err)
	}
	l2, err := p.B.Dev.Listen(l.Addr())
	if err != nil {
		p.Fatalf("Listen after Close: %v", err)
	}
	l2.Close()
}

func testAnswerOnce(p *Pair) {
	l := p.B.Listen()
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.Dial(p.A.QP, l)
	req := p.B.Request()
	if err := p.B.Dev.Reject(req.Req, nil); err != nil {
		p.Fatal(err)
	}
	if err := p.B.Dev.Accept(req.Req, p.B.QP, nil); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("Accept of an answered request: %v, want EINVAL", err)
	}
	if err := p.B.Dev.Reject(req.Req, nil); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("Reject of an answered request: %v, want EINVAL", err)
	}
	if err := p.B.Dev.Reject(verbs.RequestID(1<<60), nil); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("Reject of an unknown request: %v, want EINVAL", err)
	}
	p.A.Event(p.A.QP, verbs.CMRejected)

	p.A.QP = p.A.NewQP()
	p.Dial(p.A.QP, l)
	req = p.B.Request()
	if err := p.B.Dev.Accept(req.Req, p.B.QP, nil); err != nil {
		p.Fatal(err)
	}
	if err := p.B.Dev.Reject(req.Req, nil); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("Reject of an accepted request: %v, want EINVAL", err)
	}
	p.A.Event(p.A.QP, verbs.CMEstablished)
}

func testEarlySends(p *Pair) {
	l := p.B.Listen()
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.A.Recv(1, p.A.SGE(0, 64))
	p.B.Recv(1, p.B.SGE(0, 64))
	pattern(p.A.Mem[100:][:64], 1)
	pattern(p.B.Mem[100:][:64], 2)
	p.Dial(p.A.QP, l)
	p.A.Post(p.A.Send(2, verbs.SendSignaled, p.A.SGE(100, 64)))
	req := p.B.Request()
	if err := p.B.Dev.Accept(req.Req, p.B.QP, nil); err != nil {
		p.Fatal(err)
	}
	p.B.Post(p.B.Send(2, verbs.SendSignaled, p.B.SGE(100, 64)))
	for i, s := range []*Side{p.A, p.B} {
		s.WantRecv(0, 1, verbs.WCSuccess)
		s.WantSend(0, 2, verbs.WCSuccess)
		s.WantMem(0, patterned(64, byte(2-i)))
		s.Event(s.QP, verbs.CMEstablished)
	}
}

func testCrossing(p *Pair) {
	la, lb := p.A.Listen(), p.B.Listen()
	a1, b1, a2, b2 := p.A.NewQP(), p.B.NewQP(), p.A.NewQP(), p.B.NewQP()
	p.Dial(a1, lb)
	if err := p.B.Dev.Connect(b2, verbs.ConnectParam{Local: p.Env.AddrB, Remote: la.Addr()}); err != nil {
		p.Fatal(err)
	}
	if err := p.B.Dev.Accept(p.B.Request().Req, b1, nil); err != nil {
		p.Fatal(err)
	}
	if err := p.A.Dev.Accept(p.A.Request().Req, a2, nil); err != nil {
		p.Fatal(err)
	}
	for i, pair := range [][2]verbs.QP{{a1, b1}, {a2, b2}} {
		p.A.Event(pair[0], verbs.CMEstablished)
		p.B.Event(pair[1], verbs.CMEstablished)
		p.A.QP, p.B.QP = pair[0], pair[1]
		pattern(p.A.Mem[:64], byte(i))
		p.B.Recv(uint64(i), p.B.SGE(0, 64))
		p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(0, 64)))
		p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
		p.B.WantMem(0, patterned(64, byte(i)))
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
	}
}

func testToErrorConnecting(p *Pair) {
	l := p.B.Listen()
	for steps := range 8 {
		p.A.Recvs = nil
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.A.Recv(1)
		p.Dial(p.A.QP, l)
		for range steps {
			p.Step()
		}
		est := p.A.FindEvent(p.A.QP, verbs.CMEstablished) != nil
		p.A.QP.ToError()
		p.A.WantRecv(0, 1, verbs.WCWRFlushErr)
		p.acceptLate()
		p.Settle()
		if !est && p.A.FindEvent(p.A.QP, verbs.CMEstablished) != nil {
			p.Errorf("after %d steps: Established after ToError", steps)
		}
		if s := p.A.QP.State(); s != verbs.QPErr {
			p.Errorf("state %d, want ERR", s)
		}
		p.A.QP.Destroy()
		p.B.QP.Destroy()
	}
}

func testDestroyConnecting(p *Pair) {
	l := p.B.Listen()
	for steps := range 8 {
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Dial(p.A.QP, l)
		for range steps {
			p.Step()
		}
		if err := p.A.QP.Destroy(); err != nil {
			p.Fatal(err)
		}
		p.acceptLate()
		p.Settle()
		p.B.QP.Destroy()
	}
	if err := l.Close(); err != nil { // with the requests of those above that are still to come
		p.Fatal(err)
	}
	p.Settle()
	p.B.Events, p.B.requests = nil, 0
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.Join(p.A.QP, p.B.QP, p.B.Listen())
}

// acceptLate accepts a request of a peer that has gone, if one arrives: it must
// end in an error, at the call or as an event.
func (p *Pair) acceptLate() {
	p.Helper()
	p.Settle()
	n := 0
	for i := range p.B.Events {
		if ev := &p.B.Events[i]; ev.Type == verbs.CMConnectRequest {
			if n++; n > p.B.requests {
				p.B.requests++
				if p.B.Dev.Accept(ev.Req, p.B.QP, nil) == nil {
					p.B.Event(p.B.QP, verbs.CMConnectError, verbs.CMDisconnected)
				}
				return
			}
		}
	}
}

func testMany(p *Pair) {
	l := p.B.Listen()
	const n = 10
	var as, bs []verbs.QP
	for range n {
		p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
		p.Join(p.A.QP, p.B.QP, l)
		as, bs = append(as, p.A.QP), append(bs, p.B.QP)
	}
	for i := range n {
		p.A.QP, p.B.QP = as[i], bs[i]
		p.B.Recv(uint64(i), p.B.SGE(i*64, 64))
		pattern(p.A.Mem[i*64:][:64], byte(i))
		p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(i*64, 64)))
	}
	p.B.RecvsDone(n)
	p.A.SendsDone(n)
	for _, wc := range p.B.Recvs {
		if wc.Status != verbs.WCSuccess || wc.QPNum != bs[wc.WRID].Num() {
			p.Errorf("receive%s on QP %d", wcString([]verbs.WC{wc}), wc.QPNum)
		}
	}
	p.B.WantMem(0, p.A.Mem[:n*64])
	// One dying leaves the others alone.
	as[3].ToError()
	p.B.QP = bs[3]
	p.B.Dead()
	for i := range n {
		if i != 3 && (as[i].State() != verbs.QPRTS || bs[i].State() != verbs.QPRTS) {
			p.Errorf("connection %d in states %d, %d", i, as[i].State(), bs[i].State())
		}
	}
}

func testConnectTwice(p *Pair) {
	p.Connect()
	if err := p.A.Dev.Connect(p.A.QP, verbs.ConnectParam{Local: p.Env.AddrA, Remote: p.Env.Dead}); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("Connect of a connected QP: %v, want EINVAL", err)
	}
	p.B.Recv(1)
	p.A.Post(p.A.Send(1, verbs.SendSignaled))
	p.A.WantSend(0, 1, verbs.WCSuccess)
}
