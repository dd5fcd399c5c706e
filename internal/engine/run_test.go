package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// runRoom is where a client's run is in its send arena: each of so many message ids has
// room for the longest.
const (
	runRoom  = (shm.MaxRun + shm.Unit - 1) / shm.Unit
	runRooms = shm.WindowSize / shm.Unit / runRoom
)

// newRun writes a run of datagrams of these lengths, and returns its descriptor and its
// frames. Nothing is submitted.
func (s *opSide) newRun(sizes ...int) (sub shm.Sub, mem []byte) {
	chunk := s.nextID % runRooms * runRoom
	all := s.send[chunk*shm.Unit:][:shm.MaxRun]
	var st shm.RunState
	for _, n := range sizes {
		frames.Put(all[shm.RunHead+st.Len():], make([]byte, n))
		st = st.Append(n)
	}
	shm.RunWord(all).Open(st)
	sub = shm.Sub{Kind: shm.KindRun, Sock: s.sock, MsgID: s.nextID, Chunk: chunk, Len: uint32(shm.RunHead + st.Len())}
	s.nextID++
	return sub, all[shm.RunHead:][:st.Len()]
}

// submitRun submits a run to slot 0 and returns its message id.
func (s *opSide) submitRun(sizes ...int) uint32 {
	s.w.t.Helper()
	sub, _ := s.newRun(sizes...)
	s.put(func(e *shm.Entry) { *e.Sub() = sub })
	return sub.MsgID
}

// datagrams takes what has come, gives it back, and returns the lengths of the datagrams.
func (s *opSide) datagrams() (sizes []int) {
	s.w.t.Helper()
	s.look()
	for i := range s.msgs {
		sizes = append(sizes, s.sizes(&s.msgs[i])...)
		s.gaveBack(s.msgs[i].RxID)
	}
	s.msgs = s.msgs[:0]
	return sizes
}

// sizes are the lengths of the datagrams of a message, which has to be what it says.
func (s *opSide) sizes(ev *shm.Event) (sizes []int) {
	s.w.t.Helper()
	if ev.Flags&shm.EventRun == 0 {
		return []int{int(ev.Len)}
	}
	for rest := s.cl.recv.Bytes(ev.Chunk, int(ev.Len)); len(rest) > 0; {
		p, r, ok := frames.Next(rest)
		if !ok {
			s.w.t.Fatalf("a run of %d bytes ends within a frame, %d bytes before its end", ev.Len, len(rest))
		}
		sizes, rest = append(sizes, len(p)), r
	}
	return sizes
}

// all takes what comes until nothing more does.
func (s *opSide) all() (sizes []int) {
	s.w.t.Helper()
	for {
		s.w.run()
		n := s.datagrams()
		if len(n) == 0 {
			return sizes
		}
		sizes = append(sizes, n...)
	}
}

// idle fails the test unless nothing is left of what was sent from a to b, and all counts
// are what they were at the start.
func (w *world) idle(a, b *opSide) {
	w.t.Helper()
	s, r := a.cl.socks[a.sock], b.cl.socks[b.sock]
	for _, x := range []struct {
		name string
		n    int
	}{
		{"messages of the sending socket", s.sndMsgs}, {"bytes of the sending socket", s.sndBytes},
		{"messages queued", a.e.tx.queued.msgs}, {"bytes queued", a.e.tx.queued.bytes},
		{"datagrams handed on", a.cl.slots[0].handed}, {"records", a.cl.slots[0].msgs},
		{"bytes of the receiving socket", r.rcvBytes}, {"messages of the receiving socket", r.rcvMsgs},
		{"datagrams in daemon memory", r.overSum}, {"messages in daemon memory", r.over.N},
		{"receive ids of the socket", r.rxIDs}, {"told of these", r.rxTold}, {"receive memory of the socket", r.rxMem},
		{"receive ids", len(b.cl.rx) - len(b.cl.rxFree)}, {"receive memory", b.cl.recv.InUse()},
		{"daemon memory", b.e.rx.overflow.used}, {"unfinished bytes", b.cl.unfinished},
	} {
		if x.n != 0 {
			w.t.Errorf("%d %s are left", x.n, x.name)
		}
	}
	if a.look(); len(a.back) != int(a.nextID) {
		w.t.Errorf("%d of %d message ids came back", len(a.back), a.nextID)
	}
	a.alive(true)
	b.alive(true)
}

