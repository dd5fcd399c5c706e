package daemon

import (
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/guard"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// slowDevice has a thread that is slow.
type slowDevice struct {
	verbs.Device
	slow uint64
}

func (d *slowDevice) Threads() verbs.ThreadStats { return verbs.ThreadStats{Slow: d.slow} }

// TestSlowThread: holes in memory are looked for when a thread of a device is slow, however short the turns are.
func TestSlowThread(t *testing.T) {
	d := &slowDevice{Device: sim.NewNetwork(1).Device(netip.MustParseAddr("127.0.0.1"))}
	block, err := stats.NewBlock(make([]uint64, stats.Size/8+1), stats.Info{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(d, engine.Config{Instance: 1, RecvBufs: 256, SendBufs: 64, Alloc: func(n int) []byte { return make([]byte, n) },
		Rand: func() uint64 { return 1 }, StartSeq: func() uint64 { return 1 }}, block)
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{engine: e, stats: block, long: make(suspicion, 1), hits: guard.Hits()}
	for i, want := range []int{0, 1, 0} {
		d.slow = uint64((i + 1) / 2)
		l.turned(1)
		if len(l.long) != want {
			t.Errorf("turn %d: %d looks for holes, want %d", i, len(l.long), want)
		}
		select {
		case <-l.long:
		default:
		}
	}
}
