package rdmaop

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/verbs"
)

// handedOver is a table that has nothing of g but its encoded state.
func handedOver(t *testing.T, g *Grants) *Grants {
	t.Helper()
	state, err := g.Encode(handover.Newest)
	if err != nil {
		t.Fatal(err)
	}
	n := NewGrants(g.max)
	if err := n.Adopt(state); err != nil {
		t.Fatal(err)
	}
	return n
}

func anyPeer(verbs.PeerKey) bool { return true }

// sample has something of all that is handed over.
type sample struct {
	grants       *Grants
	live, asking Export
	ops          [3]Op
}

func newSample(t *testing.T) *sample {
	t.Helper()
	s := &sample{grants: NewGrants(20)}
	g := grant(1, 10, abi.RightRead)
	g.Owner, g.Region = Owner{Port: 7, Inc: 8}, 9
	more := g
	more.Port, more.Rights = 11, abi.RightRead|abi.RightAtomic
	mustAdd(t, s.grants, grant(3, 10, abi.RightWrite|abi.UseOnce), g, more, grant(4, 10, abi.RightRead))
	o := opOn(3, abi.OpWrite)
	if errno := use(s.grants, 10, o); errno != 0 {
		t.Fatal(errno)
	}
	s.grants.Done(o)
	s.grants.Revoke(4, 3)
	s.grants.Revoke(5, 2) // a key that is not known

	mustGrant(t, &s.live, 300, 8, true)
	mustGrant(t, &s.live, 300, 9, true)
	mustGrant(t, &s.live, 100, 9, true)
	mustGrant(t, &s.asking, 100, 9, true)
	mustGrant(t, &s.asking, 200, 9, true)
	s.asking.Revoke(nil, 77)
	s.asking.PeerRevoked(100)

	s.ops[0] = Op{Kind: abi.OpFetchAdd, Flags: abi.FlagNotify, Cookie: MakeCookie(1, 16), RemoteOff: 8, Len: 8,
		Atomic: AtomicArgs{1, 2, 3, 4}, Token: 5, ID: 6, state: StatePosted, region: 9}
	s.ops[1] = Op{Kind: abi.OpWrite, Len: 1, state: StateTold, status: abi.StatusDropped, errno: unix.ECONNREFUSED}
	s.ops[2] = Op{Kind: abi.OpRead, Len: 1, state: StateSettled, status: abi.StatusRemoteError, errno: unix.EACCES}
	return s
}

func (s *sample) encode(t *testing.T, version uint16) []byte {
	t.Helper()
	w := handover.Write(version)
	put := func(state []byte, err error) {
		if err != nil {
			t.Fatal(err)
		}
		w.Blob(&state, len(state))
	}
	put(s.grants.Encode(version))
	put(s.live.Encode(version))
	put(s.asking.Encode(version))
	for i := range s.ops {
		put(s.ops[i].Encode(version))
	}
	return w.Bytes()
}

func adoptSample(state []byte) (*sample, error) {
	r, err := handover.Read(state)
	if err != nil {
		return nil, err
	}
	s := &sample{grants: NewGrants(20)}
	take := func() (b []byte) {
		r.Blob(&b, 1<<20)
		return b
	}
	errs := []error{s.grants.Adopt(take()), s.live.Adopt(take(), anyPeer), s.asking.Adopt(take(), anyPeer)}
	for i := range s.ops {
		errs = append(errs, s.ops[i].Adopt(take()))
	}
	return s, errors.Join(append(errs, r.Close())...)
}

func golden(t testing.TB, version uint16) []byte {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("testdata/handover.%d.hex", version))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHandoverGolden: the bytes of a state do not change within a version, and what is read
// from them is what was written.
func TestHandoverGolden(t *testing.T) {
	for v := handover.Oldest; v <= handover.Newest; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) { testGolden(t, v) })
	}
}

