package shm

import (
	"fmt"
	"testing"
)

// This test runs the ring's protocol (publish, sleep, wake) in every interleaving. Its
// steps are the atomic accesses to shared memory that the two sides make. The rings are the
// real ones: a step calls them, and the test saves and restores the whole state around it.

// variant changes the protocol. The zero value is the protocol in use. The others are
// mistakes that the test must catch.
type variant struct {
	name string

	wakeBeforePublish bool // the producer reads the announcement before it publishes
	noLastLook        bool // the consumer announces and blocks, without the last look
	announceLate      bool // the consumer looks before it announces
	staleLook         bool // the last look uses the private copy of the index
	clearLate         bool // the consumer clears the doorbell after the last look
	releaseEarly      bool // the consumer releases an entry before it has copied it
}

// world is both sides and the memory between them.
type world struct {
	seg *Segment
	v   variant

	messages, batch int

	state
}

// state is everything that a step can change, except the memory.
type state struct {
	mem  [2 * headerSize]byte
	prod Producer
	cons Consumer

	prodAt, consAt  string
	sent, got, held int // held counts entries that are filled and not published
	bell            bool
	broken          string
}

// key is equal for equal states only.
type key struct {
	head, tail       uint64
	asleep           uint32
	entries          [2]uint64
	prod, cons       [3]uint64
	prodAt, consAt   string
	sent, held, got_ int
	bell             bool
}

func (w *world) key() key {
	return key{
		head: w.seg.sub.head.Load(), tail: w.seg.sub.tail.Load(), asleep: w.seg.DaemonAsleep().Load(),
		entries: [2]uint64{w.seg.sub.entries[0][0], w.seg.sub.entries[1][0]},
		prod:    [3]uint64{w.prod.next, w.prod.tail, w.prod.head},
		cons:    [3]uint64{w.cons.next, w.cons.head, w.cons.tail},
		prodAt:  w.prodAt, consAt: w.consAt, sent: w.sent, held: w.held, got_: w.got, bell: w.bell,
	}
}

func newWorld(v variant, messages, batch int) *world {
	p := Params{SubEntries: 2, EventEntries: 2, MaxMsgs: 2, MaxRx: 2, Slots: 1, Cells: 1, SendWindows: 1, RecvWindows: 1}
	seg, err := NewSegment(heap(SegmentSize(p)), p)
	if err != nil {
		panic(err)
	}
	w := &world{seg: seg, v: v, messages: messages, batch: batch}
	w.prod, w.cons = *seg.SubProducer(), *seg.SubConsumer()
	w.prodAt, w.consAt = "fill", "poll"
	w.save(&w.state)
	return w
}

func (w *world) save(s *state) {
	*s = w.state
	copy(s.mem[:], w.seg.mem)
}

func (w *world) restore(s *state) {
	w.state = *s
	copy(w.seg.mem, s.mem[:])
}

// produce runs the producer's next step. It is false if there is none.
func (w *world) produce() bool {
	wake := func() string { // the step after the check for a sleeper
		if w.v.wakeBeforePublish {
			return "publish"
		}
		return w.afterWake()
	}
	switch w.prodAt {
	case "fill":
		e := w.prod.Reserve()
		if e == nil && w.held == 0 {
			return false // full: the caller comes back when there is room
		}
		if e != nil {
			e[0] = uint64(w.sent + 1)
			w.sent++
			w.held++
		}
		if e == nil || w.held == w.batch || w.sent == w.messages {
			w.prodAt = "publish"
			if w.v.wakeBeforePublish {
				w.prodAt = "load asleep"
			}
		}
	case "publish":
		w.prod.Publish()
		w.held = 0
		w.prodAt = "load asleep"
		if w.v.wakeBeforePublish {
			w.prodAt = w.afterWake()
		}
	// WakeNeeded's two accesses.
	case "load asleep":
		w.prodAt = "swap asleep"
		if w.seg.DaemonAsleep().Load() == 0 {
			w.prodAt = wake()
		}
	case "swap asleep":
		w.prodAt = "ring"
		if w.seg.DaemonAsleep().Swap(0) == 0 {
			w.prodAt = wake()
		}
	case "ring":
		w.bell = true
		w.prodAt = wake()
	case "done":
		return false
	}
	return true
}

func (w *world) afterWake() string {
	if w.sent == w.messages {
		return "done"
	}
	return "fill"
}

