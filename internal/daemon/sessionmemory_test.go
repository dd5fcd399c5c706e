package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// memoryOf is the memory of a session of d that its engine does not know.
func memoryOf(t *testing.T, d *Daemon) *sessionMemory {
	c := dialRaw(t, d).ctl
	user := quota.Of(d.policy.Load(), c.Peer())
	return &sessionMemory{conn: &connection{Conn: c, user: user}, engine: d.engine, populator: d.populator}
}

// filled is such memory with a window that was added, a buffer 1, imported memory 2, and a
// buffer 3 that the engine has let go of. own is the file of the imported memory.
func filled(t *testing.T, d *Daemon) (m *sessionMemory, own int) {
	t.Helper()
	m = memoryOf(t, d)
	t.Cleanup(m.leave)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.makeFor(fewParams))
	w, err := m.memfd("more", shm.WindowSize, false)
	must(err)
	m.send = append(m.send, w)
	one, err := m.alloc(8192)
	must(err)
	m.keepBuffer(1, one)
	own = filledMemory(t, 3*4096, unix.F_SEAL_SHRINK)
	given, err := unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
	must(err)
	two, err := m.imported(given, 4096, 5000)
	must(err)
	m.keepBuffer(2, two)
	three, err := m.alloc(4096)
	must(err)
	m.keepBuffer(3, three)
	three.ended.Store(true)
	for i, mem := range m.all() {
		mem[4095] = byte(i + 1)
	}
	return m, own
}

// all is all memory that is handed over.
func (m *sessionMemory) all() (all [][]byte) {
	for _, file := range m.files() {
		all = append(all, file.Mem)
	}
	return append(all, m.buffers[1].mem(), m.buffers[2].mem())
}

// handedOver is the state of m, and copies of its descriptors.
func handedOver(t testing.TB, m *sessionMemory) ([]byte, *handover.Files) {
	t.Helper()
	var out handover.Files
	w := handover.Write(handover.Newest)
	m.pass(w, &out, fewParams)
	return w.Bytes(), &handover.Files{All: copies(t, out.All)}
}

// copies are copies of descriptors.
func copies(t testing.TB, fds []int) (all []int) {
	t.Helper()
	for _, fd := range fds {
		c, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// adoptedBy has a session of d adopt a state.
func adoptedBy(m *sessionMemory, state []byte, f *handover.Files) error {
	r, err := handover.Read(state)
	if err != nil {
		return err
	}
	m.pass(r, f, fewParams)
	return r.Close()
}

// openFiles is how many memory files and pipes this process has open.
func openFiles(t testing.TB) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && (strings.HasPrefix(to, "/memfd:") || strings.HasPrefix(to, "pipe:")) {
			n++
		}
	}
	return n
}

