package daemon

import (
	"runtime"

	"github.com/rdsd/rdsd/internal/ctl"
)

// Events lists what happened after the event numbered after; 0: the latest.
func (b backend) Events(v ctl.View, after uint64) ([]ctl.EventInfo, bool, error) {
	out, more := b.d.summed.journal.events(v, after)
	return out, more, nil
}

// Errors lists the distinct errors, the latest first.
func (b backend) Errors(v ctl.View) ([]ctl.ErrorInfo, bool, error) {
	out, more := b.d.summed.journal.distinct(v)
	return out, more, nil
}

// maxStacks bounds what Stacks returns, bytes.
const maxStacks = 1 << 20

// Stacks returns the stacks of all goroutines. The daemon stands still for about a
// millisecond.
func (b backend) Stacks() (string, error) {
	buf := make([]byte, maxStacks)
	return string(buf[:runtime.Stack(buf, true)]), nil
}
