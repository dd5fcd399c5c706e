package verbs_test

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// endpoint is what one side needs to speak with queue pairs.
type endpoint struct {
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
}

func open(dev verbs.Device) *endpoint {
	e := &endpoint{dev: dev, mem: make([]byte, 4096)}
	e.pd = must(dev.AllocPD())
	e.cq = must(dev.CreateCQ(16))
	e.mr = must(e.pd.RegMR(e.mem, 0, verbs.AccessLocalWrite))
	e.qp = must(e.pd.CreateQP(verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	return e
}

// at returns a piece of the endpoint's memory.
func (e *endpoint) at(off uint64, n uint32) []verbs.SGE {
	return []verbs.SGE{{Addr: off, Length: n, LKey: e.mr.LKey()}}
}

// A queue pair is connected and carries a message. The provider is in memory; the
// calls are the same for verbs/soft and verbs/ibv.
func Example() {
	net := sim.NewNetwork(1)
	a, b := open(net.Device(netip.MustParseAddr("10.0.0.1"))), open(net.Device(netip.MustParseAddr("10.0.0.2")))

	l := must(b.dev.Listen(netip.MustParseAddrPort("10.0.0.2:7000")))
	must(0, a.dev.Connect(a.qp, verbs.ConnectParam{Remote: l.Addr()}))
	for ev := make([]verbs.CMEvent, 1); a.qp.State() != verbs.QPRTS; net.Step() {
		if b.dev.PollCM(ev) == 1 && ev[0].Type == verbs.CMConnectRequest {
			must(0, b.dev.Accept(ev[0].Req, b.qp, nil))
		}
	}

	copy(a.mem, "hello")
	must(b.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: b.at(1000, 100)}}))
	must(a.qp.PostSend([]verbs.SendWR{{WRID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.at(0, 5)}}))
	wc := make([]verbs.WC, 1)
	for b.cq.Poll(wc) == 0 {
		net.Step()
	}
	fmt.Println(wc[0].WRID, wc[0].Status == verbs.WCSuccess, string(b.mem[1000:][:wc[0].ByteLen]))
	// Output:
	// 1 true hello
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
