package shm

import "testing"

func TestSpinGuard(t *testing.T) {
	var g SpinGuard
	now := int64(1)
	if !g.May(now) {
		t.Fatal("no spinning at first")
	}
	now += slowYield
	if !g.Yielded(1, now) || !g.May(now) {
		t.Error("a yield that is not slow")
	}
	if g.Yielded(now-slowYield-1, now) || g.May(now) || g.May(now+spinPause-1) {
		t.Error("spins after a slow yield")
	}
	if now += spinPause; !g.May(now) || !g.Yielded(now, now+1) {
		t.Error("the pause does not end")
	}
}
