//go:build !ibv || !linux

package ibv

import (
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

// Built reports whether RDMA devices can be used by this program.
const Built = false

// Device is an RDMA device. Without the tag ibv there is none.
type Device struct{ verbs.Device }

// Open returns ErrNotBuilt.
func Open(Options) (*Device, error) { return nil, ErrNotBuilt }

// Driver is empty.
func (*Device) Driver() string { return "" }

var _ = syscall.EINVAL
