package rdmaop

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/verbs"
)

type peers = []verbs.PeerKey

func mustGrant(t *testing.T, e *Export, peer verbs.PeerKey, port uint16, need bool) {
	t.Helper()
	got, errno := e.GrantTo(peer, port)
	if errno != 0 || got != need {
		t.Fatalf("GrantTo(%d, %d) = %v, %v; want %v", peer, port, got, errno, need)
	}
}

func wantState(t *testing.T, e *Export, s ExportState) {
	t.Helper()
	if e.State() != s {
		t.Fatalf("state %v, want %v", e.State(), s)
	}
}

func TestGrantTo(t *testing.T) {
	var e Export
	mustGrant(t, &e, 1, 10, true)
	mustGrant(t, &e, 1, 10, false)
	mustGrant(t, &e, 1, 11, true)
	mustGrant(t, &e, 2, 10, true)
	mustGrant(t, &e, 1, AnyPort, true)
	mustGrant(t, &e, 1, 99, false) // covered
	mustGrant(t, &e, 2, 99, true)
	e.PeerGone(1)
	wantState(t, &e, ExportLive)
	mustGrant(t, &e, 1, 10, true) // a new instance knows nothing
	mustGrant(t, &e, 2, 10, false)
	if e.Ungrant(2, 11) || !e.Ungrant(2, 10) || e.Granted(2, 10) {
		t.Error("Ungrant")
	}
	mustGrant(t, &e, 2, 10, true) // refused, and asked for again
}

func TestGranted(t *testing.T) {
	var e Export
	mustGrant(t, &e, 1, 10, true)
	mustGrant(t, &e, 2, AnyPort, true)
	for _, c := range []struct {
		peer verbs.PeerKey
		port uint16
		want bool
	}{{1, 10, true}, {1, 11, false}, {1, AnyPort, false}, {2, 11, true}, {3, 10, false}} {
		if got := e.Granted(c.peer, c.port); got != c.want {
			t.Errorf("Granted(%d, %d) = %v", c.peer, c.port, got)
		}
	}
	e.Revoke(nil, 1)
	if e.Granted(1, 10) {
		t.Error("granted while being revoked")
	}
}

func TestGrantToLimit(t *testing.T) {
	var e Export
	for i := range MaxGrantees {
		mustGrant(t, &e, 1, uint16(1+i), true)
	}
	if _, errno := e.GrantTo(1, 5000); errno != unix.ENOBUFS {
		t.Errorf("over the limit: %v", errno)
	}
	mustGrant(t, &e, 1, 1, false)
}

func TestRevokeExport(t *testing.T) {
	var e Export
	mustGrant(t, &e, 1, 10, true)
	mustGrant(t, &e, 2, 10, true)
	mustGrant(t, &e, 1, 11, true)
	mustGrant(t, &e, 3, AnyPort, true)
	if tell := e.Revoke(nil, 100); !slices.Equal(tell, peers{1, 2, 3}) {
		t.Fatalf("tell %v", tell)
	}
	wantState(t, &e, ExportRevoking)
	if _, errno := e.GrantTo(4, 10); errno != unix.EINVAL {
		t.Errorf("granted while revoking: %v", errno)
	}
	if tell := e.Revoke(nil, 200); len(tell) != 0 {
		t.Errorf("a second Revoke tells %v", tell)
	}
	for _, p := range []verbs.PeerKey{1, 1, 9} { // twice, and one never asked
		e.PeerRevoked(p)
		wantState(t, &e, ExportRevoking)
	}
	if broken := e.Timeout(nil, 99); len(broken) != 0 {
		t.Errorf("broken off early: %v", broken)
	}
	if at, ok := e.Deadline(); !ok || at != 100 {
		t.Errorf("Deadline %d, %v", at, ok)
	}
	if broken := e.Timeout(nil, 100); !slices.Equal(broken, peers{2, 3}) {
		t.Errorf("break off %v", broken)
	}
	if broken := e.Timeout(nil, 101); len(broken) != 0 {
		t.Errorf("broken off twice: %v", broken)
	}
	if _, ok := e.Deadline(); ok {
		t.Error("a deadline after it passed")
	}
	if n := e.PeerGone(2); n != 1 || e.State() != ExportRevoking {
		t.Fatalf("after peer 2: %d grants ended, %v", n, e.State())
	}
	if n := e.PeerRevoked(3); n != 1 || e.State() != ExportRevoked { // answered after all
		t.Fatalf("after peer 3: %d grants ended, %v", n, e.State())
	}
	e.PeerGone(1)
	if tell := e.Revoke(nil, 1); len(tell) != 0 {
		t.Errorf("revoked again: tell %v", tell)
	}
	wantState(t, &e, ExportRevoked)
}

func TestRevokeNobody(t *testing.T) {
	var e Export
	if tell := e.Revoke(nil, 1); len(tell) != 0 {
		t.Errorf("tell %v", tell)
	}
	wantState(t, &e, ExportRevoked)
	if _, errno := e.GrantTo(1, 1); errno != unix.EINVAL {
		t.Errorf("granted after the end: %v", errno)
	}
	e.Reset()
	wantState(t, &e, ExportLive)
	mustGrant(t, &e, 1, 1, true)
}

// TestBothSides runs target and initiator against each other: when Release may
// return, no operation on the key is in flight and none can start.
func TestBothSides(t *testing.T) {
	var e Export
	g := NewGrants(10)
	mustGrant(t, &e, 1, 10, true)
	mustAdd(t, g, grant(5, 10, abi.RightWrite))
	a, b := opOn(5, abi.OpWrite), opOn(5, abi.OpWrite)
	use(g, 10, a)
	use(g, 10, b)
	for range e.Revoke(nil, 100) {
		if g.Revoke(5, 1) {
			t.Fatal("REVOKED with two in flight")
		}
	}
	for _, o := range []*Op{a, b} {
		wantState(t, &e, ExportRevoking)
		if g.Done(o) {
			e.PeerRevoked(1)
		}
	}
	wantState(t, &e, ExportRevoked)
	if g.Check(opOn(5, abi.OpWrite), 10) != unix.EINVAL {
		t.Error("usable after Release")
	}
}
