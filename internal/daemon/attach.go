package daemon

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// attach makes what the process and the daemon share, has the engine take the client in,
// and answers Hello with the descriptors.
func (s *session) attach(id uint32, hello *ipc.Hello) (err error) {
	s.name = printable(hello.Name)
	if s.params, err = engine.GrantParams(hello.Params); err != nil {
		return err
	}
	if err := s.memory.makeFor(s.params); err != nil {
		return fmt.Errorf("in the daemon: %w", err) // the process reads it, and has limits of its own
	}
	c, windows, err := s.client()
	if err != nil {
		return err
	}
	err = s.ask(func() error {
		if err := s.watch(c); err != nil {
			return err
		}
		if err := s.d.engine.Attach(c, windows...); err != nil {
			s.d.loop.unwatchBell(s.memory.daemon.Recv)
			return err
		}
		s.cl = c
		return nil
	})
	if err != nil {
		return err
	}
	return s.memory.handOverAll(id, s.helloOK(hello))
}

// client makes the engine's record of the process, whose memory is there. It returns the
// windows of the send arena beside it.
func (s *session) client() (c *engine.Client, windows [][]byte, err error) {
	at := engine.Attachment{Name: s.name, PID: s.id.PID, User: s.user, Params: s.params}
	if windows, err = s.memory.attachment(&at); err != nil {
		return nil, nil, err
	}
	bell, rung := s.memory.client.Send, s.memory.daemon.Recv
	at.Bell = func() { shm.Ring(bell) }
	at.OnKill = func(why error) {
		s.why.Store(&why)
		go func() {
			msg := "client broke the rules"
			if errors.Is(why, errNotTaken) {
				msg = "client ended: a planned restart goes on without it"
			}
			s.warn(msg, why, "name", s.name)
			s.goodbye(why)
		}()
	}
	at.OnFree = func() { go s.free() }
	at.OnEnd = func() { s.d.loop.unwatchBell(rung) } // while the descriptor is still ours
	return engine.NewClient(&at), windows, nil
}

// free gives back the memory of a client that the engine has let go of. Emptied rings tell its
// process nothing, so a reason for the end is sent before.
func (s *session) free() {
	if why := s.why.Load(); why != nil {
		s.goodbye(*why)
	}
	s.memory.free()
}

// watch has the engine wake up when the process rings for c. Only the engine's thread calls it, or who has
// the engine before that thread runs.
func (s *session) watch(c *engine.Client) error {
	return s.d.loop.watchBell(s.memory.daemon.Recv, c)
}

// helloOK tells the client what it has and may have.
func (s *session) helloOK(hello *ipc.Hello) *ipc.HelloOK {
	c := s.d.config()
	features := hello.Features & ipc.Features
	if features&ipc.FeatureImport != 0 && (!ipc.CanImport() || s.TakeImports() != nil) {
		features &^= ipc.FeatureImport
	}
	return &ipc.HelloOK{Version: ipc.Version, Features: features, Instance: s.d.info.Instance, Params: s.params,
		MaxSockets: uint32(min(uint64(c.Limits.MaxSockets), s.user.Quota[config.Sockets])), MaxBuffers: engine.MaxBuffers,
		MaxMessage: abi.MaxMessage, MaxBytes: min(c.Limits.MaxRegisteredBytes, s.user.Quota[config.RegisteredBytes]),
		SpinNs: uint64(c.Spin)}
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
