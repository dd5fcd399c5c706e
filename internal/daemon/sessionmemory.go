package daemon

import (
	"fmt"
	"net"
	"sync"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// sessionMemory is the shared memory and the doorbells of one process. Memory is reserved
// for the process's user before it is made. The engine has it unmapped and closed when the
// last work request is done with it, which may be while the session is still at work.
type sessionMemory struct {
	conn      *connection
	engine    *engine.Engine
	populator *populator

	mu     sync.Mutex
	maps   []*shm.Mapping
	shared uint64        // bytes of maps
	client *shm.Doorbell // the daemon rings it
	daemon *shm.Doorbell // the client rings it
}

// reserve reserves memory for one mapping: bytes of rings, tables and arenas, or of a
// buffer.
func (m *sessionMemory) reserve(shared, buffer uint64) error {
	err := m.engine.Memory().Take(&m.conn.user, shared, buffer)
	if err != nil {
		m.engine.Count(stats.QuotaRefused)
	}
	return err
}

// giveBack ends the reservation of one mapping.
func (m *sessionMemory) giveBack(shared, buffer uint64) {
	m.engine.Memory().Give(&m.conn.user, 1, shared, buffer)
}

// memfd makes a memory file for rings, tables or arenas. It belongs to nobody until keep.
func (m *sessionMemory) memfd(name string, size int, readOnly bool) (*shm.Mapping, error) {
	create := createMemfd
	if readOnly {
		create = createMemfdReadOnly
	}
	if err := m.reserve(uint64(size), 0); err != nil {
		return nil, err
	}
	file, err := m.populator.populate(m.conn, size, func() (*shm.Mapping, error) { return create(name, size) })
	if err != nil {
		m.giveBack(uint64(size), 0)
		return nil, err
	}
	return file, nil
}

// keep adds a memory file to what free frees. The caller knows that nothing frees the
// session's memory at the same time.
func (m *sessionMemory) keep(file *shm.Mapping) {
	m.maps = append(m.maps, file)
	m.shared += uint64(len(file.Mem))
}

// memfdKept is memfd and keep.
func (m *sessionMemory) memfdKept(name string, size int, readOnly bool) (*shm.Mapping, error) {
	file, err := m.memfd(name, size, readOnly)
	if err != nil {
		return nil, err
	}
	m.keep(file)
	return file, nil
}

// unmap unmaps a memory file that was never kept.
func (m *sessionMemory) unmap(file *shm.Mapping) {
	size := uint64(len(file.Mem))
	file.Close()
	m.giveBack(size, 0)
}

// buffer makes the memory file of a buffer for RDMA.
func (m *sessionMemory) buffer(name string, size int) (*shm.Mapping, error) {
	if err := m.reserve(0, uint64(size)); err != nil {
		return nil, err
	}
	file, err := m.populator.populate(m.conn, size, func() (*shm.Mapping, error) { return createMemfd(name, size) })
	if err != nil {
		m.giveBack(0, uint64(size))
		return nil, err
	}
	return file, nil
}

// imported maps n bytes at off of a memory file of the process, as a buffer. They count as
// if the daemon had made them, because its use of them can be what allocates them.
func (m *sessionMemory) imported(fd int, off, n uint64) (*shm.Mapping, error) {
	i, err := shm.CheckImport(fd, off, n)
	if err != nil {
		return nil, err
	}
	if i.Huge && !m.conn.user.Trusted && !mutant.On(mutant.HugeOfAnyone) {
		// The process could punch a hole, and use the pool up before the daemon touches it.
		return nil, fmt.Errorf("import: %w: huge pages are only for root and the daemon's own user, because a hole in them can end the daemon; use a memfd of normal pages",
			unix.EPERM)
	}
	size := i.Mapped()
	if err := m.reserve(0, size); err != nil {
		return nil, err
	}
	file, err := m.populator.populate(m.conn, int(size), func() (*shm.Mapping, error) { return mapImport(i) })
	if err != nil {
		m.giveBack(0, size)
		return nil, err
	}
	return file, nil
}

// unmapBuffer unmaps a buffer. It waits for a handOver in progress.
func (m *sessionMemory) unmapBuffer(file *shm.Mapping) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := uint64(len(file.Mem))
	file.Close()
	m.giveBack(0, size)
}

// handOver answers request id with the descriptor of file, and closes the daemon's copy of
// it. It holds the lock because a descriptor that is closed before it is sent could come
// back as the number of another client's memory.
func (m *sessionMemory) handOver(id uint32, answer ipc.Response, file *shm.Mapping) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { _ = file.CloseFD() }()
	if file.FD < 0 {
		return net.ErrClosed // the engine has ended the client in between
	}
	return m.conn.Send(id, answer, file.FD)
}

// handOverAll is handOver of everything that a client gets when it attaches.
func (m *sessionMemory) handOverAll(id uint32, answer ipc.Response, fds []int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.conn.Send(id, answer, fds...)
	for _, file := range m.maps {
		_ = file.CloseFD()
	}
	_ = m.daemon.CloseSend()
	_ = m.client.CloseRecv()
	return err
}

// free unmaps and closes everything but buffers, which end one by one.
func (m *sessionMemory) free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, file := range m.maps {
		file.Close()
	}
	m.engine.Memory().Give(&m.conn.user, len(m.maps), m.shared, 0)
	m.maps, m.shared = nil, 0
	if m.client != nil {
		m.client.Close()
	}
	if m.daemon != nil {
		m.daemon.Close()
	}
}
