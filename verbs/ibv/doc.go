// Package ibv is the RDMA provider for the host's RDMA devices, through libibverbs
// and librdmacm: InfiniBand, RoCE and iWARP adapters, and Linux's soft-RoCE
// (rdma_rxe) and soft-iWARP (siw). It needs cgo and is built with the tag ibv (make
// build-ibv). Without the tag Open returns ErrNotBuilt, and nothing of C is linked.
//
// Work requests, completions and receives cross into C in batches, one call each.
// Memory given to RegMR is used by the adapter until Dereg: it must be mapped
// memory, never Go's heap.
//
// Drivers differ in the finer rules of package verbs, so this package keeps them
// itself: it counts slots, returns completions in the order of posting, destroys a
// queue pair that fails at once, and flushes what was outstanding. docs/verbs.md
// says what differs between adapters.
//
// Not covered by docs/stability.md: any release may change this package.
package ibv

import (
	"errors"
	"net/netip"
	"syscall"
)

// Errors of Open. Compare with errors.Is. Each is also the errno that its comment names.
var (
	// ErrNotBuilt says that this program was built without the tag ibv. ENOTSUP.
	ErrNotBuilt = newError(syscall.ENOTSUP, "this program was built without RDMA devices: make build-ibv builds bin/rdsd with them")
	// ErrNoDevice says that the machine has no RDMA device, or none with the address.
	// ENODEV.
	ErrNoDevice = newError(syscall.ENODEV, "no RDMA device")
	// ErrNoCM says that the kernel's connection manager cannot be reached. ENODEV.
	ErrNoCM = newError(syscall.ENODEV, "no RDMA connection manager")
	// ErrDenied says that a device node may not be opened. EACCES.
	ErrDenied = newError(syscall.EACCES, "no permission for the RDMA device nodes")
	// ErrMemlock says that registered memory would be above the limit on locked memory.
	// ENOMEM.
	ErrMemlock = newError(syscall.ENOMEM, "the limit on locked memory is too low for registered memory")
	// ErrRemoved says that the device was removed or failed for good. ENODEV.
	ErrRemoved = newError(syscall.ENODEV, "the RDMA device is gone")
)

// sentinel is an error that is also an errno.
type sentinel struct {
	text string
	no   syscall.Errno
}

func newError(no syscall.Errno, text string) error { return &sentinel{text, no} }

func (e *sentinel) Error() string { return e.text }

// Is reports whether target is the errno.
func (e *sentinel) Is(target error) bool { return target == e.no || errors.Is(e.no, target) }

// Options of Open.
type Options struct {
	// Addr is the local address whose device is opened. Port and zone are ignored.
	Addr netip.Addr
	// Device is the name of the device. If it is empty, the device with Addr is opened. It
	// is an error if another device has Addr.
	Device string
}
