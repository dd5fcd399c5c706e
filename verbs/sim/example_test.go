package sim_test

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// The connection breaks behind a message that has arrived: its sender cannot know
// that it did.
func ExampleNetwork_Hook() {
	net := sim.NewNetwork(1)
	net.Hook = func(p sim.Point) sim.Action {
		if p.Kind == sim.AfterSendDelivered {
			return sim.Break
		}
		return sim.Pass
	}
	open := func(addr string) (*sim.Device, verbs.CQ, verbs.QP) {
		d := net.Device(netip.MustParseAddr(addr))
		pd, cq := must(d.AllocPD()), must(d.CreateCQ(16))
		return d, cq, must(pd.CreateQP(verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4}}))
	}
	a, acq, aqp := open("10.0.0.1")
	b, bcq, bqp := open("10.0.0.2")
	must(bqp.PostRecv([]verbs.RecvWR{{}})) // for a message of no bytes
	l := must(b.Listen(netip.MustParseAddrPort("10.0.0.2:7000")))
	must(0, a.Connect(aqp, verbs.ConnectParam{Remote: l.Addr()}))
	for ev := make([]verbs.CMEvent, 1); aqp.State() != verbs.QPRTS; net.Step() {
		if b.PollCM(ev) == 1 && ev[0].Type == verbs.CMConnectRequest {
			must(0, b.Accept(ev[0].Req, bqp, nil))
		}
	}

	must(aqp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Flags: verbs.SendSignaled}}))
	for net.Step() { // until nothing more is to come
	}
	sent, received := make([]verbs.WC, 1), make([]verbs.WC, 1)
	acq.Poll(sent)
	bcq.Poll(received)
	fmt.Println("received:", received[0].Status == verbs.WCSuccess, "sent:", sent[0].Status == verbs.WCSuccess, "sender is in", aqp.State())
	// Output:
	// received: true sent: false sender is in ERR
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
