package sim

import (
	"math/bits"
	"math/rand/v2"
)

// stream is one named source of randomness. Each kind of decision has its own,
// so that a new draw in one place does not shift the others.
type stream struct{ pcg rand.PCG }

// below returns a number in [0, n); 0 for n <= 0.
func (s *stream) below(n int64) int64 {
	if n <= 0 {
		return 0
	}
	hi, _ := bits.Mul64(s.pcg.Uint64(), uint64(n))
	return int64(hi)
}

// chance returns true with a probability of ppm in a million.
func (s *stream) chance(ppm uint32) bool {
	return ppm != 0 && s.below(1e6) < int64(ppm)
}

// between returns a number in [r.Min, r.Max].
func (s *stream) between(r Range) int64 {
	return r.Min + s.below(r.Max-r.Min+1)
}

type streams struct {
	key, post, gap, wire, local, learn, flush, connect  stream
	breakAt                                             [pointKinds]stream
	halfOpen, postFail, refuse, unreachable, lost, tear stream
	letGo                                               stream
}

func (r *streams) init(seed uint64) {
	name := uint64(0)
	next := func(s *stream) {
		name++
		s.pcg = *rand.NewPCG(seed, name*0x9e3779b97f4a7c15)
	}
	// The order is the names: append only, so that old seeds keep their runs.
	for _, s := range []*stream{
		&r.key, &r.post, &r.gap, &r.wire, &r.local, &r.learn, &r.flush, &r.connect,
		&r.halfOpen, &r.postFail, &r.refuse, &r.unreachable, &r.lost, &r.tear,
	} {
		next(s)
	}
	for i := range r.breakAt {
		next(&r.breakAt[i])
	}
	next(&r.letGo)
}

// Rand returns a source of the network's seed under a name of the caller's
// choice, for the workload on top.
func (n *Network) Rand(name uint64) *rand.Rand {
	return rand.New(rand.NewPCG(n.seed^0x5851f42d4c957f2d, name))
}

// Range is a span of nanoseconds, both ends included.
type Range struct{ Min, Max int64 }

// Timing are the delays of a network, drawn evenly from each range.
type Timing struct {
	Post  Range // from a post to the first transmission
	Gap   Range // between transmissions of a queue pair; drawn for one in four
	Wire  Range // one way
	Local Range // AckLocal: from transmission to completion
	Flush Range // from ToError to the flush completions
	Learn Range // from a break, or a peer's end, to noticing
	Late  Range // the same for the end that learns late
	LetGo Range // from Dereg to when no thread of the device touches the memory; zero: there are no threads
}

// DefaultTiming is that of a data centre.
func DefaultTiming() Timing {
	return Timing{
		Post: Range{0, 500}, Gap: Range{1, 1000}, Wire: Range{2_000, 20_000}, Local: Range{0, 50_000},
		Flush: Range{0, 20_000}, Learn: Range{1_000, 2_000_000}, Late: Range{20_000_000, 1_000_000_000},
	}
}
