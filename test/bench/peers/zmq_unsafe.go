//go:build zmq

package main

/*
#cgo LDFLAGS: -lzmq
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <zmq.h>

// The loops are in C, so that ZeroMQ does not pay for calls from Go.

// Signals of the Go runtime interrupt calls. AGAIN repeats an interrupted call.
#define AGAIN(rc, call) while ((rc = (call)) < 0 && zmq_errno() == EINTR)

static int bench_echo(void *s, void *buf, size_t size, uint64_t *count) {
	for (;;) {
		int n, rc;
		AGAIN(n, zmq_recv(s, buf, size, 0));
		if (n < 0)
			return zmq_errno();
		AGAIN(rc, zmq_send(s, buf, n, 0));
		if (rc < 0)
			return zmq_errno();
		__atomic_fetch_add(count, 2, __ATOMIC_RELAXED);
	}
}

static int bench_ping(void *s, void *buf, size_t size) {
	int rc;
	AGAIN(rc, zmq_send(s, buf, size, 0));
	if (rc < 0)
		return zmq_errno();
	AGAIN(rc, zmq_recv(s, buf, size, 0));
	return rc < 0 ? zmq_errno() : 0;
}

static int bench_sink(void *s, uint64_t *count) {
	zmq_msg_t m;
	zmq_msg_init(&m);
	for (;;) {
		int rc;
		AGAIN(rc, zmq_msg_recv(&m, s, 0));
		if (rc < 0)
			return zmq_errno();
		__atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
	}
}

static int bench_source(void *s, void *buf, size_t size, uint64_t *count) {
	for (;;) {
		int rc;
		AGAIN(rc, zmq_send(s, buf, size, 0));
		if (rc < 0)
			return zmq_errno();
		__atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
	}
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// zmqRoles returns the roles of ZeroMQ: REQ and REP for round trips, PUSH and PULL for rates.
func zmqRoles() map[string]func(*worker.Worker) error {
	return map[string]func(*worker.Worker) error{"zmq-echo": zmqEcho, "zmq-ping": zmqPing, "zmq-sink": zmqSink, "zmq-source": zmqSource}
}

// zmqSocket is a ZeroMQ socket with a buffer for one message.
type zmqSocket struct {
	s    unsafe.Pointer
	buf  unsafe.Pointer
	size C.size_t
}

// zmqError returns an error with ZeroMQ's text for errno.
func zmqError(what string, errno C.int) error {
	return fmt.Errorf("%s: %s", what, C.GoString(C.zmq_strerror(errno)))
}

// zmqOpen returns a socket and waits for the bench's "go". With the argument addr the socket is
// connected to this address. Otherwise it is bound, and the bench gets its address.
func zmqOpen(w *worker.Worker, kind C.int) (*zmqSocket, error) {
	s := C.zmq_socket(C.zmq_ctx_new(), kind)
	if s == nil {
		return nil, zmqError("zmq_socket", C.zmq_errno())
	}
	z := &zmqSocket{s: s, size: C.size_t(w.Int("size"))}
	z.buf = C.calloc(1, z.size+1)
	addr := w.Get("addr")
	if addr != "" {
		at := C.CString(addr)
		defer C.free(unsafe.Pointer(at))
		if C.zmq_connect(s, at) != 0 {
			return nil, zmqError("zmq_connect", C.zmq_errno())
		}
		return z, w.Ready("-")
	}
	wild := C.CString("tcp://127.0.0.1:*")
	defer C.free(unsafe.Pointer(wild))
	if C.zmq_bind(s, wild) != 0 {
		return nil, zmqError("zmq_bind", C.zmq_errno())
	}
	var bound [256]C.char
	n := C.size_t(len(bound))
	if C.zmq_getsockopt(s, C.ZMQ_LAST_ENDPOINT, unsafe.Pointer(&bound[0]), &n) != 0 {
		return nil, zmqError("zmq_getsockopt", C.zmq_errno())
	}
	return z, w.Ready(C.GoString(&bound[0]))
}

// zmqCounter returns the 8 bytes of w.Msgs, for the atomic additions of the C loops.
func zmqCounter(w *worker.Worker) *C.uint64_t { return (*C.uint64_t)(unsafe.Pointer(&w.Msgs)) }

func zmqEcho(w *worker.Worker) error {
	z, err := zmqOpen(w, C.ZMQ_REP)
	if err != nil {
		return err
	}
	return w.Serve(func() error { return zmqError("echo", C.bench_echo(z.s, z.buf, z.size, zmqCounter(w))) })
}

func zmqPing(w *worker.Worker) error {
	z, err := zmqOpen(w, C.ZMQ_REQ)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	return w.Trips(2, func() error {
		if errno := C.bench_ping(z.s, z.buf, z.size); errno != 0 {
			return zmqError("ping", errno)
		}
		return nil
	})
}

func zmqSink(w *worker.Worker) error {
	z, err := zmqOpen(w, C.ZMQ_PULL)
	if err != nil {
		return err
	}
	return w.Count(func() error { return zmqError("sink", C.bench_sink(z.s, zmqCounter(w))) })
}

func zmqSource(w *worker.Worker) error {
	z, err := zmqOpen(w, C.ZMQ_PUSH)
	if err != nil {
		return err
	}
	return w.Serve(func() error { return zmqError("source", C.bench_source(z.s, z.buf, z.size, zmqCounter(w))) })
}
