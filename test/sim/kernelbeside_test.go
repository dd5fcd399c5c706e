package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

// kernelScenario is the workload of TestSim at a host that has a kernel peer as well, so that the
// peer meets the other features. Its daemon does not crash: kworld's rules are those of one life.
var kernelScenario = &scenario{
	name: "kernel",
	options: func(r *rand.Rand, o *options) {
		o.more(r)
		o.threads(r)
		o.quotas(r)
		o.besideKernel(r)
		o.halt, o.succeed = pick(r, 2, 8, 20), r.IntN(4) > 0
		o.drain = pick(r, 0, 2)
		o.sendsToAnybody(r)
	},
	play: func(w *world) {
		k := kernelBeside(w)
		w.run()
		k.rest()
	},
	seen:  []string{"taken over", "halted with peers up", "kernel: success", "kernel: released", "kernel: pong", "kernel: cookie"},
	meets: true,
}

func (o *options) besideKernel(r *rand.Rand) {
	o.kernel, o.hookRate = true, 0
	o.overflow, o.maxSend = 16<<20, pick(r, 8240, 32<<10)
}

// TestSimKernel: whatever else goes on at a host and in its network, a kernel peer gets and sends
// each datagram once and in order.
func TestSimKernel(t *testing.T) { kernelScenario.test(t) }

// kernelBeside adds a kernel peer to the first host, and a process that works with it.
func kernelBeside(w *world) *kworld {
	h := w.hosts[0]
	k := &kworld{net: w.net, r: w.net.Rand(streamKernel), host: h, port: 40_000, saw: map[string]int{}, last: map[[4]uint16]int{}}
	k.bad = k.r.IntN(2) == 0
	w.kernel = k
	k.proc = h.opens(ipc.Cred{}, rds.Params{SubEntries: 512, EventEntries: 64, MaxMsgs: 512, MaxRx: 64, Slots: 64, Cells: 32, SendWindows: 1, RecvWindows: 1})
	k.begin(k.proc.c)
	k.net.At(w.now(), k.goesOn)
	return k
}

// kernel reports whether h has a kernel peer.
func (h *host) kernel() bool { return h.w.kernel != nil && h.w.kernel.host == h }

// goesOn does one thing, until there were enough, and schedules the next.
func (w *kworld) goesOn() {
	if w.done {
		return
	}
	gap := int64(100_000)
	switch {
	case w.host.w.depth > 0: // a call waits, and the process does not look meanwhile
		w.proc.deaf = w.net.Now() + gap + 1
	case w.resting || len(w.in)+len(w.out) > wantMessages:
		if w.readAll(); w.quiet() {
			gap = 5_000_000
		}
	default:
		w.act()
		gap = below(w.r, 60_000)
	}
	w.host.kick()
	w.follows()
	w.net.At(w.net.Now()+gap, w.goesOn)
}

// unread is about how many bytes of the kernel's messages our sockets have not got.
func (w *kworld) unread() (n int) {
	for _, m := range w.in[max(0, len(w.in)-500):] {
		if m.got == 0 {
			n += m.size
		}
	}
	return n
}

// follows has the kernel do what there is to do. w may be nil.
func (w *kworld) follows() {
	if w == nil || w.k == nil {
		return
	}
	if w.k.step(w.net.Now()) {
		w.net.At(w.net.Now()+1, func() {}) // after which it is asked again
	}
}

// rest ends the traffic and the process when everything has arrived.
func (w *kworld) rest() {
	w.resting, w.bad = true, false
	w.net.Faults = sim.Faults{}
	for i := 0; !w.quiet(); i++ {
		w.host.w.pump()
		if i > maxEvents/3 {
			w.fatalf("never comes to rest: kernel %d, %d queued, %d unacked; %+v", w.k.state, len(w.k.sendq), len(w.k.retrans), w.conns())
		}
	}
	w.done = true
	w.verify()
	for what, n := range w.saw {
		if n > 0 {
			w.host.w.saw("kernel: " + what)
		}
	}
	w.proc.kill()
}

// withKernel reports whether a message to or from a kernel peer is in progress at h.
func (h *host) withKernel() bool {
	if !h.kernel() {
		return false
	}
	for _, i := range h.w.kernel.conns() {
		if i.Queued+i.Unacked > 0 {
			return true
		}
	}
	return len(h.w.kernel.k.sendq)+len(h.w.kernel.k.retrans) > 0
}
