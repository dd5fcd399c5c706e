package model

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	batchBytes = 256 << 10 // of one system call
	batchSlack = headerSize + MaxPayload
)

// Relay has the place of a daemon: it moves frames between the rings of one application and
// a connection.
type Relay struct {
	in       *consumer
	out      *producer
	bell, fd int

	stage []byte // frames for the connection
	sent  int    // of the stage

	read   []byte // bytes from the connection
	pos, n int    // read[pos:n] is not yet in the ring
	full   bool   // the ring has no room for the frame at pos
}

// NewRelay returns the relay of h. fd is its connection to the other relay. Nobody else uses fd.
func NewRelay(h *Host, fd int) *Relay {
	r := &Relay{bell: h.relayBell, fd: fd, stage: make([]byte, 0, batchBytes+batchSlack), read: make([]byte, batchBytes+batchSlack)}
	r.in, r.out = h.relayEnds()
	return r
}

// Run moves frames until the connection ends. When it has nothing to do, it yields for spin,
// then it sleeps.
func (r *Relay) Run(spin time.Duration) error { return run(r, spin) }

func (r *Relay) turn() (work bool, err error) {
	if r.sent == len(r.stage) {
		r.gather()
	}
	if r.sent < len(r.stage) {
		n, err := send(r.fd, r.stage[r.sent:])
		if err != nil {
			return false, err
		}
		r.sent += n
		work = n > 0
	}
	if !r.full {
		if len(r.read)-r.n < batchBytes { // what is left is less than a frame
			r.n = copy(r.read, r.read[r.pos:r.n])
			r.pos = 0
		}
		n, err := receive(r.fd, r.read[r.n:])
		if err != nil {
			return false, err
		}
		r.n += n
		work = work || n > 0
	}
	moved, err := r.deliver()
	return work || moved, err
}

// gather copies what the application has published into the stage.
func (r *Relay) gather() {
	r.stage, r.sent = r.stage[:0], 0
	for len(r.stage) < batchBytes {
		h, payload := r.in.peek()
		if payload == nil {
			break
		}
		k := len(r.stage)
		r.stage = r.stage[:k+headerSize+len(payload)]
		h.put(r.stage[k:])
		copy(r.stage[k+headerSize:], payload)
		r.in.drop(h)
	}
	if len(r.stage) > 0 {
		r.in.release()
	}
}

// deliver copies the frames that are whole into the application's ring, as one run.
func (r *Relay) deliver() (moved bool, err error) {
	r.full = false
	for r.n-r.pos >= headerSize {
		h := parseHeader(r.read[r.pos:])
		if h.n > MaxPayload {
			return false, fmt.Errorf("a frame of %d bytes from the other relay, at most %d are expected", h.n, MaxPayload)
		}
		end := r.pos + headerSize + int(h.n)
		if end > r.n {
			break
		}
		dst := r.out.reserve(h)
		if r.full = dst == nil; r.full {
			break
		}
		copy(dst, r.read[r.pos+headerSize:end])
		r.pos = end
		moved = true
	}
	if moved {
		r.out.publish()
	}
	if r.pos == r.n {
		r.pos, r.n = 0, 0
	}
	return moved, nil
}

func (r *Relay) announce(asleep uint32) {
	r.in.hungry.Store(asleep)
	if r.full {
		r.out.blocked.Store(asleep)
	}
}

func (r *Relay) idle() bool {
	return (r.sent < len(r.stage) || r.in.empty()) && (!r.full || r.out.stuck())
}

func (r *Relay) wants() [2]unix.PollFd {
	var events int16
	if !r.full {
		events = unix.POLLIN
	}
	if r.sent < len(r.stage) {
		events |= unix.POLLOUT
	}
	return [2]unix.PollFd{{Fd: int32(r.bell), Events: unix.POLLIN}, {Fd: int32(r.fd), Events: events}}
}

func (r *Relay) rung(fds [2]unix.PollFd) { answer(fds[0]) }
