package main

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// screen is the terminal that standard output goes to.
type screen struct{ in, out *os.File }

// newScreen returns nil if out is no terminal.
func newScreen(in, out *os.File) *screen {
	if _, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return &screen{in, out}
}

// size is the size in columns and lines.
func (s *screen) size() (w, h int) {
	z, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 80, 24
	}
	return cmp.Or(int(z.Col), 80), cmp.Or(int(z.Row), 24)
}

// raw switches the terminal to raw mode: keys arrive at once and are not shown. restore
// switches back.
func (s *screen) raw() (keys <-chan rune, restore func(), err error) {
	fd := int(s.in.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, nil, fmt.Errorf("standard input is no terminal: %w", err)
	}
	now := *old
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &now); err != nil {
		return nil, nil, fmt.Errorf("terminal: %w", err)
	}
	fmt.Fprint(s.out, "\x1b[?1049h\x1b[?25l\x1b[2J")
	read := make(chan rune)
	go func() { // runs until the program ends: a read of a terminal cannot be cancelled
		defer close(read)
		var b [1]byte
		for {
			if n, err := s.in.Read(b[:]); n == 0 || err != nil {
				return
			}
			read <- rune(b[0])
		}
	}()
	return read, func() {
		fmt.Fprint(s.out, "\x1b[?25h\x1b[?1049l")
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, old)
	}, nil
}
