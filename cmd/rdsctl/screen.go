package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// screen is the terminal that standard output is.
type screen struct{ in, out *os.File }

// newScreen is nil if out is no terminal.
func newScreen(in, out *os.File) *screen {
	if _, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return &screen{in, out}
}
