package rdstest_test

import (
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdstest"
)

// TestCounters: what the daemons count is what was done.
func TestCounters(t *testing.T) {
	const n, size = 10, 100
	d := rdstest.StartDaemons(t, 2)
	a, b := d[0].Bind(t, d[0].Open(t), 0), d[1].Bind(t, d[1].Open(t), 0)
	buf := make([]byte, size)
	for range n {
		if _, err := a.SendTo(buf, b.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		if _, _, err := b.RecvFrom(buf); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.CloseWait(t.Context()); err != nil { // all are acknowledged
		t.Fatal(err)
	}
	for i, want := range []map[stats.Counter]uint64{
		{stats.SendQueued: n, stats.SendBytes: n * size, stats.CopyFromUser: n * size, stats.SendAcked: n, stats.MsgCancelled: 0, stats.RecvBytes: 0},
		{stats.RecvQueued: n, stats.RecvBytes: n * size, stats.CopyToUser: n * size, stats.RecvBytesAddedToSock: n * size,
			stats.RecvBytesFreedFromSock: n * size, stats.RecvDelivered: n, stats.SendBytes: 0},
	} {
		f, err := stats.Open(d[i].Socket() + ".stats")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r := f.Reader
		// The engine publishes now and then.
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			got := map[stats.Counter]uint64{}
			same := true
			for c, v := range want {
				got[c] = r.Load(int(c))
				same = same && got[c] == v
			}
			if same {
				break
			}
			if time.Since(start) > patience {
				for c, v := range want {
					if got[c] != v {
						t.Errorf("daemon %d: %v is %d, want %d", i, c, got[c], v)
					}
				}
				break
			}
		}
	}
}