// TestMemoryHandedOver: another daemon has the same memory and the same doorbells, counts
// them for the user, and hands them over in turn. When the first one has let go, nothing has
// changed for the process.
func TestMemoryHandedOver(t *testing.T) {
	from, to := startDaemon(t, nil), startDaemon(t, nil)
	before := from.engine.Memory().Sum()
	m, _ := filled(t, from)
	state, files := handedOver(t, m)
	next := memoryOf(t, to)
	if err := adoptedBy(next, state, files); err != nil {
		t.Fatal(err)
	}
	if left := maps.Collect(func(yield func(int, int) bool) {
		for i, fd := range files.All {
			if fd >= 0 && !yield(i, fd) {
				return
			}
		}
	}); len(left) > 0 {
		t.Errorf("descriptors that nobody took: %v", left)
	}
	for i, mem := range next.all() {
		if mem[4095] != byte(i+1) || len(mem) != len(m.all()[i]) {
			t.Errorf("memory %d: %d in %d bytes, want %d in %d", i, mem[4095], len(mem), i+1, len(m.all()[i]))
		}
	}
	has, had := to.engine.Memory().Sum(), from.engine.Memory().Sum()
	had.Maps, had.Registered = had.Maps-1, had.Registered-4096 // buffer 3
	if has != had {
		t.Errorf("%+v counted, before %+v", has, had)
	}
	for name, bell := range map[string][2]int{"the process's": {next.client.Send, m.client.Recv}, "the daemon's": {m.daemon.Send, next.daemon.Recv}} {
		shm.Ring(bell[0])
		if n, err := unix.Read(bell[1], make([]byte, 8)); n != 8 {
			t.Errorf("%s doorbell: %d, %v", name, n, err)
		}
	}
	at := engine.Attachment{Params: fewParams}
	if windows, err := next.attachment(&at); err != nil || len(windows) != 2 || at.Recv.Windows() != 1 || at.Shared != has.Shared {
		t.Errorf("%d send windows, %d receive windows, %d bytes: %v", len(windows), at.Recv.Windows(), at.Shared, err)
	}
	again, copied := handedOver(t, next)
	copied.Close()
	if !bytes.Equal(again, state) {
		t.Errorf("written again:\n%x\nfirst:\n%x", again, state)
	}
	askForBuffers(t, next)

	m.leave()
	for i, mem := range next.all() {
		if mem[4095] != byte(i+1) {
			t.Errorf("memory %d has changed", i)
		}
	}
	if sum := from.engine.Memory().Sum(); sum != before {
		t.Errorf("%+v left, before %+v", sum, before)
	}
	next.leave()
	if sum := to.engine.Memory().Sum(); sum != (quota.Taken{}) {
		t.Errorf("%+v left", sum)
	}
}

