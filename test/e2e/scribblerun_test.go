package e2e

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
)

const (
	runsAtOnce  = 8
	runChunk    = 2 * frames.MaxLen // from one run's chunk to the next one's
	lastMessage = "the last message"
)

// A client that rewrites its runs, payloads and lengths, while they are sent loses those
// that no longer are runs. The others reach this host's sockets and another's, in pieces
// that nobody sent, and no connection and no other client notices.
func TestScribbledRuns(t *testing.T) {
	for _, crc := range []string{"off", "on"} {
		t.Run("crc "+crc, func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				hosts := newHosts(t, 2, withArgs("-crc", crc))
				l := startLoad(t, hosts[0], hosts[1], 5000)
				r := hosts[0].raw()
				var readers sync.WaitGroup
				var got [2]int // datagrams that came
				for i, h := range hosts {
					sink := h.bind(h.open(), 0)
					readers.Go(func() { got[i] = untilLast(t, sink) })
					d := r.dest(sink.LocalAddrPort())
					d.Slot, d.Cell = uint32(i), uint32(i)
					r.submit(d)
				}
				var stop atomic.Bool
				var scribbler sync.WaitGroup
				scribbler.Go(func() { scribbleRuns(r.send[0], &stop) })
				total := 1000
				if long {
					total = 50_000
				}
				r.sendRuns(total)
				stop.Store(true)
				scribbler.Wait()
				copy(r.send[0], lastMessage)
				for i := range uint32(2) {
					r.submit(shm.Sub{Kind: shm.KindSend, Sock: r.sock, Slot: i, MsgID: i, Len: uint32(len(lastMessage))})
				}
				readers.Wait()
				for i, h := range hosts {
					bad := h.gauge(stats.RecvDropMalformed)
					t.Logf("host %d: %d datagrams, %d runs dropped", i, got[i], bad)
					if got[i] == 0 || bad == 0 {
						t.Errorf("host %d: %d datagrams came and %d runs were dropped: the test shows nothing", i, got[i], bad)
					}
				}
				r.close()
				neverReset(t, hosts...)
				l.finish()
				l.ops.onlySuccess(t)
				l.audit.all(t, l.socks[0], l.socks[1])
			})
		})
	}
}

// sendRuns sends n runs of all lengths to slots 0 and 1 in turn, and waits until they have
// come back.
func (r *raw) sendRuns(n int) {
	rng := rand.New(rand.NewPCG(3, 3))
	busy := busyIDs{}
	for i := range n {
		id := uint32(i % runsAtOnce)
		if !busy.wait(r, id) {
			r.t.Fatalf("the session ended: %v", r.c.Reason())
		}
		var sizes []int
		most := []int{200, 4000, 40_000, frames.MaxLen}[rng.IntN(4)]
		for left := most; ; {
			k := rng.IntN([]int{1, 16, 300}[rng.IntN(3)])
			if left -= frames.Size(k); left < 0 {
				break
			}
			sizes = append(sizes, k)
		}
		if len(sizes) == 0 {
			sizes = []int{1}
		}
		s := r.run(id*runChunk/shm.Unit, sizes...)
		s.MsgID, s.Slot = id, uint32(rng.IntN(2))
		busy[id] = true
		r.submit(s)
	}
	busy.waitAll(r)
}

// busyIDs are the message ids that have not come back.
type busyIDs map[uint32]bool

// wait waits until id is back; false: the session has ended.
func (b busyIDs) wait(r *raw, id uint32) bool {
	for end := time.Now().Add(patience); b[id]; time.Sleep(100 * time.Microsecond) {
		ret := r.seg.SendRetConsumer()
		for x, ok := ret.Take(); ok; x, ok = ret.Take() {
			delete(b, x)
		}
		ret.Release()
		select {
		case <-r.c.Gone():
			return false
		default:
		}
		if time.Now().After(end) {
			r.t.Fatalf("message id %d does not come back", id)
		}
	}
	return true
}

// waitAll waits until all are back; false: the session has ended.
func (b busyIDs) waitAll(r *raw) bool {
	for id := range b {
		if !b.wait(r, id) {
			return false
		}
	}
	return true
}

