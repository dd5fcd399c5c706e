package barrier

import (
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"testing"
)

var seed = flag.Uint64("seed", 0, "replay this seed of the random tests")

// byID is a Mark with its operations by id.
type byID struct {
	Mark
	ops map[uint64]*Op
}

func (m *byID) Issue(id uint64) error {
	o := &Op{}
	err := m.Mark.Issue(o, id)
	if err == nil {
		if m.ops == nil {
			m.ops = map[uint64]*Op{}
		}
		m.ops[id] = o
	}
	return err
}

// Complete also checks what it says of the mark.
func (m *byID) Complete(id uint64) error {
	o, was := m.ops[id], m.HWM()
	if o == nil {
		o = &Op{}
	}
	raised, err := m.Mark.Complete(o)
	if raised != (m.HWM() != was) {
		return errors.New("it says wrongly whether the mark rose")
	}
	return err
}

func issue(t *testing.T, m *byID, n int) {
	t.Helper()
	for range n {
		if err := m.Issue(m.Last() + 1); err != nil {
			t.Fatal(err)
		}
	}
}

func complete(t *testing.T, m *byID, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		if err := m.Complete(id); err != nil {
			t.Fatal(err)
		}
	}
}

func want(t *testing.T, m *byID, hwm, last uint64, pending int) {
	t.Helper()
	if m.HWM() != hwm || m.Last() != last || m.Pending() != pending || m.AllDone() != (pending == 0) {
		t.Fatalf("HWM %d, Last %d, Pending %d, AllDone %v; want %d, %d, %d",
			m.HWM(), m.Last(), m.Pending(), m.AllDone(), hwm, last, pending)
	}
}

func TestZeroValue(t *testing.T) {
	var m byID
	want(t, &m, 0, 0, 0)
	if !m.Reached(0) || m.Reached(1) {
		t.Error("an untouched mark has reached 0 and nothing else")
	}
}

func TestPrefix(t *testing.T) {
	var m byID
	issue(t, &m, 200)
	complete(t, &m, 1)
	want(t, &m, 1, 200, 199)
	complete(t, &m, 3, 200, 4) // early ones do not move it
	want(t, &m, 1, 200, 196)
	complete(t, &m, 2) // the gap closes: up to 4
	want(t, &m, 4, 200, 195)
	for id := uint64(199); id >= 5; id-- {
		complete(t, &m, id)
	}
	want(t, &m, 200, 200, 0)
}

func TestErrorsChangeNothing(t *testing.T) {
	var m byID
	issue(t, &m, 5)
	complete(t, &m, 1, 3)
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"issue again", m.Issue(5), ErrOrder},
		{"issue with a gap", m.Issue(7), ErrOrder},
		{"issue 0", m.Issue(0), ErrOrder},
		{"complete below the mark", m.Complete(1), ErrNotPending},
		{"complete 0", m.Complete(0), ErrNotPending},
		{"complete twice above the mark", m.Complete(3), ErrNotPending},
		{"complete the next id to issue", m.Complete(6), ErrNotPending},
		{"complete a far id", m.Complete(1 << 40), ErrNotPending},
		{"complete an id behind by sign", m.Complete(1 + 1<<63), ErrNotPending},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
	want(t, &m, 1, 5, 3)
	complete(t, &m, 2, 5, 4)
	want(t, &m, 5, 5, 0)
}

// Ids compare by signed difference, so nothing happens at 2^63 or 2^64.
func TestWrap(t *testing.T) {
	for _, start := range []uint64{math.MaxInt64 - 100, math.MaxUint64 - 100} {
		var m byID
		m.Start(start)
		issue(t, &m, 300)
		want(t, &m, start, start+300, 300)
		for id := start + 300; id != start+1; id-- {
			complete(t, &m, id)
		}
		want(t, &m, start, start+300, 1)
		if m.Reached(start+1) || !m.Reached(start) {
			t.Error("Reached across the wrap, before")
		}
		complete(t, &m, start+1)
		want(t, &m, start+300, start+300, 0)
		if !m.Reached(start+300) || m.Reached(start+301) {
			t.Error("Reached across the wrap, after")
		}
	}
}

func TestStartForgets(t *testing.T) {
	var m byID
	issue(t, &m, 10)
	complete(t, &m, 2, 3, 9)
	m.Start(0)
	issue(t, &m, 10)
	complete(t, &m, 1)
	want(t, &m, 1, 10, 9)
}

// Two destinations do not disturb each other.
func TestIndependent(t *testing.T) {
	var a, b byID
	issue(t, &a, 3)
	issue(t, &b, 3)
	complete(t, &a, 3)
	complete(t, &b, 1)
	want(t, &a, 0, 3, 2)
	want(t, &b, 1, 3, 2)
}

// TestModel compares a Mark with a set of ids over random histories.
func TestModel(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, 8, rand.Uint64()}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, s := range seeds {
		model(t, s)
		if t.Failed() {
			t.Fatalf("replay with: go test ./barrier -run TestModel -seed %d", s)
		}
	}
}

