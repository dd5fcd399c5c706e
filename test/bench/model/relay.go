package model

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	batchBytes  = 256 << 10 // of one system call
	batchSlack  = headerSize + MaxPayload
	directBytes = 32 << 10 // a write of which this much is missing is read into its place
)

// Relay has the place of a daemon: it moves frames between the rings of one application and
// a connection.
type Relay struct {
	in       *consumer
	out      *producer
	bell, fd int

	region []byte

	stage []byte // frames for the connection
	sent  int    // of the stage
	from  []byte // what is to be sent behind the stage: the rest of a write

	read    []byte // bytes from the connection
	pos, n  int    // read[pos:n] is not yet in the ring
	writing bool   // a write has begun that is not complete;
	to      []byte // the place of what is missing
	full    bool   // the ring has no room for the frame at pos, or to say that a write is complete
}

// NewRelay returns the relay of h. fd is its connection to the other relay. Nobody else uses fd.
func NewRelay(h *Host, fd int) *Relay {
	r := &Relay{bell: h.relayBell, fd: fd, region: h.region, stage: make([]byte, 0, batchBytes+batchSlack), read: make([]byte, batchBytes+batchSlack)}
	r.in, r.out = h.relayEnds()
	return r
}

// Run moves frames until the connection ends. When it has nothing to do, it yields for spin,
// then it sleeps.
func (r *Relay) Run(spin time.Duration) error { return run(r, spin) }

func (r *Relay) turn() (work bool, err error) {
	if !r.pending() {
		if err := r.gather(); err != nil {
			return false, err
		}
	}
	sent, err := r.send()
	if err != nil {
		return false, err
	}
	got := 0
	if !r.full {
		if got, err = r.receive(); err != nil {
			return false, err
		}
	}
	moved, err := r.deliver()
	return sent+got > 0 || moved, err
}

// pending reports whether something that was gathered is not sent.
func (r *Relay) pending() bool { return r.sent < len(r.stage) || len(r.from) > 0 }

// gather copies what the application has published into the stage, up to a write.
func (r *Relay) gather() error {
	r.stage, r.sent = r.stage[:0], 0
	for len(r.stage) < batchBytes && r.from == nil {
		h, payload := r.in.peek()
		if payload == nil {
			break
		}
		k := len(r.stage)
		r.stage = r.stage[:k+headerSize+len(payload)]
		h.put(r.stage[k:])
		copy(r.stage[k+headerSize:], payload)
		r.in.drop(h)
		if h.to == toRegion {
			if r.from = h.of(r.region); r.from == nil {
				return fmt.Errorf("a write beyond the region of %d bytes", len(r.region))
			}
		}
	}
	if len(r.stage) > 0 && r.from == nil {
		r.in.release()
	}
	return nil
}

// send sends the stage and then the write behind it. The application's room is released once the
// connection has the write: that is how the application knows.
func (r *Relay) send() (n int, err error) {
	if r.sent < len(r.stage) {
		var more uintptr
		if r.from != nil {
			more = unix.MSG_MORE
		}
		if n, err = send(r.fd, r.stage[r.sent:], more); err != nil {
			return 0, err
		}
		r.sent += n
	}
	if r.from != nil && r.sent == len(r.stage) {
		k, err := send(r.fd, r.from, 0)
		if err != nil {
			return 0, err
		}
		n += k
		if r.from = r.from[k:]; len(r.from) == 0 {
			r.from = nil
			r.in.release()
		}
	}
	return n, nil
}

// receive reads once: into its place if much of a write is missing.
func (r *Relay) receive() (n int, err error) {
	if len(r.to) >= directBytes { // nothing is left of what was read before
		n, err = receive(r.fd, r.to)
		r.to = r.to[n:]
		return n, err
	}
	if len(r.read)-r.n < batchBytes { // what is left is less than a frame
		r.n = copy(r.read, r.read[r.pos:r.n])
		r.pos = 0
	}
	n, err = receive(r.fd, r.read[r.n:])
	r.n += n
	return n, err
}

// deliver copies the frames that are whole into the application's ring, as one run.
func (r *Relay) deliver() (moved bool, err error) {
	r.full = false
	for {
		if r.writing {
			k := copy(r.to, r.read[r.pos:r.n])
			r.pos += k
			if r.to = r.to[k:]; len(r.to) > 0 {
				break
			}
			if r.full = r.out.reserve(header{to: toRegion}) == nil; r.full {
				break
			}
			r.writing, moved = false, true
		}
		if r.n-r.pos < headerSize {
			break
		}
		h := parseHeader(r.read[r.pos:])
		if h.to == toRegion {
			if r.to = h.of(r.region); r.to == nil {
				return false, fmt.Errorf("a write from the other relay beyond the region of %d bytes", len(r.region))
			}
			r.writing = true
			r.pos += headerSize
			continue
		}
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
	return (r.pending() || r.in.empty()) && (!r.full || r.out.stuck())
}

func (r *Relay) wants() [2]unix.PollFd {
	var events int16
	if !r.full {
		events = unix.POLLIN
	}
	if r.pending() {
		events |= unix.POLLOUT
	}
	return [2]unix.PollFd{{Fd: int32(r.bell), Events: unix.POLLIN}, {Fd: int32(r.fd), Events: events}}
}

func (r *Relay) rung(fds [2]unix.PollFd) { answer(fds[0]) }
