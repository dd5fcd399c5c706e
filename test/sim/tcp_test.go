package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
)

// tcpScenario is the workload of TestSim in which one host is reached by RDS/TCP, so that what is
// sent by it meets the other features.
var tcpScenario = &scenario{
	name: "tcp",
	options: func(r *rand.Rand, o *options) {
		o.more(r)
		o.threads(r)
		o.quotas(r)
		o.hosts, o.overflow = max(o.hosts, 3), 16<<20
		o.tcp, o.tcpBreak, o.tcpBlind = 1+r.IntN(o.hosts), pick[uint32](r, 0, 300, 3000), r.IntN(5) == 0
		o.halt, o.succeed = pick(r, 2, 8, 20), r.IntN(4) > 0
		o.rate = pick[uint64](r, 0, 0, 2000)
		if r.IntN(4) == 0 {
			o.besideKernel(r)
			o.tcp = 2 + r.IntN(o.hosts-1)
		}
		o.sendsToAnybody(r)
	},
	play: func(w *world) {
		if !w.opt.kernel {
			w.run()
			return
		}
		kernelScenario.play(w)
	},
	seen:  []string{"taken over", "halted with peers up", "TCP: broken on the way", "TCP: cookie refused", "TCP: connected at the end"},
	meets: true,
}

// TestSimTCP: whatever else goes on at hosts and in their network, what a host that is reached by
// RDS/TCP gets and sends arrives once and in order.
func TestSimTCP(t *testing.T) { tcpScenario.test(t) }

// withTCP reports whether a message by RDS/TCP is in progress at h.
func (h *host) withTCP() bool {
	if h.w.opt.tcp == 0 {
		return false
	}
	for _, i := range engine.Conns(h.e) {
		if h.w.byTCP(h.addr, i.Remote) && i.Queued+i.Unacked > 0 {
			return true
		}
	}
	return false
}

func (f *flow) byTCP() bool { return f.src.w.byTCP(f.src.ap.Addr(), f.dst.Addr()) }

// begins has f, by RDS/TCP, begin anew with e, if that is of another life than who has got messages
// of it. What the former life did not acknowledge goes to the next one.
func (f *flow) begins(e *endpoint) {
	if f.taker == nil || f.taker.life == e.life || !f.byTCP() {
		return
	}
	f.taker, f.last, f.delivered = nil, -1, 0
	for _, m := range f.msgs {
		m.delivered = false
	}
}
