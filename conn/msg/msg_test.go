package msg

import "testing"

// TestOpState: an operation is locally complete once, before or after its RDMA is known to be done,
// and neither says anything of one that was not posted.
func TestOpState(t *testing.T) {
	for from, want := range map[OpState]struct{ done, complete OpState }{
		OpWaits:     {OpWaits, OpWaits},
		OpPosted:    {OpDone, OpLocal},
		OpLocal:     {OpDoneLocal, OpLocal},
		OpDone:      {OpDone, OpDoneLocal},
		OpDoneLocal: {OpDoneLocal, OpDoneLocal},
	} {
		s := from
		if s.Prove(); s != want.done || s.Done() != from.Posted() || s.Local() != from.Local() {
			t.Errorf("%d is %d when its RDMA is done", from, s)
		}
		s = from
		if first := s.Complete(); s != want.complete || first != (s != from) || s.Local() != from.Posted() || s.Done() != from.Done() {
			t.Errorf("%d is %d when it is complete, for the first time %v", from, s, first)
		}
	}
}

// TestOver: the connections to an address may owe so much together. One that owes little goes on.
func TestOver(t *testing.T) {
	all := 0
	a, b := OwnMsgs{All: &all}, OwnMsgs{All: &all}
	for range MaxOwing {
		a.Take()
	}
	last := b.Take()
	if !a.Over() || b.Over() || b.Sum() != MaxOwing+1 {
		t.Errorf("over %v and %v, %d in all", a.Over(), b.Over(), b.Sum())
	}
	for range MaxPongs {
		b.Take()
	}
	if !b.Over() {
		t.Error("the second may have any number")
	}
	if b.Give(last); b.Over() {
		t.Error("over with as many as it may have")
	}
}
