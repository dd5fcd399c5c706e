//go:build !ibv || !linux

package ibv

import (
	"syscall"

	"github.com/rdsd/rdsd/verbs"
)

// Built reports whether RDMA devices can be used by this program.
const Built = false

// Device is an RDMA device; there is none without the tag ibv.
type Device struct{ verbs.Device }

// Open returns ErrNotBuilt.
func Open(Options) (*Device, error) { return nil, ErrNotBuilt }

// Driver is empty.
func (*Device) Driver() string { return "" }

var _ = syscall.EINVAL