// badFrames are what a process can do to the frames of a run after it has said how many
// there are. Each has at least three.
var badFrames = []struct {
	name string
	do   func(mem []byte)
}{
	{"a length at the end of numbers", func(mem []byte) { binary.LittleEndian.PutUint32(mem, ^uint32(0)) }},
	{"a length past the end", func(mem []byte) { binary.LittleEndian.PutUint32(mem, uint32(len(mem))) }},
	{"a length up to the end, and more frames", func(mem []byte) { binary.LittleEndian.PutUint32(mem, uint32(len(mem)-frames.Head)) }},
	{"a frame that is shorter", func(mem []byte) { binary.LittleEndian.PutUint32(mem, 1) }},
	{"a frame that has the next one in it", func(mem []byte) {
		n := binary.LittleEndian.Uint32(mem)
		next := binary.LittleEndian.Uint32(mem[frames.Size(int(n)):])
		binary.LittleEndian.PutUint32(mem, uint32(frames.Size(int(n))+int(next)))
	}},
	{"nothing but zeroes", func(mem []byte) { clear(mem) }},
	{"nothing but ones", func(mem []byte) {
		for i := range mem {
			mem[i] = 0xff
		}
	}},
}

// TestRunMalformed: of a run whose frames are not what its sender said nobody gets
// anything, whichever way it comes and wherever it waits. Both processes go on, all memory
// and all ids come back, and what is sent before and behind the run arrives in order.
func TestRunMalformed(t *testing.T) {
	long := slices.Repeat([]int{1000}, 60)
	for _, hosts := range []int{1, 2} {
		for _, way := range []struct {
			name  string
			sizes []int
			full  bool // the receiver's share is used up: what comes waits in daemon memory
		}{
			{"whole", []int{100, 64, 300}, false}, {"long", long, false},
			{"waits", []int{100, 64, 300}, true}, {"long and waits", long, true},
		} {
			for _, bad := range badFrames {
				t.Run(fmt.Sprintf("%d hosts/%s/%s", hosts, way.name, bad.name), func(t *testing.T) {
					w, a, b := opPair(t, hosts)
					want := []int{7}
					if way.full {
						want = slices.Repeat(want, 40)
					}
					for _, n := range want {
						a.submit(shm.Sub{Len: uint32(n)})
					}
					w.run()
					if waits := b.cl.socks[b.sock].over.N > 0; waits != way.full {
						t.Fatalf("messages wait: %v", waits)
					}
					sub, mem := a.newRun(way.sizes...)
					bad.do(mem)
					a.put(func(e *shm.Entry) { *e.Sub() = sub })
					a.submitRun(11, 0, 13)
					a.submit(shm.Sub{Len: 17})
					if got, want := b.all(), append(want, 11, 0, 13, 17); !slices.Equal(got, want) {
						t.Errorf("datagrams of %d bytes came, want %d", got, want)
					}
					if n := b.e.st.C[stats.RecvDropMalformed]; n != 1 {
						t.Errorf("recv_drop_malformed is %d", n)
					}
					w.idle(a, b)
					w.clean2(a, b)
				})
			}
		}
	}
}

// TestRunForClosed: a run in the ring when its socket is closed gives its id back.
func TestRunForClosed(t *testing.T) {
	w, a, b := opPair(t, 2)
	w.run()
	id := a.submitRun(10, 20)
	a.must(&ipc.CloseSock{Sock: a.sock})
	late := a.submitRun(10, 20)
	w.settle()
	if a.look(); !slices.Contains(a.back, id) || !slices.Contains(a.back, late) {
		t.Errorf("ids %d came back, want %d and %d", a.back, id, late)
	}
	a.alive(true)
	b.all()
	w.clean2(a, b)
}
