//go:build !upcalls

package upcalls

// Calls does nothing in this build.
type Calls struct{}

// Note is told by Send, QueueCong, Hold, Excuse, TookRun and Probe.
func (*Calls) Note() {}

// Withdraw is told by Withdraw.
func (*Calls) Withdraw() {}

// Forget is told by ForgetPartial.
func (*Calls) Forget() {}

// Waiting is told by Waiting.
func (*Calls) Waiting() {}

// Cancel is told by Cancel, GiveUp and CancelMatching.
func (*Calls) Cancel() {}

// Attr is told by UseAttr.
func (*Calls) Attr() {}

// Drive is told by whatever brings an event, the time or a setting.
func (*Calls) Drive() {}
