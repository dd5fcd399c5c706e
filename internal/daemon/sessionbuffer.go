package daemon

import (
	"fmt"
	"sync/atomic"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// sessionBuffer is the memory of a buffer for RDMA.
type sessionBuffer struct {
	file     *shm.Mapping
	size     uint64 // bytes that the engine uses; the file is mapped in whole pages
	imported bool
	off      uint64 // of imported memory in its file

	number uint32      // the engine's; guarded by sessionMemory.mu
	ended  atomic.Bool // the engine has let go of it
	taken  bool        // an engine that adopts has asked for it
}

// mem is the memory that the engine uses.
func (b *sessionBuffer) mem() []byte { return b.file.Mem[:b.size:b.size] }

// alloc makes the memory file of a buffer.
func (m *sessionMemory) alloc(size uint64) (*sessionBuffer, error) {
	if err := m.reserve(0, size); err != nil {
		return nil, err
	}
	file, err := m.populator.populate(m.conn, int(size), func() (*shm.Mapping, error) { return createMemfd(failpoint.Buffer, int(size)) })
	if err != nil {
		m.giveBack(0, size)
		return nil, err
	}
	return m.looked.buffer(&sessionBuffer{file: file, size: size}), nil
}

// imported maps n bytes at off of a memory file of the process, as a buffer. They count as
// if the daemon had made them, because its use of them can be what allocates them. The
// buffer has fd from then on. After an error fd is still the caller's.
func (m *sessionMemory) imported(fd int, off, n uint64) (*sessionBuffer, error) {
	i, err := m.mayImport(fd, off, n)
	if err != nil {
		return nil, err
	}
	size := i.Mapped()
	if err := m.reserve(0, size); err != nil {
		return nil, err
	}
	// The search for holes waits while the process changes the file, so it takes no turn from others.
	var file *shm.Mapping
	if err = i.CheckFilled(); err == nil {
		file, err = m.populator.populate(m.conn, int(size), func() (*shm.Mapping, error) { return mapImport(i) })
	}
	if err != nil {
		m.giveBack(0, size)
		return nil, err
	}
	file.FD = fd
	return m.looked.buffer(&sessionBuffer{file: file, size: n, imported: true, off: off}), nil
}

// mayImport checks that the process may have n bytes at off of a memory file mapped.
func (m *sessionMemory) mayImport(fd int, off, n uint64) (*shm.Import, error) {
	i, err := shm.CheckImport(fd, off, n)
	if err == nil {
		err = m.mayHaveHuge(i)
	}
	if err != nil {
		return nil, err
	}
	return i, nil
}

func (m *sessionMemory) mayHaveHuge(i *shm.Import) error {
	if i.Huge && !m.conn.user.Trusted {
		return fmt.Errorf("import: %w: huge pages are only for root and the daemon's own user, because the daemon finds no holes in them; use a memfd of normal pages",
			unix.EPERM)
	}
	return nil
}

// onFree returns what the engine calls when it has let go of b.
func (m *sessionMemory) onFree(b *sessionBuffer) func() {
	return func() {
		b.ended.Store(true)
		m.freeing.Go(func() { m.unmapBuffer(b) })
	}
}

// keepBuffer notes b under the engine's number. The engine may have let go of b since.
func (m *sessionMemory) keepBuffer(number uint32, b *sessionBuffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.file.Mem == nil {
		return
	}
	if m.buffers == nil {
		m.buffers = map[uint32]*sessionBuffer{}
	}
	b.number = number
	m.buffers[number] = b
}

// unmapBuffer unmaps a buffer, unless it was unmapped before.
func (m *sessionMemory) unmapBuffer(b *sessionBuffer) {
	size := m.end(b.file, b.imported)
	if size == 0 {
		return
	}
	m.giveBack(0, size)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.buffers[b.number] == b {
		delete(m.buffers, b.number)
	}
}

// buffer returns the memory of the buffer of that number, for an engine that adopts, and what
// unmaps it. It returns nil if there is no such buffer, or if it was asked for before.
func (m *sessionMemory) buffer(number uint32) (mem []byte, onFree func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.buffers[number]
	if b == nil || b.taken {
		return nil, nil
	}
	b.taken = true
	return b.mem(), m.onFree(b)
}
