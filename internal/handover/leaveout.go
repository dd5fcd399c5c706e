//go:build leaveout

package handover

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// A build with the tag leaveout can leave out any one value of a state, so that tests show that
// they notice. A value is named by the place that writes it: the file, the line, and its number
// among the values of the line's call, as in "engine/handoverslot.go:45#2".

// leftOut is the value that is left out: 0, false or empty is written instead.
var leftOut = os.Getenv("RDSD_LEAVE_OUT")

var places struct {
	sync.Mutex
	written map[string]bool // true: some value that was written there was not 0
}

// Places returns the names of all values that were written so far. true: some value that was
// written there was not 0, false or empty.
func Places() map[string]bool {
	places.Lock()
	defer places.Unlock()
	return places.written
}

func kept[T comparable](v T, k int) (w T) {
	if leaves(k, v != w) {
		return w
	}
	return v
}

func keptBytes(b []byte) []byte {
	if leaves(0, len(b) > 0) {
		return nil
	}
	return b
}

// leaves notes that value k of the call that is being made of this package is written. It
// reports whether the value is left out.
func leaves(k int, some bool) bool {
	var pcs [8]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	f, more := frames.Next()
	for more && strings.Contains(f.Function, "internal/handover.") {
		f, more = frames.Next()
	}
	at := fmt.Sprintf("%s/%s:%d#%d", filepath.Base(filepath.Dir(f.File)), filepath.Base(f.File), f.Line, k)
	places.Lock()
	if places.written == nil {
		places.written = map[string]bool{}
	}
	places.written[at] = places.written[at] || some
	places.Unlock()
	return at == leftOut
}
