package sim

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/verbs/sim"
)

var churnScenario = &scenario{
	name: "churn",
	options: func(r *rand.Rand, o *options) {
		o.hosts, o.clients, o.sockets, o.users, o.lanes = 4, 1, 0, 0, 0
		o.maxPeers, o.forgetAfter = 8+r.IntN(3), pick[int64](r, 70e9, 100e9, 600e9)
		o.maxSend, o.sendBufs, o.recvBufs, o.credits = 8240, 64, 512, 8
		o.params.EventEntries, o.params.MaxMsgs, o.params.SubEntries, o.params.MaxRx, o.params.Slots = 512, 1024, 512, 128, 256
		o.hardCap, o.overflow, o.sndBuf, o.rcvBuf = 4<<20, 8<<20, 106496, 106496
		o.faults, o.hookRate, o.quotaOps, o.quotaBytes, o.unatomic = sim.Faults{}, 0, 0, 0, false
		o.faults.Break[sim.AfterSendDelivered] = pick[uint32](r, 0, 3000)
		o.revokeTimeout, o.silence, o.settleTimeout, o.peerless, o.monitor = 5e9, 30e9, 30e9, false, false
	},
	play: func(w *world) { (&churn{world: w}).play() },
	seen: []string{"forgotten", "a table was full", "a host was new", "a talk lasted"},
}

// TestSimChurn runs sockets in ever new lanes on hosts with ever new addresses. They talk to one
// another and leave. Each daemon has room for eight to ten peers. A new peer must get in as soon
// as a daemon can forget one that no destination leads to. A long talk must lose nothing, and no
// daemon may forget a peer that its own sockets send to.
func TestSimChurn(t *testing.T) { churnScenario.test(t) }

// churn is a run in which each host knows few of the others at a time.
type churn struct {
	*world
	talks []*talk
	next  int // number of the next host
}

// talk is a pair of sockets in one lane that send to each other.
type talk struct {
	a, b *endpoint
	long bool
}

const (
	lasting  = 2 // how many talks last the whole run
	perHost  = 6 // how many lanes a host uses at a time; its table has room for 8 or more
	perPair  = 3
	openness = 4 // how many talks begin in one round at most
)

func (c *churn) play() {
	c.next = len(c.hosts)
	for range lasting {
		c.begin(true)
	}
	for range 5 + c.rPlay.IntN(6) {
		if c.rPlay.IntN(3) == 0 {
			c.replace()
		}
		for range 1 + c.rPlay.IntN(openness) {
			c.begin(false)
		}
		c.speak()
		c.leave()
		c.pass(below(c.rPlay, pick[int64](c.rPlay, 1e9, 100e9, 900e9)))
	}
	for _, t := range slices.Clone(c.talks) {
		c.end(t)
	}
	c.net.Faults = sim.Faults{}
	for _, h := range c.hosts {
		h.clients[0].bind(0)
	}
	c.pass(c.patience())
}

// patience is the time within which a new peer must get in. It has three parts: forgetAfter,
// until an idle peer can be forgotten; two minutes, until the daemon has looked for such peers;
// 30 s, until the new peer has tried again to connect.
func (c *churn) patience() int64 { return c.opt.forgetAfter + 2*60e9 + 30e9 }

func (c *churn) pass(d int64) {
	end := c.now() + d
	c.net.At(end, func() {})
	for c.now() < end && c.step() {
		c.bound()
	}
}

// lanesOf counts the lanes in use between h and g, and between h and any host.
func (c *churn) lanesOf(h, g *host) (pair, all int) {
	for _, t := range c.talks {
		if t.a.h == h || t.b.h == h {
			all++
			if t.a.h == g || t.b.h == g {
				pair++
			}
		}
	}
	return pair, all
}

// begin starts a talk in a lane of its own between two hosts that have room for one more.
func (c *churn) begin(long bool) {
	a, b := pick(c.rPlay, c.hosts...), pick(c.rPlay, c.hosts...)
	pair, n := c.lanesOf(a, b)
	_, m := c.lanesOf(b, a)
	if a == b || n >= perHost || m >= perHost || pair >= perPair {
		return
	}
	lane := uint8(c.rPlay.IntN(256))
	for _, t := range c.talks {
		if t.a.lane == lane {
			return
		}
	}
	c.opt.lanes, c.opt.laneV[0] = 1, lane
	t := &talk{a.clients[0].bind(0), b.clients[0].bind(0), long}
	c.opt.lanes = 0
	c.talks = append(c.talks, t)
}

// speak has both sides of every talk send, and checks that everything arrives in time.
func (c *churn) speak() {
	var sent []*message
	for _, t := range c.talks {
		for range 1 + c.rPlay.IntN(5) {
			for _, way := range [][2]*endpoint{{t.a, t.b}, {t.b, t.a}} {
				m := way[0].send(way[1].ap, c.size(), extra{})
				if m != nil {
					sent = append(sent, m)
				}
			}
		}
		if t.long {
			c.saw("a talk lasted")
		}
	}
	for end := c.now() + c.patience(); ; c.pass(1e6) {
		missing := slices.IndexFunc(sent, func(m *message) bool { return !m.delivered })
		if missing < 0 {
			return
		}
		if m := sent[missing]; c.now() > end {
			broken("liveness", "%v to %v, lane %d: message %d has not got in after %d s; %v; connections of host %d: %v",
				m.flow.src.ap, m.flow.dst, m.flow.src.lane, m.id, (c.now()-m.at)/1e9, c.state(), m.flow.src.h.n, c.connsOf(m.flow.dst.Addr()))
		}
		if m := sent[missing]; c.now() > m.at+5e9 {
			c.saw("a table was full")
		}
	}
}

func (c *churn) connsOf(a netip.Addr) (s []any) {
	for _, i := range engine.Conns(c.hostOf(a).e) {
		s = append(s, i.Remote, i.Lane, i.State, i.Queued)
	}
	return s
}

// leave ends most of the talks that are not long.
func (c *churn) leave() {
	for _, t := range slices.Clone(c.talks) {
		if !t.long && c.rPlay.IntN(4) > 0 {
			c.end(t)
		}
	}
}

func (c *churn) end(t *talk) {
	c.talks = without(c.talks, t)
	for _, e := range []*endpoint{t.a, t.b} {
		e.close()
	}
}

// replace makes a host without a talk leave for good, and starts a new one.
func (c *churn) replace() {
	for _, h := range c.hosts {
		if _, n := c.lanesOf(h, nil); n > 0 {
			continue
		}
		for len(h.clients) > 0 {
			h.clients[0].kill()
		}
		h.endTurn() // a turn that never ends would keep the world in memory
		c.net.Crash(h.addr)
		h.up = false
		c.log(h, "gone", 0, 0, 0)
		c.gone = append(c.gone, h)
		c.hosts = without(c.hosts, h)
		n := &host{w: c.world, n: c.next, addr: netip.AddrFrom4([4]byte{127, 0, 1, byte(c.next + 1)})}
		c.next++
		c.hosts = append(c.hosts, n)
		n.boot()
		c.saw("a host was new")
		return
	}
}
