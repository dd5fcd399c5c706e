package msg

import (
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/internal/runs"
)

// FuzzCut: whatever is in the memory of a run, as many datagrams are cut off it as were
// said, each within it and behind the one before.
func FuzzCut(f *testing.F) {
	f.Add(runs.Of("a", "", "four"), 3)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 9, 0, 0, 0}, 2)
	f.Add(runs.Of("a", "b", "c"), 2)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 1 || n > len(b)/frames.Head || n > MaxParts {
			t.Skip()
		}
		var k Cutter
		var l List
		m := &Msg{Data: b, Run: n, Addr: 1000}
		l.Push(m)
		at := uint64(1000)
		for i := range n {
			p := k.Next(&l, m)
			if p == nil || l.Head != p || l.Datagrams() != n-i {
				t.Fatalf("datagram %d of %d: %d in the list", i, n, l.Datagrams())
			}
			end := p.Addr + uint64(len(p.Data))
			if len(p.Data) > 0 && (p.Addr < at || end > 1000+uint64(len(b)) || &p.Data[0] != &b[p.Addr-1000]) {
				t.Fatalf("datagram %d is from %d to %d of %d bytes, behind %d", i, p.Addr-1000, end-1000, len(b), at-1000)
			}
			at = max(at, end)
			l.Remove(p)
			back, o := k.TakeBack(p, Acked, nil)
			if done := back != nil; done != (i == n-1) || done && (back != m || o != Acked || m.Ended != n || len(m.Data) != len(b) || m.Run != n) {
				t.Fatalf("datagram %d of %d: done %v, %v", i, n, done, o)
			}
		}
		if l.Datagrams() != 0 || l.Bytes != 0 || k.N != 0 {
			t.Errorf("%+v is left of the list, %d parts", l, k.N)
		}
	})
}
