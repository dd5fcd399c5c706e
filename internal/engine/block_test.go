package engine

import "testing"

// TestMayBlock: where completions come by themselves the loop asks to be told of
// the next one, looks again, and blocks; and anew when it was told.
func TestMayBlock(t *testing.T) {
	w := newWorld(t, 2, Config{ArmCQ: true})
	e := w.es[0]
	if e.MayBlock() {
		t.Error("not asked yet, and it may block")
	}
	for range 2 {
		if !e.MayBlock() {
			t.Error("asked, nothing has come, and it may not block")
		}
	}
	r := w.attach(0, smallParams())
	s := r.bind(10)
	r.open(s, 0, 0, hostAddr(1), 20)
	r.sendMsg(s, 0, 0, 10)
	w.run()
	if e.MayBlock() || !e.MayBlock() {
		t.Error("a completion has come: ask once more, then block")
	}
	w.clean(r)
	if !newWorld(t, 1, Config{}).es[0].MayBlock() {
		t.Error("a device that is driven by Progress has nothing to ask")
	}
}
