package shm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// meeting is two sides, each of which stores a word and then looks whether the other has stored its word. If neither
// sees the other, nobody wakes them.
type meeting struct {
	name  string
	sides [2]func() bool // each stores, looks, and reports whether it sees the other's store
	again func()         // runs before each round
}

// meetings returns all such pairs of the memory contract.
func meetings(daemon, client *Segment, table *Table) []meeting {
	sub, taken := client.SubProducer(), daemon.SubConsumer()
	ev, told := daemon.EventProducer(), client.EventConsumer()
	ids, back := daemon.SendRetProducer(), client.SendRetConsumer()
	given, free := client.RecvRetProducer(), daemon.RecvRetConsumer()
	var e Entry
	drain := func(c *Consumer) {
		for c.Next(&e) {
		}
		c.Release()
	}
	armed, cell := client.WantCell(0), table.Cell(0)
	daemonAsleep, clientAsleep := client.DaemonAsleep(), client.ClientAsleep()
	id := uint64(1)
	return []meeting{
		{"submission", [2]func() bool{
			func() bool { sub.Reserve(); sub.Publish(); return WakeNeeded(daemonAsleep) },
			func() bool { daemonAsleep.Store(Asleep); return !taken.Empty() },
		}, func() { drain(taken) }},
		{"receive id", [2]func() bool{
			func() bool { given.Put(1); given.Publish(); return WakeNeeded(daemonAsleep) },
			func() bool { daemonAsleep.Store(Asleep); return !free.Empty() },
		}, func() { free.Take(); free.Release() }},
		{"event", [2]func() bool{
			func() bool { ev.Reserve(); ev.Publish(); return WakeNeeded(clientAsleep) },
			func() bool { clientAsleep.Store(AsleepForEvents); return !told.Empty() },
		}, func() { drain(told) }},
		{"message id", [2]func() bool{
			func() bool { ids.Put(1); ids.Publish(); return WakeForReturns(clientAsleep) },
			func() bool { clientAsleep.Store(Asleep); return !back.Empty() },
		}, func() { back.Take(); back.Release() }},
		{"room for events", [2]func() bool{
			func() bool { drain(told); return told.HalfTaken() && WakeForRoom(daemonAsleep) },
			func() bool { daemonAsleep.Store(AsleepForRoom); return ev.HalfFree() },
		}, func() {
			for ev.Reserve() != nil {
			}
			ev.Publish()
		}},
		{"mark", [2]func() bool{
			func() bool { cell.StoreHWM(id); return armed.LoadArmed() == id },
			func() bool { armed.StoreArmed(id); return cell.LoadHWM() == id },
		}, func() { id++ }},
	}
}

// TestMeetings: in mapped memory at least one of two sides that meet sees the other, also under the race detector.
// The test of the protocol takes that for granted, because it makes one access after the other.
func TestMeetings(t *testing.T) {
	p := smallParams
	shared := make([][]byte, 3)
	for i, size := range []int{SegmentSize(p), TableSize(p.Slots, p.Cells), 3 * headerSize} {
		m, err := CreateMemfd("meetings", size)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		shared[i] = m.Mem
	}
	daemon, err := NewSegment(shared[0], p)
	if err != nil {
		t.Fatal(err)
	}
	client, err := OpenSegment(shared[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range meetings(daemon, client, NewTable(shared[1], p.Slots, p.Cells)) {
		t.Run(m.name, func(t *testing.T) {
			const rounds = 50_000
			if lost := m.run(rounds, shared[2], func() { daemon.DaemonAsleep().Store(Awake); client.ClientAsleep().Store(Awake) }); lost > 0 {
				t.Errorf("in %d of %d rounds neither side saw the other", lost, rounds)
			}
		})
	}
}

// run has the two sides meet and returns in how many rounds neither saw the other. mem is mapped memory for its own
// use. A processor keeps stores in a queue and completes them in their order. So each side first writes memory that
// is in the other processor's cache: that takes a while, and the store to the side's word waits behind it.
func (m *meeting) run(rounds int, mem []byte, again func()) (lost int) {
	var sees [2]bool
	// The steps that each side has begun: begun in Go's memory, where the race detector sees the order of the steps, near in
	// mapped memory, where it is fast.
	var begun, near [2]*atomic.Uint64
	var busy [2][]byte
	for side := range 2 {
		begun[side], near[side] = new(atomic.Uint64), at[atomic.Uint64](mem, side*lineSize)
		near[side].Store(0)
		busy[side] = mem[(side+1)*headerSize:][:headerSize]
	}
	step := func(of *[2]*atomic.Uint64, side int, n uint64) {
		of[side].Swap(n)
		for looks := 0; of[1-side].Load() < n; looks++ {
			if looks > 100 {
				runtime.Gosched()
			}
		}
	}
	var wg sync.WaitGroup
	for side := range 2 {
		wg.Go(func() {
			for r := range uint64(rounds) {
				clear(busy[1-side])
				if side == 0 {
					again()
					m.again()
				}
				step(&begun, side, 2*r+1)
				step(&near, side, r+1)
				for range int(r) / 2 % 16 * (side ^ int(r&1)) { // now one is ahead, now the other
					near[side].Load()
				}
				clear(busy[side])
				sees[side] = m.sides[side]()
				step(&begun, side, 2*r+2)
				if side == 0 && !sees[0] && !sees[1] {
					lost++
				}
			}
		})
	}
	wg.Wait()
	return lost
}