// askForBuffers asks for buffers as an engine that adopts does.
func askForBuffers(t *testing.T, m *sessionMemory) {
	t.Helper()
	reader := func() *handover.State {
		r, err := handover.Read(handover.Write(handover.Newest).Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for number, size := range map[uint32]int{1: 8192, 2: 5000} {
		r := reader()
		if m.adopted(r); r.Err() == nil {
			t.Errorf("buffer %d need not be asked for", number)
		}
		if mem, onFree := m.buffer(number); len(mem) != size || onFree == nil {
			t.Errorf("buffer %d has %d bytes, want %d", number, len(mem), size)
		}
	}
	for _, number := range []uint32{0, 1, 2, 3, 4} {
		if mem, _ := m.buffer(number); mem != nil {
			t.Errorf("buffer %d is there, or a second time", number)
		}
	}
	r := reader()
	if m.adopted(r); r.Err() != nil {
		t.Error(r.Err())
	}
}

// TestMemoryRefused: what does not fit is refused, and nothing is left of it.
func TestMemoryRefused(t *testing.T) {
	d := startDaemon(t, nil)
	m, own := filled(t, d)
	next := memoryOf(t, d)
	state, files := handedOver(t, m)
	files.Close()
	var places handover.Files
	m.pass(handover.Write(handover.Newest), &places, fewParams)
	seal := func(size int64, seals int) int { return ownMemory(t, size, seals) }
	const all = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	segment := int64(shm.SegmentSize(fewParams))
	before := d.engine.Memory().Sum()
	const head = 12 + 8
	for name, spoil := range map[string]func(state []byte, fds []int) []int{
		"no descriptors":             func(_ []byte, _ []int) []int { return nil },
		"too few descriptors":        func(_ []byte, fds []int) []int { return fds[:len(fds)-1] },
		"a file named twice":         func(s []byte, fds []int) []int { binary.LittleEndian.PutUint32(s[head+4:], 0); return fds },
		"a segment of another size":  func(_ []byte, fds []int) []int { fds[0] = seal(segment+4096, all); return fds },
		"a segment without seals":    func(_ []byte, fds []int) []int { fds[0] = seal(segment, unix.F_SEAL_SHRINK); return fds },
		"a window that is the table": func(_ []byte, fds []int) []int { fds[2] = fds[1]; return fds },
		"a window to read only": func(_ []byte, fds []int) []int {
			fds[2] = seal(shm.WindowSize, all|unix.F_SEAL_FUTURE_WRITE)
			return fds
		},
		"a doorbell that is none":  func(_ []byte, fds []int) []int { fds[5] = fds[0]; return fds },
		"the wrong doorbell":       func(_ []byte, fds []int) []int { fds[5], fds[6] = fds[6], fds[5]; return fds },
		"a buffer that is a pipe":  func(_ []byte, fds []int) []int { fds[8] = fds[6]; return fds },
		"a buffer of another size": func(_ []byte, fds []int) []int { fds[8] = fds[0]; return fds },
		"imported memory too short": func(_ []byte, fds []int) []int {
			fds[9] = seal(4096, unix.F_SEAL_SHRINK)
			return fds
		},
		"too few windows": func(s []byte, fds []int) []int {
			binary.LittleEndian.PutUint32(s[head+8:], 0)
			return fds
		},
	} {
		s := bytes.Clone(state)
		fds := spoil(s, append([]int(nil), places.All...))
		files := &handover.Files{All: copies(t, fds)}
		err := adoptedBy(next, s, files)
		files.Close()
		if err == nil {
			t.Errorf("%s: adopted", name)
			next.leave()
		}
		if sum := d.engine.Memory().Sum(); sum != before {
			t.Errorf("%s: %+v is counted, before %+v", name, sum, before)
		}
	}
	if _, err := unix.FcntlInt(uintptr(own), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != nil {
		t.Fatal(err)
	}
	files = &handover.Files{All: copies(t, places.All)}
	if err := adoptedBy(next, state, files); err != nil || next.sealed == nil {
		t.Errorf("memory that was sealed against writing: %v, %v", err, next.sealed)
	}
	next.leave()
	files.Close()
}

// Whatever a state says, it is refused without a trace or adopted as a whole.
func TestMemoryGarbled(t *testing.T) {
	d := startDaemon(t, nil)
	m, _ := filled(t, d)
	next := memoryOf(t, d)
	var places handover.Files
	w := handover.Write(handover.Newest)
	m.pass(w, &places, fewParams)
	before, sum := openFiles(t), d.engine.Memory().Sum()
	rng := rand.New(rand.NewPCG(1, 1))
	refused := 0
	for i := range 2000 {
		s := bytes.Clone(w.Bytes())
		if i%2 == 0 {
			s = s[:rng.IntN(len(s))]
		} else {
			for range 1 + rng.IntN(3) {
				s[rng.IntN(len(s))] = byte(rng.Uint32())
			}
		}
		files := &handover.Files{All: copies(t, places.All)}
		if adoptedBy(next, s, files) != nil {
			refused++
		}
		next.leave()
		files.Close()
		if n := openFiles(t); n > before {
			t.Fatalf("%x: %d descriptors open, before %d", s, n, before)
		} else {
			before = n // the tests before close theirs in the background
		}
		if now := d.engine.Memory().Sum(); now != sum {
			t.Fatalf("%x: %+v counted, before %+v", s, now, sum)
		}
	}
	if refused < 1000 {
		t.Errorf("%d of 2000 states refused", refused)
	}
}

// TestUnmapsAlone: nobody waits while memory is unmapped, which takes long if it is much. Here it takes
// as long as the memory is being looked at.
func TestUnmapsAlone(t *testing.T) {
	m, _ := filled(t, startDaemon(t, nil))
	for _, unmap := range []func(){func() { m.unmapBuffer(m.buffers[1]) }, m.free} {
		m.looked.mu.Lock()
		go unmap()
		stack := make([]byte, 1<<20)
		eventually(t, "memory is being unmapped", func() error {
			if !bytes.Contains(stack[:runtime.Stack(stack, true)], []byte(".(*looked).remove(")) {
				return errors.New("it is not")
			}
			return nil
		})
		free := m.mu.TryLock()
		if free {
			m.mu.Unlock()
		}
		m.looked.mu.Unlock()
		if !free {
			t.Error("others wait")
		}
		eventually(t, "its end", func() error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if sum := m.engine.Memory().Sum(); m.buffers[1] != nil || m.segment == nil && sum.Maps != 2 {
				return fmt.Errorf("%+v", sum)
			}
			return nil
		})
	}
}
