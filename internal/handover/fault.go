package handover

import "fmt"

// Fault is an error in what one process has, and in nothing else. It never keeps a daemon from
// being replaced: the predecessor ends that session, and begins the hand-over anew.
type Fault struct {
	Session uint32 // its number in the state
	Err     error
}

func (f *Fault) Error() string { return fmt.Sprintf("session %d: %v", f.Session, f.Err) }
func (f *Fault) Unwrap() error { return f.Err }
