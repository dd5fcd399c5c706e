package main

import (
	"context"

	"github.com/rdsd/rdsd/internal/ipc"
)

// session is a caller over the control socket.
type session struct{ c *ipc.Client }

// dial opens the control service of the daemon at path, or of the first one
// that answers at the usual places if path is empty. Errors: ipc.ErrNoDaemon.
func dial(ctx context.Context, path string) (caller, error) {
	c, err := ipc.ResolveDial(ctx, path)
	if err != nil {
		return nil, err
	}
	s := &session{c}
	err = s.until(ctx, func() error {
		_, _, err := c.Call(&ipc.Hello{Version: ipc.Version, Role: ipc.RoleCtl, Name: "rdsctl"}, nil)
		return err
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

// Call implements caller. After ctx ended the session is of no use.
func (s *session) Call(ctx context.Context, req []byte) (answer []byte, err error) {
	err = s.until(ctx, func() error {
		answer, err = s.c.CallJSON(req)
		return err
	})
	return answer, err
}

// Close implements caller.
func (s *session) Close() error { return s.c.Close() }

// until runs f and ends it, with the session, when ctx ends.
func (s *session) until(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, func() { s.c.Close() })
	defer stop()
	err := f()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
