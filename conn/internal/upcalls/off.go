//go:build !upcalls

package upcalls

// Calls checks calls from inside up-calls in a build with the tag upcalls. In this build it does
// nothing.
type Calls struct{}

// Called notes a call into the connection.
func (*Calls) Called(Call) {}
