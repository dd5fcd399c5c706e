package rdmaop

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/verbs"
)

// State of an operation.
//
//	            touched by hardware?  status?
//	New         no                    open   not submitted
//	Queued      no                    open   waits for its turn
//	Posted      yes                   open   work requests outstanding
//	Local       no                    open   locally complete
//	Told        yes                   known  status known, work requests outstanding
//	Settled     no                    known  final
type State uint8

const (
	StateNew State = iota
	StateQueued
	StatePosted
	StateLocal
	StateTold
	StateSettled

	numStates
)

var stateNames = [numStates]string{"New", "Queued", "Posted", "Local", "Told", "Settled"}

func (s State) String() string { return stateNames[min(s, numStates-1)] }

// EventType says what happened to an operation.
type EventType uint8

const (
	EvQueue     EventType = iota // submitted
	EvPost                       // its work requests were posted, or a local copy began
	EvLocal                      // no work request can touch its local buffers any more
	EvAck                        // its message was acked by the same peer instance
	EvLess                       // a handshake with the same instance acked fewer messages: not delivered
	EvNoSocket                   // its message found no socket: not delivered
	EvRestarted                  // the peer is another instance now
	EvTimeout                    // its outcome was not known in time, or its time limit passed
	EvWCError                    // it ended with the error completion Event.WC
	EvRefuse                     // refused before it was posted, for Event.Errno
	EvCancel                     // withdrawn: cancel or close
	EvSibling                    // the other operation of its message failed: not delivered

	numEvents
)

var eventNames = [numEvents]string{"Queue", "Post", "Local", "Ack", "Less", "NoSocket",
	"Restarted", "Timeout", "WCError", "Refuse", "Cancel", "Sibling"}

func (t EventType) String() string {
	if t < numEvents {
		return eventNames[t]
	}
	return "invalid event"
}

// settles reports whether e decides the status of an operation that has been
// posted.
func (t EventType) settles() bool {
	switch t {
	case EvAck, EvLess, EvNoSocket, EvRestarted, EvTimeout, EvWCError, EvCancel, EvSibling:
		return true
	}
	return false
}

// Event is the input of Op.Step.
type Event struct {
	Type  EventType
	WC    verbs.WCStatus // EvWCError
	Errno unix.Errno     // EvRefuse
}

// Effect is what the owner has to do after a step. If both bits are set, the status
// is reported first, so that a program that sees the mark also finds the status.
type Effect uint8

const (
	RaiseLocal Effect = 1 << iota // complete Op.ID at the barrier; it comes once per operation
	Report                        // report Op.Status; it comes at most once per operation
)

// StatusOf returns the status that an error completion gives to its operation. It
// returns false if the completion does not show a fault of the operation: it was
// flushed, retries were exceeded, the device or the connection failed. Such an
// operation is left to the next handshake, which can tell SUCCESS from DROPPED.
func StatusOf(wc verbs.WCStatus) (abi.Status, bool) {
	switch wc {
	case verbs.WCRemAccessErr:
		return abi.StatusRemoteError, true
	case verbs.WCSuccess, verbs.WCWRFlushErr, verbs.WCRetryExcErr, verbs.WCRNRRetryExcErr,
		verbs.WCFatalErr, verbs.WCGeneralErr:
		return abi.StatusUnknown, false
	}
	return abi.StatusOtherError, true
}

// EventError is the error of Step for an event that the state does not allow.
type EventError struct {
	State State
	Event EventType
}

func (x *EventError) Error() string {
	return fmt.Sprintf("rdmaop: event %v in state %v", x.Event, x.State)
}

// State returns the state of o.
func (o *Op) State() State { return o.state }

// Status returns o's status. An operation has one in StateTold and StateSettled.
func (o *Op) Status() abi.Status { return o.status }

// Errno returns why o was refused, ECONNREFUSED if its message found no socket, else 0.
func (o *Op) Errno() unix.Errno { return o.errno }

// WantsStatus reports whether the application asked for o's status.
func (o *Op) WantsStatus() bool {
	return o.Flags&abi.FlagNotify != 0 || o.Flags&abi.FlagReport != 0 && o.status != abi.StatusSuccess
}

// Step moves o by one event. No other method changes its state. A further event
// about an operation whose status is known has no effect. An event that cannot
// happen in the state of o, or an EvWCError with WCSuccess, changes nothing and
// returns an *EventError.
func (o *Op) Step(ev Event) (Effect, error) {
	to, eff, ok := next(o.state, ev.Type)
	if !ok || ev.Type == EvWCError && ev.WC == verbs.WCSuccess {
		return 0, &EventError{o.state, ev.Type}
	}
	if eff&Report != 0 {
		o.status = outcome(o.state, ev)
		switch ev.Type {
		case EvRefuse:
			o.errno = ev.Errno
		case EvNoSocket:
			o.errno = unix.ECONNREFUSED
		}
	}
	o.state = to
	return eff, nil
}

// next returns the state behind event e in state s, and what the owner has to do. ok
// is false if e cannot happen in s.
func next(s State, e EventType) (to State, eff Effect, ok bool) {
	switch s {
	case StateNew:
		if e == EvQueue {
			return StateQueued, 0, true
		}
	case StateQueued:
		switch e {
		case EvPost:
			return StatePosted, 0, true
		case EvRefuse, EvCancel, EvRestarted, EvTimeout, EvSibling:
			return StateSettled, Report | RaiseLocal, true
		}
	case StatePosted:
		if e == EvLocal {
			return StateLocal, RaiseLocal, true
		}
		if e.settles() {
			return StateTold, Report, true
		}
	case StateLocal:
		if e.settles() {
			return StateSettled, Report, true
		}
	case StateTold:
		if e == EvLocal {
			return StateSettled, RaiseLocal, true
		}
		if e.settles() {
			return s, 0, true
		}
	case StateSettled:
		if e.settles() {
			return s, 0, true
		}
	}
	return s, 0, false
}

// outcome returns the status that ev gives to an operation in state s.
func outcome(s State, ev Event) abi.Status {
	switch ev.Type {
	case EvAck:
		return abi.StatusSuccess
	case EvLess, EvNoSocket, EvSibling:
		return abi.StatusDropped
	case EvCancel:
		return abi.StatusCanceled
	case EvRefuse:
		return abi.StatusRemoteError
	case EvWCError:
		st, _ := StatusOf(ev.WC)
		return st
	}
	if s == StateQueued { // never posted: certainly not delivered
		return abi.StatusDropped
	}
	return abi.StatusUnknown
}
