package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// FuzzRun has a hostile client send runs to a process of its own host and to one of
// another, with any state, any frames and any descriptor, and write to them at any time
// until they come back. It gives back what it is sent in steps, rightly or not. Whoever
// receives gets whole runs only, each message comes back unless the session ends, and
// nothing is left.
func FuzzRun(f *testing.F) {
	for first := range byte(runSteps) {
		f.Add([]byte{0, 3, 100, 0, 3, 0, 0, 0, first, 1, 7, 200, 5, 0, 0, 0, 3, 1, 0, 0, 12, 0, 0, 0})
	}
	f.Add([]byte{8, 9, 88, 2, 5, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 10, 0, 0, 0, 5, 0, 0, 0})       // read in steps
	f.Add([]byte{14, 0, 1, 0, 0, 60, 0xe8, 3, 3, 0, 0, 0, 6, 0, 0, 0, 2, 0, 0, 255, 5, 0, 0, 0, 13, 0, 0, 0}) // refused, rewritten, withdrawn
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		b := make([]byte, 150*stepLen)
		for i := range b {
			b[i] = byte(rng.Uint32())
			if i%stepLen == 0 && rng.IntN(3) > 0 {
				b[i] = []byte{0, 2, 3, 5, 6, 7, 8, 9, 10, 12, 16}[rng.IntN(11)] // what does not end the session
			}
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 400*stepLen {
			return
		}
		w := newWorld(t, 2, Config{HardCap: 64 << 10, OverflowBytes: 1 << 20,
			Policy: &config.Policy{Quotas: config.Quotas{User: config.NoQuota()}, Owner: 500}})
		good, peer := w.opSide(0, 30), w.opSide(1, 40)
		good.open(good.sock, 0, 0, hostAddr(1), 40)
		ours := peer.expose(0, 64, abi.RightWrite|abi.RightAtomic, good)
		x := &runFuzzer{opSide: w.opSideAs(0, 10, 1000), to: [2]*opSide{opSideOf(w.attach(1, smallParams()), 20), opSideOf(w.attach(0, smallParams()), 21)}}
		x.open(x.sock, 0, 0, hostAddr(1), 20)
		x.open(x.sock, 1, 1, hostAddr(0), 21)
		x.to[0].open(x.to[0].sock, 0, 0, hostAddr(0), 10)
		w.run()
		w.unharmed(good, peer, ours.Cookie, func() {
			for ; len(b) >= stepLen; b = b[stepLen:] {
				x.step(b[0], b[1], uint16(b[2])|uint16(b[3])<<8)
			}
		})
		x.rest()
		x.at.Close()
		w.unharmed(good, peer, ours.Cookie, func() {})
		for _, s := range []*opSide{x.to[0], x.to[1], good, peer} {
			s.at.Close()
		}
		w.settle()
		w.es[0].peers.dropUnused()
		w.clean()
	})
}

// runFuzzer carries out the steps.
type runFuzzer struct {
	*opSide
	to   [2]*opSide // receivers, by slot
	sub  shm.Sub    // the last run that was written
	mems [8][]byte  // runs that were written, each with its state
	nth  int
	sent int // descriptors of messages
}

const runSteps = 17

func (x *runFuzzer) step(what, where byte, v uint16) {
	n := value(v)
	switch what % runSteps {
	case 0: // a good run
		x.nextID %= uint32(len(x.cl.msgs))
		size := int(v % 3000)
		sub, mem := x.newRun(slices.Repeat([]int{size}, 1+int(where)%(60_000/(size+8)))...)
		x.sub, x.nth = sub, x.nth+1
		x.mems[x.nth%len(x.mems)] = x.send[int(sub.Chunk)*shm.Unit:][:shm.RunHead+len(mem)]
	case 1: // any number in a state
		if w := x.word(where); w != nil {
			w.Open(w.Load() + shm.RunState(n<<(where>>3%4*20)))
		}
	case 2: // anything in a run, the state included
		if mem := x.mem(where); mem != nil {
			mem[int(v>>8)*257%len(mem)] = byte(v)
		}
	case 3:
		x.sub.Slot = uint32(where % 2)
		x.submitOnce(x.sub)
	case 4:
		x.submitOnce(x.spoilt(where, n))
	case 5:
		x.w.run()
	case 6, 7:
		x.w.es[what%2].Turn(x.w.net.Now(), Wall(x.w.net.Now()))
		x.w.net.Step()
	case 8: // something to read
		if s := x.to[0]; s.nextID < uint32(len(s.cl.msgs)) {
			s.submitRun(slices.Repeat([]int{int(v % 1000)}, 1+int(where%50))...)
		}
	case 9, 10, 11:
		x.giveBack(what%runSteps, uint32(n))
	case 12:
		x.to[where%2].datagrams()
	case 13:
		x.publish(shm.Sub{Kind: shm.KindCancel, Sock: x.sock, Slot: uint32(where % 2)})
	case 14:
		x.to[where%2].must(&ipc.SetRcvBuf{Sock: x.to[where%2].sock, Bytes: uint32(v) + 1})
	case 15: // a lone datagram between runs
		x.submitOnce(shm.Sub{Kind: shm.KindSend, Sock: x.sock, Slot: uint32(where % 2), MsgID: x.nextID % uint32(len(x.cl.msgs)), Len: uint32(v)})
		x.nextID++
	case 16: // appends, whether the run is closed or not
		if w := x.word(where); w != nil {
			was := w.Load()
			w.Replace(was, was.Append(int(v%100)))
		}
	}
}

