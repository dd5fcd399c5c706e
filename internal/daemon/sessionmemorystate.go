package daemon

import (
	"errors"
	"maps"
	"slices"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// tagMemory is the memory of one client.
const tagMemory = handover.TagDaemon + 1

// encode writes the memory of an attached client, whose session stands between two requests.
// The descriptors stay this daemon's.
func (m *sessionMemory) encode(w *handover.Writer, f *outFiles) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w.Begin(tagMemory)
	w.U32(f.add(m.segment.FD))
	w.U32(f.add(m.table.FD))
	for _, windows := range [][]*shm.Mapping{m.send, m.recv} {
		w.Count(len(windows))
		for _, file := range windows {
			w.U32(f.add(file.FD))
		}
	}
	for _, fd := range []int{m.client.Send, m.daemon.Recv, m.daemon.Send} {
		w.U32(f.add(fd))
	}
	var kept []*sessionBuffer
	for _, number := range slices.Sorted(maps.Keys(m.buffers)) {
		if b := m.buffers[number]; !b.ended.Load() {
			kept = append(kept, b)
		}
	}
	w.Count(len(kept))
	for _, b := range kept {
		off := b.off
		if mutant.On(mutant.HandoverOffset) {
			off = 0
		}
		w.U32(b.number)
		w.Bool(b.imported)
		w.Range(handover.Range{File: f.add(b.file.FD), Off: off, Len: b.size})
	}
	w.End()
}

// adopt maps what encode of another daemon wrote for a client with parameters p. No page is
// allocated. After an error of r the session has no memory, and neither the process nor the
// other daemon notices anything.
func (m *sessionMemory) adopt(r *handover.Reader, f *inFiles, p shm.Params) {
	if err := p.Check(); err != nil {
		r.Fail("%v", err)
		return
	}
	m.hold(p)
	r.Begin(tagMemory)
	m.segment = m.adoptFile(r, f, failpoint.Segment, shm.SegmentSize(p))
	m.table = m.adoptFile(r, f, failpoint.Table, shm.TableSize(p.Slots, p.Cells))
	m.send = m.adoptWindows(r, f, failpoint.SendWindow)
	m.recv = m.adoptWindows(r, f, failpoint.RecvWindow)
	if r.Err() == nil && (len(m.send) < int(p.SendWindows) || len(m.recv) != int(p.RecvWindows)) {
		r.Fail("%d and %d windows of a client with %d and %d", len(m.send), len(m.recv), p.SendWindows, p.RecvWindows)
	}
	m.client = adoptDoorbell(r, f, false)
	m.daemon = adoptDoorbell(r, f, true)
	for range r.Count(engine.MaxBuffers, 4+1+4+8+8) {
		m.adoptBuffer(r, f)
	}
	r.End()
	if r.Err() != nil {
		m.leave()
	}
}

// adopted makes r fail if there is a buffer that the engine has not asked for. It follows
// Engine.Adopt.
func (m *sessionMemory) adopted(r *handover.Reader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.buffers {
		if !b.taken {
			r.Fail("buffer %d is not one of the engine", b.number)
		}
	}
}

// adoptWindows maps the windows of one arena.
func (m *sessionMemory) adoptWindows(r *handover.Reader, f *inFiles, name string) (windows []*shm.Mapping) {
	for range r.Count(shm.MaxWindows, 4) {
		if w := m.adoptFile(r, f, name, shm.WindowSize); w != nil {
			windows = append(windows, w)
		}
	}
	return windows
}

// adoptFile maps a memory file that the other daemon made under that name. It returns nil after
// an error of r.
func (m *sessionMemory) adoptFile(r *handover.Reader, f *inFiles, name string, size int) *shm.Mapping {
	file := m.adoptMapping(r, f.take(r, r.U32()), uint64(size), 0, func(fd int) (*shm.Mapping, error) { return adoptMemfd(name, fd, size) })
	if file != nil {
		m.looked.add(file, nil)
	}
	return file
}

// adoptMapping counts a mapping for the process's user and has open map it. It returns nil,
// and has closed fd, after an error of r.
func (m *sessionMemory) adoptMapping(r *handover.Reader, fd int, shared, buffer uint64, open func(fd int) (*shm.Mapping, error)) *shm.Mapping {
	if r.Err() != nil {
		return nil
	}
	err := m.engine.Memory().Keep(&m.conn.user, shared, buffer)
	if err == nil {
		var file *shm.Mapping
		if file, err = open(fd); err == nil {
			return file
		}
		m.giveBack(shared, buffer)
	}
	_ = unix.Close(fd)
	failAbout(r, err)
	return nil
}

// failAbout makes r fail with err, which is about a file of a session. What the file is, is the
// session's. Else this daemon lacks something.
func failAbout(r *handover.Reader, err error) {
	if !errors.Is(err, shm.ErrMapping) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		r.Shared()
	}
	r.Fail("%v", err)
}

// adoptBuffer maps a buffer.
func (m *sessionMemory) adoptBuffer(r *handover.Reader, f *inFiles) {
	number, imported, place := r.U32(), r.Bool(), r.Range(len(f.all))
	if r.Err() == nil && (m.buffers[number] != nil || place.Len == 0) {
		r.Fail("buffer %d of %d bytes is there twice, or is nothing", number, place.Len)
	}
	fd := f.take(r, place.File)
	if r.Err() != nil {
		return
	}
	b := &sessionBuffer{size: place.Len, imported: imported, off: place.Off}
	if imported {
		b.file = m.adoptImport(r, fd, place)
	} else {
		b.file = m.adoptMapping(r, fd, 0, b.size, func(fd int) (*shm.Mapping, error) { return adoptMemfd(failpoint.Buffer, fd, int(b.size)) })
	}
	if b.file != nil {
		m.keepBuffer(number, m.looked.buffer(b))
	}
}

// adoptImport maps memory of the process's own. It returns nil, and has closed fd, after an
// error of r. The process may have sealed the memory at any moment until now. That must not
// keep the daemon from taking over, so such memory is adopted too, and the session ends.
func (m *sessionMemory) adoptImport(r *handover.Reader, fd int, place handover.Range) *shm.Mapping {
	i, err := shm.CheckAdopted(fd, place.Off, place.Len)
	if err == nil {
		err = m.mayHaveHuge(i)
	}
	if err != nil {
		_ = unix.Close(fd)
		failAbout(r, err)
		return nil
	}
	return m.adoptMapping(r, fd, 0, i.Mapped(), func(fd int) (*shm.Mapping, error) {
		file, sealed, err := adoptImport(i)
		if err != nil {
			return nil, err
		}
		if file.FD = fd; sealed != nil {
			m.sealed = sealed
		}
		return file, nil
	})
}

// adoptDoorbell takes over a doorbell. If it is the daemon's, the daemon sleeps at it. It
// returns nil after an error of r.
func adoptDoorbell(r *handover.Reader, f *inFiles, daemons bool) *shm.Doorbell {
	recv := -1
	if daemons {
		recv = f.take(r, r.U32())
	}
	send := f.take(r, r.U32())
	if r.Err() == nil {
		bell, err := takeDoorbell(recv, send)
		if err == nil {
			return bell
		}
		failAbout(r, err)
	}
	for _, fd := range []int{recv, send} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
