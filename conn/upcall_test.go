//go:build upcalls

package conn

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/internal/upcalls"
)

// reads are the methods that may be called from every up-call. TakeArrived changes
// nothing but what it returns.
var reads = []string{"State", "Ready", "Kernel", "Instance", "RemoteCong", "Stats", "Info", "Queued", "OpsUnderWay", "OpsOpen", "Stopped", "Released", "LetsGo", "Narrowed", "Path", "Segment",
	"NeedFlush", "NextTimeout", "Missing", "Past", "IdleSince", "TakeArrived", "String"}

// TestUpcallKinds: every method of a Conn that does more than read is refused from inside an
// up-call that allows nothing.
func TestUpcallKinds(t *testing.T) {
	for m := range reflect.TypeFor[*Conn]().Methods() {
		c := New(testConfig(addrA, addrB, 1), nil)
		c.calls.Enter(upcalls.InCloseQP)
		read := slices.Contains(reads, m.Name)
		if no := upcalls.Refused(c, m.Name); no == read {
			t.Errorf("%s refused: %v, only reads: %v", m.Name, no, read)
		}
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
