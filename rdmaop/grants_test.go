package rdmaop

import (
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/verbs"
)

const regionLen = 1000

func grant(rkey uint32, port uint16, r abi.Rights) Grant {
	return Grant{Cookie: MakeCookie(rkey, 16), Len: regionLen, Rights: r, Port: port}
}

func opOn(rkey uint32, k abi.OpKind) *Op { return &Op{Kind: k, Cookie: MakeCookie(rkey, 16), Len: 8} }

func mustAdd(t *testing.T, g *Grants, list ...Grant) {
	t.Helper()
	for _, n := range list {
		if err := g.Add(n); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheck(t *testing.T) {
	g := NewGrants(100)
	mustAdd(t, g,
		grant(1, 10, abi.RightRead), grant(1, 20, abi.RightRead|abi.RightWrite), // per socket
		grant(2, AnyPort, abi.RightWrite), grant(2, 30, abi.RightRead), // any, and more for one
		grant(3, AnyPort, abi.RightAtomic))
	for _, c := range []struct {
		name   string
		rkey   uint32
		kind   abi.OpKind
		port   uint16
		off, n uint64
		want   unix.Errno
	}{
		{"read as granted", 1, abi.OpRead, 10, 0, 8, 0},
		{"the whole region", 1, abi.OpRead, 10, 0, regionLen, 0},
		{"its last byte", 1, abi.OpRead, 10, regionLen - 1, 1, 0},
		{"write without the right", 1, abi.OpWrite, 10, 0, 8, unix.EACCES},
		{"write by the other socket", 1, abi.OpWrite, 20, 0, 8, 0},
		{"a socket nobody granted", 1, abi.OpRead, 30, 0, 8, unix.EACCES},
		{"any socket", 2, abi.OpWrite, 999, 0, 8, 0},
		{"any socket, not this right", 2, abi.OpRead, 999, 0, 8, unix.EACCES},
		{"both grants count", 2, abi.OpRead, 30, 0, 8, 0},
		{"both grants count, the other", 2, abi.OpWrite, 30, 0, 8, 0},
		{"atomic", 3, abi.OpFetchAdd, 5, 0, 8, 0},
		{"atomic right is no write right", 3, abi.OpWrite, 5, 0, 8, unix.EACCES},
		{"write right is no atomic right", 2, abi.OpCmpSwap, 5, 0, 8, unix.EACCES},
		{"unknown key", 4, abi.OpRead, 10, 0, 8, unix.EINVAL},
		{"one byte too many", 1, abi.OpRead, 10, 0, regionLen + 1, unix.ERANGE},
		{"one byte too far", 1, abi.OpRead, 10, regionLen, 1, unix.ERANGE},
		{"far offset", 1, abi.OpRead, 10, math.MaxUint64 - 3, 8, unix.ERANGE},
		{"endless", 1, abi.OpRead, 10, 8, math.MaxUint64, unix.ERANGE},
	} {
		o := opOn(c.rkey, c.kind)
		o.RemoteOff, o.Len = c.off, c.n
		if got := g.Check(o, c.port); got != c.want {
			t.Errorf("%s: Check %v, want %v", c.name, got, c.want)
		}
		if got := use(g, c.port, o); got != c.want {
			t.Errorf("%s: Use %v, want %v", c.name, got, c.want)
		}
		g.Done(o)
	}
	o := opOn(1, abi.OpRead)
	o.Cookie = MakeCookie(1, 17) // the right key, moved
	if got := g.Check(o, 10); got != unix.EINVAL {
		t.Errorf("another cookie of the key: %v, want EINVAL", got)
	}
}

func TestAddAgain(t *testing.T) {
	g := NewGrants(2)
	mustAdd(t, g, grant(1, 10, abi.RightRead), grant(1, 10, abi.RightWrite))
	if g.Len() != 1 || g.Check(opOn(1, abi.OpRead), 10) != unix.EACCES || g.Check(opOn(1, abi.OpWrite), 10) != 0 {
		t.Error("a repeated grant replaces the rights")
	}
	other := grant(1, 11, abi.RightRead)
	other.Len++
	if err := g.Add(other); !errors.Is(err, ErrGrantConflict) {
		t.Errorf("the key with another length: %v", err)
	}
	other = grant(1, 11, abi.RightRead)
	other.Cookie = MakeCookie(1, 0)
	if err := g.Add(other); !errors.Is(err, ErrGrantConflict) {
		t.Errorf("the key with another offset: %v", err)
	}
	other = grant(1, 11, abi.RightRead)
	other.Owner = Owner{Port: 20, Inc: 1}
	if err := g.Add(other); !errors.Is(err, ErrGrantConflict) {
		t.Errorf("the key with another owner: %v", err)
	}
	if o := g.Owner(1); o != (Owner{}) {
		t.Errorf("owner %+v", o)
	}
	mustAdd(t, g, grant(1, 11, abi.RightRead))
	if err := g.Add(grant(2, 11, abi.RightRead)); !errors.Is(err, ErrTooManyGrants) {
		t.Errorf("a third grant of two: %v", err)
	}
	if !g.Retired(2) {
		t.Error("the refused grant left a key behind")
	}
	mustAdd(t, g, grant(1, 11, abi.RightWrite)) // a change needs no room
}

func TestUseOnce(t *testing.T) {
	g := NewGrants(100)
	mustAdd(t, g, grant(1, 10, abi.RightWrite|abi.UseOnce), grant(1, 11, abi.RightWrite|abi.UseOnce))
	a, b := opOn(1, abi.OpWrite), opOn(1, abi.OpWrite)
	if g.Check(a, 10) != 0 || g.Check(b, 11) != 0 {
		t.Fatal("not usable")
	}
	if errno := use(g, 10, a); errno != 0 {
		t.Fatal(errno)
	}
	if use(g, 11, b) != unix.EINVAL || g.Check(a, 10) != unix.EINVAL || g.Len() != 1 {
		t.Error("usable a second time")
	}
	if g.Retired(1) {
		t.Error("retired with the operation in flight")
	}
	if g.Done(a) {
		t.Error("REVOKED without a REVOKE")
	}
	if g.Retired(1) || g.Done(a) {
		t.Error("forgotten before the peer took it back, or done twice")
	}
	if !g.Revoke(1, 1) || !g.Retired(1) || g.Len() != 0 {
		t.Error("not retired")
	}
}

// TestParts: the first part of an operation begins its message, which is then the one use of
// its keys. Its further parts and its other operation go on, and nothing else does. A REVOKE
// ends them, and waits for those in flight.
func TestParts(t *testing.T) {
	g := NewGrants(100)
	begun := grant(1, 10, abi.RightWrite|abi.RightAtomic|abi.UseOnce)
	begun.Region = 7
	mustAdd(t, g, begun)
	whole, atomic := opOn(1, abi.OpWrite), opOn(1, abi.OpFetchAdd)
	part := func() *Op {
		o := opOn(1, abi.OpWrite)
		whole.Continue(o)
		return o
	}
	if bad, errno := g.Begin(10, opOn(1, abi.OpWrite), opOn(2, abi.OpFetchAdd)); errno != unix.EINVAL || bad.RKey() != 2 {
		t.Errorf("begun without the other key: %v", errno)
	}
	if _, errno := g.Begin(10, whole, atomic); errno != 0 || !whole.Begun() || g.Len() != 1 {
		t.Fatalf("not begun: %v", errno)
	}
	first, second := part(), part()
	if use(g, 10, first) != 0 || use(g, 10, second) != 0 || g.Done(first) {
		t.Error("a part does not go on")
	}
	far := part()
	far.Len = regionLen + 1
	if use(g, 10, far) != unix.ERANGE {
		t.Error("a part goes on beyond the region")
	}
	if g.Check(opOn(1, abi.OpWrite), 10) != unix.EINVAL || !errors.Is(g.Add(begun), ErrGrantOver) {
		t.Error("the key is good for another message")
	}
	g = handedOver(t, func() *Grants { g.Done(second); return g }())
	last := part()
	if use(g, 10, last, atomic) != 0 || g.Done(last) {
		t.Error("the last part does not go on, behind a pause")
	}
	if g.Revoke(1, 1) || use(g, 10, part()) != unix.EINVAL {
		t.Error("retired with an operation in flight, or a part goes on after REVOKE")
	}
	if !g.Done(atomic) || !g.Retired(1) {
		t.Error("not retired")
	}
	begun.Region++
	mustAdd(t, g, begun)
	if use(g, 10, part()) != unix.EINVAL || use(g, 10, opOn(1, abi.OpWrite)) != 0 {
		t.Error("an operation goes on with another region")
	}
}

func use(g *Grants, port uint16, ops ...*Op) unix.Errno {
	_, errno := g.Use(port, ops...)
	return errno
}

// A second Done does not disturb whoever uses the key, or its record, next.
func TestDoneTwice(t *testing.T) {
	g := NewGrants(100)
	mustAdd(t, g, grant(1, 10, abi.RightWrite))
	a, b := opOn(1, abi.OpWrite), opOn(1, abi.OpWrite)
	use(g, 10, a)
	use(g, 10, b)
	g.Done(a)
	g.Done(a)
	if g.Revoke(1, 1) {
		t.Error("retired with one in flight")
	}
	if !g.Done(b) || g.Done(b) {
		t.Error("REVOKED not owed once")
	}
	mustAdd(t, g, grant(2, 10, abi.RightWrite))
	c := opOn(2, abi.OpWrite)
	use(g, 10, c)
	g.Done(b)
	if g.Revoke(2, 1) || !g.Done(c) {
		t.Error("the reused record miscounts")
	}
}

// A grant that crossed the use does not make the key good again, before the
// operation is done and after, until the peer has taken the key back: then its
// number may serve another region.
func TestGrantCrossesUse(t *testing.T) {
	for _, done := range []bool{false, true} {
		g := NewGrants(100)
		mustAdd(t, g, grant(1, 10, abi.RightWrite|abi.UseOnce))
		a := opOn(1, abi.OpWrite)
		use(g, 10, a)
		if done {
			g.Done(a)
		}
		for _, port := range []uint16{10, 11} {
			if err := g.Add(grant(1, port, abi.RightWrite|abi.UseOnce)); !errors.Is(err, ErrGrantOver) {
				t.Errorf("done %v: granted to port %d: %v", done, port, err)
			}
		}
		for _, port := range []uint16{10, 11} {
			if errno := use(g, port, opOn(1, abi.OpWrite)); errno != unix.EINVAL {
				t.Errorf("done %v: used again by port %d: %v", done, port, errno)
			}
		}
		other := grant(1, 10, abi.RightWrite)
		other.Cookie = MakeCookie(1, 99)
		if err := g.Add(other); !errors.Is(err, ErrGrantOver) {
			t.Errorf("done %v: another region under a number not taken back: %v", done, err)
		}
		if g.Len() != 1 || g.Retired(1) {
			t.Errorf("done %v: %d grants, retired %v", done, g.Len(), g.Retired(1))
		}
		if g.Revoke(1, 1) != done || !done && !g.Done(a) {
			t.Errorf("done %v: not retired as the peer asks", done)
		}
		if g.Len() != 0 || !g.Retired(1) {
			t.Errorf("done %v: something is left", done)
		}
		mustAdd(t, g, other)
	}
}

// Keys that were used and not taken back count against the limit.
func TestUsedKeysAreBounded(t *testing.T) {
	g := NewGrants(2)
	for rkey := range uint32(2) {
		mustAdd(t, g, grant(rkey, 10, abi.RightWrite|abi.UseOnce))
		use(g, 10, opOn(rkey, abi.OpWrite))
	}
	if err := g.Add(grant(7, 10, abi.RightWrite)); !errors.Is(err, ErrTooManyGrants) {
		t.Errorf("a third: %v", err)
	}
	g.Revoke(0, 1)
	if g.Len() != 1 {
		t.Errorf("%d grants", g.Len())
	}
	mustAdd(t, g, grant(7, 10, abi.RightWrite))
	g.Clear()
	mustAdd(t, g, grant(1, 10, abi.RightWrite), grant(2, 10, abi.RightWrite))
}

// The operations of one message are one use, and are used both or not at all.
func TestUsePair(t *testing.T) {
	g := NewGrants(100)
	all := abi.RightWrite | abi.RightAtomic
	mustAdd(t, g, grant(1, 10, all|abi.UseOnce), grant(2, 10, abi.RightWrite), grant(3, 10, all|abi.UseOnce))
	w, a := opOn(1, abi.OpWrite), opOn(2, abi.OpFetchAdd)
	if bad, errno := g.Use(10, w, a); bad != a || errno != unix.EACCES {
		t.Errorf("the second is refused: %v, %v", bad, errno)
	}
	a = opOn(1, abi.OpFetchAdd)
	if bad, errno := g.Use(10, opOn(9, abi.OpWrite), a); bad == nil || bad == a || errno != unix.EINVAL {
		t.Errorf("the first is refused: %v, %v", bad, errno)
	}
	if _, errno := g.Use(10, w, a); errno != 0 {
		t.Errorf("both on one key: %v", errno)
	}
	if errno := use(g, 10, opOn(1, abi.OpWrite)); errno != unix.EINVAL {
		t.Errorf("a second message: %v", errno)
	}
	if g.Revoke(1, 1) || g.Done(w) || !g.Done(a) {
		t.Error("retired before both were done, or not then")
	}
	w, a = opOn(2, abi.OpWrite), opOn(3, abi.OpCmpSwap)
	if _, errno := g.Use(10, w, a); errno != 0 {
		t.Errorf("two keys: %v", errno)
	}
	if use(g, 10, opOn(3, abi.OpWrite)) != unix.EINVAL || use(g, 10, opOn(2, abi.OpWrite)) != 0 {
		t.Error("only the use-once key is used up")
	}
}

// After a restart the old instance's operations say nothing about keys of the
// new one with the same number.
func TestClear(t *testing.T) {
	g := NewGrants(100)
	mustAdd(t, g, grant(1, 10, abi.RightWrite), grant(2, 10, abi.RightWrite), grant(3, 10, abi.RightWrite))
	a, r := opOn(1, abi.OpWrite), opOn(3, abi.OpWrite)
	use(g, 10, a)
	use(g, 10, r)
	g.Revoke(3, 1)
	g.Clear()
	if g.Len() != 0 || !g.Retired(1) || !g.Retired(2) || g.Check(opOn(2, abi.OpWrite), 10) != unix.EINVAL {
		t.Error("grants survived")
	}
	if g.Done(r) {
		t.Error("REVOKED owed to an instance that is gone")
	}
	mustAdd(t, g, grant(1, 10, abi.RightWrite))
	b := opOn(1, abi.OpWrite)
	use(g, 10, b)
	if g.Revoke(1, 1) || g.Done(a) || g.Retired(1) || !g.Done(b) {
		t.Error("the old operation was counted on the new key")
	}
}

func TestNoAllocation(t *testing.T) {
	g := NewGrants(1000)
	for k := range uint32(100) {
		mustAdd(t, g, grant(k, 10, abi.RightWrite|abi.RightRead))
	}
	a := attr(4, 1, 1<<20)
	ops := make([]Op, 100)
	wrs := make([]verbs.SendWR, 0, 1000)
	sges := make([]verbs.SGE, 0, 1000)
	turn := func() {
		wrs, sges = wrs[:0], sges[:0]
		for i := range ops {
			o := &ops[i]
			o.Reset()
			o.Kind, o.Cookie, o.Len = abi.OpRead, MakeCookie(uint32(i), 16), 24
			o.Segs = append(o.Segs, Seg{Len: 8}, Seg{Len: 16})
			o.Step(Event{Type: EvQueue})
			if o.Validate() != 0 || g.Check(o, 10) != 0 || use(g, 10, o) != 0 {
				t.Fatal("refused")
			}
			if o.WRCount(a.MaxSGE, a.MaxReadSGE, a.MaxMsg) != 2 {
				t.Fatal("not two requests")
			}
			wrs = o.AppendWRs(wrs, &sges, a)
			o.Step(Event{Type: EvPost})
		}
		for i := range ops {
			o := &ops[i]
			o.Step(Event{Type: EvLocal})
			g.Done(o)
			if eff, err := o.Step(Event{Type: EvAck}); err != nil || eff != Report {
				t.Fatal(eff, err)
			}
		}
	}
	turn()
	if n := testing.AllocsPerRun(20, turn); n != 0 {
		t.Errorf("%v allocations a turn of 100 operations, want 0", n)
	}
}

// Granting and revoking keys in turn reuses the records.
func TestGrantsReuse(t *testing.T) {
	g := NewGrants(1000)
	var rkey uint32
	turn := func() {
		for range 100 {
			rkey++
			g.Add(grant(rkey, 10, abi.RightWrite))
			g.Revoke(rkey, 1)
		}
	}
	turn()
	if n := testing.AllocsPerRun(20, turn); n != 0 {
		t.Errorf("%v allocations a turn of 100 grants, want 0", n)
	}
}
