package ipc

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDialCrowded: as long as the connections of others fill the daemon's queue, Dial waits
// for a place, until its context ends.
func TestDialCrowded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(s, &unix.SockaddrUnix{Name: path}), unix.Listen(s, 0)); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(s), path)
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for full := false; !full; {
		c, err := net.Dial("unixpacket", path)
		if full = errors.Is(err, unix.EAGAIN); err == nil {
			defer c.Close()
		} else if !full {
			t.Fatal(err)
		}
	}
	gone, cancel := context.WithTimeout(t.Context(), 2*dialPause)
	defer cancel()
	if _, err := Dial(gone, path); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no place: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		c, err := Dial(t.Context(), path)
		if err == nil {
			c.Close()
		}
		done <- err
	}()
	accepted := make(chan struct{})
	go func() { // until l is closed: how many come is not known
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
	l.Close()
	<-accepted
}
