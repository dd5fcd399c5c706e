package sim

import (
	"slices"

	"github.com/rdsd/rdsd/verbs/sim"
)

// exactKind is what the message under test carries.
type exactKind struct {
	name              string
	write, read       bool
	add, swap, silent bool
	device            bool // the devices carry out atomics; else the message carries its atomic
}

func (k exactKind) ops() (n int) {
	for _, has := range []bool{k.write, k.read, k.add, k.swap} {
		if has {
			n++
		}
	}
	return n
}

// carried reports whether the message carries an atomic.
func (k exactKind) carried() bool { return (k.add || k.swap) && !k.device }

// byDevice returns how many operations the devices do.
func (k exactKind) byDevice() int {
	if k.carried() {
		return k.ops() - 1
	}
	return k.ops()
}

var exactKinds = []exactKind{
	{name: "datagram"}, {name: "write", write: true}, {name: "read", read: true}, {name: "fetch-add", add: true, device: true},
	{name: "compare-swap", swap: true, device: true}, {name: "write, add", write: true, add: true, device: true},
	{name: "read, swap", read: true, swap: true, device: true}, {name: "silent write", write: true, silent: true},
	{name: "carried add", add: true}, {name: "carried swap", swap: true},
	{name: "write, carried", write: true, add: true}, {name: "read, carried", read: true, swap: true},
}

// exactStep is a point in the life of a message. at reports whether the first harm is to be done
// at a point of the provider. again does so for a second harm, to the connection that is set up
// afterwards.
type exactStep struct {
	name  string
	with  func(exactKind) bool // nil means every kind
	at    func(*exact, sim.Point) bool
	again func(*exact, sim.Point) bool

	queued  bool // harm is done before the message is posted
	posted  bool // harm is done when the message is posted and no packet is in the network
	arrived bool // the message has arrived at the peer's device
	taken   bool // the peer's application has the message before more harm is done
	acked   bool // the ack has come back
}

func atPeer(kinds ...sim.PointKind) func(*exact, sim.Point) bool {
	return func(x *exact, p sim.Point) bool { return p.Host == x.b.addr && slices.Contains(kinds, p.Kind) }
}

func atHome(kinds ...sim.PointKind) func(*exact, sim.Point) bool {
	return func(x *exact, p sim.Point) bool { return p.Host == x.a.addr && slices.Contains(kinds, p.Kind) }
}

func anywhere(kind sim.PointKind) func(*exact, sim.Point) bool {
	return func(_ *exact, p sim.Point) bool { return p.Kind == kind }
}

var (
	anyOp   = func(k exactKind) bool { return k.byDevice() > 0 }
	twoOps  = func(k exactKind) bool { return k.byDevice() > 1 }
	delayed = atPeer(sim.BeforeSendDelivered)
	taken   = atPeer(sim.AfterSendDelivered)
)

var exactSteps = []exactStep{
	{name: "before the post", queued: true},
	{name: "after the post", posted: true},
	{name: "before the operation runs", with: anyOp, at: atPeer(sim.BeforeWrite, sim.BeforeReadSampled, sim.BeforeAtomic)},
	{name: "between two operations", with: twoOps, at: atPeer(sim.BeforeAtomic)},
	{name: "after the operation has run", with: anyOp, at: func(x *exact, p sim.Point) bool {
		return atPeer(sim.AfterWritePlaced, sim.AfterReadSampled, sim.AfterAtomic)(x, p) && x.ran == x.kind.byDevice()
	}},
	{name: "before the message arrives", at: delayed},
	{name: "after the message arrived", at: taken, arrived: true},
	{name: "before its ack arrives", at: atHome(sim.BeforeSendDelivered), arrived: true, taken: true},
	{name: "after its ack arrived", at: atHome(sim.AfterSendDelivered), arrived: true, taken: true, acked: true},

	{name: "not arrived; connect requested", at: delayed, again: anywhere(sim.ConnectRequest)},
	{name: "not arrived; connect accepted", at: delayed, again: anywhere(sim.ConnectReply)},
	{name: "not arrived; connect confirmed", at: delayed, again: anywhere(sim.ConnectReady)},
	{name: "not arrived; before peer's HELLO", at: delayed, again: atHome(sim.BeforeSendDelivered)},
	{name: "not arrived; after peer's HELLO", at: delayed, again: atHome(sim.AfterSendDelivered)},
	{name: "not arrived; before own HELLO", at: delayed, again: delayed},
	{name: "not arrived; after own HELLO", at: delayed, again: taken},
	{name: "arrived; connect requested", at: taken, again: anywhere(sim.ConnectRequest), arrived: true, taken: true},
	{name: "arrived; connect accepted", at: taken, again: anywhere(sim.ConnectReply), arrived: true, taken: true},
	{name: "arrived; connect confirmed", at: taken, again: anywhere(sim.ConnectReady), arrived: true, taken: true},
	{name: "arrived; before peer's HELLO", at: taken, again: atHome(sim.BeforeSendDelivered), arrived: true, taken: true},
	{name: "arrived; after peer's HELLO", at: taken, again: atHome(sim.AfterSendDelivered), arrived: true, taken: true},
	{name: "arrived; before own HELLO", at: taken, again: delayed, arrived: true, taken: true},
	{name: "arrived; after own HELLO", at: taken, again: taken, arrived: true, taken: true},
}