// spoilt is the last run with one field of its descriptor changed.
func (x *runFuzzer) spoilt(where byte, n uint64) shm.Sub {
	sub := x.sub
	switch where % 8 {
	case 0:
		sub.Len = uint32(n)
	case 1:
		sub.Chunk = uint32(n)
	case 2:
		sub.MsgID = uint32(n)
	case 3:
		sub.Flags = byte(n)
	case 4:
		sub.Cookie = n
	case 5:
		sub.GiveUp = uint32(n)
	case 6:
		sub.DstInc = uint32(n)
	case 7:
		sub.Slot = uint32(n)
	}
	return sub
}

// mem is one of the last runs that were written, nil: none yet.
func (x *runFuzzer) mem(which byte) []byte { return x.mems[int(which)%len(x.mems)] }

func (x *runFuzzer) word(which byte) *shm.RunCell {
	if mem := x.mem(which); mem != nil {
		return shm.RunWord(mem)
	}
	return nil
}

// submitOnce submits a message, unless its id is known to be in use: the session would
// end, and nothing more could be seen.
func (x *runFuzzer) submitOnce(sub shm.Sub) {
	if sub.Kind == 0 || int(sub.MsgID) < len(x.cl.msgs) && x.cl.msgs[sub.MsgID] != nil {
		return
	}
	if x.publish(sub) {
		x.sent++
	}
}

// publish puts sub into the ring; false: there is no room.
func (x *runFuzzer) publish(sub shm.Sub) bool {
	e := x.seg.SubProducer().Reserve()
	if e == nil {
		return false
	}
	*e = shm.Entry{}
	*e.Sub() = sub
	x.seg.SubProducer().Publish()
	x.at.RingDaemon()
	return true
}

// giveBack gives back a step of what it was told, or all of it, or anything.
func (x *runFuzzer) giveBack(what byte, n uint32) {
	x.look()
	switch {
	case what == 11:
		x.gaveBack(n)
	case len(x.msgs) == 0:
	case what == 9:
		x.gaveBack(x.msgs[0].RxID | shm.RxStep)
	default:
		x.gaveBack(x.msgs[0].RxID)
		x.msgs = x.msgs[1:]
	}
	x.at.RingDaemon()
}

// rest has the receivers read all there is. Then nothing of x is under way.
func (x *runFuzzer) rest() {
	t := x.w.t
	t.Helper()
	for n := 1; n > 0; {
		x.w.settle()
		n = len(x.to[0].datagrams()) + len(x.to[1].datagrams())
	}
	for i, s := range x.to {
		s.alive(true)
		if r := s.cl.socks[s.sock]; r.rcvBytes != 0 || r.rcvMsgs != 0 || r.overSum != 0 || r.rxIDs != 0 || r.rxMem != 0 {
			t.Errorf("receiver %d has read everything, and %d bytes of %d messages are counted, %d wait, %d ids are gone",
				i, r.rcvBytes, r.rcvMsgs, r.overSum, r.rxIDs)
		}
	}
	if x.look(); x.cl.dead {
		return
	}
	if len(x.back) != x.sent {
		t.Errorf("%d of %d messages came back", len(x.back), x.sent)
	}
	s := x.cl.socks[x.sock]
	if s.sndMsgs != 0 || s.sndBytes != 0 || x.cl.slots[0].handed != 0 {
		t.Errorf("%d messages of %d bytes are under way, %d handed on", s.sndMsgs, s.sndBytes, x.cl.slots[0].handed)
	}
	if r := x.cl.socks[x.sock]; r.rcvBytes < 0 || r.rcvMsgs < 0 {
		t.Errorf("%d bytes of %d messages are unread", r.rcvBytes, r.rcvMsgs)
	}
}