func model(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	starts := []uint64{0, 0, 63, math.MaxInt64 - 500, math.MaxUint64 - 500}
	start := starts[r.IntN(len(starts))]
	window := 1 + r.IntN(700)

	var m byID
	m.Start(start)
	hwm, last := start, start
	done := map[uint64]bool{}
	for range 5000 {
		switch outstanding := int(last - hwm); {
		case outstanding < window && r.IntN(2) == 0:
			if err := m.Issue(last + 1); err != nil {
				t.Errorf("Issue(%d): %v", last+1, err)
				return
			}
			last++
		default:
			id := hwm + uint64(r.IntN(outstanding+3)) // also done and not issued ones
			if r.IntN(3) == 0 {
				id = hwm + 1
			}
			var expect error
			switch {
			case id == hwm || done[id]:
				expect = ErrNotPending
			case id-hwm > last-hwm:
				expect = ErrNotPending
			default:
				done[id] = true
				for done[hwm+1] {
					hwm++
					delete(done, hwm)
				}
			}
			if err := m.Complete(id); !errors.Is(err, expect) {
				t.Errorf("Complete(%d): %v, want %v", id, err, expect)
				return
			}
		}
		if pending := int(last-hwm) - len(done); m.HWM() != hwm || m.Last() != last || m.Pending() != pending ||
			m.AllDone() != (pending == 0) {
			t.Errorf("HWM %d, Last %d, Pending %d; the set says %d, %d, %d",
				m.HWM(), m.Last(), m.Pending(), hwm, last, pending)
			return
		}
	}
}

// TestConstantWork: however many operations complete ahead of one that stays
// pending, the mark takes no memory and no call more than a step.
func TestConstantWork(t *testing.T) {
	var m Mark
	var first, second Op
	ops := make([]Op, 300)
	last := uint64(0)
	take := func(o *Op) {
		last++
		if err := m.Issue(o, last); err != nil {
			t.Fatal(err)
		}
	}
	take(&first)
	turn := func() {
		for i := range ops {
			take(&ops[i])
		}
		for i := range ops { // worst order
			m.Complete(&ops[len(ops)-1-i])
		}
	}
	if n := testing.AllocsPerRun(1000, turn); n != 0 {
		t.Errorf("%v allocations a turn of 300 ids behind a pending one, want 0", n)
	}
	take(&second)
	if m.HWM() != 0 || m.Pending() != 2 || m.first.next != &second {
		t.Fatalf("HWM %d, %d pending, want what is pending and nothing else", m.HWM(), m.Pending())
	}
	m.Complete(&first)
	if m.HWM() != last-1 {
		t.Errorf("HWM %d of %d with the last one pending", m.HWM(), last)
	}
	m.Complete(&second)
	if !m.AllDone() || m.HWM() != last {
		t.Fatalf("%d pending", m.Pending())
	}
}

// TestPlaces: an operation is pending at one mark, once.
func TestPlaces(t *testing.T) {
	var a, b Mark
	var o Op
	if err := a.Issue(&o, 1); err != nil {
		t.Fatal(err)
	}
	if err := b.Issue(&o, 1); !errors.Is(err, ErrOrder) || b.Last() != 0 {
		t.Errorf("issued twice: %v", err)
	}
	if _, err := b.Complete(&o); !errors.Is(err, ErrNotPending) {
		t.Errorf("completed elsewhere: %v", err)
	}
	if err := a.Check(3, 1); err != nil {
		t.Errorf("the one after next: %v", err)
	}
	if err := a.Check(2, 1); !errors.Is(err, ErrOrder) {
		t.Errorf("the next one as the one after it: %v", err)
	}
	if raised, err := a.Complete(&o); !raised || err != nil {
		t.Errorf("completed: raised %v, %v", raised, err)
	}
}

// TestAgain: a mark that is made anew from its last id and its pending operations, in any
// order, goes on as the old one would.
func TestAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 7))
	for range 200 {
		start := rng.Uint64()
		var m, n byID
		m.Start(start)
		issue(t, &m, 40)
		for _, i := range rng.Perm(40)[:rng.IntN(41)] {
			complete(t, &m, start+1+uint64(i))
		}
		n.Start(m.Last())
		n.ops = map[uint64]*Op{}
		for _, i := range rng.Perm(40) {
			if id := start + 1 + uint64(i); m.ops[id].mark != nil {
				n.ops[id] = &Op{}
				if err := n.Again(n.ops[id], id); err != nil {
					t.Fatal(err)
				}
			}
		}
		want(t, &n, m.HWM(), m.Last(), m.Pending())
		issue(t, &m, 1)
		issue(t, &n, 1)
		for _, i := range rng.Perm(41) {
			if id := start + 1 + uint64(i); m.ops[id].mark != nil {
				complete(t, &m, id)
				complete(t, &n, id)
				want(t, &n, m.HWM(), m.Last(), m.Pending())
			}
		}
	}
}

// TestAgainRefused: what no mark can have had pending.
func TestAgainRefused(t *testing.T) {
	var m Mark
	var a, b Op
	m.Start(5)
	if err := m.Again(&a, 4); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		err  error
	}{{"not issued", m.Again(&b, 6)}, {"another's", m.Again(&b, 4)}, {"pending", m.Again(&a, 3)}} {
		if !errors.Is(c.err, ErrOrder) {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
	if m.HWM() != 3 || m.Last() != 5 || m.Pending() != 1 || b.mark != nil {
		t.Errorf("HWM %d, Last %d, Pending %d", m.HWM(), m.Last(), m.Pending())
	}
}

func BenchmarkInOrder(b *testing.B) {
	var m Mark
	var o Op
	for b.Loop() {
		m.Issue(&o, m.Last()+1)
		m.Complete(&o)
	}
}
