//go:build upcalls

package upcalls

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Misjudged returns the methods of a connection that are refused from inside an up-call which allows
// nothing although they are among reads, or are not refused and are not among them.
func Misjudged[C any](reads []string, fresh func() (C, *Calls)) (found []string) {
	for m := range reflect.TypeFor[C]().Methods() {
		c, calls := fresh()
		calls.Enter(InCloseQP)
		if Refused(c, m.Name) == slices.Contains(reads, m.Name) {
			found = append(found, m.Name)
		}
	}
	return found
}

// Unnoted returns the methods of X, the wrapper of a host in upcall_on.go of this folder, that do not
// note their up-call.
func Unnoted[X any]() (found []string, err error) {
	src, err := os.ReadFile("upcall_on.go")
	if err != nil {
		return nil, err
	}
	x := reflect.TypeFor[*X]()
	for m := range x.Methods() {
		_, body, _ := strings.Cut(string(src), fmt.Sprintf("\nfunc (x *%s) %s(", x.Elem().Name(), m.Name))
		if body, _, _ = strings.Cut(body, "\n}"); !strings.Contains(body, fmt.Sprintf("x.up.Enter(upcalls.In%s))\n", m.Name)) {
			found = append(found, m.Name)
		}
	}
	return found, nil
}

// Refused calls a method of c, a connection, and reports whether it is not allowed now.
func Refused(c any, method string) (no bool) {
	f := reflect.ValueOf(c).MethodByName(method)
	args := make([]reflect.Value, f.Type().NumIn())
	for i := range args {
		switch in := f.Type().In(i); in.Kind() {
		case reflect.Pointer:
			args[i] = reflect.New(in.Elem())
		case reflect.Func:
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
