package verbstest

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

func misuseCases() []testCase {
	return []testCase{
		{name: "A2 misuse of the device and its connection manager", run: testMisuseDevice},
		{name: "A2 misuse of protection domains, regions and windows", run: testMisuseMemory},
		{name: "A2 misuse of completion and shared receive queues", run: testMisuseQueues},
		{name: "A2 misuse of queue pairs", run: testMisuseQP},
		{name: "A2 a closed device says so", run: testMisuseClosed},
	}
}

// misuse is one wrong call: the errno libibverbs has for it, and a word by which
// the error names the rule.
type misuse struct {
	name string
	want error
	says string
	call func() error
}

func (p *Pair) misuses(list []misuse) {
	p.Helper()
	for _, m := range list {
		err := m.call()
		switch {
		case !errors.Is(err, m.want):
			p.Errorf("%s: %v, want %v", m.name, err, m.want)
		case !strings.Contains(err.Error(), m.says):
			p.Errorf("%s: %q does not say %q", m.name, err, m.says)
		case strings.Contains(err.Error(), "invalid AddrPort"):
			p.Errorf("%s: %q shows a zero address", m.name, err)
		}
	}
}

// last is the error of a call with two results.
func last[T any](_ T, err error) error { return err }

func testMisuseDevice(p *Pair) {
	p.Connect()
	d, einval := p.A.Dev, syscall.EINVAL
	l := p.B.Listen()
	good := verbs.ConnectParam{Local: p.Env.AddrA, Remote: l.Addr()}
	connect := func(qp verbs.QP, change func(*verbs.ConnectParam)) func() error {
		return func() error {
			c := good
			if change != nil {
				change(&c)
			}
			return d.Connect(qp, c)
		}
	}
	fresh, reset, gone := p.A.NewQP(), p.A.NewQP(), p.A.NewQP()
	if err := errors.Join(reset.Modify(verbs.QPReset), gone.Destroy()); err != nil {
		p.Fatal(err)
	}
	six := netip.MustParseAddrPort("[::1]:1")
	p.misuses([]misuse{
		{"CQ of no entries", einval, "0 entries", func() error { return last(d.CreateCQ(0)) }},
		{"CQ of -1 entries", einval, "-1 entries", func() error { return last(d.CreateCQ(-1)) }},
		{"CQ of too many", einval, "entries", func() error { return last(d.CreateCQ(1 << 30)) }},
		{"Listen nowhere", einval, "address", func() error { return last(d.Listen(netip.AddrPort{})) }},
		{"Listen twice", syscall.EADDRINUSE, l.Addr().String(), func() error { return last(p.B.Dev.Listen(l.Addr())) }},
		{"Connect nothing", einval, "queue pair", connect(nil, nil)},
		{"Connect another device's QP", einval, "of this device", connect(p.B.NewQP(), nil)},
		{"Connect a destroyed QP", einval, "of this device", connect(gone, nil)},
		{"Connect in RTS", einval, "INIT", connect(p.A.QP, nil)},
		{"Connect in RESET", einval, "INIT", connect(reset, nil)},
		{"Connect to nowhere", einval, "remote address", connect(fresh, func(c *verbs.ConnectParam) { c.Remote = netip.AddrPort{} })},
		{"Connect to port 0", einval, "remote address", connect(fresh, func(c *verbs.ConnectParam) { c.Remote = netip.AddrPortFrom(c.Remote.Addr(), 0) })},
		{"Connect across families", einval, "family", connect(fresh, func(c *verbs.ConnectParam) { c.Remote = six })},
		{"Connect within -1 ns", einval, "time", connect(fresh, func(c *verbs.ConnectParam) { c.TimeoutNs = -1 })},
		{"Connect with too much", einval, "private data", connect(fresh, func(c *verbs.ConnectParam) { c.Private = make([]byte, d.Attr().MaxPrivate+1) })},
		{"Accept nothing", einval, "request 999999", func() error { return d.Accept(999999, fresh, nil) }},
		{"Reject nothing", einval, "request 999999", func() error { return d.Reject(999999, nil) }},
	})
	p.Dial(fresh, l) // was not used up
	id, b := p.B.Request().Req, p.B.Dev
	p.misuses([]misuse{
		{"Accept with nothing", einval, "queue pair", func() error { return b.Accept(id, nil, nil) }},
		{"Accept with another device's QP", einval, "of this device", func() error { return b.Accept(id, reset, nil) }},
		{"Accept with a QP in RTS", einval, "INIT", func() error { return b.Accept(id, p.B.QP, nil) }},
		{"Accept with too much", einval, "private data", func() error { return b.Accept(id, p.B.NewQP(), make([]byte, b.Attr().MaxPrivate+1)) }},
		{"Reject with too much", einval, "private data", func() error { return b.Reject(id, make([]byte, 149)) }},
	})
	if err := b.Reject(id, nil); err != nil { // was not used up either
		p.Error(err)
	}
	p.misuses([]misuse{{"answer twice", einval, "request", func() error { return b.Accept(id, p.B.NewQP(), nil) }}})
	p.A.Event(fresh, verbs.CMRejected)
	if n := d.PollCM(nil) + d.PollAsync(nil) + p.A.SendCQ.Poll(nil); n != 0 {
		p.Errorf("%d events for no room", n)
	}
}

