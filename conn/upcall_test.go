//go:build upcalls

package conn

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/internal/upcalls"
)

// reads are the methods that may be called from every up-call. TakeArrived changes
// nothing but what it returns.
var reads = []string{"State", "Ready", "Asks", "Paths", "Kernel", "Instance", "RemoteCong", "Stats", "Info", "Queued", "OpsUnderWay", "OpsOpen", "Stopped", "Released", "LetsGo", "Narrowed", "Path", "Segment",
	"Traceparent", "NeedFlush", "NextTimeout", "Missing", "Past", "IdleSince", "RetryAt", "TakeArrived", "String"}

// TestUpcallKinds: every method of a Conn that does more than read is refused from inside an
// up-call that allows nothing.
func TestUpcallKinds(t *testing.T) {
	found := upcalls.Misjudged(reads, func() (*Conn, *upcalls.Calls) {
		c := New(testConfig(addrA, addrB, 1), nil)
		return c, &c.calls
	})
	if len(found) > 0 {
		t.Errorf("%v: refused, or not, unlike methods that only read", found)
	}
}

// TestUpcallTable: what each up-call allows is what its comment says.
func TestUpcallTable(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "host.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		face, ok := spec.Type.(*ast.InterfaceType)
		if !ok || spec.Name.Name == "Host" {
			return true
		}
		for _, m := range face.Methods.List {
			n++
			up := upcalls.Upcall(slices.Index(upcalls.Names[:], m.Names[0].Name))
			named, nothing := strings.CutSuffix(strings.Join(strings.Fields(m.Doc.Text()), " "), "Nothing but a method that reads may be called from here.")
			for k, names := range upcalls.Kinds {
				var c upcalls.Calls
				c.Enter(up)
				want := k == 0 && spec.Name.Name != "DeviceHost" && !nothing
				if i := strings.Index(named, " may be called from here."); i >= 0 {
					from := strings.LastIndexAny(named[:i], ".") + 1
					want = want || slices.Contains(strings.FieldsFunc(named[from:i], func(r rune) bool { return r == ' ' || r == ',' }), names[0])
				}
				if got := !c.Forbidden(upcalls.Call(k)); got != want {
					t.Errorf("%s may call %s: %v, by its comment %v", m.Names[0], names[0], got, want)
				}
			}
		}
		return true
	})
	if n != int(upcalls.NumUpcalls)-1 {
		t.Errorf("%d up-calls, want %d", n, upcalls.NumUpcalls-1)
	}
}

// TestUpcallWrappers: every wrapper notes its own up-call.
func TestUpcallWrappers(t *testing.T) {
	if found, err := upcalls.Unnoted[checkedHost](); len(found) > 0 || err != nil {
		t.Errorf("%v do not note that they begin, %v", found, err)
	}
}

// TestUpcallNested: what one of two up-calls does not allow is refused in the inner
// one, and allowed again when they have returned.
func TestUpcallNested(t *testing.T) {
	c := New(testConfig(addrA, addrB, 1), nil)
	outer := c.calls.Enter(upcalls.InDeliver)
	if upcalls.Refused(c, "Withdraw") || !upcalls.Refused(c, "Cancel") {
		t.Error("in Deliver")
	}
	inner := c.calls.Enter(upcalls.InMsgDone)
	if !upcalls.Refused(c, "Withdraw") || upcalls.Refused(c, "Hold") {
		t.Error("in MsgDone in Deliver")
	}
	c.calls.Leave(inner)
	if upcalls.Refused(c, "Withdraw") {
		t.Error("in Deliver again")
	}
	c.calls.Leave(outer)
	if upcalls.Refused(c, "Cancel") {
		t.Error("outside")
	}
}