// scribbleRuns writes over the frames of runs, and not over the words that say how long
// they are. Half of what it writes may be a length.
func scribbleRuns(mem []byte, stop *atomic.Bool) {
	rng := rand.New(rand.NewPCG(4, 4))
	for !stop.Load() {
		for range 100 {
			at := rng.IntN(runsAtOnce)*runChunk + shm.RunHead + rng.IntN([]int{200, frames.MaxLen}[rng.IntN(2)])&^3
			x := rng.Uint32()
			if rng.IntN(2) == 0 {
				x %= 300
			}
			binary.NativeEndian.PutUint32(mem[at:], x)
		}
		time.Sleep(50 * time.Microsecond) // two cores for everybody
	}
}

// untilLast reads what comes until the last message does, and returns how many were there
// before.
func untilLast(t *testing.T, s *rds.Socket) (n int) {
	buf := make([]byte, frames.MaxLen)
	for ; ; n++ {
		if err := s.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Error(err)
		}
		k, _, err := s.RecvFrom(buf)
		if err != nil {
			t.Errorf("after %d datagrams: %v", n, err)
			return n
		}
		if string(buf[:k]) == lastMessage {
			return n
		}
	}
}

// A client that writes any word over the state of its runs, before and while the daemon
// takes them, at worst loses its session.
func TestScribbledStates(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		hosts[0].expected = []string{"client broke the rules"}
		l := startLoad(t, hosts[0], hosts[1], 5000)
		sink := hosts[1].bind(hosts[1].open(), 0)
		read := make(chan int)
		go func() { read <- untilLast(t, sink) }()
		rounds := 60
		if long {
			rounds = 3000
		}
		sent, ended := 0, 0
		for round := range rounds {
			n, end := scribbledStates(hosts[0].raw(), sink.LocalAddrPort(), uint64(round))
			sent += n
			if end {
				ended++
			}
		}
		from := hosts[0].bind(hosts[0].open(), 0)
		if _, err := from.SendTo([]byte(lastMessage), sink.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		n := <-read
		t.Logf("%d runs sent, %d datagrams came, %d of %d sessions ended", sent, n, ended, rounds)
		if n == 0 || ended == 0 || ended == rounds {
			t.Error("the test shows nothing")
		}
		l.progress(50)
		neverReset(t, hosts...)
		l.finish()
		l.ops.onlySuccess(t)
		l.audit.all(t, l.socks[0], l.socks[1])
	})
}

// scribbledStates sends runs of r while their states are written over, until they have all
// come back or the session ends, and returns how many were sent.
func scribbledStates(r *raw, to addrPort, seed uint64) (sent int, ended bool) {
	defer r.close()
	rng := rand.New(rand.NewPCG(seed, 6))
	r.submit(r.dest(to))
	var stop atomic.Bool
	var scribbler sync.WaitGroup
	if seed%2 == 0 {
		scribbler.Go(func() { scribbleStates(r.send[0], &stop, seed) })
	}
	busy := busyIDs{}
	for i := range 40 {
		id := uint32(i % runsAtOnce)
		if ended = !busy.wait(r, id); ended {
			break
		}
		s := r.run(id*runChunk/shm.Unit, 10, 0, 200, 3)
		if seed%4 == 1 && i == 20 { // any word at all
			shm.RunWord(r.send[0][id*runChunk:]).Open(shm.RunState(rng.Uint64() >> rng.IntN(64)))
		}
		s.MsgID = id
		busy[id] = true
		r.submit(s)
		sent++
	}
	ended = ended || !busy.waitAll(r)
	stop.Store(true)
	scribbler.Wait()
	return sent, ended
}

// scribbleStates writes over the states of runs what a client could have written, and now
// and then anything.
func scribbleStates(mem []byte, stop *atomic.Bool, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	for !stop.Load() {
		w := shm.RunWord(mem[rng.IntN(runsAtOnce)*runChunk:])
		switch rng.IntN(200) {
		case 0:
			w.Open(shm.RunState(rng.Uint64()))
		case 1:
			w.Open(shm.RunClosed)
		default:
			w.Open(shm.RunState(0).Append(rng.IntN(200)))
		}
		time.Sleep(20 * time.Microsecond)
	}
}
