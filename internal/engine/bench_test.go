package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
)

// BenchmarkTurns is what both daemons of a stream cost a message, TCP included:
// two engines and their clients' rings, turned by one goroutine, so that nobody
// sleeps and no line goes from one processor to another. "least" is the fastest
// round: what else the machine does only makes rounds longer.
func BenchmarkTurns(b *testing.B) {
	for _, size := range []int{64, 1 << 10, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := newRig(b, 2)
			a, to := r.hosts[0], r.hosts[1]
			a.open(to)
			n := min(1024, shm.DefaultBuf/2/size)
			n = max(n, 1)
			chunks := make([]uint32, n)
			for i := range chunks {
				chunks[i], _ = a.send.Alloc(size)
			}
			round := func() {
				got, back := to.got+n, a.back+n
				for _, c := range chunks {
					sub := a.sub.Reserve().Sub()
					*sub = shm.Sub{}
					sub.Kind, sub.Sock, sub.MsgID, sub.Chunk, sub.Len = shm.KindSend, a.sock, a.nextID, c, uint32(size)
					a.nextID = (a.nextID + 1) % 2048
				}
				sub := a.sub.Reserve().Sub() // an empty one that asks for the ack
				*sub = shm.Sub{Kind: shm.KindSend, Flags: shm.SubAckNow, Sock: a.sock, MsgID: a.nextID}
				a.nextID = (a.nextID + 1) % 2048
				got, back = got+1, back+1
				a.publish()
				r.until("a round", func() bool { return to.got >= got && a.back >= back })
			}
			for range 50 {
				round()
			}
			var took []float64
			b.ResetTimer()
			for b.Loop() {
				start := time.Now()
				round()
				took = append(took, float64(time.Since(start))/float64(n))
			}
			slices.Sort(took)
			least := math.Inf(1)
			if len(took) > 0 {
				least = took[0]
				b.ReportMetric(took[len(took)/4], "quartile-ns/msg")
			}
			b.ReportMetric(least, "least-ns/msg")
		})
	}
}
