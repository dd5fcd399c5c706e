package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// serveClient answers the requests of a client until it leaves.
func (s *session) serveClient() error {
	for {
		m, err := s.d.admission.next(s.connection)
		if err != nil {
			return err
		}
		if s.HungUp() {
			m.CloseFDs()
			return io.EOF // the process no longer waits for an answer
		}
		if err := s.carryOut(m, s.handle); err != nil {
			return err
		}
	}
}

// carryOut has f carry out a request, which a recess may break off. Then the session does it
// again after the recess. An error ends the session.
func (s *session) carryOut(m *ipc.Message, f func(*ipc.Message) error) error {
	_, done := s.d.admission.interruptible(s.connection)
	defer done()
	err := f(m)
	if errors.Is(err, errReplaced) {
		s.again = m
		return nil
	}
	m.CloseFDs()
	return err
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
		return s.serve(m.ID, r)
	}
	return fmt.Errorf("unexpected message %T", m.Body)
}

// serve answers r. The engine's thread sends the answer if there is room for it, so that the process does not wait until
// this goroutine runs again.
func (s *session) serve(id uint32, r ipc.Request) error {
	var resp ipc.Response
	sent := false
	err := s.inPlace(func(p *engine.RingPlace) (err error) {
		if resp, err = s.d.engine.Serve(s.cl, r, p); err == nil {
			sent = s.TrySend(id, resp)
		}
		return err
	})
	if sent {
		return nil
	}
	return s.answer(id, resp, err)
}

// inPlace runs f on the engine's thread, behind what the client has submitted. A recess
// breaks it off only before the engine has begun with it.
func (s *session) inPlace(f func(*engine.RingPlace) error) error {
	ctx := s.now
	return engine.InPlace(func(g func() error) error {
		err := s.askIn(ctx, g)
		ctx = context.Background()
		return err
	}, f)
}

// alloc makes a buffer for RDMA: a memory file that process and daemon map.
func (s *session) alloc(id uint32, r *ipc.Alloc) error {
	size, err := engine.BufferSize(r.Size)
	if err != nil {
		return s.fail(id, err)
	}
	b, err := s.memory.alloc(size)
	if err != nil {
		return s.fail(id, err)
	}
	number, err := s.addBuffer(b)
	if err != nil {
		return s.fail(id, err)
	}
	err = s.memory.handOver(id, &ipc.AllocOK{Buffer: number, Size: size}, b.file)
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, errReplaced) {
		_ = s.askIn(context.Background(), func() error { s.d.engine.DropBuffer(s.cl, number); return nil })
		return s.fail(id, err)
	}
	return err
}

// addBuffer gives the engine b, and returns its number. After an error b is unmapped.
func (s *session) addBuffer(b *sessionBuffer) (number uint32, err error) {
	err = s.ask(func() (err error) {
		number, err = s.d.engine.AddBuffer(s.cl, b.mem(), s.memory.onFree(b))
		return err
	})
	if err != nil {
		s.memory.unmapBuffer(b)
		return 0, err
	}
	s.memory.keepBuffer(number, b)
	return number, nil
}

// importMemory makes a buffer of memory that the process has sent the descriptor of.
func (s *session) importMemory(m *ipc.Message, r *ipc.Import) error {
	err := m.Refused
	if err == nil && len(m.FDs) == 0 {
		err = fmt.Errorf("%w: Import without a descriptor", unix.EINVAL)
	}
	if err != nil {
		return s.fail(m.ID, err)
	}
	fd, err := unix.FcntlInt(uintptr(m.FDs[0]), unix.F_DUPFD_CLOEXEC, 0) // the buffer's; the request keeps its own
	if err != nil {
		return s.fail(m.ID, fmt.Errorf("%w: raise ulimit -n (LimitNOFILE=)", err))
	}
	b, err := s.memory.imported(fd, r.Off, r.Len)
	if err != nil {
		_ = unix.Close(fd)
		return s.fail(m.ID, err)
	}
	number, err := s.addBuffer(b)
	if err != nil {
		return s.fail(m.ID, err)
	}
	return s.Send(m.ID, &ipc.ImportOK{Buffer: number})
}

// later answers r, which ends something, when nothing can touch that any more. Other
// requests are answered in between.
func (s *session) later(id uint32, r ipc.Request) error {
	what := engine.AwaitedBy(r)
	err := s.inPlace(func(p *engine.RingPlace) error {
		if _, waits := s.waits[what]; waits {
			return s.d.engine.ServeLater(s.cl, r, p, func(error) {}) // refuses it
		}
		s.waits[what] = id
		err := s.d.engine.ServeLater(s.cl, r, p, s.answerLater(what))
		if err != nil {
			delete(s.waits, what)
		}
		return err
	})
	if err != nil {
		return s.fail(id, err)
	}
	return nil
}

// answerLater returns what answers the request that waits for what. It runs on the engine's
// thread and does not block.
func (s *session) answerLater(what engine.Awaited) func(error) {
	return func(err error) {
		id := s.waits[what]
		delete(s.waits, what)
		if err == nil && s.TrySend(id, &ipc.OK{}) {
			return
		}
		s.sendLater(lateAnswer{id, err})
	}
}

// grown is a window that a client's send arena has got.
type grown struct {
	window  *shm.Mapping
	windows uint32 // of the arena, this one included
}

// growSend adds a window to the client's send arena. If the window cannot be sent to the
// process, the process gets this one with its next request.
func (s *session) growSend(id uint32) error {
	if s.untold == nil {
		var err error
		if s.untold, err = s.addWindow(); err != nil {
			return s.fail(id, err)
		}
	}
	err := s.memory.handOver(id, &ipc.GrowSendOK{Windows: s.untold.windows}, s.untold.window)
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, errReplaced) {
		return s.fail(id, err)
	}
	s.untold = nil
	return err
}

func (s *session) addWindow() (*grown, error) {
	window, err := s.memory.memfd(failpoint.SendWindow, shm.WindowSize, false)
	if err != nil {
		return nil, err
	}
	g := &grown{window: window}
	err = s.ask(func() error {
		n, err := s.d.engine.Grow(s.cl, window.Mem)
		if err != nil {
			return err
		}
		s.memory.send = append(s.memory.send, window) // the client lives, so nothing frees the memory before this has returned
		g.windows = uint32(n)
		return nil
	})
	if err != nil {
		s.memory.unmap(window)
		return nil, err
	}
	return g, nil
}