func testMisuseMemory(p *Pair) {
	pd, einval, ebusy := p.A.PD, syscall.EINVAL, syscall.EBUSY
	mem := AlignedMem(page)
	reg := func(mem []byte, iova uint64, a verbs.Access) func() error {
		return func() error { return last(pd.RegMR(mem, iova, a)) }
	}
	dead := p.A.RegMR(mem, 0, 0)
	p.dereg(dead)
	live := p.A.RegMR(mem, 0x1000, 0)
	gone, err := p.A.Dev.AllocPD()
	if err != nil {
		p.Fatal(err)
	}
	if err := gone.Dealloc(); err != nil {
		p.Fatal(err)
	}
	list := []misuse{
		{"RegMR nothing", einval, "empty", reg(nil, 0, 0)},
		{"RegMR wrap-around", einval, "wrap", reg(mem, ^uint64(0)-page+2, 0)},
		{"RegMR remote write only", einval, "local write", reg(mem, 0, verbs.AccessRemoteWrite)},
		{"RegMR remote atomic only", einval, "local write", reg(mem, 0, verbs.AccessRemoteAtomic)},
		{"RegMR unknown right", einval, "access", reg(mem, 0, 1<<30)},
		{"RegMR zero-based elsewhere", einval, "zero-based", reg(mem, 8, verbs.AccessZeroBased)},
		{"Rereg nothing", einval, "empty", func() error { return live.Rereg(nil, 0, 0) }},
		{"Rereg what is gone", einval, "deregistered", func() error { return dead.Rereg(mem, 0, 0) }},
		{"Dereg twice", einval, "deregistered", dead.Dereg},
		{"Dealloc in use", ebusy, "protection domain", pd.Dealloc},
		{"Dealloc twice", einval, "protection domain", gone.Dealloc},
		{"RegMR in a dead PD", einval, "protection domain", func() error { return last(gone.RegMR(mem, 0, 0)) }},
		{"CreateQP in a dead PD", einval, "protection domain", func() error { return last(gone.CreateQP(p.A.Attr)) }},
		{"CreateSRQ in a dead PD", einval, "protection domain", func() error { return last(gone.CreateSRQ(1, 1)) }},
	}
	if p.A.Dev.Attr().Caps&verbs.CapMW != 0 {
		w := p.window(p.A, verbs.MWType1)
		if err := w.Dealloc(); err != nil {
			p.Fatal(err)
		}
		list = append(list,
			misuse{"AllocMW of type 0", einval, "type 0", func() error { return last(pd.AllocMW(0)) }},
			misuse{"AllocMW in a dead PD", einval, "protection domain", func() error { return last(gone.AllocMW(verbs.MWType1)) }},
			misuse{"Dealloc of a window twice", einval, "deallocated", w.Dealloc})
	}
	p.misuses(list)
	p.dereg(live)
}

