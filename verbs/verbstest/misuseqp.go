package verbstest

import (
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

// misused are queue pairs of A, besides the connected one.
type misused struct {
	idle    verbs.QP // in INIT
	gone    verbs.QP // destroyed
	noReads verbs.QP // connected, without read depth
}

func testMisuseQP(p *Pair) {
	p.Connect()
	a, einval := p.A, syscall.EINVAL
	q := misused{idle: a.NewQP(), gone: a.NewQP()}
	if err := q.gone.Destroy(); err != nil {
		p.Fatal(err)
	}
	shallow := a.Attr
	shallow.Cap.ReadDepth = 0
	var err error
	if q.noReads, err = a.PD.CreateQP(shallow); err != nil {
		p.Fatal(err)
	}
	p.Join(q.noReads, p.B.NewQP(), p.B.Listen())
	p.misuses(p.createMisuses())
	p.misuses(p.postMisuses(&q))
	p.misuses(p.optionalMisuses(&q))
	if err := q.idle.Modify(verbs.QPReset); err != nil {
		p.Fatal(err)
	}
	p.misuses([]misuse{
		{"PostSend in RESET", einval, "Connect", postSend(q.idle, changed(a, func(*verbs.SendWR) {}))},
		{"PostRecv in RESET", einval, "RESET", postRecv(q.idle)},
	})
	p.Settle()
	if len(a.Sends)+len(a.Recvs) != 0 || a.QP.State() != verbs.QPRTS {
		p.Errorf("refused calls left completions%s%s, state %d", wcString(a.Sends), wcString(a.Recvs), a.QP.State())
	}
	a.Post(a.Write(1, verbs.SendSignaled, 0, a.SGE(0, 8))) // all is well
	a.WantSend(0, 1, verbs.WCSuccess)
}

// createMisuses are attributes of which no queue pair can be made.
func (p *Pair) createMisuses() []misuse {
	a, at, einval := p.A, p.A.Dev.Attr(), syscall.EINVAL
	deadCQ := a.NewCQ(4)
	deadSRQ, err := a.PD.CreateSRQ(1, 1)
	if err := errors.Join(err, deadCQ.Destroy(), deadSRQ.Destroy()); err != nil {
		p.Fatal(err)
	}
	far, err := p.B.PD.CreateSRQ(1, 1)
	if err != nil {
		p.Fatal(err)
	}
	return []misuse{
		{"no CQ", einval, "completion queue", createQP(a, func(c *verbs.QPInitAttr) { c.SendCQ = nil })},
		{"dead CQ", einval, "completion queue", createQP(a, func(c *verbs.QPInitAttr) { c.RecvCQ = deadCQ })},
		{"another device's CQ", einval, "completion queue", createQP(a, func(c *verbs.QPInitAttr) { c.RecvCQ = p.B.RecvCQ })},
		{"dead SRQ", einval, "shared receive queue", createQP(a, func(c *verbs.QPInitAttr) { c.SRQ = deadSRQ })},
		{"another device's SRQ", einval, "shared receive queue", createQP(a, func(c *verbs.QPInitAttr) { c.SRQ = far })},
		{"RNR retry 8", einval, "RNR retry 8", createQP(a, func(c *verbs.QPInitAttr) { c.RNRRetry = 8 })},
		{"RNR timer 32", einval, "timer 32", createQP(a, func(c *verbs.QPInitAttr) { c.MinRNRTimer = 32 })},
		{"acknowledgement mode 2", einval, "acknowledgement", createQP(a, func(c *verbs.QPInitAttr) { c.Ack = 2 })},
		{"CRC mode 2", einval, "CRC", createQP(a, func(c *verbs.QPInitAttr) { c.CRC = 2 })},
		{"unknown right", einval, "access", createQP(a, func(c *verbs.QPInitAttr) { c.Access = 1 << 30 })},
		{"too many sends", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxSendWR = at.MaxSendWR + 1 })},
		{"too many receives", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxRecvWR = at.MaxRecvWR + 1 })},
		{"too many SGEs", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxSendSGE = at.MaxSGE + 1 })},
		{"too many receive SGEs", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxRecvSGE = at.MaxSGE + 1 })},
		{"too much inline", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxInline = at.MaxInline + 1 })},
		{"too deep", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.ReadDepth = at.MaxReadDepth + 1 })},
		{"-1 sends", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxSendWR = -1 })},
		{"-1 receives", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxRecvWR = -1 })},
		{"-1 SGEs", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxSendSGE = -1 })},
		{"-1 receive SGEs", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxRecvSGE = -1 })},
		{"-1 bytes inline", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.MaxInline = -1 })},
		{"-1 deep", einval, "capacities", createQP(a, func(c *verbs.QPInitAttr) { c.Cap.ReadDepth = -1 })},
	}
}

