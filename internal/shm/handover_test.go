package shm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/handover"
)

// successor is the view of a daemon that has taken the segment over.
func successor(t testing.TB, s *Segment) *Segment {
	t.Helper()
	n, err := AttachSegment(s.mem, s.params)
	if err != nil {
		t.Fatal(err)
	}
	w := handover.Write(handover.Newest)
	s.HandOverRings(w)
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	r, err := handover.Read(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	n.HandOverRings(r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRingsHandedOver: the four rings go on in another daemon as if it had been there from
// the start, at every fill and whatever was taken and not released.
func TestRingsHandedOver(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	daemon, client := bothViews(t, smallParams)
	var sub, subWant, event, eventWant uint64
	var sret, sretWant, rret, rretWant uint32
	var e Entry
	for step := range 20_000 {
		switch rng.IntN(9) {
		case 0:
			if r := client.SubProducer().Reserve(); r != nil {
				r[0] = sub
				sub++
				client.SubProducer().Publish()
			}
		case 1:
			if daemon.SubConsumer().Next(&e) {
				if e[0] != subWant {
					t.Fatalf("step %d: submission %d, want %d", step, e[0], subWant)
				}
				subWant++
			}
		case 2:
			daemon.SubConsumer().Release()
			daemon.RecvRetConsumer().Release()
		case 3:
			if r := daemon.EventProducer().Reserve(); r != nil {
				r[0] = event
				event++
				daemon.EventProducer().Publish()
			}
		case 4:
			if client.EventConsumer().Next(&e) {
				if e[0] != eventWant {
					t.Fatalf("step %d: event %d, want %d", step, e[0], eventWant)
				}
				eventWant++
				client.EventConsumer().Release()
			}
		case 5:
			if daemon.SendRetProducer().Put(sret) {
				sret++
				daemon.SendRetProducer().Publish()
			}
			if id, ok := client.SendRetConsumer().Take(); ok {
				if id != sretWant {
					t.Fatalf("step %d: message %d was returned, want %d", step, id, sretWant)
				}
				sretWant++
				client.SendRetConsumer().Release()
			}
		case 6:
			if client.RecvRetProducer().Put(rret) {
				rret++
				client.RecvRetProducer().Publish()
			}
		case 7:
			if id, ok := daemon.RecvRetConsumer().Take(); ok {
				if id != rretWant {
					t.Fatalf("step %d: receive %d was given back, want %d", step, id, rretWant)
				}
				rretWant++
			}
		case 8:
			daemon = successor(t, daemon)
		}
		for _, err := range []error{client.SubProducer().Err(), client.EventConsumer().Err(), daemon.SubConsumer().Err(), daemon.EventProducer().Err(),
			daemon.SendRetProducer().Err(), daemon.RecvRetConsumer().Err()} {
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
	}
}

// TestScribbledRings: a client that has overwritten the header and all indices is found by
// the new daemon as the old one would have found it.
func TestScribbledRings(t *testing.T) {
	daemon := newTestSegment(t, smallParams)
	for i := range headerSize {
		daemon.mem[i] = 0xa5
	}
	n := successor(t, daemon)
	var e Entry
	if n.SubConsumer().Next(&e) || !errors.Is(n.SubConsumer().Err(), ErrIndex) {
		t.Error("a submission of a broken ring")
	}
	if _, ok := n.RecvRetConsumer().Take(); ok || !errors.Is(n.RecvRetConsumer().Err(), ErrIndex) {
		t.Error("an id of a broken ring")
	}
	for n.EventProducer().Reserve() != nil {
	}
	for n.SendRetProducer().Put(1) {
	}
	if !errors.Is(n.EventProducer().Err(), ErrIndex) || !errors.Is(n.SendRetProducer().Err(), ErrIndex) {
		t.Error("a broken ring that is not full")
	}
	n.EventProducer().Publish()
	n.SendRetProducer().Publish()
	m := successor(t, n) // broken rings stay broken
	for i := range headerSize {
		daemon.mem[i] = 0
	}
	if m.SubConsumer().Next(&e) || m.SubConsumer().Err() == nil || m.EventProducer().Reserve() != nil || m.EventProducer().Err() == nil {
		t.Error("a ring that was broken is whole")
	}
}

// TestRingsRefused: indices that no daemon has.
func TestRingsRefused(t *testing.T) {
	s := newTestSegment(t, smallParams)
	s.EventProducer().Reserve()
	refused := handover.Write(1)
	if s.HandOverRings(refused); !errors.Is(refused.Err(), errUnpublished) {
		t.Errorf("an entry that is not published: %v", refused.Err())
	}
	good := [12]uint64{6, 7, 9, 12, 10, 5, 5, 1, 0, 20, 20, 20} // the second ring has 2 of 4 left to take
	for at, v := range map[int]uint64{-1: 0, 0: 8, 1: 10, 2: 11, 3: 15, 4: 13, 5: 4, 6: 0, 9: 21, 10: 19, 11: 18} {
		x := good
		if at >= 0 {
			x[at] = v
		}
		w := handover.Write(1)
		consumer := func(head, next, tail uint64) { w.U64s(&head, &next, &tail); w.Bool(new(bool)); w.U64(new(uint64)) }
		producer := func(tail, head uint64) { w.U64s(&tail, &head); w.Bool(new(bool)); w.U64(new(uint64)) }
		consumer(x[0], x[1], x[2])
		producer(x[3], x[4])
		producer(x[5], x[6])
		consumer(x[9], x[10], x[11])
		r, err := handover.Read(w.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		n, err := AttachSegment(s.mem, s.params)
		if err != nil {
			t.Fatal(err)
		}
		n.HandOverRings(r)
		if err := r.Close(); (err == nil) != (at < 0) {
			t.Errorf("index %d is %d: %v", at, v, err)
		}
	}
	if _, err := AttachSegment(s.mem[:100], s.params); err == nil {
		t.Error("memory that is too short")
	}
	if _, err := AttachSegment(s.mem, Params{}); err == nil {
		t.Error("no parameters")
	}
}

// retaken is an arena that has nothing of a but which chunks are in use.
func retaken(rng *rand.Rand, a *Arena, live []chunkModel) (*Arena, error) {
	n := NewArena()
	for i := range a.windows {
		n.AddWindow(a.windows[i].mem)
	}
	for _, i := range rng.Perm(len(live)) {
		c := live[i]
		if err := n.Retake(c.chunk, c.n); err != nil {
			return nil, err
		}
		if err := n.Retake(c.chunk, c.n); err == nil {
			return nil, fmt.Errorf("chunk %d of %d bytes was taken twice", c.chunk, c.n)
		}
	}
	n.Retaken()
	if n.InUse() != a.InUse() {
		return nil, fmt.Errorf("%d bytes in use, want %d", n.InUse(), a.InUse())
	}
	return n, nil
}

// TestRetakeRefused: chunks that no arena can have given out.
func TestRetakeRefused(t *testing.T) {
	a := newTestArena(1)
	for _, c := range []struct {
		chunk uint32
		n     int
	}{{3, 64}, {pageUnits, 300}, {2 * pageUnits, 2 * PageSize}, {5 * pageUnits, 64}} {
		if err := a.Retake(c.chunk, c.n); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		chunk uint32
		n     int
	}{
		{"twice", 3, 64},
		{"empty", 4, 0},
		{"too long", 8 * pageUnits, abi.MaxMessage + 1},
		{"negative", 4, -1},
		{"behind the arena", windowUnits, 64},
		{"far behind the arena", 1<<32 - 1, 64},
		{"another size", 4, 128},
		{"in the middle of a chunk", pageUnits + 1, 300},
		{"in the middle of a page", 8*pageUnits + 1, PageSize},
		{"over the end of the window", 63 * pageUnits, 2 * PageSize},
		{"over a page in use", 4 * pageUnits, 2 * PageSize},
		{"a page of small chunks", 0, PageSize},
		{"inside a span", 3 * pageUnits, 64},
	} {
		if err := a.Retake(c.chunk, c.n); err == nil {
			t.Errorf("%s: taken", c.name)
		}
	}
	if a.InUse() != 64+512+2*PageSize+64 {
		t.Errorf("%d bytes in use", a.InUse())
	}
}
