package verbstest

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

// ownerCases are about the shape of the interface: who may call what, and what
// there is not.
func ownerCases() []testCase {
	return []testCase{
		{name: "A8 no calls that libibverbs has not", run: testNoSuchCalls},
		{name: "A9 a device goes from goroutine to goroutine", run: testHandOver},
		{name: "A16 a queue pair's attributes are checked when it is made", run: testAttributes},
		{name: "A21 requests posted towards nobody are accepted and fail as completions", run: testNobody},
		{name: "A28 the requests of one call stay together", run: testPosters},
		{name: "A35 one signaled request in MaxSendWR never fills the queue", run: testSignalOne},
		{name: "A105 the RNR timer table", run: testRNRTable},
		{name: "A139 taking an event acknowledges it, Destroy waits for none", run: testEventTaken},
		{name: "A144 events of a destroyed object go with it", run: testAsyncGone},
		{name: "A158 no call takes back a request", run: testNoCancel},
	}
}

// methods are the names of all methods of the interface.
func methods() (names []string) {
	for _, t := range []reflect.Type{
		reflect.TypeFor[verbs.Device](), reflect.TypeFor[verbs.PD](), reflect.TypeFor[verbs.MR](), reflect.TypeFor[verbs.MW](),
		reflect.TypeFor[verbs.CQ](), reflect.TypeFor[verbs.SRQ](), reflect.TypeFor[verbs.QP](), reflect.TypeFor[verbs.Listener](),
	} {
		for i := range t.NumMethod() {
			names = append(names, t.Name()[strings.LastIndex(t.Name(), ".")+1:]+"."+t.Method(i).Name)
		}
	}
	return names
}

func (p *Pair) noMethod(words ...string) {
	p.Helper()
	names := methods()
	if len(names) < 40 {
		p.Fatalf("only %d methods found", len(names))
	}
	for _, n := range names {
		for _, w := range words {
			if strings.Contains(n, w) {
				p.Errorf("method %s", n)
			}
		}
	}
}

func testNoSuchCalls(p *Pair) {
	p.noMethod("Handler", "EE", "RDD", "Shared", "QueryMW", "QueryCQ", "Wait")
}

func testNoCancel(p *Pair) {
	p.noMethod("Cancel", "Abort", "Remove", "Unpost", "Withdraw", "Revoke")
}

// testHandOver: nothing is bound to a thread; who hands a device over orders
// its calls. Listener's methods may be called at any time.
func testHandOver(p *Pair) {
	p.Connect()
	l, err := p.B.Dev.Listen(p.Env.AddrB)
	if err != nil {
		p.Fatal(err)
	}
	var beside sync.WaitGroup
	addr := l.Addr()
	beside.Go(func() { // while the owner goes on
		for range 100 {
			if l.Addr() != addr {
				p.Error("another address")
			}
		}
		l.Close()
	})
	for i := range 10 {
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.B.QP.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: []verbs.SGE{p.B.SGE(0, 8)}}})
			if err == nil {
				_, err = p.A.QP.PostSend([]verbs.SendWR{p.A.Send(uint64(i), verbs.SendSignaled, p.A.SGE(0, 8))})
			}
			if err != nil {
				p.Error(err)
			}
		})
		wg.Wait()
		p.A.WantSend(i, uint64(i), verbs.WCSuccess)
		p.B.WantRecv(i, uint64(i), verbs.WCSuccess)
	}
	beside.Wait()
}

