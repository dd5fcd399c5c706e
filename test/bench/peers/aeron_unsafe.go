//go:build aeron

package main

/*
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <aeronc.h>
#include <aeronmd.h>

// The loops are in C, so that Aeron does not pay for calls from Go.

// bench_idle does what Aeron's backoff strategy does with its defaults: 10 spins, 20 yields, then
// sleeps from 1 us that double up to 1 ms. n counts the looks that found nothing.
static void bench_idle(uint64_t n) {
	if (n < 10)
		return;
	if (n < 30) {
		sched_yield();
		return;
	}
	uint64_t us = n - 30 < 10 ? 1ULL << (n - 30) : 1000;
	struct timespec t = {0, us * 1000};
	nanosleep(&t, NULL);
}

typedef struct {
	aeron_t *client;
	aeron_exclusive_publication_t *out;
	aeron_subscription_t *in;
	uint64_t got;
} bench_end;

// bench_driver starts a media driver with one thread in dir.
static int bench_driver(const char *dir) {
	aeron_driver_context_t *c;
	aeron_driver_t *d;
	if (aeron_driver_context_init(&c) < 0)
		return -1;
	aeron_driver_context_set_dir(c, dir);
	aeron_driver_context_set_threading_mode(c, AERON_THREADING_MODE_SHARED);
	aeron_driver_context_set_dir_delete_on_start(c, true);
	aeron_driver_context_set_mtu_length(c, 8192);
	aeron_driver_context_set_socket_so_rcvbuf(c, 2 << 20);
	aeron_driver_context_set_socket_so_sndbuf(c, 2 << 20);
	aeron_driver_context_set_rcv_initial_window_length(c, 2 << 20);
	return aeron_driver_init(&d, c) < 0 || aeron_driver_start(d, false) < 0 ? -1 : 0;
}

// bench_open connects to the driver in dir. An empty out or in is left out.
static int bench_open(bench_end *e, const char *dir, const char *out, const char *in) {
	aeron_context_t *c;
	if (aeron_context_init(&c) < 0)
		return -1;
	aeron_context_set_dir(c, dir);
	if (aeron_init(&e->client, c) < 0 || aeron_start(e->client) < 0)
		return -1;
	if (*in) {
		aeron_async_add_subscription_t *a;
		int rc = aeron_async_add_subscription(&a, e->client, in, 1, NULL, NULL, NULL, NULL);
		for (uint64_t n = 0; rc >= 0 && (rc = aeron_async_add_subscription_poll(&e->in, a)) == 0; n++)
			bench_idle(n);
		if (rc < 0)
			return -1;
	}
	if (*out) {
		aeron_async_add_exclusive_publication_t *a;
		int rc = aeron_async_add_exclusive_publication(&a, e->client, out, 1);
		for (uint64_t n = 0; rc >= 0 && (rc = aeron_async_add_exclusive_publication_poll(&e->out, a)) == 0; n++)
			bench_idle(n);
		if (rc < 0)
			return -1;
	}
	return 0;
}

// bench_send offers a message until it is taken. It fails if the other end is gone.
static int bench_send(bench_end *e, const uint8_t *buf, size_t size) {
	int64_t rc;
	for (uint64_t n = 0; (rc = aeron_exclusive_publication_offer(e->out, buf, size, NULL, NULL)) < 0; n++) {
		if (rc != AERON_PUBLICATION_BACK_PRESSURED && rc != AERON_PUBLICATION_ADMIN_ACTION && rc != AERON_PUBLICATION_NOT_CONNECTED)
			return -1;
		bench_idle(n);
	}
	return 0;
}

static void bench_got(void *clientd, const uint8_t *buf, size_t size, aeron_header_t *header) {
	__atomic_fetch_add(&((bench_end *)clientd)->got, 1, __ATOMIC_RELAXED);
}

// bench_receive waits for messages and returns how many came.
static int bench_receive(bench_end *e, size_t most) {
	for (uint64_t n = 0;; n++) {
		int rc = aeron_subscription_poll(e->in, bench_got, e, most);
		if (rc != 0)
			return rc;
		bench_idle(n);
	}
}

static int bench_aeron_ping(bench_end *e, const uint8_t *buf, size_t size) {
	return bench_send(e, buf, size) < 0 || bench_receive(e, 1) < 0 ? -1 : 0;
}

static int bench_aeron_echo(bench_end *e, const uint8_t *buf, size_t size, uint64_t *count) {
	for (;;) {
		int rc = bench_receive(e, 1);
		if (rc < 0 || bench_send(e, buf, size) < 0)
			return -1;
		__atomic_fetch_add(count, 2, __ATOMIC_RELAXED);
	}
}

static int bench_aeron_sink(bench_end *e, uint64_t *count) {
	for (;;) {
		int rc = bench_receive(e, 64);
		if (rc < 0)
			return -1;
		__atomic_fetch_add(count, rc, __ATOMIC_RELAXED);
	}
}

static int bench_aeron_source(bench_end *e, const uint8_t *buf, size_t size, uint64_t *count) {
	for (;;) {
		if (bench_send(e, buf, size) < 0)
			return -1;
		__atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
	}
}
*/
import "C"

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// aeronRoles returns the roles of Aeron: two media drivers in one process, and applications of
// which each speaks to one of them.
func aeronRoles() map[string]func(*worker.Worker) error {
	return map[string]func(*worker.Worker) error{"aeron-drivers": aeronDrivers,
		"aeron-echo": aeronEcho, "aeron-ping": aeronPing, "aeron-sink": aeronSink, "aeron-source": aeronSource}
}

