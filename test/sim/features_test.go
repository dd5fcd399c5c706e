package sim

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
)

// feature is something that lasts over time, so that others meet it.
type feature struct {
	name  string
	draw  string // how the workload of TestSim brings it up
	on    func(h *host, p *engine.Progress) bool
	parts []string // fields of engine.Lasting in which it lasts
}

// features are all of them. A new one is declared here, with what draws it.
var features = []feature{
	{name: "long operation", draw: "options.piece, big regions",
		on:    func(_ *host, p *engine.Progress) bool { return p.LongOperation },
		parts: []string{"sender.broken", "long.pieces", "sharing.looking", "sharing.paused"}},
	{name: "one-use region", draw: "endpoint.offer",
		on: func(_ *host, p *engine.Progress) bool { return p.OneUse }},
	{name: "other lane", draw: "options.lanes",
		on:    func(_ *host, p *engine.Progress) bool { return p.OtherLane },
		parts: []string{"allowance.lanes", "remote.past"}},
	{name: "further path", draw: "options.paths, options.older",
		on:    func(_ *host, p *engine.Progress) bool { return p.FurtherPath },
		parts: []string{"sharing.exposes"}},
	{name: "copy on one host", draw: "options.localShare, options.slice",
		on: func(_ *host, p *engine.Progress) bool { return p.Copy }},
	{name: "run", draw: "options.burst, options.small",
		on: func(_ *host, p *engine.Progress) bool { return p.Run }},
	{name: "carried atomic", draw: "options.atomics",
		on: func(_ *host, p *engine.Progress) bool { return p.CarriedAtomic }},
	{name: "refusing port of a peer", draw: "options.rcvBuf, options.stall",
		on:    func(_ *host, p *engine.Progress) bool { return p.Refusing },
		parts: []string{"portStop.behind", "portStop.refused", "receiver.refusing"}},
	{name: "refusing port of this host", draw: "options.localShare, options.stall",
		on:    func(_ *host, p *engine.Progress) bool { return p.RefusingHere },
		parts: []string{"loop.rousing", "receiving.waiters"}},
	{name: "overflow", draw: "options.overflow, options.stall",
		on:    func(_ *host, p *engine.Progress) bool { return p.Overflow },
		parts: []string{"overflow.short", "account.refused", "pending.pendSocks", "receiving.over"}},
	{name: "message in assembly", draw: "options.maxSend",
		on:    func(_ *host, p *engine.Progress) bool { return p.Assembly },
		parts: []string{"receiver.unfinished", "receiving.partials"}},
	{name: "unread statuses", draw: "options.deaf",
		on:    func(_ *host, p *engine.Progress) bool { return p.UntoldStatus },
		parts: []string{"pending.pendOps", "pending.pendCells"}},
	{name: "message that asks for its status", draw: "asks",
		on: func(_ *host, p *engine.Progress) bool { return p.StatusWanted }},
	{name: "message for anybody", draw: "options.anybody",
		on: func(_ *host, p *engine.Progress) bool { return p.ForAnybody }},
	{name: "message of a trace", draw: "traceOf",
		on: func(_ *host, p *engine.Progress) bool { return p.Traced }},
	{name: "unread notices", draw: "options.deaf",
		on:    func(_ *host, p *engine.Progress) bool { return p.UntoldNotice },
		parts: []string{"pending.pendNote", "pending.gone"}},
	{name: "cancel", draw: "options.cancel",
		on:    func(h *host, _ *engine.Progress) bool { return h.cancels },
		parts: []string{"sender.cancelling"}},
	{name: "time limit", draw: "options.giveUp",
		on:    func(_ *host, p *engine.Progress) bool { return p.Limit },
		parts: []string{"deadlines.limits", "txMsg.limit"}},
	{name: "revocation", draw: "endpoint.releaseOne",
		on: func(_ *host, p *engine.Progress) bool { return p.Revocation },
		parts: []string{"keyTable.pressing", "keyTable.retiring", "keyTable.revoking", "remote.owed", "remote.untoldOf",
			"allowance.asked", "allowance.looking", "allowance.voiding"}},
	{name: "memory that a thread touches", draw: "options.threads",
		on: func(h *host, _ *engine.Progress) bool { return h.dev.Touches() }},
	{name: "key asked for", draw: "region.exposeToAll",
		on:    func(_ *host, p *engine.Progress) bool { return p.Asking },
		parts: []string{"asks.of"}},
	{name: "drain", draw: "options.drain, host.floods",
		on:    func(_ *host, p *engine.Progress) bool { return p.Drain },
		parts: []string{"drains.of"}},
	{name: "planned restart", draw: "options.halt, options.succeed",
		on: func(_ *host, p *engine.Progress) bool { return p.Pause }},
	{name: "reopen", draw: "options.crash, host.reopens: the next processes bind the ports of those before, as one that opens again does",
		on: func(h *host, _ *engine.Progress) bool { return h.unmet() }},
	{name: "congestion", draw: "options.rcvBuf",
		on: func(_ *host, p *engine.Progress) bool { return p.Congested }},
	{name: "quota at its limit", draw: "options.quotaOps, options.press: what begins at a host finds its users at their quota",
		on:    func(_ *host, p *engine.Progress) bool { return p.Full },
		parts: []string{"account.waiting", "account.idle", "userTable.wanted"}},
	{name: "Barrier", draw: "options.barrier, endpoint.cancelsBeside",
		on: func(h *host, _ *engine.Progress) bool { return h.any(func(e *endpoint) bool { return e.inBarrier }) }},
	{name: "wait for relief", draw: "options.monitor",
		on: func(h *host, _ *engine.Progress) bool {
			return h.any(func(e *endpoint) bool { return len(e.congested) > 0 })
		}},
	{name: "many sockets", draw: "options.more",
		on: func(_ *host, p *engine.Progress) bool { return p.ManySockets }},
	{name: "process that ends", draw: "options.kill",
		on: func(h *host, _ *engine.Progress) bool {
			return slices.ContainsFunc(h.clients, func(c *client) bool { return c.ending })
		},
		parts: []string{"clientTable.leaving"}},
	{name: "kernel peer by RDS/IB", draw: "options.kernel: TestSimKernel, which draws the rest as TestSim does",
		on: func(h *host, _ *engine.Progress) bool { return h.withKernel() }},
	{name: "peer by RDS/TCP", draw: "options.tcp: TestSimTCP, which draws the rest as TestSim does",
		on: func(h *host, _ *engine.Progress) bool { return h.withTCP() }},
}

