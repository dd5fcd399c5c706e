//go:build upcalls

package tcp

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/internal/upcalls"
)

// reads are the methods that may be called from every up-call. Two do nothing: Waiting and Withdraw.
var reads = []string{"State", "Ready", "Kernel", "Instance", "RemoteCong", "Stats", "Info", "Ctx", "NeedFlush", "NextTimeout", "Missing",
	"TakeArrived", "EachStream", "Lanes", "Begun", "Up", "Want", "String", "Waiting", "Withdraw"}

// TestUpcallKinds: every method of a Conn that does more than read is refused from inside an
// up-call that allows nothing.
func TestUpcallKinds(t *testing.T) {
	for m := range reflect.TypeFor[*Conn]().Methods() {
		c := New(Config{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2")}, nil)
		c.calls.Enter(upcalls.InCloseQP)
		read := slices.Contains(reads, m.Name)
		if no := upcalls.Refused(c, m.Name); no == read {
			t.Errorf("%s refused: %v, only reads: %v", m.Name, no, read)
		}
	}
}

// TestUpcallWrappers: every wrapper notes its own up-call.
func TestUpcallWrappers(t *testing.T) {
	src, err := os.ReadFile("upcall_on.go")
	if err != nil {
		t.Fatal(err)
	}
	x := reflect.TypeFor[*checkedHost]()
	for m := range x.Methods() {
		_, body, _ := strings.Cut(string(src), fmt.Sprintf("\nfunc (x *%s) %s(", x.Elem().Name(), m.Name))
		if body, _, _ = strings.Cut(body, "\n}"); !strings.Contains(body, fmt.Sprintf("x.up.Enter(upcalls.In%s))\n", m.Name)) {
			t.Errorf("%s does not note that it begins", m.Name)
		}
	}
}
