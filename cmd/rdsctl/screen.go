package main

import (
	"cmp"
	"os"

	"golang.org/x/sys/unix"
)

// screen is the terminal that standard output goes to.
type screen struct{ in, out *os.File }

// newScreen returns nil if out is no terminal.
func newScreen(in, out *os.File) *screen {
	if !isTerminal(out) {
		return nil
	}
	return &screen{in, out}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// keys reports whether standard input is a terminal, so that keys can be typed.
func (s *screen) keys() bool { return isTerminal(s.in) }

// size is the size in columns and lines.
func (s *screen) size() (w, h int) {
	z, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 80, 24
	}
	return cmp.Or(int(z.Col), 80), cmp.Or(int(z.Row), 24)
}
