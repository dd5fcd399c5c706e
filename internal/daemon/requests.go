package daemon

import (
	"fmt"
	"io"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// serveClient attaches the process and answers its requests until it leaves.
func (s *session) serveClient(id uint32, hello *ipc.Hello) error {
	p, err := engine.GrantParams(hello.Params)
	if err != nil {
		_ = s.fail(id, err)
		return err
	}
	if err := s.attach(id, hello, p); err != nil {
		_ = s.fail(id, err)
		return err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if s.HungUp() {
			return io.EOF // the process no longer waits for an answer
		}
		if err := s.handle(m); err != nil {
			return err
		}
	}
}

// handle answers one request. An error ends the session.
func (s *session) handle(m *ipc.Message) error {
	switch r := m.Body.(type) {
	case *ipc.Alloc:
		return s.alloc(m.ID, r)
	case *ipc.Import:
		return s.importMemory(m, r)
	case *ipc.GrowSend:
		return s.growSend(m.ID)
	case *ipc.Release:
		return s.later(m.ID, r)
	case *ipc.Free:
		return s.later(m.ID, r)
	case ipc.Request:
		var resp ipc.Response
		err := engine.InPlace(s.ask, func(p *engine.RingPlace) (err error) {
			resp, err = s.d.engine.Serve(s.cl, r, p)
			return err
		})
		return s.answer(m.ID, resp, err)
	}
	return fmt.Errorf("unexpected message %T", m.Body)
}

// alloc makes a buffer for RDMA: a memory file that process and daemon map.
func (s *session) alloc(id uint32, r *ipc.Alloc) error {
	size, err := engine.BufferSize(r.Size)
	if err != nil {
		return s.fail(id, err)
	}
	file, err := s.memory.buffer(failpoint.Buffer, int(size))
	if err != nil {
		return s.fail(id, err)
	}
	var buffer uint32
	err = s.ask(func() (err error) {
		buffer, err = s.d.engine.AddBuffer(s.cl, file.Mem, func() { go s.memory.unmapBuffer(file) })
		return err
	})
	if err != nil {
		s.memory.unmapBuffer(file)
		return s.fail(id, err)
	}
	return s.memory.handOver(id, &ipc.AllocOK{Buffer: buffer, Size: size}, file)
}

// importMemory makes a buffer of memory that the process has sent the descriptor of.
func (s *session) importMemory(m *ipc.Message, r *ipc.Import) error {
	defer m.CloseFDs()
	err := m.Refused
	if err == nil && len(m.FDs) == 0 {
		err = fmt.Errorf("%w: Import without a descriptor", unix.EINVAL)
	}
	if err != nil {
		return s.fail(m.ID, err)
	}
	file, err := s.memory.imported(m.FDs[0], r.Off, r.Len)
	if err != nil {
		return s.fail(m.ID, err)
	}
	var buffer uint32
	err = s.ask(func() (err error) {
		buffer, err = s.d.engine.AddBuffer(s.cl, file.Mem[:r.Len:r.Len], func() { go s.memory.unmapBuffer(file) })
		return err
	})
	if err != nil {
		s.memory.unmapBuffer(file)
		return s.fail(m.ID, err)
	}
	return s.Send(m.ID, &ipc.ImportOK{Buffer: buffer})
}

// later answers r, which ends something, when nothing can touch that any more. Other
// requests are answered in between.
func (s *session) later(id uint32, r ipc.Request) error {
	err := engine.InPlace(s.ask, func(p *engine.RingPlace) error {
		return s.d.engine.ServeLater(s.cl, r, p, func(err error) { go func() { _ = s.answer(id, &ipc.OK{}, err) }() })
	})
	if err != nil {
		return s.fail(id, err)
	}
	return nil
}

// growSend adds a window to the client's send arena.
func (s *session) growSend(id uint32) error {
	window, err := s.memory.memfd(failpoint.SendWindow, shm.WindowSize, false)
	if err != nil {
		return s.fail(id, err)
	}
	windows := uint32(0)
	err = s.ask(func() error {
		n, err := s.d.engine.Grow(s.cl, window.Mem)
		if err != nil {
			return err
		}
		s.memory.keep(window) // the client lives, so nothing frees the memory before this has returned
		windows = uint32(n)
		return nil
	})
	if err != nil {
		s.memory.unmap(window)
		return s.fail(id, err)
	}
	return s.memory.handOver(id, &ipc.GrowSendOK{Windows: windows}, window)
}
