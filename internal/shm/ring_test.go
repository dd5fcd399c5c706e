package shm

import (
	"errors"
	"sync"
	"testing"
	"unsafe"
)

var smallParams = Params{SubEntries: 4, EventEntries: 4, MaxMsgs: 4, MaxRx: 4, Slots: 2, Cells: 2, SendWindows: 1, RecvWindows: 1}

// heap returns zeroed memory aligned like a mapping's words.
func heap(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

func newTestSegment(t testing.TB, p Params) *Segment {
	t.Helper()
	s, err := NewSegment(heap(SegmentSize(p)), p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bothViews returns the daemon's and the client's view of one segment.
func bothViews(t testing.TB, p Params) (daemon, client *Segment) {
	t.Helper()
	daemon = newTestSegment(t, p)
	client, err := OpenSegment(daemon.mem)
	if err != nil {
		t.Fatal(err)
	}
	return daemon, client
}

func TestRingOrderFullEmpty(t *testing.T) {
	daemon, client := bothViews(t, smallParams)
	p, c := client.SubProducer(), daemon.SubConsumer()
	var e Entry
	next, want := uint64(1), uint64(1)
	for round := range 10 { // passes the end of the ring many times
		n := round%4 + 1
		for range n {
			r := p.Reserve()
			if r == nil {
				t.Fatalf("round %d: full with room", round)
			}
			r[0], next = next, next+1
		}
		if c.Next(&e) || !c.Empty() {
			t.Fatal("an entry is visible before Publish")
		}
		p.Publish()
		if c.Avail() != n || c.Empty() {
			t.Fatalf("round %d: %d entries to take, want %d", round, c.Avail(), n)
		}
		for c.Next(&e) {
			if e[0] != want {
				t.Fatalf("got entry %d, want %d", e[0], want)
			}
			want++
		}
		if n == 4 && (p.Free() != 0 || p.Reserve() != nil) {
			t.Fatal("room before Release")
		}
		c.Release()
		if got := p.Free(); n == 4 && got != 4 {
			t.Fatalf("free %d after Release of all, want 4", got)
		}
	}
	if want != next {
		t.Fatalf("took %d entries of %d", want-1, next-1)
	}
	if p.Err() != nil || c.Err() != nil {
		t.Fatal(p.Err(), c.Err())
	}
}

func TestRingFreeIsExactWhenLow(t *testing.T) {
	p := smallParams
	p.SubEntries = 16
	daemon, client := bothViews(t, p)
	pr, c := client.SubProducer(), daemon.SubConsumer()
	var e Entry
	for i := range 200 {
		if got, most := pr.Free(), 16-(int(pr.next)-int(c.head)); got > most || got <= 4 && got != most {
			t.Fatalf("step %d: free %d, really %d", i, got, most)
		}
		if pr.Reserve() == nil {
			t.Fatalf("step %d: full", i)
		}
		pr.Publish()
		if i%5 == 4 {
			for c.Next(&e) {
			}
			c.Release()
		}
	}
}

func TestReturnRing(t *testing.T) {
	daemon, client := bothViews(t, smallParams)
	for name, r := range map[string]struct {
		p *IDProducer
		c *IDConsumer
		n uint32
	}{
		"send":    {daemon.SendRetProducer(), client.SendRetConsumer(), 4},
		"receive": {client.RecvRetProducer(), daemon.RecvRetConsumer(), 4 * RunSteps},
	} {
		for i := range r.n {
			if !r.p.Put(100 + i) {
				t.Fatalf("%s: full after %d", name, i)
			}
		}
		if r.p.Put(0) {
			t.Errorf("%s: one more id fits a ring of %d", name, r.n)
		}
		if !r.c.Empty() {
			t.Errorf("%s: visible before Publish", name)
		}
		r.p.Publish()
		for i := range r.n {
			if id, ok := r.c.Take(); !ok || id != 100+i {
				t.Errorf("%s: took %d, %v", name, id, ok)
			}
		}
		if _, ok := r.c.Take(); ok || !r.c.Empty() {
			t.Errorf("%s: not empty", name)
		}
		if r.c.Release(); !r.p.Put(1) {
			t.Errorf("%s: full after Release", name)
		}
	}
}

// An impossible index of the other side stops the ring. Nothing is read or written through
// it.
func TestHostileIndices(t *testing.T) {
	// Two entries published and one of them taken and released.
	setup := func(t *testing.T) (*Segment, *Producer, *Consumer) {
		s := newTestSegment(t, smallParams)
		p, c := s.SubProducer(), s.SubConsumer()
		p.Reserve()
		p.Reserve()
		p.Publish()
		var e Entry
		c.Next(&e)
		c.Release()
		return s, p, c
	}
	for _, tail := range []uint64{0, 1, 6, 1 << 32, 1 << 63, ^uint64(0)} {
		s, _, c := setup(t)
		s.sub.tail.Store(tail)
		var e Entry
		c.Next(&e) // may still return the entry that was seen before
		if c.Avail() != 0 || !c.Empty() || c.Next(&e) {
			t.Errorf("tail %d: consumer still takes entries", tail)
		}
		if !errors.Is(c.Err(), ErrIndex) {
			t.Errorf("tail %d: consumer's error %v", tail, c.Err())
		}
		s.sub.tail.Store(2)
		if c.Avail() != 0 || c.Err() == nil {
			t.Errorf("tail %d: the ring came back", tail)
		}
	}
	for _, head := range []uint64{0, 3, 1 << 32, 1 << 63, ^uint64(0)} {
		s, p, _ := setup(t)
		// Fill the ring, so that the producer looks. Its copy of head is 1 then.
		for p.Reserve() != nil {
		}
		s.sub.head.Store(head)
		if p.Reserve() != nil || p.Free() != 0 {
			t.Errorf("head %d: producer still has room", head)
		}
		if !errors.Is(p.Err(), ErrIndex) {
			t.Errorf("head %d: producer's error %v", head, p.Err())
		}
	}
	// A side ignores the value of its own index in shared memory.
	s, p, c := setup(t)
	s.sub.tail.Store(3)
	s.sub.tail.Store(2)
	s.sub.head.Store(1)
	p.Reserve()[0] = 7
	p.Publish()
	if s.sub.tail.Load() != 3 || c.Avail() != 2 {
		t.Errorf("tail %d, %d to take; want 3 and 2", s.sub.tail.Load(), c.Avail())
	}
}

// The producer publishes each index near the limits.
func TestConsumerTakesNoMoreThanOneRing(t *testing.T) {
	for tail := range uint64(12) {
		s := newTestSegment(t, smallParams)
		s.sub.tail.Store(tail)
		c := s.SubConsumer()
		if got := c.Avail(); (tail <= 4) != (c.Err() == nil) || c.Err() == nil && got != int(tail) {
			t.Errorf("tail %d: %d to take, error %v", tail, got, c.Err())
		}
	}
}

// Both ends run at the same time on heap memory, where the race detector sees them, with
// the sleep protocol between them.
func TestRingTwoGoroutines(t *testing.T) {
	n := uint64(200_000)
	if testing.Short() {
		n = 20_000
	}
	daemon, client := bothViews(t, Params{SubEntries: 64, EventEntries: 64, MaxMsgs: 256, MaxRx: 64, Slots: 1, Cells: 1, SendWindows: 1, RecvWindows: 1})
	toDaemon, toClient := NewChanWaiter(nil), NewChanWaiter(nil)
	var wg sync.WaitGroup
	wg.Go(func() { // the client: submits, takes ids back
		p, ids := client.SubProducer(), client.SendRetConsumer()
		for sent, back := uint64(0), uint64(0); back < n; {
			progress := false
			for sent < n && sent-back < uint64(client.Params().MaxMsgs) {
				e := p.Reserve()
				if e == nil {
					break
				}
				for i := range e {
					e[i] = sent + uint64(i)
				}
				sent++
				progress = true
			}
			p.Publish()
			if WakeNeeded(client.DaemonAsleep()) {
				toDaemon.Ring()
			}
			for {
				id, ok := ids.Take()
				if !ok {
					break
				}
				if id != uint32(back) {
					t.Errorf("id %d came back, want %d", id, back)
					return
				}
				back++
				progress = true
			}
			ids.Release()
			if !progress {
				client.ClientAsleep().Store(1)
				// The client waits for an id or, if it has ids to spare, for room in the
				// ring. Its last look is at both.
				spare := sent < n && sent-back < uint64(client.Params().MaxMsgs)
				if ids.Empty() && !(spare && p.Free() > 0) {
					toClient.Wait(0)
				}
				client.ClientAsleep().Store(0)
			}
		}
	})
	wg.Go(func() { // the daemon: checks, returns ids
		c, ids := daemon.SubConsumer(), daemon.SendRetProducer()
		var e Entry
		for got := uint64(0); got < n; {
			progress := false
			for c.Next(&e) {
				for i := range e {
					if e[i] != got+uint64(i) {
						t.Errorf("entry %d: word %d is %d", got, i, e[i])
						return
					}
				}
				if !ids.Put(uint32(got)) {
					t.Error("return ring full")
					return
				}
				ids.Publish()
				got++
				progress = true
			}
			c.Release()
			if WakeNeeded(daemon.ClientAsleep()) {
				toClient.Ring()
			}
			if !progress {
				daemon.DaemonAsleep().Store(1)
				if c.Empty() {
					toDaemon.Wait(0)
				}
				daemon.DaemonAsleep().Store(0)
			}
		}
	})
	wg.Wait()
}

func TestRingDoesNotAllocate(t *testing.T) {
	daemon, client := bothViews(t, DefaultParams())
	p, c := client.SubProducer(), daemon.SubConsumer()
	ip, ic := daemon.SendRetProducer(), client.SendRetConsumer()
	var e Entry
	if avg := testing.AllocsPerRun(10, func() {
		for range 200 {
			p.Reserve().Sub().Kind = KindSend
			p.Publish()
			c.Next(&e)
			c.Release()
			ip.Put(1)
			ip.Publish()
			ic.Take()
			ic.Release()
			WakeNeeded(client.DaemonAsleep())
		}
	}); avg != 0 {
		t.Errorf("%v allocations for 200 messages", avg)
	}
}

func BenchmarkRingEntry(b *testing.B) {
	daemon, client := bothViews(b, DefaultParams())
	p, c := client.SubProducer(), daemon.SubConsumer()
	var e Entry
	for i := 0; i < b.N; i += 64 {
		for range 64 {
			*p.Reserve().Sub() = Sub{Kind: KindSend, MsgID: uint32(i)}
		}
		p.Publish()
		for c.Next(&e) {
		}
		c.Release()
	}
}

func BenchmarkRingID(b *testing.B) {
	s := newTestSegment(b, DefaultParams())
	p, c := s.SendRetProducer(), s.SendRetConsumer()
	for i := 0; i < b.N; i += 64 {
		for range 64 {
			p.Put(uint32(i))
		}
		p.Publish()
		for {
			if _, ok := c.Take(); !ok {
				break
			}
		}
		c.Release()
	}
}

// TestHalves: how the two sides of the event ring decide when the producer sleeps until
// there is room.
func TestHalves(t *testing.T) {
	p := Params{SubEntries: 8, EventEntries: 8, MaxMsgs: 8, MaxRx: 8, Slots: 1, Cells: 1, SendWindows: 1, RecvWindows: 1}
	seg, err := NewSegment(make([]byte, SegmentSize(p)), p)
	if err != nil {
		t.Fatal(err)
	}
	ev, c := seg.EventProducer(), seg.EventConsumer()
	for ev.Reserve() != nil {
	}
	ev.Publish()
	asleep := seg.DaemonAsleep()
	var e Entry
	for taken := 1; taken <= 8; taken++ {
		asleep.Store(AsleepForRoom)
		c.Next(&e)
		c.Release()
		half := taken >= 4
		if ev.HalfFree() != half || c.HalfTaken() != half {
			t.Errorf("%d of 8 taken: half free %v, half taken %v", taken, ev.HalfFree(), c.HalfTaken())
		}
	}
	if asleep.Store(Asleep); WakeForRoom(asleep) {
		t.Error("rung for room by a daemon that sleeps for what is published")
	}
	if asleep.Store(AsleepForRoom); !WakeForRoom(asleep) || WakeForRoom(asleep) {
		t.Error("not rung for room once")
	}
	if asleep.Store(AsleepForRoom); !WakeNeeded(asleep) {
		t.Error("not rung for what was published")
	}
}