// plain are the other fields of engine.Lasting: what every message, socket, region and
// connection is in, whatever else there is.
var plain = []string{
	"Chores.open", "Engine.pings", "Grants.grants", "Grants.keys", "Memory.users", "addresses.by", "allowance.live", "clientTable.active",
	"deadlines.peers", "handles.buffers", "keyTable.all", "keyTable.by", "localAddr.slots", "looked.timer", "outbox.control", "outbox.notices",
	"outbox.queue", "outbox.rtx", "outbox.unacked", "peer.slots", "peerTable.byKey", "peerTable.hosts", "rail.byQPN", "region.queued",
	"rota.accounts", "rota.byAcct", "rota.bySock",
	"sending.txs", "sends.q", "sends.txs", "shares.of", "socket.regions", "socket.slots", "taker.slots", "taker.socks", "userTable.accounts",
}

// apart says of pairs of features why they never are at one host at the same time. The names are
// in the order of features.
var apart = map[[2]string]string{
	{"cancel", "process that ends"}:     "both are looked at in the moment in which they begin, and one begins after the other",
	{"reopen", "kernel peer by RDS/IB"}: "the model of the kernel judges one life of a daemon, so that its host does not crash",
}

// TestFeaturesDeclared: each thing in which something lasts in an engine is of a declared feature
// or of none, and is there.
func TestFeaturesDeclared(t *testing.T) {
	of := map[string]string{}
	declare := func(part, name string) {
		if was, is := of[part]; is {
			t.Errorf("%s is of %q and of %q", part, was, name)
		}
		of[part] = name
	}
	for _, part := range plain {
		declare(part, "none")
	}
	nth := map[string]int{}
	for i, f := range features {
		if nth[f.name] = i + 1; f.draw == "" || f.on == nil {
			t.Errorf("%q: nothing draws it", f.name)
		}
		for _, part := range f.parts {
			declare(part, f.name)
		}
	}
	for _, part := range engine.Lasting() {
		if _, is := of[part]; !is {
			t.Errorf("%s lasts over time and is of no feature that the simulator knows: add it to features, with what draws it, or to plain", part)
		}
		delete(of, part)
	}
	for _, part := range slices.Sorted(maps.Keys(of)) {
		t.Errorf("the engine has no %s, which is declared of %q", part, of[part])
	}
	for pair := range apart {
		if a, b := nth[pair[0]], nth[pair[1]]; a == 0 || a >= b {
			t.Errorf("%q are no two features in their order", pair)
		}
	}
}

