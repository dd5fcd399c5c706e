package librds

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// A fakeDaemon serves one client at path, and does to it what two real daemons on one host
// cannot.
type fakeDaemon struct {
	path string
	h    *hostile
}

// startFake starts a daemon, which edit may change before.
func startFake(t *testing.T, edit func(*hostile)) *fakeDaemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "rds")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeDaemon{path: filepath.Join(dir, "sock"), h: newHostile(nil)}
	f.h.quiet, f.h.orders = true, make(chan func())
	if edit != nil {
		edit(f.h)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: f.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		raw, err := l.AcceptUnix()
		if err != nil { // the script needs none
			done <- nil
			return
		}
		done <- f.h.serve(raw)
	}()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return f
}

// overrun tells the client that Linux kernels have sent its socket more than the daemon keeps.
// It returns when the client can see it.
func (f *fakeDaemon) overrun(sock uint32) {
	done := make(chan struct{})
	f.h.orders <- func() {
		defer close(done)
		e := f.h.seg.EventProducer().Reserve()
		*e = shm.Entry{}
		*e.Notice() = shm.EventNotice{Kind: shm.EvOverrun, Sock: sock}
		f.h.seg.EventProducer().Publish()
	}
	<-done
}
