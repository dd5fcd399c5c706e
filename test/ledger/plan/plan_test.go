package plan

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
)

var network = netip.MustParseAddr("127.70.1.0")

// TestSame checks that a seed always gives the same plan.
func TestSame(t *testing.T) {
	for seed := range uint64(50) {
		if a, b := New(seed, network), New(seed, network); !reflect.DeepEqual(a, b) || !reflect.DeepEqual(a.Processes(), b.Processes()) {
			t.Errorf("seed %d: %v and %v", seed, a, b)
		}
	}
}

// TestDraw checks that a campaign drops packets if it has a network of its own, and otherwise
// does not.
func TestDraw(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	seen := map[Fault]int{}
	cuts := 0
	for seed := range uint64(100) {
		p := New(seed, network)
		if p.Cuts() {
			cuts++
		}
		for range 100 {
			if f := p.Draw(rng, false); f.NeedsNetwork() {
				t.Fatalf("seed %d draws %q without a network", seed, f)
			}
			seen[p.Draw(rng, true)]++
		}
	}
	if cuts < 20 || cuts > 50 {
		t.Errorf("%d of 100 campaigns cut paths, want a third", cuts)
	}
	for _, f := range Faults() {
		if seen[f] == 0 {
			t.Errorf("%q is never drawn", f)
		}
	}
}

// TestUpgradeCampaigns checks that daemons are replaced in every campaign, and that in a campaign that
// replaces them at set times nothing else ends. Each second seed leaves daemons alone.
func TestUpgradeCampaigns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for seed := range uint64(100) {
		if New(seed, network).weights[UpgradeDaemon] == 0 {
			t.Errorf("seed %d never replaces a daemon", seed)
		}
		p := Upgrades(seed, network)
		if seed%2 == 0 && p.Cuts() {
			t.Errorf("seed %d cuts paths, of which sockets are notified", seed)
		}
		if !p.Mix.Steady || p.Mix.Limits != 0 || p.Mix.Cancels != 0 {
			t.Errorf("seed %d: %v", seed, p)
		}
		for range 100 {
			if f := p.Draw(rng, true); f.ends() || f == UpgradeDaemon || seed%2 == 0 && f != StopProcess {
				t.Fatalf("seed %d draws %q", seed, f)
			}
		}
	}
}

// TestProcesses checks that every port of a host is known to all, and that no two processes have
// the same private port.
func TestProcesses(t *testing.T) {
	all := New(3, network).Processes()
	seen := map[netip.AddrPort]bool{}
	for i, c := range all {
		for _, q := range c.Private {
			if seen[q.At] || q.At.Addr() != New(3, network).Hosts[HostOf(i)] {
				t.Errorf("process %d has the port %v", i, q.At)
			}
			seen[q.At] = true
		}
	}
	if len(all) != Hosts*perHost {
		t.Errorf("%d processes", len(all))
	}
}