// The names of the drivers' directories.
const (
	serverDriver = "server"
	clientDriver = "client"
)

func aeronError(what string) error { return fmt.Errorf("%s: %s", what, C.GoString(C.aeron_errmsg())) }

// aeronDrivers runs a media driver for the server and one for the client, each with one thread, as
// a daemon has one engine thread. Their directories are in memory, as Aeron's default is. The address
// has the directory and the UDP ports of both ends.
func aeronDrivers(w *worker.Worker) error {
	dir, err := os.MkdirTemp("/dev/shm", "rdsd-bench-aeron")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ports := ""
	for _, name := range []string{serverDriver, clientDriver} {
		path := C.CString(filepath.Join(dir, name))
		defer C.free(unsafe.Pointer(path))
		if C.bench_driver(path) < 0 {
			return aeronError("start a media driver")
		}
		l, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		ports += "," + strconv.Itoa(l.LocalAddr().(*net.UDPAddr).Port)
		l.Close()
	}
	if err := w.Ready(dir + ports); err != nil {
		return err
	}
	return w.Serve(func() error { select {} })
}

// aeronEnd is an application's end of two streams, with a buffer for one message.
type aeronEnd struct {
	e    *C.bench_end
	buf  *C.uint8_t
	size C.size_t
}

// aeronOpen attaches the application to the driver of its side, with a stream each way that it
// names, and waits for the bench's "go".
func aeronOpen(w *worker.Worker, side string, send, receive bool) (*aeronEnd, error) {
	hub := strings.Split(w.Get("hub"), ",")
	if len(hub) != 3 {
		return nil, fmt.Errorf("%q is no address of drivers", w.Get("hub"))
	}
	to := map[string]string{serverDriver: "aeron:udp?endpoint=127.0.0.1:" + hub[1], clientDriver: "aeron:udp?endpoint=127.0.0.2:" + hub[2]}
	other := map[string]string{serverDriver: clientDriver, clientDriver: serverDriver}[side]
	out, in := to[other], to[side]
	if !send {
		out = ""
	}
	if !receive {
		in = ""
	}
	a := &aeronEnd{e: (*C.bench_end)(C.calloc(1, C.size_t(unsafe.Sizeof(C.bench_end{})))), size: C.size_t(w.Int("size"))}
	a.buf = (*C.uint8_t)(C.calloc(1, a.size+1))
	if C.bench_open(a.e, C.CString(filepath.Join(hub[0], side)), C.CString(out), C.CString(in)) < 0 {
		return nil, aeronError("attach to the media driver")
	}
	return a, w.Ready(side)
}

// aeronCounter returns the 8 bytes of w.Msgs, for the atomic additions of the C loops.
func aeronCounter(w *worker.Worker) *C.uint64_t { return (*C.uint64_t)(unsafe.Pointer(&w.Msgs)) }

func aeronEcho(w *worker.Worker) error {
	a, err := aeronOpen(w, serverDriver, true, true)
	if err != nil {
		return err
	}
	return w.Serve(func() error {
		C.bench_aeron_echo(a.e, a.buf, a.size, aeronCounter(w))
		return aeronError("echo")
	})
}

func aeronPing(w *worker.Worker) error {
	a, err := aeronOpen(w, clientDriver, true, true)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	return w.Trips(2, func() error {
		if C.bench_aeron_ping(a.e, a.buf, a.size) < 0 {
			return aeronError("ping")
		}
		return nil
	})
}

func aeronSink(w *worker.Worker) error {
	a, err := aeronOpen(w, serverDriver, false, true)
	if err != nil {
		return err
	}
	return w.Count(func() error {
		C.bench_aeron_sink(a.e, aeronCounter(w))
		return aeronError("sink")
	})
}

func aeronSource(w *worker.Worker) error {
	a, err := aeronOpen(w, clientDriver, true, false)
	if err != nil {
		return err
	}
	return w.Serve(func() error {
		C.bench_aeron_source(a.e, a.buf, a.size, aeronCounter(w))
		return aeronError("source")
	})
}
