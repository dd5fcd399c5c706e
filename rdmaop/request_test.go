package rdmaop

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
)

// TestRequest: a message carries all of an atomic, and the number of the region that was granted.
func TestRequest(t *testing.T) {
	g := NewGrants(10)
	n := Grant{Cookie: MakeCookie(7, 0x1000), Len: 64, Rights: abi.RightAtomic, Region: 9}
	if err := g.Add(n); err != nil {
		t.Fatal(err)
	}
	n.Region = 10
	if err := g.Add(n); !errors.Is(err, ErrGrantConflict) {
		t.Errorf("another number: %v", err)
	}
	for kind, want := range map[abi.OpKind]wire.AtomicKind{abi.OpFetchAdd: wire.AtomicFetchAdd, abi.OpCmpSwap: wire.AtomicCmpSwap} {
		o := &Op{Kind: kind, Cookie: n.Cookie, RemoteOff: 16, Len: 8, Segs: []Seg{{LKey: 1, Len: 8}},
			Atomic: AtomicArgs{CompareAdd: 1, Swap: 2, CompareMask: 3, SwapMask: 4}}
		if _, errno := g.Use(5, o); errno != 0 {
			t.Fatal(errno)
		}
		r := o.Request()
		if w := (wire.Atomic{RKey: 7, Region: 9, Addr: 0x1010, Kind: want, CompareAdd: 1, Swap: 2, CompareMask: 3, SwapMask: 4}); r != w {
			t.Errorf("%+v, want %+v", r, w)
		}
		var there Op
		there.FromRequest(&r)
		for _, v := range []uint64{0, 1, 2, 3, 1 << 63} {
			if there.Apply(v) != o.Apply(v) || there.Masked() != o.Masked() {
				t.Errorf("%v of %d: %d, want %d", kind, v, there.Apply(v), o.Apply(v))
			}
		}
		g.Done(o)
	}
}
