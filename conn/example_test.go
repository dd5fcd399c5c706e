package conn_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

const (
	bufLen = 16 << 10 // of each buffer for a SEND: at least wire.MinMaxSend and conn.CtlLen
	bufs   = 8        // of them, to send from, and as many to receive in
)

// node is one end: a device with its queues and memory, and the connection to
// the other end. It is the Host of that connection.
type node struct {
	dev  *sim.Device
	pd   verbs.PD
	cq   verbs.CQ
	srq  verbs.SRQ
	mr   verbs.MR
	mem  []byte          // first the receive buffers, then those to send from
	free []*conn.SendBuf // buffers to send from
	c    *conn.Conn
	got  func(h *wire.Header, payload []byte)
	done func(m *msg.Msg, o msg.Outcome)
}

// newNode makes the end at local of a connection to remote, in memory.
func newNode(net *sim.Network, local, remote netip.Addr, instance uint64) *node {
	n := &node{dev: net.Device(local), mem: make([]byte, 2*bufs*bufLen)}
	n.pd = must(n.dev.AllocPD())
	n.cq = must(n.dev.CreateCQ(256))
	n.srq = must(n.pd.CreateSRQ(bufs, 1))
	n.mr = must(n.pd.RegMR(n.mem, 0, verbs.AccessLocalWrite))
	must(n.dev.Listen(netip.AddrPortFrom(local, 18634)))
	for i := range bufs {
		n.receiveIn(i)
		off := (bufs + i) * bufLen
		n.free = append(n.free, &conn.SendBuf{Mem: n.mem[off:][:bufLen], LKey: n.mr.LKey(), Addr: uint64(off)})
	}
	n.c = conn.New(conn.Config{
		Local: local, Remote: remote, Instance: instance,
		MaxSend: bufLen, RecvCredits: bufs, MaxSendWR: 64, ReadDepth: 4, Attr: n.dev.Attr(),
		MinBackoff: 1e6, MaxBackoff: 1e9, ConnectTimeout: 5e9, AckDelay: 1e6, AckBytes: 64 << 10, SettleTimeout: 30e9,
		Rand: rand.New(rand.NewPCG(instance, 0)).Uint64,
	}, n)
	return n
}

// receiveIn posts receive buffer i. HostWRID keeps receives apart from sends.
func (n *node) receiveIn(i int) {
	wr := verbs.RecvWR{WRID: conn.HostWRID | uint64(i), SGL: []verbs.SGE{{Addr: uint64(i * bufLen), Length: bufLen, LKey: n.mr.LKey()}}}
	must(n.srq.PostRecv([]verbs.RecvWR{wr}))
}

// turn hands the connection what has happened by now, and lets it post what it
// has to send. A daemon does this in a loop, for each of its connections.
func (n *node) turn(now int64) {
	for ev := make([]verbs.CMEvent, 1); n.dev.PollCM(ev) == 1; {
		if ev[0].Type == verbs.CMConnectRequest {
			n.c.HandleRequest(now, ev[0].Req, ev[0].Segment, ev[0].Private)
		} else {
			n.c.HandleCM(now, &ev[0])
		}
	}
	for wc := make([]verbs.WC, 1); n.cq.Poll(wc) == 1; {
		if i := int(wc[0].WRID &^ conn.HostWRID); wc[0].WRID&conn.HostWRID != 0 {
			n.c.HandleRecv(now, &wc[0], n.mem[i*bufLen:][:bufLen])
			n.receiveIn(i)
		} else {
			n.c.HandleSend(now, &wc[0])
		}
	}
	n.c.CQEmpty(now)
	if t := n.c.NextTimeout(); t != 0 && t <= now {
		n.c.Tick(now)
	}
	n.c.Flush(now)
}

// Two ends exchange a message and its answer over queue pairs in memory.
func Example() {
	addrA, addrB := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	net := sim.NewNetwork(1)
	a, b := newNode(net, addrA, addrB, 100), newNode(net, addrB, addrA, 200)
	answered := false
	b.got = func(h *wire.Header, payload []byte) {
		fmt.Printf("b: %q from port %d to port %d\n", payload, h.SPort, h.DPort)
		b.c.Send(&msg.Msg{SPort: h.DPort, DPort: h.SPort, SrcInc: 1, Data: []byte("hello a")})
	}
	a.got = func(_ *wire.Header, payload []byte) {
		fmt.Printf("a: %q\n", payload)
		answered = true
	}
	a.done = func(m *msg.Msg, o msg.Outcome) { fmt.Printf("a: %q is %v\n", m.Data, o) }

	a.c.Send(&msg.Msg{SPort: 4000, DPort: 5000, SrcInc: 1, Data: []byte("hello b")}) // connects to b first
	for !answered {
		a.turn(net.Now())
		b.turn(net.Now())
		net.Step() // virtual time goes on to the next event
	}
	// Output:
	// b: "hello b" from port 4000 to port 5000
	// a: "hello a"
	// a: "hello b" is Acked
}

