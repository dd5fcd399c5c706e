package engine

import (
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

const (
	stormPeers = 10_000
	stormTick  = 1_000_000 // virtual ns
	stormBufs  = conn.MinCredits
)

// stormPeer is a host of which there is a connection and no more: an engine of its own would
// take a hundred megabytes. It is the connection's Host.
type stormPeer struct {
	conn.Host // what is not called in this test

	dev  *sim.Device
	pd   verbs.PD
	cq   verbs.CQ
	srq  verbs.SRQ
	mr   verbs.MR
	mem  []byte
	free []*conn.SendBuf
	c    *conn.Conn
	got  int64 // when its message came
	now  int64
}

// newStormPeer makes host a, which hub can connect to.
func newStormPeer(t *testing.T, net *sim.Network, a, hub netip.Addr, instance uint64) *stormPeer {
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	p := &stormPeer{dev: net.Device(a), mem: make([]byte, 2*stormBufs*conn.CtlLen)}
	var err error
	p.pd, err = p.dev.AllocPD()
	check(err)
	p.cq, err = p.dev.CreateCQ(64)
	check(err)
	p.srq, err = p.pd.CreateSRQ(stormBufs, 1)
	check(err)
	p.mr, err = p.pd.RegMR(p.mem, 0, verbs.AccessLocalWrite)
	check(err)
	_, err = p.dev.Listen(netip.AddrPortFrom(a, 18634))
	check(err)
	for i := range stormBufs {
		p.receiveIn(i)
		off := (stormBufs + i) * conn.CtlLen
		p.free = append(p.free, &conn.SendBuf{Mem: p.mem[off:][:conn.CtlLen], LKey: p.mr.LKey(), Addr: uint64(off)})
	}
	seed := instance
	p.c = conn.New(conn.Config{
		Local: a, Remote: hub, Instance: instance, MaxSend: conn.CtlLen, RecvCredits: stormBufs, MaxSendWR: 16, ReadDepth: 1,
		MinBackoff: 1e6, MaxBackoff: 1e9, ConnectTimeout: 5e9, AckDelay: 1e6, AckBytes: 64 << 10, SettleTimeout: 30e9, Attr: p.dev.Attr(),
		Rand: func() uint64 { seed = seed*6364136223846793005 + 1; return seed >> 16 },
	}, p)
	return p
}

func (p *stormPeer) receiveIn(i int) {
	_, _ = p.srq.PostRecv([]verbs.RecvWR{{WRID: conn.HostWRID | uint64(i),
		SGL: []verbs.SGE{{Addr: uint64(i * conn.CtlLen), Length: conn.CtlLen, LKey: p.mr.LKey()}}}})
}

// turn is what the daemon of p does.
func (p *stormPeer) turn(now int64) {
	p.now = now
	for ev := make([]verbs.CMEvent, 1); p.dev.PollCM(ev) == 1; {
		if ev[0].Type == verbs.CMConnectRequest {
			p.c.HandleRequest(now, ev[0].Req, ev[0].Segment, ev[0].Private)
		} else {
			p.c.HandleCM(now, &ev[0])
		}
	}
	for wc := make([]verbs.WC, 1); p.cq.Poll(wc) == 1; {
		if i := int(wc[0].WRID &^ conn.HostWRID); wc[0].WRID&conn.HostWRID != 0 {
			p.c.HandleRecv(now, &wc[0], p.mem[i*conn.CtlLen:][:conn.CtlLen])
			p.receiveIn(i)
		} else {
			p.c.HandleSend(now, &wc[0])
		}
	}
	p.c.CQEmpty(now)
	if at := p.c.NextTimeout(); at != 0 && at <= now {
		p.c.Tick(now)
	}
	p.c.Flush(now)
}

func (p *stormPeer) Deliver(*conn.Conn, *wire.Header, []byte) (conn.Verdict, uint32) {
	p.got = p.now
	return conn.Accepted, 1
}

func (p *stormPeer) Internal(*conn.Conn, wire.InternalType, []byte) {}
func (p *stormPeer) HasWaiting(*conn.Conn) bool                     { return false }
func (p *stormPeer) Instance(*conn.Conn, uint64) bool               { return true }
func (p *stormPeer) PeerUp(*conn.Conn, bool)                        {}
func (p *stormPeer) PeerDown(*conn.Conn, error)                     {}
func (p *stormPeer) Trace(*conn.Conn, string, error)                {}

func (p *stormPeer) NewQP(*conn.Conn, verbs.RequestID) (verbs.QP, error) {
	return p.pd.CreateQP(verbs.QPInitAttr{SendCQ: p.cq, RecvCQ: p.cq, SRQ: p.srq, Ack: verbs.AckLocal,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 4, MaxRecvSGE: 1, ReadDepth: 1}})
}

