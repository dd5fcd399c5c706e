// Package plan draws a campaign of the ledger from its seed: the processes, what they do,
// and which faults happen how often.
package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/rdsd/rdsd/test/ledger/worker"
)

// Fault is a way to disturb a campaign.
type Fault string

// The faults.
const (
	KillProcess   Fault = "kill process"
	StopProcess   Fault = "stop process"
	KillDaemon    Fault = "kill daemon"
	EndDaemon     Fault = "end daemon"
	StopDaemon    Fault = "stop daemon"
	KillStopped   Fault = "kill stopped daemon" // it dies with messages of its peers in progress
	Reset         Fault = "reset"
	Resets        Fault = "resets"          // one after the other
	ResetsAtStart Fault = "resets at start" // a daemon is killed, and the first connections of the next one are reset again and again
	DrainDaemon   Fault = "drain daemon"
	DrainPeer     Fault = "drain peer"
	UpgradeDaemon Fault = "upgrade daemon" // another process takes over from it
	Loss          Fault = "loss"           // some of the packets between two hosts are dropped
	Partition     Fault = "partition"      // all packets between two hosts are dropped
)

// Faults lists all faults. Those from Loss on need a network of their own.
func Faults() []Fault {
	return []Fault{KillProcess, StopProcess, KillDaemon, EndDaemon, StopDaemon, KillStopped, Reset, Resets, ResetsAtStart, DrainDaemon, DrainPeer, UpgradeDaemon, Loss, Partition}
}

// ends reports whether f ends processes or daemons.
func (f Fault) ends() bool {
	return f == KillProcess || f == KillDaemon || f == EndDaemon || f == KillStopped || f == ResetsAtStart
}

// NeedsNetwork reports whether f drops packets.
func (f Fault) NeedsNetwork() bool { return f == Loss || f == Partition }

// Hosts is how many daemons a campaign has.
const Hosts = 3

// perHost is how many processes a host has. Two of them share a port.
const perHost = 4

// Plan is the plan of a campaign.
type Plan struct {
	Seed  uint64
	TLS   bool
	CRC   bool
	Hosts [Hosts]netip.Addr
	// Operations is the quota of each daemon's user. It is far above what can be outstanding, so
	// if it is reached, the daemon has not given operations back.
	Operations int
	// HardCap is how many bytes a daemon keeps for a socket above its receive buffer. With a
	// smaller one it refuses more messages.
	HardCap int
	// Paths is how many connections two hosts have in each lane.
	Paths     int
	IOThreads string // of a daemon; with auto it has those of four CPUs
	Mix       worker.Mix
	Every     time.Duration // mean time between two faults
	weights   map[Fault]int
}

// New draws a plan. Its hosts have the addresses 1 to 3 of the network net.
func New(seed uint64, net netip.Addr) *Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := &Plan{Seed: seed, Operations: 2500, weights: map[Fault]int{}}
	b := net.As4()
	for i := range p.Hosts {
		b[3] = byte(i + 1)
		p.Hosts[i] = netip.AddrFrom4(b)
	}
	p.TLS = rng.IntN(3) == 0
	p.CRC = !p.TLS && rng.IntN(2) == 0
	p.Mix = worker.Mix{
		Large:   uint32(rng.IntN(1 + rng.IntN(160))),
		Ops:     uint32(200 + rng.IntN(500)),
		Bad:     uint32(10 + rng.IntN(60)),
		Limits:  uint32(rng.IntN(2) * 40),
		Cancels: uint32(rng.IntN(2) * (8 + rng.IntN(60))),
		Pauses:  uint32(rng.IntN(4)),
		Nobody:  uint32(rng.IntN(100)),
		Stuck:   uint32(rng.IntN(300)),
		Small:   uint32(rng.IntN(500)),
		Pace:    time.Duration(3+rng.IntN(25)) * time.Millisecond,
	}
	p.Every = time.Duration(80+rng.IntN(400)) * time.Millisecond
	for _, f := range Faults() {
		if f == UpgradeDaemon {
			continue // drawn last, so that a seed has the other weights that it had before there was this fault
		}
		p.weights[f] = 1 + rng.IntN(8)
		if rng.IntN(4) == 0 {
			p.weights[f] = 0
		}
	}
	p.weights[Reset]++ // at least one reset
	for _, f := range []Fault{KillDaemon, EndDaemon, KillStopped, ResetsAtStart} {
		p.weights[f] = (p.weights[f] + 2) / 3 // fewer, because all of a host's processes begin anew
	}
	if rng.IntN(4) == 0 {
		p.steady()
	}
	p.HardCap = 1 << (20 + 2*rng.IntN(2))
	p.weights[UpgradeDaemon] = 1 + rng.IntN(8) // in every campaign
	p.Mix.Long = uint32(rng.IntN(2) * (60 + rng.IntN(200)))
	if p.Paths = 1; rng.IntN(3) == 0 {
		p.Paths = 4
	}
	p.IOThreads = [...]string{"0", "2", "auto"}[rng.IntN(3)]
	return p
}

