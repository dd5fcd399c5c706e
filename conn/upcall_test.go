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
)

// kinds has the methods of each kind of call.
var kinds = [numCalls][]string{
	callNote:     {"Send", "QueueCong", "Hold", "Excuse", "TookRun", "Probe"},
	callWithdraw: {"Withdraw"},
	callForget:   {"ForgetPartial"},
	callWaiting:  {"Waiting"},
	callCancel:   {"Cancel", "GiveUp", "CancelMatching"},
	callAttr:     {"UseAttr"},
	callDrive: {"Reset", "Close", "CutOff", "Tick", "Flush", "SetSilence", "CQEmpty",
		"HoldOps", "Halt", "Resume", "Encode", "Adopt",
		"HandleRequest", "HandleCM", "HandleRecv", "HandleSend",
		"HandleConnected", "HandleAccept", "HandleFailed", "HandleClosed", "HandleData", "HandlePlaced", "HandleRoom"},
}

// reads are the methods that may be called from every up-call. TakeArrived changes
// nothing but what it returns.
var reads = []string{"State", "Ready", "Kernel", "Instance", "RemoteCong", "Stats", "Info", "Ctx", "Queued", "OpsUnderWay", "OpsOpen", "Stopped", "Released", "LetsGo", "Narrowed", "Path", "Segment",
	"NeedFlush", "NextTimeout", "Missing", "Past", "IdleSince", "TakeArrived", "EachStream", "Lanes", "Begun", "Up", "Want", "String"}

// refused calls a method of c and reports whether upcalls did not allow it.
func refused(t *testing.T, c any, method string) (no bool) {
	f := reflect.ValueOf(c).MethodByName(method)
	args := make([]reflect.Value, f.Type().NumIn())
	for i := range args {
		switch in := f.Type().In(i); {
		case in == reflect.TypeFor[*Msg]():
			args[i] = reflect.ValueOf(&Msg{})
		case in.Kind() == reflect.Func:
			args[i] = reflect.MakeFunc(in, func([]reflect.Value) []reflect.Value {
				out := make([]reflect.Value, in.NumOut())
				for i := range out {
					out[i] = reflect.Zero(in.Out(i))
				}
				return out
			})
		default:
			args[i] = reflect.Zero(in)
		}
	}
	defer func() {
		if r := recover(); r != nil && strings.Contains(fmt.Sprint(r), "was called from inside") {
			no = true
		}
	}()
	f.Call(args)
	return false
}

// TestUpcallKinds: every method of a Conn and a TCP that does more than read is
// refused from inside an up-call that allows nothing.
func TestUpcallKinds(t *testing.T) {
	for _, mk := range []func() (any, *upcalls){
		func() (any, *upcalls) { c := New(testConfig(addrA, addrB, 1), nil); return c, &c.calls },
		func() (any, *upcalls) { c := NewTCP(TCPConfig{Local: addrA, Remote: addrB}, nil); return c, &c.calls },
	} {
		c, _ := mk()
		for i := range reflect.TypeOf(c).NumMethod() {
			name := reflect.TypeOf(c).Method(i).Name
			c, u := mk()
			u.enter(upCloseQP)
			read := slices.Contains(reads, name)
			known := read || slices.ContainsFunc(kinds[:], func(k []string) bool { return slices.Contains(k, name) })
			if !known {
				t.Errorf("%T.%s is of no kind and does not only read", c, name)
			}
			if _, tcp := c.(*TCP); tcp && name == "Waiting" || tcp && name == "Withdraw" {
				continue // they do nothing
			}
			if no := refused(t, c, name); no == read {
				t.Errorf("%T.%s refused: %v, only reads: %v", c, name, no, read)
			}
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
			up := upcall(slices.Index(upcallNames[:], m.Names[0].Name))
			named, nothing := strings.CutSuffix(strings.Join(strings.Fields(m.Doc.Text()), " "), "Nothing but a method that reads may be called from here.")
			for k, names := range kinds {
				var c upcalls
				c.enter(up)
				want := call(k) == callNote && spec.Name.Name != "DeviceHost" && !nothing
				if i := strings.Index(named, " may be called from here."); i >= 0 {
					from := strings.LastIndexAny(named[:i], ".") + 1
					want = want || slices.Contains(strings.FieldsFunc(named[from:i], func(r rune) bool { return r == ' ' || r == ',' }), names[0])
				}
				if got := c.forbids[k] == 0; got != want {
					t.Errorf("%s may call %s: %v, by its comment %v", m.Names[0], names[0], got, want)
				}
			}
		}
		return true
	})
	if n != int(numUpcalls)-1 {
		t.Errorf("%d up-calls, want %d", n, numUpcalls-1)
	}
}

// TestUpcallWrappers: every wrapper notes its own up-call.
func TestUpcallWrappers(t *testing.T) {
	src, err := os.ReadFile("upcall_on.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []reflect.Type{reflect.TypeFor[*checkedHost](), reflect.TypeFor[*checkedTCPHost]()} {
		for i := range x.NumMethod() {
			name := x.Method(i).Name
			_, body, _ := strings.Cut(string(src), fmt.Sprintf("\nfunc (x *%s) %s(", x.Elem().Name(), name))
			if body, _, _ = strings.Cut(body, "\n}"); !strings.Contains(body, fmt.Sprintf("x.up.enter(up%s))\n", name)) {
				t.Errorf("%v.%s does not note that it begins", x, name)
			}
		}
	}
}

// TestUpcallNested: what one of two up-calls does not allow is refused in the inner
// one, and allowed again when they have returned.
func TestUpcallNested(t *testing.T) {
	c := New(testConfig(addrA, addrB, 1), nil)
	outer := c.calls.enter(upDeliver)
	if refused(t, c, "Withdraw") || !refused(t, c, "Cancel") {
		t.Error("in Deliver")
	}
	inner := c.calls.enter(upMsgDone)
	if !refused(t, c, "Withdraw") || refused(t, c, "Hold") {
		t.Error("in MsgDone in Deliver")
	}
	c.calls.leave(inner)
	if refused(t, c, "Withdraw") {
		t.Error("in Deliver again")
	}
	c.calls.leave(outer)
	if refused(t, c, "Cancel") {
		t.Error("outside")
	}
}
