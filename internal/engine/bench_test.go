package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/shm"
)

// BenchmarkTurns is what both daemons of a stream cost a datagram, TCP included:
// two engines and their clients' rings, turned by one goroutine, so that nobody
// sleeps and no line goes from one processor to another. "least" is the fastest
// round: what else the machine does only makes rounds longer.
func BenchmarkTurns(b *testing.B) {
	for _, c := range []struct{ hosts, size, run int }{{2, 64, 0}, {2, 64, 1}, {2, 64, 100}, {2, 1 << 10, 0}, {2, 4 << 10, 0}, {2, 64 << 10, 0},
		{1, 64, 0}, {1, 64, 1}, {1, 64, 100}} {
		name := fmt.Sprint(c.size)
		if c.run > 0 {
			name += fmt.Sprintf(" in runs of %d", c.run)
		}
		if c.hosts == 1 {
			name += " on one host"
		}
		b.Run(name, func(b *testing.B) {
			r := newRig(b, c.hosts)
			a, to := r.hosts[0], r.hosts[c.hosts-1]
			a.open(to)
			n := max(1, min(1024, shm.DefaultBuf/2/c.size)/max(c.run, 1)) // descriptors of a round
			chunks := make([]uint32, n)
			for i := range chunks {
				chunks[i], _ = a.send.Alloc(max(c.size, shm.RunHead+c.run*frames.Size(c.size)))
			}
			round := func() {
				got, back := to.got+n+1, a.back+n+1
				for _, chunk := range chunks {
					if c.run > 0 {
						a.putRun(chunk, c.run, c.size, 0)
					} else {
						a.submitAs(shm.Sub{Chunk: chunk, Len: uint32(c.size)})
					}
				}
				a.submitAs(shm.Sub{Flags: shm.SubAckNow}) // an empty one that asks for the ack
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
				took = append(took, float64(time.Since(start))/float64(n*max(c.run, 1)))
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

// BenchmarkTrip is what both daemons of a round trip of 64 B cost, TCP included, without
// wake-ups and applications.
func BenchmarkTrip(b *testing.B) {
	r := newRig(b, 2)
	r.hosts[0].open(r.hosts[1])
	r.hosts[1].open(r.hosts[0])
	chunks := [2]uint32{}
	for i, h := range r.hosts {
		chunks[i], _ = h.send.Alloc(shm.RunHead + frames.Size(64))
	}
	trip := func() {
		for i, h := range r.hosts {
			to := r.hosts[1-i]
			got := to.got + 1
			h.putRun(chunks[i], 1, 64, 0)
			h.publish()
			r.until("a message", func() bool { return to.got >= got })
		}
	}
	for range 50 {
		trip()
	}
	for b.Loop() {
		trip()
	}
}
