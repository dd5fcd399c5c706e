package daemon

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// attach makes what the process and the daemon share, has the engine take the client in,
// and answers Hello with the descriptors.
func (s *session) attach(id uint32, hello *ipc.Hello, p shm.Params) error {
	at := engine.Attachment{Name: printable(hello.Name), PID: s.id.PID, User: s.user, Params: p}
	windows, fds, err := s.memory.forClient(&at)
	if err != nil {
		return err
	}
	bell, rung := s.memory.client.Send, s.memory.daemon.Recv
	at.Bell = func() { shm.Ring(bell) }
	at.OnKill = func(why error) {
		s.why.Store(&why)
		go func() {
			s.warn("client broke the rules", why, "name", at.Name)
			s.goodbye(why)
		}()
	}
	at.OnFree = func() { go s.memory.free() }
	at.OnEnd = func() { s.d.loop.unwatchBell(rung) } // while the descriptor is still ours
	at.Shared = s.memory.shared
	c := engine.NewClient(&at)
	err = s.ask(func() error {
		if err := s.d.loop.watchBell(rung, c); err != nil {
			return err
		}
		if err := s.d.engine.Attach(c, windows...); err != nil {
			s.d.loop.unwatchBell(rung)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.cl = c
	return s.memory.handOverAll(id, s.helloOK(hello, p), fds)
}

// helloOK tells the client what it has and may have.
func (s *session) helloOK(hello *ipc.Hello, p shm.Params) *ipc.HelloOK {
	c := s.d.config()
	features := hello.Features & ipc.Features
	if features&ipc.FeatureImport != 0 && (!ipc.CanImport() || s.TakeImports() != nil) {
		features &^= ipc.FeatureImport
	}
	return &ipc.HelloOK{Version: ipc.Version, Features: features, Instance: s.d.info.Instance, Params: p,
		MaxSockets: uint32(min(uint64(c.Limits.MaxSockets), s.user.Quota[config.Sockets])), MaxBuffers: engine.MaxBuffers,
		MaxMessage: abi.MaxMessage, MaxBytes: min(c.Limits.MaxRegisteredBytes, s.user.Quota[config.RegisteredBytes]),
		SpinNs: uint64(c.Spin)}
}

// forClient makes the segment, the table, the doorbells and the arenas of a client, and
// sets them in at. It returns the windows of the send arena, and the descriptors in the
// order in which the client expects them. What it made before an error is kept for free.
func (m *sessionMemory) forClient(at *engine.Attachment) (windows [][]byte, fds []int, err error) {
	p := at.Params
	seg, err := m.memfdKept(failpoint.Segment, shm.SegmentSize(p), false)
	if err != nil {
		return nil, nil, err
	}
	table, err := m.memfdKept(failpoint.Table, shm.TableSize(p.Slots, p.Cells), true)
	if err != nil {
		return nil, nil, err
	}
	if m.daemon, err = newDoorbell(failpoint.DaemonDoorbell); err != nil {
		return nil, nil, err
	}
	if m.client, err = newDoorbell(failpoint.ClientDoorbell); err != nil {
		return nil, nil, err
	}
	if at.Seg, err = shm.NewSegment(seg.Mem, p); err != nil {
		return nil, nil, err
	}
	at.Table = shm.NewTable(table.Mem, p.Slots, p.Cells)
	at.Recv = shm.NewArena()
	fds = []int{seg.FD, table.FD, m.daemon.Send, m.client.Recv}
	for range p.SendWindows {
		w, err := m.memfdKept(failpoint.SendWindow, shm.WindowSize, false)
		if err != nil {
			return nil, nil, err
		}
		windows = append(windows, w.Mem)
		fds = append(fds, w.FD)
	}
	for range p.RecvWindows {
		w, err := m.memfdKept(failpoint.RecvWindow, shm.WindowSize, true)
		if err != nil {
			return nil, nil, err
		}
		at.Recv.AddWindow(w.Mem)
		fds = append(fds, w.FD)
	}
	return windows, fds, nil
}

// printable makes a name that a process gave itself fit for logs and
// terminals.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, name)
}
