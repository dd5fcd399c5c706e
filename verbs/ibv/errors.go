//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

var errClosed = fmt.Errorf("ibv: the device is closed: %w", unix.ENODEV)

// errno is an error of C, with what was tried.
func errno(e C.int, what string) error { return errnoOf(unix.Errno(e), what) }

func errnoOf(err error, what string) error {
	if err == nil {
		err = unix.EIO
	}
	return fmt.Errorf("ibv: %s: %w", what, err)
}

// cmError explains why the connection manager cannot be opened.
func cmError(err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("ibv: /dev/infiniband/rdma_cm: %w: run as root, or give the user the node (%w)", ErrDenied, err)
	case err == nil:
		err = unix.ENODEV
	}
	return fmt.Errorf("ibv: %w: is there /dev/infiniband/rdma_cm? modprobe rdma_ucm (%w)", ErrNoCM, err)
}

// openError explains why a device cannot be opened.
func openError(name string, err unix.Errno) error {
	switch err {
	case unix.EACCES, unix.EPERM:
		return fmt.Errorf("ibv: %s: %w: run as root, or give the user /dev/infiniband/uverbs* (%w)", name, ErrDenied, err)
	case unix.ENOSYS, unix.ENODEV, unix.ENOENT:
		return fmt.Errorf("ibv: %s: %w for programs: modprobe ib_uverbs, and install ibverbs-providers for its driver (%w)", name, ErrNoDevice, err)
	}
	return fmt.Errorf("ibv: opening %s: %w", name, err)
}

// noDevice explains why no device was found for an address.
func noDevice(a netip.Addr, err unix.Errno) error {
	devices, _ := os.ReadDir("/sys/class/infiniband")
	switch {
	case err == unix.EADDRNOTAVAIL:
		return fmt.Errorf("%w: %v is not an address of this host", ErrNoDevice, a)
	case len(devices) == 0:
		return fmt.Errorf("%w on this machine (/sys/class/infiniband is empty): load the adapter's driver, or 'rdma link add rxe0 type rxe netdev IF' for soft-RoCE", ErrNoDevice)
	}
	names := ""
	for _, e := range devices {
		names += " " + e.Name()
	}
	return fmt.Errorf("%w has the address or a GID for it (there are:%s); is its link up?", ErrNoDevice, names)
}
