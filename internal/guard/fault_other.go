//go:build !amd64 && !arm64

package guard

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func install() error {
	return fmt.Errorf("%w: memory that can be cut short is not guarded on this processor; seal a memfd against shrinking (F_SEAL_SHRINK)", unix.ENOTSUP)
}