func testGolden(t *testing.T, version uint16) {
	s, want := newSample(t), golden(t, version)
	if got := s.encode(t, version); string(got) != string(want) {
		t.Errorf("written:\n%x\nthe golden bytes are\n%x", got, want)
	}
	again, err := adoptSample(want)
	if err != nil {
		t.Fatal(err)
	}
	if version < 5 { // that there was no socket
		s.ops[1].errno = 0
	}
	for i := range s.ops {
		if !reflect.DeepEqual(again.ops[i], s.ops[i]) {
			t.Errorf("operation %d: %+v, want %+v", i, again.ops[i], s.ops[i])
		}
	}
	if !reflect.DeepEqual(again.live.grants, s.live.grants) || !reflect.DeepEqual(again.asking.waiting, s.asking.waiting) {
		t.Errorf("exports %+v, %+v", again.live, again.asking)
	}
	if at, waits := again.asking.Deadline(); at != 77 || !waits || again.asking.PeerRevoked(200) != 1 || again.asking.State() != ExportRevoked {
		t.Errorf("taking back ends at %d, %v, in %v", at, waits, again.asking.State())
	}
	g := again.grants
	if g.Len() != s.grants.Len() || g.Owner(1) != (Owner{Port: 7, Inc: 8}) || g.Check(opOn(1, abi.OpFetchAdd), 11) != 0 ||
		g.Check(opOn(1, abi.OpFetchAdd), 10) != unix.EACCES {
		t.Errorf("%d entries, owner %+v", g.Len(), g.Owner(1))
	}
	if err := g.Add(grant(3, 10, abi.RightRead)); !errors.Is(err, ErrGrantOver) {
		t.Errorf("a key that was used: %v", err)
	}
	if g.Revoke(4, 3); g.Retired(4) || !g.Revoke(4, 3) || !g.Retired(4) {
		t.Error("a key is taken back on three lanes")
	}
	if g.Revoke(5, 2); !g.Retired(5) {
		t.Error("a key that was not known is taken back on two lanes")
	}
	if string(again.encode(t, version)) == string(want) {
		t.Error("nothing has changed")
	}
}

// TestNotHandedOver: with an operation in flight there is no state.
func TestNotHandedOver(t *testing.T) {
	s := newSample(t)
	o := opOn(1, abi.OpRead)
	if errno := use(s.grants, 10, o); errno != 0 {
		t.Fatal(errno)
	}
	if _, err := o.Encode(1); !errors.Is(err, ErrInFlight) {
		t.Errorf("the operation: %v", err)
	}
	if _, err := s.grants.Encode(1); !errors.Is(err, ErrInFlight) {
		t.Errorf("the table: %v", err)
	}
	if _, err := s.live.Encode(0); err == nil {
		t.Error("version 0 was written")
	}
}

