package sim

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/rds"
)

// When a port is bound again, the next owner must not get messages that were sent to the former
// one.

// takenBy checks that e may have the message, and notes e as the flow's taker.
func (m *message) takenBy(e *endpoint) {
	for _, o := range m.ops {
		if o.r.e != e && o.r.e.ap == e.ap {
			broken("successor", "message %d of operation %d on memory of the former socket at %v came to the next one", m.id, o.token, e.ap)
		}
	}
	f := m.flow
	if len(m.ops) > 0 { // the owner of the memory counts, whom the destination need not have met
		f.heard = false
		return
	}
	if f.taker != nil && f.taker != e && f.taker.life == e.life && f.heard && !f.byTCP() && !f.src.anybody {
		f.changes++
	}
	// A message with a limit may end before its sender learns who got it.
	f.taker, f.heard = e, m.limit == 0
}

// dropped counts the messages with operations that were not delivered. For these, a status
// reports that the port has another owner.
func (f *flow) dropped() (n uint64) {
	for _, m := range f.msgs {
		if len(m.ops) > 0 && !m.delivered {
			n++
		}
	}
	return n
}

// reopens reports whether c has more destinations than slots. An idle destination then gives up
// its slot, and pins the port's owner anew when it is next used.
func (c *client) reopens() bool {
	n := 0
	for _, f := range c.h.w.flowsV {
		if f.src.c == c {
			n++
		}
	}
	return n > int(c.h.w.opt.params.Slots)
}

// former counts the messages of f with operations on memory of a former socket at the
// destination's port. Such a message finds no socket, even though one is bound.
func (f *flow) former() (n uint64) {
	for _, m := range f.msgs {
		for _, o := range m.ops {
			if o.r.e.ap == f.dst && !o.r.e.open {
				n++
				break
			}
		}
	}
	return n
}

// TestBoundAgain closes ports, and has another process bind them again at once. Messages to them
// are being refused, are in progress, or wait for a connection.
func TestBoundAgain(t *testing.T) {
	var told, changes uint64
	dropped := 0
	for seed := uint64(1); seed <= 8; seed++ {
		w, err := boundAgain(seed)
		var v *violation
		if errors.As(err, &v) {
			t.Errorf("seed %d breaks rule %q: %v\noptions: %s\n%s", seed, v.rule, err, w.opt.String(), w.hist.String())
			continue
		}
		for _, f := range w.flowsV {
			told, changes = told+f.nosock, changes+f.changes
		}
		for _, o := range w.ops {
			if o.fate != nil && o.fate.Status == rds.Dropped && !o.r.e.open {
				dropped++
			}
		}
	}
	if told == 0 || changes == 0 || dropped == 0 {
		t.Errorf("%d messages found nobody, %d times a later owner got some, %d operations on memory of a former one were dropped", told, changes, dropped)
	}
	t.Logf("%d messages found nobody, %d times a later owner got some, %d operations on memory of a former one were dropped", told, changes, dropped)
}

func boundAgain(seed uint64) (w *world, err error) {
	w = build(seed, nil)
	opt := w.opt
	opt.clients, opt.sockets, opt.successor = 2, 2, true
	opt.rebind, opt.linger, opt.stall, opt.reset = 60, 0, 60, 3
	opt.params.Slots = 4096
	opt.crash, opt.kill, opt.cancel, opt.giveUp, opt.hookRate = 0, 0, 0, 0, 0
	opt.rcvBuf, opt.hardCap, opt.quotaOps, opt.quotaBytes, opt.opShare = 8192, 4096, 0, 0, 20
	w = build(seed, &opt)
	defer func() {
		p := recover()
		if v, ok := p.(*violation); ok {
			err = v
		} else if p != nil {
			panic(p)
		}
	}()
	w.boot()
	w.run()
	w.finish()
	return w, nil
}