// consume runs the consumer's next step. It is false if the consumer is blocked.
func (w *world) consume() bool {
	switch w.consAt {
	case "poll":
		w.consAt = "copy"
		if w.cons.Avail() == 0 {
			w.consAt = "announce"
			if w.v.announceLate {
				w.consAt = "look"
			}
		} else if w.v.releaseEarly {
			w.seg.sub.head.Store(w.cons.next + 1)
		}
	case "copy":
		var e Entry
		if !w.cons.Next(&e) {
			w.broken = "an entry that was there is gone"
		}
		if e[0] != uint64(w.got+1) {
			w.broken = fmt.Sprintf("got entry %d, want %d", e[0], w.got+1)
		}
		w.got++
		w.consAt = "release"
	case "release":
		w.cons.Release()
		w.consAt = "poll"
	case "announce":
		w.seg.DaemonAsleep().Store(1)
		w.consAt = "look"
		if w.v.noLastLook || w.v.announceLate {
			w.consAt = "block"
		}
	case "look":
		empty := w.cons.Empty
		if w.v.staleLook {
			empty = func() bool { return w.cons.tail == w.cons.next }
		}
		switch {
		case !empty():
			w.consAt = "awake"
		case w.v.announceLate:
			w.consAt = "announce"
		case w.v.clearLate:
			w.consAt = "clear"
		default:
			w.consAt = "block"
		}
	case "block":
		if !w.bell {
			return false
		}
		w.consAt = "clear"
		if w.v.clearLate {
			w.consAt = "awake"
		}
	case "clear":
		w.bell = false
		w.consAt = "awake"
		if w.v.clearLate {
			w.consAt = "block"
		}
	case "awake":
		w.seg.DaemonAsleep().Store(0)
		w.consAt = "poll"
	}
	return true
}

// explore visits each state that can be reached from here once. It returns the first
// mistake, or "".
func (w *world) explore(seen map[key]bool) string {
	k := w.key()
	if seen[k] {
		return ""
	}
	seen[k] = true
	var here state
	w.save(&here)
	stuck := true
	for _, step := range []func() bool{w.produce, w.consume} {
		if step() {
			stuck = false
			if w.broken != "" {
				return w.broken
			}
			if bad := w.explore(seen); bad != "" {
				return bad
			}
		}
		w.restore(&here)
	}
	if stuck && (w.prodAt != "done" || w.got != w.messages) {
		return fmt.Sprintf("lost wake-up: producer at %q with %d sent, consumer at %q with %d of %d received",
			w.prodAt, w.sent, w.consAt, w.got, w.messages)
	}
	return ""
}

func TestSleepProtocolEveryInterleaving(t *testing.T) {
	for messages := 1; messages <= 5; messages++ {
		for batch := 1; batch <= 3; batch++ {
			seen := map[key]bool{}
			if bad := newWorld(variant{}, messages, batch).explore(seen); bad != "" {
				t.Errorf("%d messages, published by %d: %s", messages, batch, bad)
			}
			if len(seen) < 20 {
				t.Errorf("%d messages, published by %d: only %d states", messages, batch, len(seen))
			}
		}
	}
}

func TestSleepProtocolMistakesAreCaught(t *testing.T) {
	for _, v := range []variant{
		{name: "wake before publish", wakeBeforePublish: true},
		{name: "no last look", noLastLook: true},
		{name: "announce after the last look", announceLate: true},
		{name: "stale last look", staleLook: true},
		{name: "cleared after the last look", clearLate: true},
		{name: "release before copy", releaseEarly: true},
	} {
		t.Run(v.name, func(t *testing.T) {
			var caught string
			for messages := 1; messages <= 3 && caught == ""; messages++ {
				caught = newWorld(v, messages, 1).explore(map[key]bool{})
			}
			if caught == "" {
				t.Fatal("all interleavings of 1 to 3 messages pass")
			}
			t.Log(caught)
		})
	}
}

func TestWakeNeededOnce(t *testing.T) {
	s := newTestSegment(t, smallParams)
	if WakeNeeded(s.ClientAsleep()) {
		t.Error("wake needed with nobody asleep")
	}
	s.ClientAsleep().Store(1)
	if !WakeNeeded(s.ClientAsleep()) || WakeNeeded(s.ClientAsleep()) {
		t.Error("one sleeper, want one wake")
	}
	if s.DaemonAsleep().Load() != 0 {
		t.Error("the daemon's announcement changed")
	}
}
