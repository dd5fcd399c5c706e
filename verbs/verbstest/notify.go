package verbstest

import (
	"errors"
	"reflect"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func notifyCases() []testCase {
	return []testCase{
		{name: "A4 a CQ grants at least what was asked for", run: testCQCap},
		{name: "A135 a CQ overflow: CQ_ERR, then QP_FATAL", run: testOverflow},
		{name: "A136 an armed CQ gets one event", run: testNotify},
		{name: "A136 solicited: receives with the bit, and errors", run: testSolicited},
		{name: "A137 arming twice is once, any widens solicited", run: testArmTwice},
		{name: "A138 arm, poll, wait loses nothing", run: testNoLostEvent},
		{name: "A140 an unsignaled success makes no event", run: testUnsignaledEvent},
		{name: "A130 SRQ_LIMIT_REACHED comes once", run: testSRQLimit},
		{name: "A133 QP_LAST_WQE_REACHED on an SRQ", run: testLastWQE},
		{name: "A143 QP_ACCESS_ERR at the responder of a bad WRITE", run: testAccessEvent},
		{name: "A103 RNR retries run out: RNR_RETRY_EXC", need: verbs.CapRNRRetry, run: testRNRLimit},
		{name: "A103 no RNR retry: RNR_RETRY_EXC at once", need: verbs.CapRNRRetry, run: testRNRNever},
		{name: "A103 a receive in time ends the RNR wait", need: verbs.CapRNRRetry, run: testRNRInTime},
		{name: "A104 RNR codes have 3 and 5 bits, there is no ack time-out", run: testRNRCodes},
	}
}

func testCQCap(p *Pair) {
	for _, n := range []int{1, 7, 1000} {
		if got := p.A.NewCQ(n).Cap(); got < n {
			p.Errorf("asked for %d entries, granted %d", n, got)
		}
	}
	if _, err := p.A.Dev.CreateCQ(0); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("a CQ of 0 entries: %v", err)
	}
}

