package shm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// meeting is two sides, each of which stores a word and then looks whether the other has stored its word. If neither
// sees the other, nobody wakes them.
type meeting struct {
	name  string
	sides [2]func() bool // each stores, looks, and reports whether it sees the other's store
	again func()         // runs before each round

	rounds, both, neither int    // how many there were, and in how many both sides or neither saw the other
	late                  [2]int // how long each side waits in a round, in loads of a word
	over                  bool
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
		{name: "submission", sides: [2]func() bool{
			func() bool { sub.Reserve(); sub.Publish(); return WakeNeeded(daemonAsleep) },
			func() bool { daemonAsleep.Store(Asleep); return !taken.Empty() },
		}, again: func() { drain(taken) }},
		{name: "receive id", sides: [2]func() bool{
			func() bool { given.Put(1); given.Publish(); return WakeNeeded(daemonAsleep) },
			func() bool { daemonAsleep.Store(Asleep); return !free.Empty() },
		}, again: func() { free.Take(); free.Release() }},
		{name: "event", sides: [2]func() bool{
			func() bool { ev.Reserve(); ev.Publish(); return WakeNeeded(clientAsleep) },
			func() bool { clientAsleep.Store(AsleepForEvents); return !told.Empty() },
		}, again: func() { drain(told) }},
		{name: "message id", sides: [2]func() bool{
			func() bool { ids.Put(1); ids.Publish(); return WakeForReturns(clientAsleep) },
			func() bool { clientAsleep.Store(Asleep); return !back.Empty() },
		}, again: func() { back.Take(); back.Release() }},
		{name: "room for events", sides: [2]func() bool{
			func() bool { drain(told); return told.HalfTaken() && WakeForRoom(daemonAsleep) },
			func() bool { daemonAsleep.Store(AsleepForRoom); return ev.HalfFree() },
		}, again: func() {
			for ev.Reserve() != nil {
			}
			ev.Publish()
		}},
		{name: "mark", sides: [2]func() bool{
			func() bool { cell.StoreHWM(id); return armed.LoadArmed() == id },
			func() bool { armed.StoreArmed(id); return cell.LoadHWM() == id },
		}, again: func() { id++ }},
	}
}

// TestMeetings: in mapped memory at least one of two sides that meet sees the other, also under the race detector.
// The test of the protocol takes that for granted, because it makes one access after the other.
func TestMeetings(t *testing.T) {
	p, cpus := smallParams, processors(t)
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
			m.run(cpus, shared[2], func() { daemon.DaemonAsleep().Store(Awake); client.ClientAsleep().Store(Awake) })
			if m.neither > 0 {
				t.Errorf("in %d of %d rounds neither side saw the other; in %d both", m.neither, m.rounds, m.both)
			}
		})
	}
}

const (
	enough = 10_000  // rounds in which the sides met so closely that either both saw the other or neither
	most   = 100_000 // rounds altogether, where they seldom run at the same time
)

// run has the two sides meet again and again, each on its processor. mem is mapped memory for its own use. A
// processor keeps stores in a queue and completes them in their order. So each side first writes memory that is in
// the other processor's cache: that takes a while, and the store to the side's word waits behind it.
func (m *meeting) run(cpus [2]unix.CPUSet, mem []byte, again func()) {
	// The steps that each side has begun: begun in Go's memory, where the race detector sees the order of the steps, near in
	// mapped memory, where it is fast.
	var begun, near [2]*atomic.Uint64
	var busy [2][]byte
	for side := range 2 {
		begun[side], near[side] = new(atomic.Uint64), at[atomic.Uint64](mem, side*lineSize)
		near[side].Store(0)
		busy[side] = mem[(side+1)*headerSize:][:headerSize]
	}
	var sees [2]bool
	var wg sync.WaitGroup
	for side := range 2 {
		wg.Go(func() {
			runtime.LockOSThread()                    // the thread ends with the goroutine
			_ = unix.SchedSetaffinity(0, &cpus[side]) // else they meet less often
			for r := uint64(1); !m.over; r++ {
				clear(busy[1-side])
				if side == 0 {
					again()
					m.again()
				}
				step(&begun, side, 3*r)
				step(&near, side, r)
				for range m.late[side] {
					near[side].Load()
				}
				clear(busy[side])
				sees[side] = m.sides[side]()
				step(&begun, side, 3*r+1)
				if side == 0 {
					m.saw(sees)
				}
				step(&begun, side, 3*r+2)
			}
		})
	}
	wg.Wait()
}

// processors returns two of those on which this process may run.
func processors(t *testing.T) (two [2]unix.CPUSet) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	n := 0
	for cpu := 0; cpu < 8*len(may)*8 && n < 2; cpu++ {
		if may.IsSet(cpu) {
			two[n].Set(cpu)
			n++
		}
	}
	if n < 2 || runtime.GOMAXPROCS(0) < 2 {
		t.Skip("needs two processors")
	}
	return two
}

// step begins step n of a side and waits for the other side.
func step(of *[2]*atomic.Uint64, side int, n uint64) {
	of[side].Swap(n)
	for looks := 0; of[1-side].Load() < n; looks++ {
		if looks > 1000 {
			runtime.Gosched()
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
}

// saw counts a round. A side that alone saw the other was late: the other one begins a little later from then on.
func (m *meeting) saw(sees [2]bool) {
	m.rounds++
	switch {
	case sees[0] && sees[1]:
		m.both++
	case sees[0]:
		m.delay(1)
	case sees[1]:
		m.delay(0)
	default:
		m.neither++
	}
	m.over = m.both+m.neither >= enough || m.rounds >= most
}

// delay has a side begin a little later, or the other one a little earlier if that waits.
func (m *meeting) delay(side int) {
	if m.late[1-side] > 0 {
		m.late[1-side]--
	} else {
		m.late[side] = min(m.late[side]+1, 1000)
	}
}
