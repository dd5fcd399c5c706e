package soft

import (
	"fmt"

	"github.com/rdsd/rdsd/verbs"
)

// state is where a queue pair is in its life. What the owner does moves it from reset to
// connected, a fault or the owner from there to failed.
type state uint8

const (
	reset       state = iota // RESET
	initial                  // INIT: receives may be posted
	connecting               // RTR: Connect was called; sends may be posted
	answering                // RTR: Accept writes the reply; sends may be posted
	unheard                  // RTS of the passive side: nothing may leave before the peer's first FPDU (RFC 5044 section 7.1.3)
	open                     // RTS
	terminating              // RTS: a fault was found; the READs before it are answered, then the Terminate goes (RFC 5040 section 4.8)
	releasing                // ERR: a thread still touches memory of it; the completions follow
	failed                   // ERR
	destroyed                // the owner has given it back
	states
)

// asVerbs has for each state the one that QP.State shows.
var asVerbs = [states]verbs.QPState{verbs.QPReset, verbs.QPInit, verbs.QPRTR, verbs.QPRTR, verbs.QPRTS, verbs.QPRTS, verbs.QPRTS, verbs.QPErr, verbs.QPErr, verbs.QPErr}

// leads has for each state those that may follow. Each but destroyed may be followed by reset,
// failed and destroyed.
var leads = [states][]state{
	reset:       {initial},
	initial:     {connecting, answering},
	connecting:  {open},
	answering:   {unheard},
	unheard:     {open},
	open:        {terminating, releasing},
	terminating: {releasing},
	destroyed:   {},
}

// become moves q to another state. Nothing else does. An edge that is not there is a bug of this
// package; nothing that a peer or owner does leads to one.
func (q *qp) become(to state) {
	from := q.state
	legal := from != destroyed && (to == reset || to == failed || to == destroyed)
	for _, s := range leads[from] {
		legal = legal || s == to
	}
	if !legal {
		panic(fmt.Sprintf("soft: queue pair %d goes from state %d to %d", q.num, from, to))
	}
	q.state = to
}

// connected reports whether the queue pair has a connection: RTS.
func (s state) connected() bool { return s >= unheard && s <= terminating }

// receives reports whether what the peer sends is handled.
func (s state) receives() bool { return s == unheard || s == open }

// sends reports whether something may leave.
func (s state) sends() bool { return s == open || s == terminating }

// queues reports whether sends may be posted, to go or to be flushed.
func (s state) queues() bool { return s >= connecting && s <= failed }

// intake says whether a connected queue pair reads the stream, unless its owner holds it.
type intake uint8

const (
	reading intake = iota
	overdue        // it reads, and the pause of the message at hand is over
	pausing        // a message has no receive; the owner has until the next Progress to post some
	full           // there is no room to put aside more
	ended          // the peer sends no more
)

// reads reports whether the stream is read.
func (i intake) reads() bool { return i <= overdue }

// drain is the state SQD: whether the send queue begins further requests.
type drain uint8

const (
	flowing drain = iota
	draining
	drained // and the event was raised
)

// never is no position of a queue.
const never = ^uint64(0)