func testOverflow(p *Pair) {
	p.A.Attr.Cap.MaxSendWR = 64
	p.A.SendCQ = p.A.NewCQ(4)
	p.A.Attr.SendCQ = p.A.SendCQ
	n := p.A.SendCQ.Cap()
	if n >= 64 {
		p.notApplicable("the least CQ has %d entries", n)
		return
	}
	p.Connect()
	p.A.Hold = true
	for i := range n + 1 {
		p.A.Post(p.A.Write(uint64(i), verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	}
	if ev := p.A.WantAsync(verbs.AsyncCQErr); ev.CQ != p.A.SendCQ {
		p.Errorf("%+v", ev)
	}
	p.A.WantAsync(verbs.AsyncQPFatal)
	p.A.Dead()
	p.B.Dead()
	p.A.Hold = false
	p.Settle()
	if len(p.A.Sends) != n || p.A.countAsync(verbs.AsyncCQErr) != 1 {
		p.Errorf("%d completions of a CQ of %d, %d events", len(p.A.Sends), n, p.A.countAsync(verbs.AsyncCQErr))
	}
}

func (s *Side) arm(cq verbs.CQ, solicited bool) {
	s.p.Helper()
	if err := cq.ReqNotify(solicited); err != nil {
		s.p.Fatalf("%s: ReqNotify: %v", s.Name, err)
	}
}

func testNotify(p *Pair) {
	p.Connect()
	cq := p.A.SendCQ
	write := func() {
		p.Helper()
		n := len(p.A.Sends)
		p.A.Post(p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
		p.A.SendsDone(n + 1)
	}
	write()
	if cq.Notified() {
		p.Error("an event without arming")
	}
	p.A.arm(cq, false)
	if cq.Notified() {
		p.Error("an event without a completion")
	}
	p.A.Hold = true
	p.A.Post(p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(0, 8)))
	p.Until("the event", cq.Notified)
	p.A.Hold = false
	p.A.SendsDone(2)
	if cq.Notified() {
		p.Error("the event came twice")
	}
	write()
	if cq.Notified() {
		p.Error("a second event without arming again")
	}
}

func testSolicited(p *Pair) {
	p.Connect()
	cq := p.B.RecvCQ
	for i := range 3 {
		p.B.Recv(uint64(i))
	}
	p.B.arm(cq, true)
	p.A.Post(p.A.Send(1, verbs.SendSignaled))
	p.B.RecvsDone(1)
	p.B.Hold = true
	p.A.Post(p.A.Send(2, verbs.SendSignaled))
	p.A.SendsDone(2)
	p.Settle()
	if cq.Notified() {
		p.Fatal("an unsolicited message made an event")
	}
	p.A.Post(p.A.Send(3, verbs.SendSignaled|verbs.SendSolicited))
	if p.Env.Habits.NoSolicited {
		p.A.SendsDone(3)
		p.Settle()
		p.habit("a solicited message makes no event")
		if cq.Notified() {
			p.Error("an event: no habit any more")
		}
	} else {
		p.Until("the event", cq.Notified)
	}
	p.B.Hold = false
	p.B.RecvsDone(3)
	p.Settle()
	p.B.arm(cq, true)
	p.B.Recv(4)
	p.B.Hold = true
	p.B.QP.ToError()
	p.Until("the event of an error", cq.Notified)
	p.A.Dead() // and of the send queue
	p.A.arm(p.A.SendCQ, true)
	p.A.Post(p.A.Send(4, 0))
	p.Until("the event of a send error", p.A.SendCQ.Notified)
}

func testArmTwice(p *Pair) {
	p.Connect()
	cq := p.B.RecvCQ
	p.B.Recv(1)
	p.B.arm(cq, true)
	p.B.arm(cq, false)
	p.B.arm(cq, true) // does not narrow
	p.B.Hold = true
	p.A.Post(p.A.Send(1, verbs.SendSignaled))
	p.Until("the event", cq.Notified)
	p.B.Hold = false
	p.B.RecvsDone(1)
	p.B.Recv(2)
	p.A.Post(p.A.Send(2, verbs.SendSignaled))
	p.B.RecvsDone(2)
	if cq.Notified() {
		p.Error("a second event, armed twice before the first")
	}
}

// testNoLostEvent is the loop of a consumer that sleeps: it must never sleep
// while a completion waits.
func testNoLostEvent(p *Pair) {
	p.Connect()
	p.B.Hold = true
	cq := p.B.RecvCQ
	const n = 40
	for i := range 8 {
		p.B.Recv(uint64(i))
	}
	var wc [3]verbs.WC
	got, sent := 0, 0
	for got < n {
		for sent < n && sent-got < 8 {
			if k, err := p.A.QP.PostSend([]verbs.SendWR{p.A.Send(uint64(sent), verbs.SendSignaled)}); k == 0 {
				if !errors.Is(err, syscall.ENOMEM) {
					p.Fatal(err)
				}
				p.A.SendsDone(len(p.A.Sends) + 1)
				continue
			}
			sent++
		}
		p.B.arm(cq, false)
		for k := cq.Poll(wc[:]); k > 0; k = cq.Poll(wc[:]) {
			got += k
			for range k {
				p.B.Recv(0)
			}
		}
		if got < sent {
			p.Until("an event for the messages sent", cq.Notified)
		}
	}
}

func testUnsignaledEvent(p *Pair) {
	p.Connect()
	p.A.arm(p.A.SendCQ, false)
	p.A.Post(p.A.Write(1, 0, 0, p.A.SGE(0, 8)))
	p.Settle()
	if p.A.SendCQ.Notified() {
		p.Error("an event without a completion")
	}
}

func testSRQLimit(p *Pair) {
	srq := p.srq(8)
	p.srqPost(srq, 0, 8)
	p.Connect()
	if err := srq.Limit(9); !errors.Is(err, syscall.EINVAL) {
		p.Errorf("a limit above the size: %v", err)
	}
	if err := srq.Limit(6); err != nil {
		p.Fatal(err)
	}
	for i := range 5 {
		p.A.Post(p.A.Send(uint64(i), verbs.SendSignaled))
		p.B.RecvsDone(i + 1)
		p.Settle()
		want := 0
		if i >= 2 {
			want = 1
		}
		if got := p.B.countAsync(verbs.AsyncSRQLimit); got != want {
			p.Fatalf("%d receives left: %d events, want %d", 7-i, got, want)
		}
	}
	if err := srq.Limit(4); err != nil { // fewer are left already
		p.Fatal(err)
	}
	p.Step()
	p.B.Poll()
	if got := p.B.countAsync(verbs.AsyncSRQLimit); got != 2 {
		p.Errorf("%d events after arming below, want 2", got)
	}
}

func testLastWQE(p *Pair) {
	srq := p.srq(8)
	p.srqPost(srq, 0, 4)
	p.Connect()
	p.A.Post(p.A.Send(1, verbs.SendSignaled))
	p.B.RecvsDone(1)
	p.B.QP.ToError()
	p.B.WantAsync(verbs.AsyncQPLastWQE)
	p.Settle()
	if n := p.B.countAsync(verbs.AsyncQPLastWQE); n != 1 {
		p.Errorf("%d events", n)
	}
}

func testAccessEvent(p *Pair) {
	p.Connect()
	wr := p.A.Write(1, verbs.SendSignaled, 0, p.A.SGE(0, 8))
	wr.RKey ^= 0x5a5a5a00
	p.A.Post(wr)
	if p.Env.Habits.Silent {
		p.A.Dead()
		p.B.Dead()
		p.habit("no asynchronous event at the responder")
		if n := p.B.countAsync(verbs.AsyncQPAccessErr); n != 0 {
			p.Errorf("%d events: no habit any more", n)
		}
		return
	}
	p.B.WantAsync(verbs.AsyncQPAccessErr)
	p.A.Dead()
	p.B.Dead()
}

// rnr connects with A's retries and B's timer.
func (p *Pair) rnr(retry verbs.RNRRetry, timer verbs.RNRTimer) {
	p.A.Attr.RNRRetry, p.B.Attr.MinRNRTimer = retry, timer
	p.Connect()
}

func testRNRLimit(p *Pair) {
	p.rnr(3, 12) // 3 times 0.64 ms
	p.B.Recv(1)
	p.A.Post(p.A.Send(1, verbs.SendSignaled), p.A.Send(2, verbs.SendSignaled), p.A.Send(3, verbs.SendSignaled))
	p.wantRNR()
}

func testRNRNever(p *Pair) {
	p.rnr(verbs.RNRNever, 0)
	p.B.Recv(1)
	p.A.Post(p.A.Send(1, verbs.SendSignaled), p.A.Send(2, verbs.SendSignaled), p.A.Send(3, verbs.SendSignaled))
	p.wantRNR()
}

// wantRNR: of three SENDs one had a receive.
func (p *Pair) wantRNR() {
	p.Helper()
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.A.Dead()
	p.A.WantSend(0, 1, verbs.WCSuccess)
	p.wantRefused(1, 2, verbs.WCRNRRetryExcErr, false)
	p.wantRefused(2, 3, verbs.WCWRFlushErr, false)
	if n := p.B.QP.Stats().RNR; n == 0 && p.Env.Habits.NoRNRCount {
		p.habit("messages without a receive are not counted")
	} else if n == 0 {
		p.Error("the counter of messages without a receive is 0")
	}
	p.quiet(3, 0, 0, 1)
}

func testRNRInTime(p *Pair) {
	p.rnr(6, 0) // 6 times 655 ms
	p.A.Post(p.A.Send(1, verbs.SendSignaled, p.A.SGE(0, 8)))
	if p.Env.Habits.NoRNRCount {
		p.Settle()
		p.habit("messages without a receive are not counted")
	} else {
		p.Until("the SEND to find no receive", func() bool { return p.B.QP.Stats().RNR > 0 })
	}
	p.B.Recv(1, p.B.SGE(0, 8))
	p.B.WantRecv(0, 1, verbs.WCSuccess)
	p.A.WantSend(0, 1, verbs.WCSuccess)
	if s := p.A.QP.State(); s != verbs.QPRTS {
		p.Errorf("state %d", s)
	}
}

func testRNRCodes(p *Pair) {
	for _, name := range []string{"Timeout", "RetryCnt", "RetryCount"} {
		if _, is := reflect.TypeFor[verbs.QPInitAttr]().FieldByName(name); is {
			p.Errorf("QPInitAttr has %s: no deviation any more", name)
		}
	}
	for _, change := range []func(*verbs.QPInitAttr){
		func(a *verbs.QPInitAttr) { a.RNRRetry = 8 },
		func(a *verbs.QPInitAttr) { a.RNRRetry = -2 },
		func(a *verbs.QPInitAttr) { a.MinRNRTimer = 32 },
	} {
		a := p.A.Attr
		change(&a)
		if _, err := p.A.PD.CreateQP(a); !errors.Is(err, syscall.EINVAL) {
			p.Errorf("retry %d, timer %d: %v, want EINVAL", a.RNRRetry, a.MinRNRTimer, err)
		}
	}
}
