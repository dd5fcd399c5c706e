package rds

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// TestChaos: many goroutines send, receive, set deadlines, close and bind;
// what was sent is received once and in order per pair, and everything ends.
func TestChaos(t *testing.T) {
	for _, o := range []Options{{}, noSpin} {
		t.Run(fmt.Sprint("spin ", o.Spin), func(t *testing.T) {
			c, d := openFake(t, o)
			_ = d
			const socks, senders, each = 8, 4, 500
			var in, out sync.WaitGroup
			all := make([]*Socket, socks)
			for i := range all {
				all[i] = bindFake(t, c, fmt.Sprintf("127.0.0.1:%d", 3000+i))
			}
			var mu sync.Mutex
			next := map[string]int{} // sender goroutine and destination: next number
			total := 0
			for i, s := range all {
				for range 2 {
					in.Go(func() {
						buf := make([]byte, 64<<10)
						for {
							n, _, err := s.RecvFrom(buf)
							if errors.Is(err, os.ErrDeadlineExceeded) {
								continue
							}
							if err != nil {
								if !errors.Is(err, ErrClosed) {
									t.Error(err)
								}
								return
							}
							var from, k int
							fmt.Sscanf(string(buf[:min(n, 20)]), "%d %d", &from, &k)
							mu.Lock()
							total++
							next[fmt.Sprint(from, i)]++
							mu.Unlock()
						}
					})
				}
				in.Go(func() {
					for !s.closed.Load() {
						_ = s.SetReadDeadline(time.Now().Add(200 * time.Microsecond))
						time.Sleep(500 * time.Microsecond)
						_ = s.SetReadDeadline(time.Time{})
						time.Sleep(500 * time.Microsecond)
					}
				})
			}
			for g := range senders {
				out.Go(func() {
					big := make([]byte, 20000)
					for k := range each {
						p := fmt.Appendf(nil, "%d %d ", g, k)
						if k%50 == 0 {
							p = append(p, big...)
						}
						if _, err := all[g].SendTo(p, all[(g+k)%socks].LocalAddrPort()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			out.Go(func() { // sockets that come and go beside
				for i := range 50 {
					s := bindFake(t, c, fmt.Sprintf("127.0.0.1:%d", 9000+i%3))
					_, _ = s.SendTo([]byte("self"), s.LocalAddrPort())
					if i%2 == 0 {
						mustRecv(t, s, "self")
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
			})
			out.Wait()
			for {
				mu.Lock()
				done := total == senders*each
				mu.Unlock()
				if done || t.Failed() {
					break
				}
				time.Sleep(time.Millisecond)
			}
			for _, s := range all {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			in.Wait()
			for k, n := range next {
				if n > each {
					t.Errorf("%s: %d messages", k, n)
				}
			}
		})
	}
}