// TestAdoptRefused: what no state can be.
func TestAdoptRefused(t *testing.T) {
	key := func(rkey uint32, state keyState, lanes, heard uint32, ports ...uint16) func(*handover.State) {
		return func(s *handover.State) {
			s.U64s(new(MakeCookie(rkey, 0)), new(uint64(100)))
			s.U16(new(uint16))
			s.U32s(new(uint32), new(uint32))
			s.U8((*uint8)(&state))
			s.U32s(&lanes, &heard)
			for i := range handover.Slice(s, &ports, 0, 1) {
				s.U16(&ports[i])
				s.U32(new(uint32(abi.RightRead)))
			}
		}
	}
	grants := func(state []byte) error { return NewGrants(10).Adopt(state) }
	export := func(state []byte) error {
		return (&Export{}).Adopt(state, func(k verbs.PeerKey) bool { return k < 10 })
	}
	op := func(state []byte) error { return (&Op{}).Adopt(state) }
	keys := func(each ...func(*handover.State)) func(*handover.State) {
		return func(s *handover.State) {
			s.Count(len(each), 0, 1)
			for _, f := range each {
				f(s)
			}
		}
	}
	of := func(e *Export) func(*handover.State) {
		return func(s *handover.State) { e.handOver(s, nil) }
	}
	for name, c := range map[string]struct {
		write func(*handover.State)
		adopt func([]byte) error
		good  bool
	}{
		"keys":                       {keys(key(1, keyLive, 0, 0, 5, 6), key(2, keyUsed, 0, 0), key(3, keyTaken, 3, 2)), grants, true},
		"a key twice":                {keys(key(1, keyLive, 0, 0, 5), key(1, keyLive, 0, 0, 6)), grants, false},
		"a port twice":               {keys(key(1, keyLive, 0, 0, 5, 5)), grants, false},
		"granted to nobody":          {keys(key(1, keyLive, 0, 0)), grants, false},
		"used and granted":           {keys(key(1, keyUsed, 0, 0, 5)), grants, false},
		"revoked and in flight":      {keys(key(1, keyRevoking, 2, 1)), grants, false},
		"no state of a key":          {keys(key(1, 9, 0, 0)), grants, false},
		"taken back on all lanes":    {keys(key(1, keyTaken, 3, 3)), grants, false},
		"taken back on no lane":      {keys(key(1, keyTaken, 3, 0)), grants, false},
		"live, taken back on one":    {keys(key(1, keyLive, 3, 1, 5)), grants, false},
		"more keys than there are":   {func(s *handover.State) { s.Count(1000, 0, 1) }, grants, false},
		"export":                     {of(&Export{grants: []grantee{{1, 2}, {1, 3}, {2, 1}}}), export, true},
		"a grant twice":              {of(&Export{grants: []grantee{{1, 2}, {1, 2}}}), export, false},
		"grants out of order":        {of(&Export{grants: []grantee{{2, 2}, {1, 2}}}), export, false},
		"a peer that is not there":   {of(&Export{grants: []grantee{{11, 2}}}), export, false},
		"live and waits":             {of(&Export{waiting: []verbs.PeerKey{1}}), export, false},
		"live and broken":            {of(&Export{broken: true}), export, false},
		"revoked":                    {of(&Export{state: ExportRevoked}), export, false},
		"revoking":                   {of(&Export{state: ExportRevoking, waiting: []verbs.PeerKey{1, 2}}), export, true},
		"revoking, for nobody":       {of(&Export{state: ExportRevoking}), export, false},
		"waits for one twice":        {of(&Export{state: ExportRevoking, waiting: []verbs.PeerKey{1, 1}}), export, false},
		"waits for nobody known":     {of(&Export{state: ExportRevoking, waiting: []verbs.PeerKey{11}}), export, false},
		"revoking, one not asked":    {of(&Export{state: ExportRevoking, waiting: []verbs.PeerKey{1}, grants: []grantee{{2, 1}}}), export, false},
		"operation":                  {(&Op{Kind: abi.OpRead, state: StateLocal}).handOver, op, true},
		"no kind":                    {(&Op{}).handOver, op, false},
		"refused for its kind":       {(&Op{Kind: 77, state: StateSettled, status: abi.StatusRemoteError, errno: unix.EINVAL}).handOver, op, true},
		"no kind, and told":          {(&Op{Kind: 77, state: StateTold}).handOver, op, false},
		"no state":                   {(&Op{Kind: abi.OpRead, state: numStates}).handOver, op, false},
		"a status that is not known": {(&Op{Kind: abi.OpRead, state: StateLocal, status: 1}).handOver, op, false},
		"no status":                  {(&Op{Kind: abi.OpRead, state: StateTold, status: 9}).handOver, op, false},
		"refused with success":       {(&Op{Kind: abi.OpRead, state: StateSettled, errno: 1}).handOver, op, false},
	} {
		state, err := handover.Encode(1, c.write)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.adopt(state); (err == nil) != c.good || err != nil && !errors.Is(err, handover.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzAdopt: whatever the state is, it is refused, or what it says is written as it was.
func FuzzAdopt(f *testing.F) {
	for v := handover.Oldest; v <= handover.Newest; v++ {
		f.Add(golden(f, v))
	}
	f.Fuzz(func(t *testing.T, state []byte) {
		s, err := adoptSample(state)
		if err != nil {
			return
		}
		again, err := adoptSample(s.encode(t, handover.Newest))
		if err != nil {
			t.Fatal(err)
		}
		if again.grants.Len() != s.grants.Len() || again.live.Grants() != s.live.Grants() || again.asking.Grants() != s.asking.Grants() {
			t.Fatal("something was lost")
		}
	})
}
