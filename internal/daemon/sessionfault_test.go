package daemon

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// TestSessionFault: an error in what one session of three has is said to be that session's, and
// what the daemon that takes over lacks is nobody's.
func TestSessionFault(t *testing.T) {
	for _, c := range []struct {
		what  string
		harm  func(s *session)
		lacks func(d *Daemon)
	}{
		{what: "parameters of another memory", harm: func(s *session) { s.params.MaxMsgs = 3 }},
		{what: "more windows than there are", harm: func(s *session) { s.params.SendWindows += 5 }},
		{what: "a request that nothing is known of", harm: func(s *session) { s.waits[engine.Awaited{Number: 77}] = 5 }},
		{what: "a request without a number", harm: func(s *session) { s.waits[engine.Awaited{Number: 77}] = 0 }},
		{what: "the table in the segment's place", harm: func(s *session) {
			s.memory.segment.FD, s.memory.table.FD = s.memory.table.FD, s.memory.segment.FD
		}},
		{what: "a doorbell that is the other end", harm: func(s *session) {
			s.memory.daemon.Recv, s.memory.daemon.Send = s.memory.daemon.Send, s.memory.daemon.Recv
		}},
		{what: "an empty buffer", harm: func(s *session) {
			for _, b := range s.memory.buffers {
				b.size = 0
			}
		}},
		{what: "a buffer of another size", harm: func(s *session) {
			for _, b := range s.memory.buffers {
				b.size += 4096
			}
		}},
		{what: "no epoll", lacks: func(d *Daemon) { d.loop.ep = -1 }},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := startDaemon(t, nil)
			for range 3 {
				attached(t, d).call(&ipc.Alloc{Size: 1 << 16})
			}
			d.has(t, 3)
			x := stands(t, d)
			s := d.admission.handOver()[1]
			s.memory.looked.mu.Lock() // nobody looks for holes where the test puts other files
			defer s.memory.looked.mu.Unlock()
			was, waits, bell, segment, table := s.params, s.waits, *s.memory.daemon, s.memory.segment.FD, s.memory.table.FD
			s.waits = map[engine.Awaited]uint32{}
			sizes := map[uint32]uint64{}
			for n, b := range s.memory.buffers {
				sizes[n] = b.size
			}
			if c.harm != nil {
				c.harm(s)
			}
			x.write(handover.Newest)
			s.params, s.waits, *s.memory.daemon, s.memory.segment.FD, s.memory.table.FD = was, waits, bell, segment, table
			for n, b := range s.memory.buffers {
				b.size = sizes[n]
			}
			next := x.next()
			defer next.closeAll()
			ep := next.loop.ep
			if c.lacks != nil {
				c.lacks(next)
			}
			_, err := x.adopt(next, x.state, x.copies())
			next.loop.ep = ep
			var f *handover.Fault
			switch of := errors.As(err, &f); {
			case err == nil, of != (c.harm != nil):
				t.Errorf("%v", err)
			case of && f.Session != 1:
				t.Errorf("session %d: %v", f.Session, err)
			}
			x.resume()
		})
	}
}

// TestSessionFaults: one attempt finds what is wrong with the memory of each of eight processes.
func TestSessionFaults(t *testing.T) {
	d := startDaemon(t, nil)
	for range 9 {
		attached(t, d)
	}
	d.has(t, 9)
	x := stands(t, d)
	all := d.admission.handOver()
	for _, s := range all[:8] {
		s.params.SendWindows += 5
	}
	x.write(handover.Newest)
	for _, s := range all[:8] {
		s.params.SendWindows -= 5
	}
	next := x.next()
	defer next.closeAll()
	_, err := x.adopt(next, x.state, x.copies())
	if faults := handover.FaultsIn(err); len(faults) != 8 || faults[0].Session != 0 || faults[7].Session != 7 {
		t.Errorf("%d faults: %v", len(faults), err)
	}
	x.resume()
}

// TestFailAbout: what a file is, is its session's. Why it cannot be mapped is the daemon's.
func TestFailAbout(t *testing.T) {
	for err, its := range map[error]bool{unix.EINVAL: true, unix.EPERM: true, shm.ErrMapping: true, unix.ENOMEM: false, unix.EMFILE: false, unix.ENOBUFS: false} {
		r, _ := handover.Read(handover.Write(handover.Newest).Bytes())
		r.Of(7)
		failAbout(r, fmt.Errorf("of a reason: %w", err))
		if f := (*handover.Fault)(nil); errors.As(r.Err(), &f) != its {
			t.Errorf("%v: %v", err, r.Err())
		}
	}
}
