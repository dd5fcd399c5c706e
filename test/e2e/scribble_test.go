package e2e

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rds"
)

// TestScribbledArena has a client rewrite its send arena while it is being sent. That may damage
// the client's payloads, but not the connection.
func TestScribbledArena(t *testing.T) {
	for _, crc := range []string{"off", "on"} {
		t.Run("crc "+crc, func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				hosts := newHosts(t, 2, withArgs("-crc", crc))
				l := startLoad(t, hosts[0], hosts[1], 5000)
				sink := hosts[1].bind(hosts[1].open(), 0)
				if err := sink.SetRcvBuf(16 << 20); err != nil {
					t.Fatal(err)
				}
				total := 400
				if long {
					total = 20000
				}
				sized := make(chan int, 1) // how many messages of the right size arrived
				go func() {
					n := 0
					for buf := make([]byte, rds.MaxMessage); n < total; n++ {
						if size, _, err := sink.RecvFrom(buf); err != nil || size != scribbleSize(n) {
							t.Errorf("message %d: %d bytes, %v", n, size, err)
							break
						}
					}
					sized <- n
				}()
				r := hosts[0].raw()
				var stop atomic.Bool
				var scribblers sync.WaitGroup
				for w := range r.send {
					scribblers.Go(func() { scribble(r.send[w], &stop, uint64(w)) })
				}
				r.submit(r.dest(sink.LocalAddrPort()))
				const step = shm.WindowSize / 4 // four chunks a window, 256 KiB for message id k of 8
				for n := 0; n < total; n++ {
					id := uint32(n % 8)
					if n >= 8 {
						r.returned(uint64(n - 7))
					}
					r.submit(shm.Sub{Kind: shm.KindSend, Sock: r.sock, MsgID: id, Chunk: id * step / shm.Unit, Len: uint32(scribbleSize(n))})
				}
				if n := <-sized; n != total {
					t.Errorf("%d of %d messages", n, total)
				}
				stop.Store(true)
				scribblers.Wait()
				r.close()
				neverReset(t, hosts...)
				l.finish()
				l.ops.onlySuccess(t)
				l.audit.all(t, l.socks[0], l.socks[1])
			})
		})
	}
}

func scribbleSize(n int) int { return 1 + n*7919%(256<<10) }

func scribble(mem []byte, stop *atomic.Bool, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	for !stop.Load() {
		for range 1000 {
			at := rng.IntN(len(mem)/8) * 8
			binary.NativeEndian.PutUint64(mem[at:], rng.Uint64())
		}
		time.Sleep(50 * time.Microsecond) // the two processors are shared with everything else
	}
}

// returned waits until n message ids have come back, and takes them.
func (r *raw) returned(n uint64) {
	r.t.Helper()
	eventually(r.t, "returned message ids", func() error {
		for {
			if _, ok := r.seg.SendRetConsumer().Take(); !ok {
				break
			}
			r.back++
		}
		r.seg.SendRetConsumer().Release()
		if r.back < n {
			return errors.New("too few")
		}
		return nil
	})
}

// TestScribbledRegions does the same with the memory of operations, at both ends.
func TestScribbledRegions(t *testing.T) {
	for _, crc := range []string{"off", "on"} {
		t.Run("crc "+crc, func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				hosts := newHosts(t, 2, withArgs("-crc", crc))
				l := startLoad(t, hosts[0], hosts[1], 5000)
				ci, ct := hosts[0].open(), hosts[1].open()
				s, dst := hosts[0].bind(ci, 0), hosts[1].bind(ct, 0)
				const size = 1 << 20
				local, err := ci.Alloc(size)
				if err != nil {
					t.Fatal(err)
				}
				g := newTarget(t, ct, dst, size, rds.AllowRead|rds.AllowWrite).expose(t, s.LocalAddrPort())
				granted(t, dst, s)
				dropped := make(chan struct{})
				go func() { newAudit().drop(dst); close(dropped) }()
				var stop atomic.Bool
				var scribblers sync.WaitGroup
				for i, mem := range [][]byte{local.Bytes(), g.buf.Bytes()} {
					scribblers.Go(func() { scribble(mem, &stop, uint64(i)) })
				}
				rounds := 60
				if long {
					rounds = 5000
				}
				for i := range rounds {
					op := rds.RDMA{Write: true, Cookie: g.reg.Cookie(), Local: []rds.Segment{{Buf: local, Len: size}}}
					if i%2 == 1 {
						op.Write = false
					}
					if c := operate(t, s, dst.LocalAddrPort(), op); c.Status != rds.Success {
						t.Fatalf("operation %d: %+v", i, c)
					}
				}
				stop.Store(true)
				scribblers.Wait()
				neverReset(t, hosts...)
				l.finish()
				l.ops.onlySuccess(t)
				l.audit.all(t, l.socks[0], l.socks[1])
				dst.Close()
				<-dropped
			})
		})
	}
}
