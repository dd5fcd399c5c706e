package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/chores"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
)

// TestVoidBeforeItsTurn: what an instance of a peer's daemon was granted does not
// count for the next one, whether its turn to be ended has come or not.
func TestVoidBeforeItsTurn(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.opSideAs(0, 10, 1000), w.opSide(1, 20)
	a.cl.user.Quota[config.Grants] = 10
	r, released := a.register(abi.RightWrite), a.register(abi.RightWrite)
	for _, x := range []uint32{r.Region, released.Region} {
		if err := a.exposeTo(&ipc.RegisterOK{Region: x}, 1, 20); err != nil {
			t.Fatal(err)
		}
	}
	w.run()
	e, h := w.es[0], w.es[0].peers.all[0].remote
	e.chores.Spend(chores.Budget)
	e.peers.voidGrants(h)
	w.es[1].peers.voidGrants(w.es[1].peers.all[0].remote)
	if n := a.cl.acct.grants; n != 2 || h.shares.all != 0 {
		t.Fatalf("%d grants count, %d of the new instance", n, h.shares.all)
	}
	if err := a.exposeTo(r, 1, 20); err != nil {
		t.Fatal(err)
	}
	a.at.Pump = w.run
	a.must(&ipc.Release{Region: released.Region}) // nobody is asked for it
	w.run()
	if n := w.es[1].peers.all[0].grants.Len(); n != 1 || a.cl.acct.grants != 1 || h.shares.all != 1 {
		t.Errorf("the new instance has %d grants, %d count, %d of it", n, a.cl.acct.grants, h.shares.all)
	}
	w.clean2(a, b)
}

// TestRefusedWhileReleased: a GRANT that the peer refuses when its region is being
// released leaves the peer to be asked. Who restarts meanwhile, or goes away, has
// given the key back.
func TestRefusedWhileReleased(t *testing.T) {
	for _, restarts := range []bool{true, false} {
		w := newWorld(t, 2, Config{})
		a, b := w.opSide(0, 10), w.opSide(1, 20)
		r := a.register(abi.RightWrite)
		if err := a.exposeTo(r, 1, 20); err != nil {
			t.Fatal(err)
		}
		w.run()
		e, p := w.es[0], w.es[0].peers.all[0]
		released := false
		if err := e.keys.release(e.keys.by[r.Region], func(error) { released = true }); err != nil || released {
			t.Fatalf("release: %v, at once: %v", err, released)
		}
		e.keys.grantRefused(p, &wire.GrantNak{RKey: r.Region, Grantee: 20, Reason: wire.NakFull})
		if restarts {
			e.peers.voidGrants(p.remote)
		} else {
			p.c.Reset(w.net.Now(), errAdmin)
			for p.remote.attached() {
				e.Turn(w.net.Now(), Wall(w.net.Now()))
				w.net.Step()
			}
		}
		if !released || a.cl.acct.grants != 0 {
			t.Errorf("restarts %v: released %v, %d grants", restarts, released, a.cl.acct.grants)
		}
		if restarts {
			w.clean2(a, b)
		}
	}
}
