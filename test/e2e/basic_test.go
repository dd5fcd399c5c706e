package e2e

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// sizes are lengths of datagrams that take every path: coalesced, single, in pieces, and the
// longest.
var sizes = []int{minPayload, 64, 500, 4096, 4097, 20000, 32 << 10, 33 << 10, 65536, 100000}

func TestDatagrams(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		a := newAudit()
		var socks []*rds.Socket
		var readers, writers sync.WaitGroup
		for _, h := range hosts {
			c := h.open()
			for range 3 {
				socks = append(socks, h.bind(c, 0))
			}
		}
		for _, s := range socks {
			readers.Go(func() {
				if err := a.take(s); !errors.Is(err, rds.ErrClosed) {
					t.Errorf("receive: %v", err)
				}
			})
			writers.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(s.LocalAddrPort().Port())))
				s.SetWriteDeadline(time.Now().Add(patience))
				for i := range 400 {
					size := sizes[rng.IntN(len(sizes))]
					if err := a.send(s, socks[i%len(socks)].LocalAddrPort(), make([]byte, size)); err != nil {
						t.Errorf("send: %v", err)
						return
					}
				}
			})
		}
		writers.Wait()
		a.all(t, socks...)
		for _, s := range socks {
			s.Close()
		}
		readers.Wait()
	})
}
