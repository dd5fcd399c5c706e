package handover

import (
	"errors"
	"fmt"
	"strings"
)

// Fault is an error in what one process has, and in nothing else. It never keeps a daemon from
// being replaced: the predecessor ends that session, and begins the hand-over anew.
type Fault struct {
	Session uint32 // its number in the state
	Err     error
}

func (f *Fault) Error() string { return fmt.Sprintf("session %d: %v", f.Session, f.Err) }
func (f *Fault) Unwrap() error { return f.Err }

// Faults are what one attempt to hand over has found, one for each process at most. All of these
// end before the next attempt.
type Faults []*Fault

func (fs Faults) Error() string {
	texts := make([]string, 0, len(fs))
	for _, f := range fs[:min(len(fs), 3)] {
		texts = append(texts, f.Error())
	}
	if n := len(fs) - len(texts); n > 0 {
		texts = append(texts, fmt.Sprintf("%d more", n))
	}
	return strings.Join(texts, "; ")
}

func (fs Faults) Unwrap() (all []error) {
	for _, f := range fs {
		all = append(all, f)
	}
	return all
}

// FaultsIn are the faults in err, nil if it is another error.
func FaultsIn(err error) Faults {
	var all Faults
	if errors.As(err, &all) {
		return all
	}
	var one *Fault
	if errors.As(err, &one) {
		return Faults{one}
	}
	return nil
}
