package main

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/shm"
)

// The floor is the bare path: application, relay, TCP, relay, application. It has the rings,
// arenas and doorbells of internal/shm, and moves bytes as the engine does. There is one system
// call for a batch. Small payload is staged, large payload is written from its place and read
// into its place. The floor has nothing of the protocol: no reliability, ports, credits or
// checks. The difference between rdsd and the floor is what rdsd itself costs.

const (
	floorHeader  = 16        // length, kind and offset of a frame
	floorBatch   = 256 << 10 // bytes of one system call
	floorStaged  = 8 << 10   // payload up to this size is copied into the stage
	floorDirect  = 32 << 10  // payload of which this much is missing is read into its place
	floorDescs   = 1024      // descriptors in one turn
	floorRegion  = 64 << 20  // memory for bulk transfers at each end
	floorPending = 1 << 20   // most payload bytes of an application that are in progress, and as many of a receiver,
	floorAtLeast = 16        // ... but at least as many bytes as 16 messages have
)

// floorShared is one host's memory and doorbells. The bench makes them and passes them to a
// relay and an application.
type floorShared struct {
	files []*os.File
	maps  []*shm.Mapping
	bells []*shm.Doorbell
}

// floorFDs is the number of descriptors of a host. firstFD is the first one in a child process.
const (
	floorFDs = 10
	firstFD  = 3
)

func floorParams() shm.Params {
	p := shm.DefaultParams()
	p.Slots, p.Cells = 1, 1
	p.SubEntries, p.EventEntries = p.MaxMsgs, p.MaxRx // the default sizes would cut batches short
	return p
}

// floorSizes returns the sizes of the shared memories in the order of their descriptors:
// segment, send windows, receive windows, region.
func floorSizes(region int) []int {
	return []int{shm.SegmentSize(floorParams()), shm.WindowSize, shm.WindowSize, shm.WindowSize, shm.WindowSize, region}
}

func newFloorShared(region int) (s *floorShared, err error) {
	s = &floorShared{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for _, size := range floorSizes(region) {
		m, err := shm.CreateMemfd("rdsd-bench", size)
		if err != nil {
			return s, err
		}
		s.maps = append(s.maps, m)
		if err := m.Populate(nil); err != nil {
			return s, err
		}
		if err := s.add(m.FD); err != nil {
			return s, err
		}
	}
	for range 2 { // one for the relay, one for the application
		d, err := shm.NewDoorbell()
		if err != nil {
			return s, err
		}
		s.bells = append(s.bells, d)
		for _, fd := range []int{d.Recv, d.Send} {
			if err := s.add(fd); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// add makes a file of fd for children. It must not know that fd is non-blocking: os/exec would
// then make fd blocking, for all processes that have it open.
func (s *floorShared) add(fd int) error {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	flags, err := unix.FcntlInt(uintptr(dup), unix.F_GETFL, 0)
	if err != nil {
		unix.Close(dup)
		return err
	}
	nonblock := flags&unix.O_NONBLOCK != 0
	_ = unix.SetNonblock(dup, false)
	s.files = append(s.files, os.NewFile(uintptr(dup), "floor"))
	return unix.SetNonblock(dup, nonblock)
}

func (s *floorShared) close() {
	for _, f := range s.files {
		f.Close()
	}
	for _, m := range s.maps {
		m.Close()
	}
	for _, d := range s.bells {
		d.Close()
	}
}

// floorHost is a host as one of its processes sees it.
type floorHost struct {
	seg    *shm.Segment
	send   [][]byte // windows
	recv   [][]byte
	region []byte

	relayRecv, relaySend int // ends of doorbells
	appRecv, appSend     int
}

// inheritHost takes the descriptors of the i-th host that the bench passed to this process. The
// relay formats the segment before the application starts.
func inheritHost(i, region int, relay bool) (*floorHost, error) {
	fd := firstFD + i*floorFDs
	var mem [][]byte
	for k, size := range floorSizes(region) {
		m, err := shm.MapFD(fd+k, size, true)
		if err != nil {
			return nil, fmt.Errorf("floor: %w", err)
		}
		mem = append(mem, m.Mem)
	}
	bells := fd + len(mem)
	h := &floorHost{send: mem[1:3], recv: mem[3:5], region: mem[5],
		relayRecv: bells, relaySend: bells + 1, appRecv: bells + 2, appSend: bells + 3}
	var err error
	if relay {
		h.seg, err = shm.NewSegment(mem[0], floorParams())
	} else {
		h.seg, err = shm.OpenSegment(mem[0])
	}
	return h, err
}

// window returns the n bytes of memory at chunk.
func window(windows [][]byte, chunk uint32, n int) []byte {
	off := int(chunk) * shm.Unit
	w := windows[off/shm.WindowSize]
	off %= shm.WindowSize
	return w[off : off+n]
}

// chunkRef is the memory that an id stands for.
type chunkRef struct {
	chunk uint32
	n     int
}

// ids allocates ids and their chunks, and bounds the bytes of those in use.
type ids struct {
	arena   *shm.Arena
	refs    []chunkRef
	free    []uint32
	pending int
}

func newIDs(windows [][]byte, n uint32) *ids {
	s := &ids{refs: make([]chunkRef, n), arena: shm.NewArena()}
	for _, w := range windows {
		s.arena.AddWindow(w)
	}
	for i := n; i > 0; i-- {
		s.free = append(s.free, i-1)
	}
	return s
}

// take returns an id with n bytes of memory. ok is false if enough bytes are in use. If no bytes
// are in use, any size is allowed.
func (s *ids) take(n int) (id uint32, mem []byte, ok bool) {
	if len(s.free) == 0 || s.pending > 0 && s.pending+n > max(floorPending, floorAtLeast*n) {
		return 0, nil, false
	}
	ref := chunkRef{n: n}
	if n > 0 {
		if ref.chunk, ok = s.arena.Alloc(n); !ok {
			return 0, nil, false
		}
		mem = s.arena.Bytes(ref.chunk, n)
	}
	id = s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.refs[id] = ref
	s.pending += n
	return id, mem, true
}

func (s *ids) giveBack(id uint32) {
	ref := s.refs[id]
	if ref.n > 0 {
		s.arena.Free(ref.chunk, ref.n)
	}
	s.pending -= ref.n
	s.free = append(s.free, id)
}

// returned publishes the returns to the application, and wakes it if it waits for them.
func (h *floorHost) returned(ret *shm.IDProducer) {
	ret.Publish()
	if want := &h.seg.WantSlot(0).Relief; atomic.LoadUint32(want) != 0 {
		atomic.StoreUint32(want, 0)
		shm.Ring(h.appSend)
	}
}