// meetings are the pairs of features that have met: bit j of here[i] stands for i and j at one
// host at the same time, of across[i] for i and j at two hosts.
type meetings struct{ here, across [64]uint64 }

func (m *meetings) add(o *meetings) {
	for i := range features {
		m.here[i] |= o.here[i]
		m.across[i] |= o.across[i]
	}
}

// looksAt is how many events of a world are between two looks at what is in progress.
const looksAt = 64

// meet notes what is in progress at the hosts now.
func (w *world) meet() {
	var bits [8]uint64
	for n, h := range w.hosts {
		if h.up {
			bits[n] = h.meet()
		}
		for _, other := range bits[:n] {
			for i := range features {
				if bits[n]&(1<<i) != 0 {
					w.met.across[i] |= other
				}
				if other&(1<<i) != 0 {
					w.met.across[i] |= bits[n]
				}
			}
		}
	}
}

// meet notes what is in progress at h now.
func (h *host) meet() (bits uint64) {
	p := engine.InProgress(h.e)
	for i, f := range features {
		if f.on(h, &p) {
			bits |= 1 << i
		}
	}
	for i := range features {
		if bits&(1<<i) != 0 {
			h.w.met.here[i] |= bits
		}
	}
	return bits
}

// met are the meetings in the runs of all tests so far, which do not run in parallel.
var met meetings

// report adds m to met. It prints the pairs of which none met at one host, and fails for those that
// cannot and did.
func (m *meetings) report(t *testing.T) {
	met.add(m)
	met.print(t)
}

func (m *meetings) print(t *testing.T) {
	var never []string
	here, pairs, ends := 0, 0, 0
	for i, a := range features {
		for j, b := range features[:i] {
			why := apart[[2]string{b.name, a.name}]
			if m.across[i]&(1<<j) != 0 {
				ends++
			}
			switch both := m.here[i]&(1<<j) != 0; {
			case both && why != "":
				t.Errorf("%s and %s met, which they cannot, says apart: %s", b.name, a.name, why)
			case both:
				here++
			case why == "":
				never = append(never, fmt.Sprintf("%s with %s", b.name, a.name))
			}
			pairs++
		}
	}
	said := fmt.Sprintf("%d pairs of features: %d met at one host, %d at two, %d cannot meet", pairs, here, ends, len(apart))
	for _, pair := range never {
		said += "\nno seed had " + pair
	}
	t.Log(said)
	if file := os.Getenv("RDSD_SIM_PAIRS"); file != "" { // scripts/test.sh prints it
		must(os.WriteFile(file, []byte(said+"\n"), 0o600))
	}
}

// any reports whether some socket of h is as f says.
func (h *host) any(f func(*endpoint) bool) bool {
	return slices.ContainsFunc(h.clients, func(c *client) bool { return slices.ContainsFunc(c.eps, f) })
}

// unmet reports whether some host knows a former life of h and has not met this one.
func (h *host) unmet() bool {
	return slices.ContainsFunc(h.w.hosts, func(o *host) bool { return o.up && o.met[h.addr] != 0 && o.met[h.addr] != h.life })
}
