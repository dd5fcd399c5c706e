package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// openStatus returns the file to which the lines of -status-fd go.
func openStatus(fd int) (*os.File, error) {
	if fd < 0 {
		return nil, &store.UsageError{Text: fmt.Sprintf("-status-fd %d: not a descriptor", fd)}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return nil, &store.UsageError{Text: fmt.Sprintf("-status-fd %d: %v", fd, err)}
	}
	return os.NewFile(uintptr(fd), "status"), nil
}

// progress draws a bar on w until stop is called. done returns how many of the total bytes
// are copied. stop erases the bar; after stop nothing more is drawn.
func progress(w io.Writer, label string, total int64, done func() int64) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	start := time.Now()
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprint(w, "\r"+bar(label, done(), total, time.Since(start))+"\x1b[K")
			case <-quit:
				fmt.Fprint(w, "\r\x1b[K")
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// bar returns one line with label, percentage, bar, amount and rate.
func bar(label string, done, total int64, elapsed time.Duration) string {
	const width = 30
	share := 1.0
	if total > 0 {
		share = float64(done) / float64(total)
	}
	full := int(share * width)
	rate := 0.0
	if elapsed > 0 {
		rate = float64(done) / 1e6 / elapsed.Seconds()
	}
	return fmt.Sprintf("%s %3.0f%% [%s%s] %.1f of %.1f MB, %.0f MB/s", label, share*100,
		strings.Repeat("=", full), strings.Repeat(" ", width-full), float64(done)/1e6, float64(total)/1e6, rate)
}
