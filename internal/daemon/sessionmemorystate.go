package daemon

import (
	"errors"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
)

// tagMemory is the memory of one client.
const tagMemory = handover.TagDaemon + 1

// pass has the memory of an attached client with parameters p go over. A session that hands over
// stands between two requests, and its descriptors stay its daemon's. The one that takes over maps
// them. No page is allocated. After an error of s it has no memory, and neither the process nor the
// other daemon notices anything.
func (m *sessionMemory) pass(s *handover.State, f *handover.Files, p shm.Params) {
	var kept []*sessionBuffer
	segment, table, bells := -1, -1, [3]int{-1, -1, -1}
	if !s.Reads() {
		m.mu.Lock()
		defer m.mu.Unlock()
		segment, table, bells = m.segment.FD, m.table.FD, [3]int{m.client.Send, m.daemon.Recv, m.daemon.Send}
		for _, number := range lists.Sorted(maps.Keys(m.buffers)) {
			if b := m.buffers[number]; !b.ended.Load() {
				kept = append(kept, b)
			}
		}
	} else if err := p.Check(); err != nil {
		s.Fail("%v", err)
		return
	} else {
		m.hold(p)
	}
	s.Begin(tagMemory)
	if f.FD(s, &segment); s.Reads() {
		m.segment = m.adoptFile(s, segment, failpoint.Segment, shm.SegmentSize(p))
	}
	if f.FD(s, &table); s.Reads() {
		m.table = m.adoptFile(s, table, failpoint.Table, shm.TableSize(p.Slots, p.Cells))
	}
	m.handOverWindows(s, f, &m.send, failpoint.SendWindow)
	m.handOverWindows(s, f, &m.recv, failpoint.RecvWindow)
	if s.Err() == nil && (len(m.send) < int(p.SendWindows) || len(m.recv) != int(p.RecvWindows)) {
		s.Fail("%d and %d windows of a client with %d and %d", len(m.send), len(m.recv), p.SendWindows, p.RecvWindows)
	}
	for i := range bells {
		f.FD(s, &bells[i])
	}
	if s.Reads() {
		m.client = adoptDoorbell(s, -1, bells[0])
		m.daemon = adoptDoorbell(s, bells[1], bells[2])
	}
	for i := range s.Count(len(kept), engine.MaxBuffers, 4+1+4+8+8) {
		m.handOverBuffer(s, f, handover.Nth(s, kept, i))
	}
	if s.End(); s.Reads() && s.Err() != nil {
		m.leave()
	}
}

// handOverWindows has the windows of one arena go over.
func (m *sessionMemory) handOverWindows(s *handover.State, f *handover.Files, all *[]*shm.Mapping, name string) {
	for i := range s.Count(len(*all), shm.MaxWindows, 4) {
		fd := -1
		if !s.Reads() {
			fd = (*all)[i].FD
		}
		if f.FD(s, &fd); !s.Reads() {
			continue
		}
		if w := m.adoptFile(s, fd, name, shm.WindowSize); w != nil {
			*all = append(*all, w)
		}
	}
}

// handOverBuffer has a buffer go over: b, if it is written.
func (m *sessionMemory) handOverBuffer(s *handover.State, f *handover.Files, b *sessionBuffer) {
	number, imported, place := uint32(0), false, handover.Range{}
	if !s.Reads() {
		number, imported, place = b.number, b.imported, handover.Range{File: f.Add(b.file.FD), Off: b.off, Len: b.size}
	}
	s.U32(&number)
	s.Bool(&imported)
	if s.Range(&place, len(f.All)); !s.Reads() {
		return
	}
	if s.Err() == nil && (m.buffers[number] != nil || place.Len == 0) {
		s.Fail("buffer %d of %d bytes is there twice, or is nothing", number, place.Len)
	}
	fd := f.Take(s, place.File)
	if s.Err() != nil {
		return
	}
	b = &sessionBuffer{size: place.Len, imported: imported, off: place.Off}
	if imported {
		b.file = m.adoptImport(s, fd, place)
	} else {
		b.file = m.adoptMapping(s, fd, 0, b.size, func(fd int) (*shm.Mapping, error) { return adoptMemfd(failpoint.Buffer, fd, int(b.size)) })
	}
	if b.file != nil {
		m.keepBuffer(number, m.looked.buffer(b))
	}
}

// adopted makes s fail if there is a buffer that the engine has not asked for. It follows
// Engine.Adopt.
func (m *sessionMemory) adopted(s *handover.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.buffers {
		if !b.taken {
			s.Fail("buffer %d is not one of the engine", b.number)
		}
	}
}

// adoptFile maps a memory file that the other daemon made under that name. It returns nil, and has
// closed fd, after an error of s.
func (m *sessionMemory) adoptFile(s *handover.State, fd int, name string, size int) *shm.Mapping {
	file := m.adoptMapping(s, fd, uint64(size), 0, func(fd int) (*shm.Mapping, error) { return adoptMemfd(name, fd, size) })
	if file != nil {
		m.looked.add(file, nil)
	}
	return file
}

// adoptMapping counts a mapping for the process's user and has open map it. It returns nil,
// and has closed fd, after an error of s.
func (m *sessionMemory) adoptMapping(s *handover.State, fd int, shared, buffer uint64, open func(fd int) (*shm.Mapping, error)) *shm.Mapping {
	if s.Err() != nil {
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
	failAbout(s, err)
	return nil
}

// failAbout makes s fail with err, which is about a file of a session. What the file is, is the
// session's. Else this daemon lacks something.
func failAbout(s *handover.State, err error) {
	if !errors.Is(err, shm.ErrMapping) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		s.Shared()
	}
	s.Fail("%v", err)
}

// adoptImport maps memory of the process's own. It returns nil, and has closed fd, after an
// error of s. The process may have sealed the memory at any moment until now. That must not
// keep the daemon from taking over, so such memory is adopted too, and the session ends.
func (m *sessionMemory) adoptImport(s *handover.State, fd int, place handover.Range) *shm.Mapping {
	i, err := shm.CheckAdopted(fd, place.Off, place.Len)
	if err == nil {
		err = m.mayHaveHuge(i)
	}
	if err != nil {
		_ = unix.Close(fd)
		failAbout(s, err)
		return nil
	}
	return m.adoptMapping(s, fd, 0, i.Mapped(), func(fd int) (*shm.Mapping, error) {
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

// adoptDoorbell takes over a doorbell. If it is the daemon's, the daemon sleeps at recv. It
// returns nil, and has closed both, after an error of s.
func adoptDoorbell(s *handover.State, recv, send int) *shm.Doorbell {
	if s.Err() == nil {
		bell, err := takeDoorbell(recv, send)
		if err == nil {
			return bell
		}
		failAbout(s, err)
	}
	for _, fd := range []int{recv, send} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
