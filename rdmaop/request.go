package rdmaop

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
)

// Request returns atomic operation o as a message carries it. Grants.Begin has noted the
// region.
func (o *Op) Request() wire.Atomic {
	r := wire.Atomic{RKey: o.RKey(), Region: o.region, Kind: wire.AtomicFetchAdd, CompareAdd: o.Atomic.CompareAdd,
		Swap: o.Atomic.Swap, CompareMask: o.Atomic.CompareMask, SwapMask: o.Atomic.SwapMask}
	r.Addr, _ = o.remote()
	if o.Kind == abi.OpCmpSwap {
		r.Kind = wire.AtomicCmpSwap
	}
	return r
}

// FromRequest makes o the atomic operation that a message carries, for Apply and Masked.
func (o *Op) FromRequest(r *wire.Atomic) {
	*o = Op{Kind: abi.OpFetchAdd, Atomic: AtomicArgs{CompareAdd: r.CompareAdd, Swap: r.Swap, CompareMask: r.CompareMask, SwapMask: r.SwapMask}}
	if r.Kind == wire.AtomicCmpSwap {
		o.Kind = abi.OpCmpSwap
	}
}