// The MessageHost: messages that arrive, and the end of those sent.

func (n *node) Deliver(_ *conn.Conn, h *wire.Header, payload []byte) (conn.Verdict, uint32) {
	n.got(h, payload)
	return conn.Accepted, 0
}

// Begin and Commit are for a message longer than one SEND.
func (n *node) Begin(_ *conn.Conn, h *wire.Header) ([]byte, any, conn.Verdict) {
	whole := make([]byte, h.Len)
	return whole, &whole, conn.Accepted
}

func (n *node) Commit(_ *conn.Conn, h *wire.Header, token any) uint32 {
	n.got(h, *token.(*[]byte))
	return 0
}

func (n *node) HasWaiting(*conn.Conn) bool { return false }

func (n *node) MsgDone(_ *conn.Conn, m *msg.Msg, o msg.Outcome) {
	if n.done != nil {
		n.done(m, o)
	}
}

// This example has no RDMA operations, and forgets a message that did not come whole.

func (n *node) Abort(*conn.Conn, any)                           {}
func (n *node) Bound(*conn.Conn, *msg.Msg, uint32)              {}
func (n *node) Internal(*conn.Conn, wire.InternalType, []byte)  {}
func (n *node) CanPost(*conn.Conn, *msg.Msg) bool               { return false }
func (n *node) OpLocal(*conn.Conn, *msg.Msg)                    {}
func (n *node) RunAtomic(*conn.Conn, *wire.Atomic, bool) uint64 { return 0 }
func (n *node) AtomicResult(*conn.Conn, *msg.Msg, uint64)       {}
func (n *node) AimAtomic(*conn.Conn, *wire.Header, *wire.Atomic) wire.AtomicStatus {
	return wire.AtomicAccess
}
func (n *node) OpPlaced(*conn.Conn, *msg.Msg) {}

// The PeerHost: news of the peer, for which this example has no use.

func (n *node) Instance(*conn.Conn, uint64) bool { return true }
func (n *node) PeerUp(*conn.Conn, bool)          {}
func (n *node) PeerDown(*conn.Conn, error)       {}
func (n *node) Congestion(*conn.Conn, *cong.Map) {}
func (n *node) Trace(*conn.Conn, string, error)  {}

// The DeviceHost: queue pairs and their buffers.

func (n *node) NewQP(*conn.Conn, verbs.RequestID) (verbs.QP, error) {
	return n.pd.CreateQP(verbs.QPInitAttr{SendCQ: n.cq, RecvCQ: n.cq, SRQ: n.srq, Ack: verbs.AckLocal,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxSendSGE: 4, MaxRecvSGE: 1, ReadDepth: 4}})
}

func (n *node) CloseQP(_ *conn.Conn, qp verbs.QP) { must(0, qp.Destroy()) }

func (n *node) Dial(c *conn.Conn, qp verbs.QP, private []byte) error {
	i := c.Info()
	return n.dev.Connect(qp, verbs.ConnectParam{Local: netip.AddrPortFrom(i.Local, 0), Remote: netip.AddrPortFrom(i.Remote, 18634), Private: private})
}

func (n *node) Accept(_ *conn.Conn, req verbs.RequestID, qp verbs.QP, private []byte) error {
	return n.dev.Accept(req, qp, private)
}

func (n *node) Reject(req verbs.RequestID, private []byte) { must(0, n.dev.Reject(req, private)) }

func (n *node) SendBuf() *conn.SendBuf {
	if len(n.free) == 0 {
		return nil
	}
	b := n.free[len(n.free)-1]
	n.free = n.free[:len(n.free)-1]
	return b
}

func (n *node) PutSendBuf(b *conn.SendBuf) { n.free = append(n.free, b) }
func (n *node) CtlBuf() *conn.SendBuf      { return n.SendBuf() }
func (n *node) PutCtlBuf(b *conn.SendBuf)  { n.PutSendBuf(b) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
