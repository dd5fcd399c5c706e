package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/chores"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/verbs"
)

// TestHandoverFault: an error in what one process has is said to be that process's. Without the
// process the others are taken over, and it leaves nothing behind.
func TestHandoverFault(t *testing.T) {
	for _, c := range []struct {
		what string
		cl   int // of handOver's
		harm func(e *Engine, cl *Client)
	}{
		{"a socket handle that is lost", 1, func(_ *Engine, cl *Client) { cl.sockFree = nil }},
		{"a status of an operation that is in progress", 0, func(_ *Engine, cl *Client) {
			for _, m := range cl.msgs {
				if m != nil && m.nops > 0 && !m.done() {
					m.opv[0].copied = m.opv[0].Len + 1
				}
			}
		}},
		{"a message that waits nowhere", 0, func(_ *Engine, cl *Client) {
			for _, m := range cl.msgs {
				if m != nil && !m.done() {
					m.sum.Datagrams = 0
				}
			}
		}},
		{"a payload outside the arena", 0, func(_ *Engine, cl *Client) {
			for _, m := range cl.msgs {
				if m != nil && !m.done() && m.buf == nil {
					m.m.Addr = 1 << 40
				}
			}
		}},
		{"a region without rights", 1, func(e *Engine, cl *Client) {
			for at := e.keys.all.Head; at != nil; at = at.Next {
				if at.Of.sock.cl == cl {
					at.Of.rights = 0
				}
			}
		}},
		{"a receive id that is used twice", 1, func(_ *Engine, cl *Client) { cl.rx[0].n = 1 << 30 }},
		{"a barrier that was told before it was reached", 2, func(_ *Engine, cl *Client) { cl.cells[0].told += 7 }},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := handOver(t)
			e, bad := h.es[0], h.all[c.cl]
			c.harm(e, bad.cl)
			heirs, state := h.state()
			err := heirs.Adopt(h.next(), state)
			var f *handover.Fault
			if !errors.As(err, &f) || f.Session != uint32(c.cl) || !errors.Is(err, handover.ErrFormat) {
				t.Fatalf("adopted: %v", err)
			}
		})
	}
}

// TestHandoverFaultEnds: a process is expelled after an attempt to take it over. The others are
// taken over at the next one.
func TestHandoverFaultEnds(t *testing.T) {
	for i := range 3 {
		h := handOver(t)
		e, bad := h.es[0], h.all[i]
		bad.cl.sockFree = append(bad.cl.sockFree, 1<<30) // no table has so many
		heirs, state := h.state()
		next := h.next()
		err := heirs.Adopt(next, state)
		var f *handover.Fault
		if !errors.As(err, &f) || f.Session != uint32(i) {
			t.Fatalf("process %d: %v", i, err)
		}
		for _, r := range next.devices.rails {
			_ = r.dev.Close()
		}
		e.chores.Spend(chores.Budget)
		e.Expel(bad.cl, f)
		<-bad.at.Gone()
		if got := bad.at.Reason(); got == nil || !strings.Contains(got.Error(), f.Error()) {
			t.Errorf("process %d ended with %v", i, got)
		}
		h.all = append(h.all[:i:i], h.all[i+1:]...)
		h.succeed(0, func(d verbs.Device) verbs.Device { return d }, h.cfg, h.all...)
		h.run()
		for _, s := range h.all {
			s.alive(true)
		}
	}
}

// TestHandoverFaults: one attempt finds what is wrong with each of many processes of a user.
func TestHandoverFaults(t *testing.T) {
	h := handOver(t)
	for _, bad := range h.all[1:] {
		bad.cl.sockFree = append(bad.cl.sockFree, uint32(len(bad.cl.socks))) // the table has no such index
	}
	heirs, state := h.state()
	err := heirs.Adopt(h.next(), state)
	all := handover.FaultsIn(err)
	if len(all) != 2 || all[0].Session != 1 || all[1].Session != 2 || !errors.Is(err, handover.ErrFormat) {
		t.Errorf("%d faults: %v", len(all), err)
	}
}