// steady lets no process end before the campaign ends, and no message be withdrawn. So the judge
// can excuse nothing.
func (p *Plan) steady() {
	p.Mix.Steady, p.Mix.Cancels = true, 0
	for _, f := range Faults() {
		if f.ends() {
			p.weights[f] = 0
		}
	}
}

// Cuts reports whether one path of several is reset each second beside the faults that are drawn.
func (p *Plan) Cuts() bool { return p.Paths > 1 && p.weights[Reset] > 0 }

// Upgrades returns a plan for a campaign whose daemons are replaced at set times. Nothing ends
// before the campaign does, nothing is cancelled, and no message has a limit. So the judge can
// excuse nothing and no status can be UNKNOWN. Campaigns of even seeds have no other fault that
// touches a daemon, so no socket may have a notice of a connection.
func Upgrades(seed uint64, net netip.Addr) *Plan {
	p := New(seed, net)
	p.steady()
	p.Mix.Limits = 0
	for _, f := range Faults() {
		if f == UpgradeDaemon || seed%2 == 0 && f != StopProcess {
			p.weights[f] = 0
		}
	}
	p.weights[StopProcess]++ // at least one fault
	return p
}

// Calm returns a plan for daemons alone, without TLS and CRC.
func Calm(net netip.Addr) *Plan {
	p := New(0, net)
	p.TLS, p.CRC, p.Paths, p.IOThreads = false, false, 1, "0"
	return p
}

// Draw draws the next fault.
func (p *Plan) Draw(rng *rand.Rand, network bool) Fault {
	sum := 0
	for _, f := range Faults() {
		if network || !f.NeedsNetwork() {
			sum += p.weights[f]
		}
	}
	n := rng.IntN(sum)
	for _, f := range Faults() {
		if !network && f.NeedsNetwork() {
			continue
		}
		if n -= p.weights[f]; n < 0 {
			return f
		}
	}
	panic("unreachable: n is below the sum")
}

// Processes returns the applications' configurations without number, log and control socket,
// which only a run knows. The i-th belongs to host HostOf(i).
func (p *Plan) Processes() (all []worker.Config) {
	rng := rand.New(rand.NewPCG(p.Seed, 2))
	for h := range p.Hosts {
		for i := range perHost {
			c := worker.Config{Seed: p.Seed, Mix: p.Mix}
			for n := range 2 {
				c.Private = append(c.Private, worker.Port{At: netip.AddrPortFrom(p.Hosts[h], uint16(4000+2*i+n)), Lane: uint8(rng.IntN(3))})
			}
			c.Shared = worker.Port{At: netip.AddrPortFrom(p.Hosts[h], uint16(5000+i/2)), Lane: uint8(rng.IntN(3))}
			all = append(all, c)
		}
	}
	p.crowds(all)
	var known []netip.AddrPort
	for _, c := range all {
		for _, q := range c.Private {
			known = append(known, q.At)
		}
		known = append(known, c.Shared.At) // twice, because it is bound half of the time
		for n, q := range c.Crowd {
			if n%4 == 0 { // the others only send
				known = append(known, q.At)
			}
		}
	}
	for i := range all {
		all[i].Known = known
	}
	return all
}

// crowds gives up to two processes of most campaigns many sockets, and some a small event ring.
func (p *Plan) crowds(all []worker.Config) {
	rng := rand.New(rand.NewPCG(p.Seed, 4))
	for range rng.IntN(3) {
		i := rng.IntN(len(all))
		all[i].Crowd = nil
		for n := range 25 + rng.IntN(36) {
			all[i].Crowd = append(all[i].Crowd, worker.Port{At: netip.AddrPortFrom(p.Hosts[HostOf(i)], uint16(6000+100*i+n)), Lane: uint8(rng.IntN(3))})
		}
	}
	for i := range all {
		if rng.IntN(4) == 0 {
			all[i].Events = 64
		}
	}
}

// HostOf returns the host of the i-th of Processes.
func HostOf(i int) int { return i / perHost }

func (p *Plan) String() string {
	var w []string
	for _, f := range Faults() {
		if n := p.weights[f]; n > 0 {
			w = append(w, fmt.Sprintf("%s %d", f, n))
		}
	}
	return fmt.Sprintf("seed %#x: TLS %v, CRC %v, paths %d, I/O threads %s, hard cap %d, %+v, a fault each %v: %s", p.Seed, p.TLS, p.CRC, p.Paths, p.IOThreads, p.HardCap, p.Mix, p.Every, strings.Join(w, ", "))
}
