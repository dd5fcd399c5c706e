//go:build ofi || ucx

package main

/*
#cgo ofi CFLAGS: -DWITH_OFI
#cgo ofi LDFLAGS: -lfabric
#cgo ucx CFLAGS: -DWITH_UCX
#cgo ucx LDFLAGS: -lucp -lucs
#include <stdlib.h>
#include "ways.h"
*/
import "C"

import (
	"encoding/hex"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// wayRoles returns the roles of libfabric and UCX, as far as the program has them.
func wayRoles() map[string]func(*worker.Worker) error {
	all := map[string]func(*worker.Worker) error{}
	for _, library := range []string{"ofi", "ucx"} {
		name := C.CString(library)
		if C.way_has(name) != 0 {
			for role, run := range map[string]func(*worker.Worker, *way) error{"echo": wayEcho, "ping": wayPing, "sink": waySink, "source": waySource} {
				all[library+"-"+role] = func(w *worker.Worker) error {
					runtime.LockOSThread()
					x, err := openWay(w, name)
					if err != nil {
						return err
					}
					return run(w, x)
				}
			}
		}
	}
	return all
}

// way is an end of two streams of messages.
type way struct{ c *C.way }

// failed returns the error of what, or nil.
func (x *way) failed(what string, rc C.int) error {
	if rc >= 0 {
		return nil
	}
	text := "the library cannot be opened"
	if x.c.text != nil {
		text = C.GoString(C.way_text(x.c, rc))
	}
	return fmt.Errorf("%s: %s", what, text)
}

// openWay opens a way, waits for the bench's "go" and, with the argument addr, greets the server there.
func openWay(w *worker.Worker, library *C.char) (*way, error) {
	x := &way{(*C.way)(C.calloc(1, C.size_t(unsafe.Sizeof(C.way{}))))}
	if err := x.failed("open", C.way_open(x.c, library, C.size_t(w.Int("size")))); err != nil {
		return nil, err
	}
	addr, err := hex.DecodeString(w.Get("addr"))
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	own := C.GoBytes(unsafe.Pointer(&x.c.name[0]), C.int(x.c.name_len))
	if err := w.Ready(hex.EncodeToString(own)); err != nil || len(addr) == 0 {
		return x, err
	}
	return x, x.failed("greet the server", C.way_hello(x.c, C.CBytes(addr), C.size_t(len(addr))))
}

// wayCounter returns the 8 bytes of w.Msgs, for the atomic additions of the C loops.
func wayCounter(w *worker.Worker) *C.uint64_t { return (*C.uint64_t)(unsafe.Pointer(&w.Msgs)) }

func wayEcho(w *worker.Worker, x *way) error {
	return w.Serve(func() error { return x.failed("echo", C.way_echo(x.c, wayCounter(w))) })
}

func wayPing(w *worker.Worker, x *way) error {
	return w.Trips(2, func() error { return x.failed("ping", C.way_ping(x.c)) })
}

func waySink(w *worker.Worker, x *way) error {
	return w.Count(func() error { return x.failed("sink", C.way_sink(x.c, wayCounter(w))) })
}

func waySource(w *worker.Worker, x *way) error {
	return w.Serve(func() error { return x.failed("source", C.way_source(x.c, wayCounter(w))) })
}
