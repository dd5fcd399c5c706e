package rds

import (
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/shm"
)

// The send buffer is one for all destinations of a socket. What is on its way
// to a congested one does not count against it: more cannot be sent there, and
// if it was refused it stays until the receiver reads, which must not keep
// anything from the others. Guarded by tx.mu.

// charged returns how many bytes count against the send buffer.
func (s *Socket) charged() int { return s.queued - s.parked }

// full reports whether the send buffer has no room. It first checks which
// destinations have become congested. arm says that the caller is registered as a
// waiter and wants to know of congestion that begins later.
func (s *Socket) full(arm bool) bool {
	if s.room() {
		return false
	}
	for _, d := range s.busy {
		if arm {
			s.c.seg.WantSlot(d.slot).SetCrowded()
		}
		d.look()
	}
	return !s.room()
}

// room reports whether the send buffer takes one more message.
func (s *Socket) room() bool { return s.charged() < s.sndbuf && s.msgs < shm.MaxMsgs(s.sndbuf) }

// halfFull reports that it is time to have acks.
func (s *Socket) halfFull() bool {
	return s.charged() >= s.sndbuf/2 || s.msgs >= shm.MaxMsgs(s.sndbuf)/2
}

// look reports whether d is congested, and counts the pending bytes of d
// accordingly.
func (d *dest) look() bool {
	on := d.congested()
	if on != d.parked {
		d.parked = on
		if on {
			d.sock.parked += d.queued
			d.sock.msgs -= d.counted
		} else {
			d.sock.parked -= d.queued
			d.sock.msgs += d.counted
		}
	}
	return on
}

// charge counts datagrams to d that are on their way.
func (d *dest) charge(sum frames.Sum) {
	s := d.sock
	d.datagrams += sum.Datagrams
	d.counted += sum.NonEmpty
	d.queued += sum.Bytes
	s.queued += sum.Bytes
	if d.parked {
		s.parked += sum.Bytes
	} else {
		s.msgs += sum.NonEmpty
	}
}

// uncharge ends the count of charge.
func (d *dest) uncharge(sum frames.Sum) {
	s := d.sock
	d.datagrams -= sum.Datagrams
	d.counted -= sum.NonEmpty
	d.queued -= sum.Bytes
	s.queued -= sum.Bytes
	if d.parked {
		s.parked -= sum.Bytes
	} else {
		s.msgs -= sum.NonEmpty
	}
}

// begin counts one more message id that is in use for d.
func (d *dest) begin() {
	s := d.sock
	if d.pending == 0 {
		d.place = len(s.busy)
		s.busy = append(s.busy, d)
	}
	d.pending++
}

// end ends the count of begin.
func (d *dest) end() {
	s := d.sock
	if d.pending--; d.pending == 0 {
		last := len(s.busy) - 1
		s.busy[d.place] = s.busy[last]
		s.busy[d.place].place = d.place
		s.busy[last] = nil
		s.busy = s.busy[:last]
	}
}
