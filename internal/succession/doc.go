// Package succession is how one daemon takes over from another without that a client
// notices: how the successor is started, and the private connection by which the
// predecessor passes it state and descriptors (docs/adr/0032). What the state says is not
// known here; package handover has its format.
//
// The steps:
//
//	successor                              predecessor, which serves all the while
//	    hello (versions)          →
//	                              ←        welcome (version, or why not)
//	                              ←        parcel 1: listening sockets
//	    opens what it needs
//	    ready                     →
//	                                       parks
//	                              ←        parcel 2: state, memory, doorbells, connections
//	    checks all of it
//	    adopted                   →
//	                              ←        go
//	    serves                             exits
//
// Each side may give up before "go", and says why. The predecessor then goes on, as it does
// if the successor dies or takes too long. It never goes on once it has sent "go". If the
// predecessor dies after "adopted", the successor serves, because it has everything.
//
// A successor that the predecessor has not started asks for its end of the connection at the
// control socket (ipc.TakeOver).
package succession

import (
	"errors"
	"time"
)

const (
	// PartTime bounds each step in which the predecessor waits and still serves.
	PartTime = 10 * time.Second
	// PauseTime bounds the steps in which nobody serves.
	PauseTime = 5 * time.Second
	// endTime is how long a process that has closed its descriptors may take to end.
	endTime = time.Second

	maxState = 1 << 30 // bytes of a parcel
	maxFiles = 1 << 18 // descriptors of a parcel
	maxText  = 1024

	// mostFaults is how many faults one attempt may find: more than there can be processes.
	mostFaults = 1 << 20
)

var (
	// ErrRefused says that the other side gave up, and has the other side's reason.
	ErrRefused = errors.New("refused")
	// ErrGone says that the other side ended without a word.
	ErrGone = errors.New("the process ended")
	// ErrProtocol says that the other side broke the rules of the connection.
	ErrProtocol = errors.New("hand-over protocol error")
)

// Parcel is what goes over in one step: bytes, and the descriptors that the bytes name by
// their place in Files.
type Parcel struct {
	State []byte
	Files []int
}