func testMisuseQueues(p *Pair) {
	d, einval, ebusy, enomem := p.B.Dev.Attr(), syscall.EINVAL, syscall.EBUSY, syscall.ENOMEM
	create := func(wr, sge int) func() error { return func() error { return last(p.B.PD.CreateSRQ(wr, sge)) } }
	srq, dead := p.srq(2), p.B.NewCQ(4)
	deadSRQ, err := p.B.PD.CreateSRQ(1, 1)
	if err := errors.Join(err, dead.Destroy(), deadSRQ.Destroy()); err != nil {
		p.Fatal(err)
	}
	p.Connect()
	post := func(s verbs.SRQ, wr ...verbs.RecvWR) func() error {
		return func() error { return last(s.PostRecv(wr)) }
	}
	sgl := func(n int) []verbs.SGE {
		l := make([]verbs.SGE, n)
		for i := range l {
			l[i] = p.B.SGE(i*8, 8)
		}
		return l
	}
	p.misuses([]misuse{
		{"SRQ of no receives", einval, "0 receives", create(0, 1)},
		{"SRQ of -1 receives", einval, "-1 receives", create(-1, 1)},
		{"SRQ of too many", einval, "receives", create(d.MaxRecvWR+1, 1)},
		{"SRQ of -1 SGEs", einval, "-1 SGEs", create(1, -1)},
		{"SRQ of too many SGEs", einval, "SGEs", create(1, d.MaxSGE+1)},
		{"PostRecv of 3 SGEs", einval, "SGEs", post(srq, verbs.RecvWR{SGL: sgl(3)})},
		{"PostRecv of an empty SGE", einval, "length 0", post(srq, verbs.RecvWR{SGL: []verbs.SGE{{}}})},
		{"PostRecv of 3 in 2", enomem, "full", post(srq, verbs.RecvWR{}, verbs.RecvWR{}, verbs.RecvWR{})},
		{"Limit of -1", einval, "-1 receives", func() error { return srq.Limit(-1) }},
		{"Limit above the size", einval, "3 receives", func() error { return srq.Limit(3) }},
		{"Resize below what is posted", einval, "1 receives", func() error { return srq.Resize(1) }},
		{"Destroy of an SRQ in use", ebusy, "queue pairs", srq.Destroy},
		{"PostRecv when destroyed", einval, "shared receive queue", post(deadSRQ, verbs.RecvWR{})},
		{"Limit when destroyed", einval, "shared receive queue", func() error { return deadSRQ.Limit(0) }},
		{"Resize when destroyed", einval, "shared receive queue", func() error { return deadSRQ.Resize(1) }},
		{"Destroy of an SRQ twice", einval, "shared receive queue", deadSRQ.Destroy},
		{"Destroy of a CQ in use", ebusy, "queue pairs", p.B.SendCQ.Destroy},
		{"Resize of a CQ to nothing", einval, "0 entries", func() error { return p.B.SendCQ.Resize(0) }},
		{"Resize of a dead CQ", einval, "completion queue", func() error { return dead.Resize(4) }},
		{"ReqNotify of a dead CQ", einval, "completion queue", func() error { return dead.ReqNotify(false) }},
		{"Destroy of a CQ twice", einval, "completion queue", dead.Destroy},
	})
	if n := dead.Poll(make([]verbs.WC, 1)); n != 0 {
		p.Errorf("%d completions of a dead CQ", n)
	}
}

func testMisuseClosed(p *Pair) {
	d, gone := p.A.Dev, syscall.ENODEV
	qp := p.A.NewQP()
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		p.Fatal(err)
	}
	p.A.Hold = true
	p.misuses([]misuse{
		{"AllocPD", gone, "device", func() error { return last(d.AllocPD()) }},
		{"CreateCQ", gone, "device", func() error { return last(d.CreateCQ(1)) }},
		{"Listen", gone, "device", func() error { return last(d.Listen(p.Env.AddrA)) }},
		{"Connect", gone, "device", func() error { return d.Connect(qp, verbs.ConnectParam{Remote: p.Env.Dead}) }},
		{"Accept", gone, "device", func() error { return d.Accept(1, qp, nil) }},
		{"Reject", gone, "device", func() error { return d.Reject(1, nil) }},
		{"RegMR", gone, "device", func() error { return last(p.A.PD.RegMR(p.A.Mem, 0, 0)) }},
		{"CreateQP", gone, "device", func() error { return last(p.A.PD.CreateQP(p.A.Attr)) }},
		{"CreateSRQ", gone, "device", func() error { return last(p.A.PD.CreateSRQ(1, 1)) }},
	})
	if d.Progress() || d.PollCM(make([]verbs.CMEvent, 1)) != 0 || d.PollAsync(make([]verbs.AsyncEvent, 1)) != 0 {
		p.Error("a closed device has work")
	}
	d.Flush()
}
