package rdmaop

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"golang.org/x/sys/unix"
)

func TestRevoke(t *testing.T) {
	g := NewGrants(100)
	mustAdd(t, g, grant(1, AnyPort, abi.RightWrite), grant(2, 10, abi.RightWrite))
	if !g.Revoke(2, 1) || !g.Retired(2) {
		t.Error("an idle key is retired at once")
	}
	if !g.Revoke(77, 1) {
		t.Error("an unknown key is retired")
	}
	a, b := opOn(1, abi.OpWrite), opOn(1, abi.OpWrite)
	use(g, 10, a)
	use(g, 11, b)
	if g.Revoke(1, 1) || g.Retired(1) {
		t.Error("retired with two in flight")
	}
	if use(g, 12, opOn(1, abi.OpWrite)) != unix.EINVAL {
		t.Error("a revoked key can be used")
	}
	if err := g.Add(grant(1, 10, abi.RightWrite)); !errors.Is(err, ErrGrantOver) {
		t.Errorf("granted while being revoked: %v", err)
	}
	if g.Done(b) || g.Retired(1) {
		t.Error("retired with one in flight")
	}
	if !g.Done(a) || !g.Retired(1) {
		t.Error("not retired by the last one")
	}
	mustAdd(t, g, grant(1, 10, abi.RightRead)) // the number serves again
	if g.Check(opOn(1, abi.OpRead), 10) != 0 {
		t.Error("not usable")
	}
}

// TestTakenOnLanes: a key that is taken back on several lanes is remembered until
// it was on all of them, whatever was known of it, and no GRANT counts before.
func TestTakenOnLanes(t *testing.T) {
	for _, c := range []struct {
		name           string
		granted, flown bool
	}{{"not known", false, false}, {"granted", true, false}, {"in flight", true, true}} {
		g := NewGrants(3)
		o := opOn(1, abi.OpWrite)
		if c.granted {
			mustAdd(t, g, grant(1, 10, abi.RightWrite))
		}
		if c.flown {
			use(g, 10, o)
		}
		if g.Revoke(1, 3) == c.flown || c.flown && !g.Done(o) {
			t.Errorf("%s: retired at the wrong time", c.name)
		}
		for range 2 {
			if err := g.Add(grant(1, 10, abi.RightWrite)); !errors.Is(err, ErrGrantOver) || g.Len() != 1 {
				t.Errorf("%s: a grant between the lanes: %v, %d kept", c.name, err, g.Len())
			}
			g.Revoke(1, 1) // a question behind the operations counts for none of them
			if !g.Revoke(1, 3) {
				t.Errorf("%s: not retired", c.name)
			}
		}
		if !g.Retired(1) || g.Len() != 0 {
			t.Errorf("%s: %d kept behind the last lane", c.name, g.Len())
		}
		mustAdd(t, g, grant(1, 10, abi.RightWrite))
	}
	g := NewGrants(3) // what a peer can have remembered is bounded
	for rkey := range uint32(10) {
		g.Revoke(rkey, 200)
	}
	if g.Len() != 3 {
		t.Errorf("%d keys kept in a table of 3", g.Len())
	}
	if g.Clear(); g.Len() != 0 {
		t.Errorf("%d kept behind Clear", g.Len())
	}
}
