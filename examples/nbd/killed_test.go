package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdsd/rdsd/internal/test/child"
)

// ledger is what one client knows of its part of a disk.
type ledger struct {
	from    int
	acked   []byte // after the writes that were acknowledged
	pending []byte // the write that was not, at pendingAt
	at      int
}

// writes writes at random until the connection ends.
func (l *ledger) writes(c net.Conn, seed uint64, acked func()) error {
	r := rand.New(rand.NewPCG(11, seed))
	for cookie := uint64(1); ; cookie++ {
		l.pending = noise(1 + r.IntN(1<<(6+r.IntN(14))))
		l.at = r.IntN(len(l.acked) - len(l.pending))
		q := request{command: cmdWrite, cookie: cookie, offset: uint64(l.from + l.at), length: uint32(len(l.pending))}
		if _, err := c.Write(append(requestBytes(q), l.pending...)); err != nil {
			return nil
		}
		var b [replySize]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return nil // killed
		}
		if e := binary.BigEndian.Uint32(b[4:]); e != 0 || binary.BigEndian.Uint64(b[8:]) != cookie {
			return fmt.Errorf("write %d: reply %x", cookie, b)
		}
		copy(l.acked[l.at:], l.pending)
		l.pending = nil
		acked()
	}
}

// check compares what is read with what was acknowledged. Afterwards nothing is pending.
func (l *ledger) check(got []byte) error {
	for i, b := range got {
		if b == l.acked[i] {
			continue
		}
		if k := i - l.at; l.pending == nil || k < 0 || k >= len(l.pending) || b != l.pending[k] {
			return fmt.Errorf("byte %d was lost", l.from+i)
		}
	}
	copy(l.acked, got)
	l.pending = nil
	return nil
}

// TestKilled: nbd is killed while clients write, and started again. Every write that it
// acknowledged is on the disk.
func TestKilled(t *testing.T) {
	w := newWorld(t, 9<<20)
	w.end()
	disk := "disk=" + w.d[0].Addr().String()
	c := w.process(disk)
	const share = 3 << 20
	var ledgers [3]ledger
	enough := make(chan struct{})
	var acked atomic.Int64
	count := func() {
		if acked.Add(1) == 300 {
			close(enough)
		}
	}
	var all sync.WaitGroup
	for i := range ledgers {
		l := &ledgers[i]
		l.from, l.acked = i*share, make([]byte, share)
		conn := w.open()
		all.Go(func() {
			if err := l.writes(conn, uint64(i), count); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		select {
		case <-enough:
		case <-c.Ended():
		}
		c.Kill()
	})
	all.Wait()
	t.Logf("%d writes were acknowledged", acked.Load())
	w.serve(disk)
	reader := w.open()
	for i := range ledgers {
		if err := ledgers[i].check(reader.read(i*share, share)); err != nil {
			t.Error(err)
		}
	}
}

// process runs nbd as a process of its own at the socket w.at.
func (w *world) process(args ...string) *child.Process {
	w.t.Helper()
	c, err := child.Start(exec.Command(nbd, append([]string{
		"-listen", "unix:" + w.at, "-socket", w.d[1].Socket(), "-bind", w.d[1].Addr().String(),
	}, args...)...))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Kill)
	if !c.Until(patienceForTests, func() bool { return c.Stderr.Has("serving ") }) {
		w.t.Fatalf("nbd does not serve: %s", &c.Stderr)
	}
	return c
}
