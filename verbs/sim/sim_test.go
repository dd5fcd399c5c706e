package sim_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/verbs/sim"
	"github.com/rdsd/rdsd/verbs/verbstest"
)

var (
	hostA = netip.MustParseAddr("10.0.0.1")
	hostB = netip.MustParseAddr("10.0.0.2")
)

func TestConformance(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Run("", func(t *testing.T) {
			verbstest.Run(t, nil, func(*testing.T) verbstest.Env {
				n := sim.NewNetwork(seed)
				return verbstest.Env{
					A: n.Device(hostA), B: n.Device(hostB),
					AddrA: netip.AddrPortFrom(hostA, 0), AddrB: netip.AddrPortFrom(hostB, 0),
					Dead: netip.AddrPortFrom(hostB, 9),
					Step: n.Step,
					Lose: func() func() {
						n.Hook = breakAfter(sim.AfterSendDelivered, sim.AfterAtomic)
						return func() {}
					},
				}
			})
		})
	}
}

// breakAfter breaks the connection at the first of these points.
func breakAfter(kinds ...sim.PointKind) func(sim.Point) sim.Action {
	return func(p sim.Point) sim.Action {
		if slices.Contains(kinds, p.Kind) {
			return sim.Break
		}
		return sim.Pass
	}
}
