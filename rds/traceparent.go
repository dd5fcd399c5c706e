package rds

import (
	"math"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/shm"
)

// tail is how many bytes the traceparent of m takes behind the payload in the send arena. A
// payload that leaves it no room in the largest chunk goes without.
func (m *Message) tail() int {
	if m == nil || m.Traceparent == "" || len(m.Payload) > MaxMessage-wire.TraceparentLen {
		return 0
	}
	return wire.TraceparentLen
}

// putTail writes the traceparent of m, which checkTraceparent has seen, to b.
func (m *Message) putTail(b []byte) {
	p, _ := wire.ParseTraceparent(m.Traceparent)
	copy(b, p[:])
}

func (m *Message) checkTraceparent() error {
	if _, err := wire.ParseTraceparent(m.Traceparent); err != nil {
		return invalid("Traceparent %q: %w", m.Traceparent, err)
	}
	return nil
}

// traceparent sets text, unless it is nil, to the traceparent of e, "" if e has none. mu is held.
func (r *rx) traceparent(e *shm.Event, text *string) error {
	switch {
	case text == nil:
		return nil
	case e.Flags&(shm.EventTraceparent|shm.EventRun) != shm.EventTraceparent: // a run has none
		*text = ""
		return nil
	}
	b, err := r.toKeep(e)
	if err != nil {
		return err
	}
	p := wire.Traceparent(b[e.Len:])
	*text = wire.TraceparentText(&p)
	return nil
}

// toKeep returns the payload of e with its traceparent, where they lie.
func (r *rx) toKeep(e *shm.Event) ([]byte, error) {
	all := *e
	if e.Flags&shm.EventTraceparent != 0 {
		all.Len = uint32(min(uint64(e.Len)+wire.TraceparentLen, math.MaxUint32))
	}
	if all.Len == 0 {
		return nil, nil
	}
	return r.payload(&all, "message")
}
