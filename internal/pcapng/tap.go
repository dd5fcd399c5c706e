package pcapng

import (
	"fmt"
	"io"
	"net/netip"
	"sync"
)

// Tap writes the streams of TCP connections as a capture. It implements soft.Tap. At one
// end of a connection it records both directions. Any goroutine may call its methods.
type Tap struct {
	mu  sync.Mutex
	now func() int64
	s   *streams
	err error
}

// NewTap writes the head of the file to w, which gets one Write per packet.
// now is the time of the packets, in nanoseconds after the epoch.
func NewTap(w io.Writer, now func() int64) (*Tap, error) {
	p, err := newWriter(w)
	if err != nil {
		return nil, err
	}
	return &Tap{now: now, s: newStreams(p)}, nil
}

// Stream writes the next bytes from local to remote (out) or back. It does not
// keep b. Errors are kept for Err.
func (t *Tap) Stream(local, remote netip.AddrPort, out bool, b []byte) {
	if !out {
		local, remote = remote, local
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return
	}
	if local.Addr().Is4() != remote.Addr().Is4() {
		t.err = fmt.Errorf("pcapng: %v and %v are not of one IP version", local, remote)
		return
	}
	t.err = t.s.bytes(t.now(), local, remote, b)
}

// Err returns the first error. Nothing was written after it.
func (t *Tap) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
