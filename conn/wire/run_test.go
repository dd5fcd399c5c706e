package wire

import "testing"

// TestRun: a header says how many datagrams a run has, and that it has some.
func TestRun(t *testing.T) {
	var h Header
	if n, ok := h.Run(); n != 0 || !ok {
		t.Errorf("a datagram is a run of %d, %v", n, ok)
	}
	h.SetExtRun(300)
	var b [HeaderLen]byte
	h.Put(b[:])
	var got Header
	if err := Parse(b[:], &got); err != nil {
		t.Fatal(err)
	}
	if n, ok := got.Run(); n != 300 || !ok {
		t.Errorf("a run of 300 datagrams is %d, %v", n, ok)
	}
	if x := got.Exts(); x.RDMA != 0 || x.HasDest {
		t.Errorf("a run has the extension headers %+v", x)
	}
	got.SetExtAnybody()
	if n, ok := got.Run(); n != 300 || !ok || !got.Anybody() {
		t.Errorf("a run of 300 datagrams for anybody is %d, %v", n, ok)
	}
	got.SetExtRun(0)
	if _, ok := got.Run(); ok {
		t.Error("a run of no datagrams is taken")
	}
	got.SetExtDest(7)
	if _, ok := got.Run(); ok {
		t.Error("a run without its number is taken")
	}
}