// postMisuses are work requests and changes of state that every provider refuses.
func (p *Pair) postMisuses(q *misused) []misuse {
	a, einval := p.A, syscall.EINVAL
	many := make([]verbs.SGE, a.QP.Cap().MaxSendSGE+1)
	for i := range many {
		many[i] = a.SGE(i*8, 8)
	}
	modify := func(qp verbs.QP, to verbs.QPState) func() error { return func() error { return qp.Modify(to) } }
	return []misuse{
		{"PostSend in INIT", einval, "Connect", postSend(q.idle, changed(a, func(*verbs.SendWR) {}))},
		{"opcode 200", einval, "opcode 200", postSend(a.QP, changed(a, func(w *verbs.SendWR) { w.Op = 200 }))},
		{"send flag 16", einval, "flags 0x10", postSend(a.QP, changed(a, func(w *verbs.SendWR) { w.Flags = 16 }))},
		{"too many SGEs in a SEND", einval, "SGEs", postSend(a.QP, a.Send(1, 0, many...))},
		{"an empty SGE", einval, "length 0", postSend(a.QP, a.Send(1, 0, verbs.SGE{}))},
		{"too much inline data", einval, "inline", postSend(a.QP, a.Send(1, verbs.SendInline, a.SGE(0, a.QP.Cap().MaxInline+1)))},
		{"inline READ", einval, "inline", postSend(a.QP, a.Read(1, verbs.SendInline, 0, a.SGE(0, 8)))},
		{"inline data without the flag", einval, "inline", postSend(a.QP, changed(a, func(w *verbs.SendWR) { w.SGL, w.Inline = nil, []byte{1} }))},
		{"inline data and an SGL", einval, "inline", postSend(a.QP, changed(a, func(w *verbs.SendWR) { w.Flags, w.Inline = verbs.SendInline, []byte{1} }))},
		{"inline data by a dead key", einval, "key", postSend(a.QP, a.Send(1, verbs.SendInline, verbs.SGE{Addr: 1, Length: 1, LKey: 0xdeadbeef}))},
		{"READ without depth", einval, "read depth", postSend(q.noReads, a.Read(1, 0, 0, a.SGE(0, 8)))},
		{"PostRecv with too many SGEs", einval, "SGEs", postRecv(a.QP, make([]verbs.SGE, a.QP.Cap().MaxRecvSGE+1)...)},
		{"PostRecv with an empty SGE", einval, "length 0", postRecv(a.QP, verbs.SGE{})},
		{"Modify INIT to RTS", einval, "state", modify(q.idle, verbs.QPRTS)},
		{"Modify RTS to INIT", einval, "state", modify(a.QP, verbs.QPInit)},
		{"Modify to state 77", einval, "state", modify(a.QP, 77)},
		{"PostSend when destroyed", einval, "destroyed", postSend(q.gone, changed(a, func(*verbs.SendWR) {}))},
		{"PostRecv when destroyed", einval, "destroyed", postRecv(q.gone)},
		{"Modify when destroyed", einval, "destroyed", modify(q.gone, verbs.QPErr)},
		{"Destroy twice", einval, "destroyed", q.gone.Destroy},
	}
}

// optionalMisuses are work requests of the kinds that not every device has.
func (p *Pair) optionalMisuses(q *misused) (list []misuse) {
	a, at, einval := p.A, p.A.Dev.Attr(), syscall.EINVAL
	if at.Caps&verbs.CapInvalidate != 0 {
		list = append(list, misuse{"LOCAL_INV with an SGL", einval, "LOCAL_INV", postSend(a.QP, changed(a, func(w *verbs.SendWR) { w.Op = verbs.OpLocalInv }))})
	}
	if at.Caps&verbs.CapMW != 0 {
		list = append(list,
			misuse{"BIND_MW with an SGL", einval, "BIND_MW", postSend(a.QP, changed(a, func(w *verbs.SendWR) { w.Op = verbs.OpBindMW }))},
			misuse{"BIND_MW of nothing", einval, "BIND_MW", postSend(a.QP, verbs.SendWR{Op: verbs.OpBindMW})})
	}
	if at.Caps&verbs.CapAtomics != 0 {
		list = append(list,
			misuse{"atomic of 4 bytes", einval, "8 bytes", postSend(a.QP, changed(a, func(w *verbs.SendWR) { w.Op, w.SGL = verbs.OpAtomicFetchAdd, []verbs.SGE{a.SGE(0, 4)} }))},
			misuse{"atomic of two SGEs", einval, "8 bytes", postSend(a.QP, changed(a, func(w *verbs.SendWR) {
				w.Op, w.SGL = verbs.OpAtomicFetchAdd, []verbs.SGE{a.SGE(0, 8), a.SGE(8, 8)}
			}))},
			misuse{"inline atomic", einval, "inline", postSend(a.QP, changed(a, func(w *verbs.SendWR) { w.Op, w.Flags = verbs.OpAtomicFetchAdd, verbs.SendInline }))},
			misuse{"atomic without depth", einval, "read depth", postSend(q.noReads, changed(a, func(w *verbs.SendWR) { w.Op = verbs.OpAtomicFetchAdd }))})
	}
	return list
}

// createQP is a call that makes a queue pair with the attributes of e's, changed.
func createQP(e *Side, change func(*verbs.QPInitAttr)) func() error {
	return func() error {
		c := e.Attr
		change(&c)
		return last(e.PD.CreateQP(c))
	}
}

func postSend(qp verbs.QP, wr verbs.SendWR) func() error {
	return func() error { return last(qp.PostSend([]verbs.SendWR{wr})) }
}

func postRecv(qp verbs.QP, sgl ...verbs.SGE) func() error {
	return func() error { return last(qp.PostRecv([]verbs.RecvWR{{SGL: sgl}})) }
}

// changed is a signaled SEND of 8 bytes, changed.
func changed(e *Side, change func(*verbs.SendWR)) verbs.SendWR {
	wr := e.Send(1, verbs.SendSignaled, e.SGE(0, 8))
	change(&wr)
	return wr
}
