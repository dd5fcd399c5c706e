package daemon

import (
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rdmaop"
)

// TestVoidBeforeItsTurn: what an instance of a peer's daemon was granted does not
// count for the next one, whether its turn to be ended has come or not.
func TestVoidBeforeItsTurn(t *testing.T) {
	w := newWorld(t, 2, EngineConfig{})
	a, b := w.opSideAs(0, 10, 1000), w.opSide(1, 20)
	a.cl.user.quota[config.Grants] = 10
	r, released := a.register(rdmaop.RightWrite), a.register(rdmaop.RightWrite)
	for _, x := range []uint32{r.Region, released.Region} {
		if err := a.exposeTo(&ipc.RegisterOK{Region: x}, 1, 20); err != nil {
			t.Fatal(err)
		}
	}
	w.run()
	e, h := w.es[0], w.es[0].peersV[0].remote
	e.choreLeft = 0
	e.voidGrants(h)
	w.es[1].voidGrants(w.es[1].peersV[0].remote)
	if n := a.cl.acct.grants; n != 2 || h.shares.all != 0 {
		t.Fatalf("%d grants count, %d of the new instance", n, h.shares.all)
	}
	if err := a.exposeTo(r, 1, 20); err != nil {
		t.Fatal(err)
	}
	a.at.Pump = w.run
	a.must(&ipc.Release{Region: released.Region}) // nobody is asked for it
	w.run()
	if n := w.es[1].peersV[0].grants.Len(); n != 1 || a.cl.acct.grants != 1 || h.shares.all != 1 {
		t.Errorf("the new instance has %d grants, %d count, %d of it", n, a.cl.acct.grants, h.shares.all)
	}
	w.clean2(a, b)
}
