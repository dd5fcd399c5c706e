//go:build upcalls

package tcp

import (
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/conn/internal/upcalls"
)

// reads are the methods that may be called from every up-call. Two do nothing: Waiting and Withdraw.
var reads = []string{"State", "Ready", "Kernel", "Instance", "RemoteCong", "Stats", "Info", "Ctx", "NeedFlush", "NextTimeout", "Missing",
	"TakeArrived", "EachStream", "Lanes", "Begun", "Up", "Want", "String", "Waiting", "Withdraw"}

// TestUpcallKinds: every method of a Conn that does more than read is refused from inside an
// up-call that allows nothing.
func TestUpcallKinds(t *testing.T) {
	found := upcalls.Misjudged(reads, func() (*Conn, *upcalls.Calls) {
		c := New(Config{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2")}, nil)
		return c, &c.calls
	})
	if len(found) > 0 {
		t.Errorf("%v: refused, or not, unlike methods that only read", found)
	}
}

// TestUpcallWrappers: every wrapper notes its own up-call.
func TestUpcallWrappers(t *testing.T) {
	if found, err := upcalls.Unnoted[checkedHost](); len(found) > 0 || err != nil {
		t.Errorf("%v do not note that they begin, %v", found, err)
	}
}
