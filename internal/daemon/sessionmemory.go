package daemon

import (
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// sessionMemory is the shared memory and the doorbells of one process. Memory is reserved
// for the process's user before it is made. The engine has it unmapped and closed when the
// last work request is done with it, which may be while the session is still at work. Its
// descriptors stay open until then, because a successor of this daemon needs them.
type sessionMemory struct {
	conn      *connection
	engine    *engine.Engine
	populator *populator

	mu             sync.Mutex
	segment, table *shm.Mapping
	send, recv     []*shm.Mapping            // windows
	client         *shm.Doorbell             // the daemon rings it
	daemon         *shm.Doorbell             // the client rings it
	buffers        map[uint32]*sessionBuffer // by the engine's number
	records        uint64                    // bytes that the engine's records may take

	// remains says that the process keeps the pages: another daemon goes on with them, or
	// there is none any more. Otherwise they are given back before they count no more.
	remains bool // guarded by mu

	looked  looked         // all of it, for the search for holes
	freeing sync.WaitGroup // buffers that the engine has let go of. Only the engine's thread adds to it

	sealed error // of adopted memory that its process has sealed against writing; nil: none
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

// memfd makes a memory file for rings, tables or arenas. unmap ends it.
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
	m.looked.add(file, nil)
	return file, nil
}

// unmap unmaps what memfd made.
func (m *sessionMemory) unmap(file *shm.Mapping) {
	if size := m.end(file, false); size > 0 {
		m.giveBack(size, 0)
	}
}

// end ends a mapping and returns how large it was, 0: it has ended before. kept says that the
// pages are the process's. It waits for a handOver in progress. Nobody waits for it, because what
// the kernel does to unmap much memory takes long.
func (m *sessionMemory) end(file *shm.Mapping, kept bool) uint64 {
	m.looked.remove(file) // waits for a search
	own, kept := m.take(file, kept)
	size := uint64(len(own.Mem))
	if kept {
		_ = own.Close()
	} else {
		_ = own.Discard()
	}
	return size
}

// take has file be nobody's but the caller's, so that no descriptor of it is sent any more.
func (m *sessionMemory) take(file *shm.Mapping, kept bool) (*shm.Mapping, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return file.Take(), kept || m.remains
}

// remain has the process keep the pages of all that it has.
func (m *sessionMemory) remain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remains = true
}

// hold counts what the engine may come to remember of a client with parameters p, until drop.
func (m *sessionMemory) hold(p shm.Params) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = engine.RecordBytes(p)
	m.engine.Memory().Hold(&m.conn.user, m.records)
}

// drop ends hold, if it was called. Guarded by mu.
func (m *sessionMemory) drop() {
	m.engine.Memory().Drop(&m.conn.user, m.records)
	m.records = 0
}

// makeFor makes the segment, the table, the doorbells and the arenas of a client. What it
// made before an error stays for free.
func (m *sessionMemory) makeFor(p shm.Params) (err error) {
	m.hold(p)
	if m.segment, err = m.memfd(failpoint.Segment, shm.SegmentSize(p), false); err != nil {
		return err
	}
	if _, err = shm.NewSegment(m.segment.Mem, p); err != nil {
		return err
	}
	if m.table, err = m.memfd(failpoint.Table, shm.TableSize(p.Slots, p.Cells), true); err != nil {
		return err
	}
	if m.daemon, err = newDoorbell(failpoint.DaemonDoorbell); err != nil {
		return err
	}
	if m.client, err = newDoorbell(failpoint.ClientDoorbell); err != nil {
		return err
	}
	for range p.SendWindows {
		w, err := m.memfd(failpoint.SendWindow, shm.WindowSize, false)
		if err != nil {
			return err
		}
		m.send = append(m.send, w)
	}
	for range p.RecvWindows {
		w, err := m.memfd(failpoint.RecvWindow, shm.WindowSize, true)
		if err != nil {
			return err
		}
		m.recv = append(m.recv, w)
	}
	return nil
}

// files are all mappings but buffers, in no order.
func (m *sessionMemory) files() (all []*shm.Mapping) {
	for _, file := range []*shm.Mapping{m.segment, m.table} {
		if file != nil {
			all = append(all, file)
		}
	}
	return append(append(all, m.send...), m.recv...)
}

// attachment sets in at what the engine gets of a client's memory: the segment that p sizes,
// the table, the receive arena and how much all is. It returns the windows of the send arena.
func (m *sessionMemory) attachment(at *engine.Attachment) (windows [][]byte, err error) {
	p := at.Params
	if at.Seg, err = shm.AttachSegment(m.segment.Mem, p); err != nil {
		return nil, err
	}
	at.Table = shm.NewTable(m.table.Mem, p.Slots, p.Cells)
	at.Recv = shm.NewArena()
	for _, w := range m.recv {
		at.Recv.AddWindow(w.Mem)
	}
	for _, w := range m.send {
		windows = append(windows, w.Mem)
	}
	at.Shared = 0
	for _, file := range m.files() {
		at.Shared += uint64(len(file.Mem))
	}
	return windows, nil
}

// handOver answers request id with the descriptor of file. It holds the lock because a
// descriptor that is closed before it is sent could come back as the number of another
// client's memory.
func (m *sessionMemory) handOver(id uint32, answer ipc.Response, file *shm.Mapping) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if file.FD < 0 {
		return net.ErrClosed // the engine has ended the client in between
	}
	return m.conn.give(id, answer, file.Give())
}

// handOverAll is handOver of everything that a client gets when it attaches, in the order in
// which the client expects it.
func (m *sessionMemory) handOverAll(id uint32, answer ipc.Response) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.segment == nil {
		return net.ErrClosed
	}
	fds := []int{m.segment.Give(), m.table.Give(), m.daemon.Send, m.client.Recv}
	for _, w := range m.send {
		fds = append(fds, w.Give())
	}
	for _, w := range m.recv {
		fds = append(fds, w.Give())
	}
	err := m.conn.give(id, answer, fds...)
	for _, file := range m.files() {
		_ = file.Given()
	}
	_ = m.client.CloseRecv()
	return err
}

// undo frees what makeFor made, in the background. The session can make it again at once.
func (m *sessionMemory) undo() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, file := range m.files() {
		m.giveBack(uint64(len(file.Mem)), 0)
		m.looked.remove(file)
		go file.Close()
	}
	for _, bell := range []*shm.Doorbell{m.client, m.daemon} {
		if bell != nil {
			_ = bell.Close()
		}
	}
	m.segment, m.table, m.send, m.recv, m.client, m.daemon = nil, nil, nil, nil, nil, nil
	m.drop()
}

// free unmaps and closes everything but buffers, which end one by one.
func (m *sessionMemory) free() {
	for _, file := range m.forget() {
		m.unmap(file)
	}
}

// forget closes the doorbells and returns all mappings but buffers, of which m knows no more.
func (m *sessionMemory) forget() []*shm.Mapping {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.files()
	m.segment, m.table, m.send, m.recv = nil, nil, nil, nil
	m.drop()
	for _, bell := range []*shm.Doorbell{m.client, m.daemon} {
		if bell != nil {
			_ = bell.Close()
		}
	}
	return all
}

// leave unmaps and closes everything, buffers too. Another daemon goes on with the memory, so
// that the process notices nothing. This daemon's engine must not work any more.
func (m *sessionMemory) leave() {
	m.freeing.Wait() // those pages are to be given back
	m.remain()
	m.free()
	m.mu.Lock()
	buffers := slices.Collect(maps.Values(m.buffers))
	m.mu.Unlock()
	for _, b := range buffers {
		m.unmapBuffer(b)
	}
}
