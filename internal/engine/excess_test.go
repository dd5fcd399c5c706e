package engine

import (
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestExcess: what is too much for a planned restart is taken from the user with most, and there
// from the process with most.
func TestExcess(t *testing.T) {
	w := newWorld(t, 2, Config{})
	much, more, alone := w.opSideAs(0, 10, 1000), w.opSideAs(0, 20, 1000), w.opSideAs(0, 30, 1001)
	for s, n := range map[*opSide]int{much: 3, more: 4, alone: 5} {
		for range n {
			s.must(&ipc.Alloc{Size: shm.PageSize})
		}
	}
	of := func(s *opSide) int { return s.cl.records() }
	all := of(much) + of(more) + of(alone)
	for _, c := range []struct {
		most int
		want []*Client
	}{
		{all, nil},
		{all - 1, []*Client{more.cl}},
		{all - of(more), []*Client{more.cl}},
		{all - of(more) - 1, []*Client{more.cl, alone.cl}},
		{0, []*Client{more.cl, alone.cl, much.cl}},
	} {
		if got := w.es[0].Excess(c.most); !slices.Equal(got, c.want) {
			t.Errorf("at most %d of %d: %d processes end, want %d", c.most, all, len(got), len(c.want))
		}
	}
}

// TestRecords: messages that wait, destinations, and what a process has not given back.
func TestRecords(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.opSide(0, 10), w.opSide(0, 20)
	was := [2]int{a.cl.records(), b.cl.records()}
	for i := range 3 {
		a.open(a.sock, uint32(i), 0, hostAddr(7), uint16(i+1))
		a.sendMsg(a.sock, uint32(i), uint32(i), 1)
	}
	a.open(a.sock, 3, 1, hostAddr(0), b.port)
	a.sendMsg(a.sock, 3, 3, 1)
	w.settle()
	if n := a.cl.records() - was[0]; n != 4+2+3 {
		t.Errorf("%d records of 4 destinations at 2 addresses, to 3 of which a message waits", n)
	}
	a.put(func(d *shm.Entry) { *d.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: a.sock, Slot: 3} })
	w.settle()
	if n := a.cl.records() - was[0]; n != 3+2+3 {
		t.Errorf("%d records when a destination is closed, whose address stays", n)
	}
	if n := b.cl.records() - was[1]; n != 1 {
		t.Errorf("%d records of a message that was received", n)
	}
}
