package engine

import (
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/ctl"
)

// listing is the datagrams of a list of messages. A run may have as many as the whole list.
// So the engine's goroutine notes only their lengths, and the list is made outside of it.
type listing struct {
	limit int // datagrams
	of    []ctl.MessageInfo
	n     []int    // how many datagrams each has
	sizes []uint32 // of all
	more  bool     // there are more than limit
}

// add notes the datagrams of a message. mem is the message, and run how many datagrams it
// has if it is a run, else 0. false: the list is full.
func (l *listing) add(m ctl.MessageInfo, mem []byte, run int) bool {
	before := len(l.sizes)
	for i := range max(run, 1) {
		p := mem
		if run > 0 {
			var ok bool
			if p, mem, ok = frames.Next(mem); !ok {
				break // its owner has written over it
			}
		}
		if l.more = before+i >= l.limit; l.more {
			break
		}
		l.sizes = append(l.sizes, uint32(len(p)))
	}
	if n := len(l.sizes) - before; n > 0 {
		l.of, l.n = append(l.of, m), append(l.n, n)
	}
	return !l.more
}

// all is the list.
func (l *listing) all() []ctl.MessageInfo {
	if len(l.sizes) == 0 {
		return nil
	}
	out := make([]ctl.MessageInfo, 0, len(l.sizes))
	for i, m := range l.of {
		for range l.n[i] {
			m.Bytes = uint64(l.sizes[len(out)])
			out = append(out, m)
		}
	}
	return out
}