// testPosters: callers that take turns post lists, which stay whole.
func testPosters(p *Pair) {
	p.A.Attr.Cap.MaxSendWR = 64
	p.Connect()
	const posters, lists, length = 4, 4, 4
	var mu sync.Mutex
	var wg sync.WaitGroup
	for id := range posters {
		wg.Go(func() {
			for range lists {
				wrs := make([]verbs.SendWR, length)
				for i := range wrs {
					wrs[i] = p.A.Write(uint64(id*length+i), verbs.SendSignaled, 0, p.A.SGE(0, 8))
				}
				mu.Lock()
				if n, err := p.A.QP.PostSend(wrs); n != length {
					p.Errorf("%d, %v", n, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i, wc := range p.A.SendsDone(posters * lists * length) {
		if wc.Status != verbs.WCSuccess || wc.WRID%length != uint64(i%length) || wc.WRID/length != p.A.Sends[i-i%length].WRID/length {
			p.Fatalf("completion %d%s is not where its list is", i, wcString([]verbs.WC{wc}))
		}
	}
}

func testAttributes(p *Pair) {
	for name, change := range map[string]func(*verbs.QPInitAttr){
		"no send CQ":           func(a *verbs.QPInitAttr) { a.SendCQ = nil },
		"no receive CQ":        func(a *verbs.QPInitAttr) { a.RecvCQ = nil },
		"another device's CQ":  func(a *verbs.QPInitAttr) { a.SendCQ = p.B.SendCQ },
		"unknown right":        func(a *verbs.QPInitAttr) { a.Access = 1 << 30 },
		"acknowledgement mode": func(a *verbs.QPInitAttr) { a.Ack = 9 },
		"RNR retry":            func(a *verbs.QPInitAttr) { a.RNRRetry = 8 },
		"RNR timer":            func(a *verbs.QPInitAttr) { a.MinRNRTimer = 32 },
		"read depth":           func(a *verbs.QPInitAttr) { a.Cap.ReadDepth = p.A.Dev.Attr().MaxReadDepth + 1 },
	} {
		a := p.A.Attr
		change(&a)
		if qp, err := p.A.PD.CreateQP(a); qp != nil || !errors.Is(err, syscall.EINVAL) {
			p.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
	// Nothing holds on to the queues, so nothing was half made.
	for _, cq := range []verbs.CQ{p.A.SendCQ, p.A.RecvCQ} {
		if err := cq.Destroy(); err != nil {
			p.Error(err)
		}
	}
	p.A.Hold = true
}

func testNobody(p *Pair) {
	p.A.QP = p.A.NewQP()
	p.A.Recv(1, p.A.SGE(0, 64))
	if err := p.A.Dev.Connect(p.A.QP, verbs.ConnectParam{Local: p.Env.AddrA, Remote: p.Env.Dead}); err != nil {
		p.Fatal(err)
	}
	p.A.Post(p.A.Send(2, 0, p.A.SGE(0, 8)), p.A.Write(3, 0, 0, p.A.SGE(0, 8)))
	p.A.Event(p.A.QP, verbs.CMUnreachable)
	p.A.WantSend(0, 2, verbs.WCWRFlushErr, verbs.WCRetryExcErr)
	p.A.WantSend(1, 3, verbs.WCWRFlushErr)
	p.A.WantRecv(0, 1, verbs.WCWRFlushErr)
	p.quiet(2, 1, 0, 0)
}

func testSignalOne(p *Pair) {
	p.A.Attr.Cap.MaxSendWR = 4
	p.Connect()
	n := p.A.QP.Cap().MaxSendWR
	for round := range 30 {
		for i := range n {
			var f verbs.SendFlags
			if i == n-1 {
				f = verbs.SendSignaled
			}
			p.A.Post(p.A.Write(uint64(round), f, 0, p.A.SGE(0, 8)))
		}
		p.A.WantSend(round, uint64(round), verbs.WCSuccess)
	}
}

// testRNRTable compares with the InfiniBand specification's table, in 10 us.
func testRNRTable(p *Pair) {
	table := []int64{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
		6144, 8192, 12288, 16384, 24576, 32768, 49152}
	for code, want := range table {
		a := p.A.Attr
		a.MinRNRTimer = verbs.RNRTimer(code)
		qp, err := p.A.PD.CreateQP(a)
		if err != nil {
			p.Fatalf("code %d: %v", code, err)
		}
		if got := a.MinRNRTimer.Ns(); got != want*10_000 {
			p.Errorf("code %d: %d ns, want %d0 us", code, got, want)
		}
		if err := qp.Destroy(); err != nil {
			p.Error(err)
		}
	}
}

func testEventTaken(p *Pair) {
	p.Connect()
	cq := p.A.NewCQ(8)
	p.A.Attr.SendCQ = cq
	p.A.QP.ToError()
	p.B.Dead()
	qp := p.A.NewQP()
	p.A.arm(cq, false)
	qp.ToError()
	if _, err := qp.PostSend([]verbs.SendWR{p.A.Send(1, 0)}); err != nil {
		p.Fatal(err)
	}
	p.Settle() // the event is there, and nobody takes it
	if err := qp.Destroy(); err != nil {
		p.Fatal(err)
	}
	if err := cq.Destroy(); err != nil {
		p.Errorf("Destroy with an event not taken: %v", err)
	}
	if cq.Notified() {
		p.Error("the event outlives its queue")
	}
	if err := cq.ReqNotify(false); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("ReqNotify on a destroyed CQ: %v, want EINVAL", err)
	}
}

func testAsyncGone(p *Pair) {
	p.Connect()
	p.Settle()
	p.B.Hold = true
	wr := p.A.Write(1, 0, 0, p.A.SGE(0, 8))
	wr.RKey ^= 0x5a5a5a00
	p.A.Post(wr)
	p.A.Dead()
	raised := p.B.countAsync(verbs.AsyncQPAccessErr)
	if raised == 0 && p.Env.Habits.Silent {
		p.habit("no asynchronous event at the responder")
	} else if raised != 1 {
		p.Errorf("%d events, taken once each", raised)
	}
	p.B.Async = nil
	srq := p.srq(4)
	if err := srq.Limit(3); err != nil { // below it already: raised, and not taken
		p.Fatal(err)
	}
	if err := srq.Destroy(); err != nil {
		p.Fatal(err)
	}
	if err := p.B.QP.Destroy(); err != nil {
		p.Fatal(err)
	}
	p.Settle()
	if len(p.B.Async) != 0 {
		p.Errorf("events of destroyed objects: %+v", p.B.Async)
	}
}