func (p *stormPeer) CloseQP(_ *conn.Conn, qp verbs.QP) { _ = qp.Destroy() }

func (p *stormPeer) Accept(_ *conn.Conn, req verbs.RequestID, qp verbs.QP, private []byte) error {
	return p.dev.Accept(req, qp, private)
}

func (p *stormPeer) SendBuf() *conn.SendBuf {
	if len(p.free) == 0 {
		return nil
	}
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return b
}

func (p *stormPeer) PutSendBuf(b *conn.SendBuf) { p.free = append(p.free, b) }
func (p *stormPeer) CtlBuf() *conn.SendBuf      { return p.SendBuf() }
func (p *stormPeer) PutCtlBuf(b *conn.SendBuf)  { p.PutSendBuf(b) }

// storm is a host and many peers of it, whose network is away.
type storm struct {
	w     *world
	r     *raw
	peers []*stormPeer
}

func stormAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }

func newStorm(t *testing.T) *storm {
	st := &storm{}
	st.w = newWorld(t, 1, Config{MaxPeers: 2 * stormPeers})
	p := smallParams()
	p.SubEntries, p.MaxMsgs, p.Slots, p.Cells = 16384, 16384, 16384, 16384
	st.r = st.w.attach(0, p)
	s := st.r.bind(9)
	for i := range stormPeers {
		st.peers = append(st.peers, newStormPeer(t, st.w.net, stormAddr(i), hostAddr(0), uint64(i)+100))
		st.r.open(s, uint32(i), uint32(i), stormAddr(i), 10)
	}
	st.pass(1)
	for i := range stormPeers {
		st.r.sendMsg(s, uint32(i), uint32(i), 10)
	}
	return st
}

// pass lets n ticks pass.
func (st *storm) pass(n int) {
	net := st.w.net
	for range n {
		end := net.Now() + stormTick
		net.At(end, func() {})
		for net.Now() < end {
			net.Step()
		}
		for e := st.w.es[0]; e.Turn(end, Wall(end)); {
		}
		for _, p := range st.peers {
			if at := p.c.NextTimeout(); p.dev.Pending() || at != 0 && at <= end {
				p.turn(end)
			}
		}
	}
}

// failed counts the attempts that have failed.
func (st *storm) failed() (n uint64) {
	for _, p := range st.w.es[0].peers.all {
		n += p.c.Info().Stats.ConnectFailed
	}
	return n
}

// TestStorm: ten thousand hosts that were away are connected, and have their messages, within the longest delay
// between two attempts. Until then attempts are spread evenly over that time.
func TestStorm(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, and ten thousand peers")
	}
	st := newStorm(t)
	net := st.w.net
	net.Faults.Unreachable = 1e6
	st.pass(4000)
	var least, most, before = uint64(math.MaxUint64), uint64(0), st.failed()
	for range 20 {
		st.pass(50)
		now := st.failed()
		least, most, before = min(least, now-before), max(most, now-before), now
	}
	t.Logf("%d to %d attempts in 50 ms", least, most)
	if least == 0 || most > 2*least {
		t.Errorf("%d to %d attempts in 50 ms: they come in herds", least, most)
	}

	net.Faults.Unreachable = 0
	back := net.Now()
	st.pass(1100)
	var when []int64
	for _, p := range st.peers {
		if p.got == 0 {
			t.Fatalf("%v has no message after a second: %v", p.c.Info().Local, p.c.State())
		}
		when = append(when, p.got-back)
	}
	slices.Sort(when)
	for _, share := range []int{1, 25, 50, 75, 90, 100} {
		t.Logf("%3d %% have their message after %d ms", share, when[len(when)*share/100-1]/1e6)
	}
	if last := when[len(when)-1]; last-when[0] > 1_000_000_000 {
		t.Errorf("the last has its message %d ms after the first", (last-when[0])/1e6)
	}
}
