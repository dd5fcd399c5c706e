package main

import (
	"context"

	"github.com/rdsd/rdsd/internal/ipc"
)

// session is a caller over the control socket.
type session struct{ c *ipc.Client }

// dial opens the control service of the daemon at path. If path is empty, it opens that of
// the first daemon that answers at the usual paths. Its error is ipc.ErrNoDaemon.
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

// Call implements caller. After ctx has ended, the session cannot be used any more.
func (s *session) Call(ctx context.Context, req []byte) (answer []byte, err error) {
	err = s.until(ctx, func() error {
		answer, err = s.c.CallJSON(req)
		return err
	})
	return answer, err
}

// Close implements caller.
func (s *session) Close() error { return s.c.Close() }

// until runs f. When ctx ends, it ends the session, which ends f.
func (s *session) until(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, func() { s.c.Close() })
	err := f()
	if !stop() { // the session has ended, whatever f says
		return ctx.Err()
	}
	return err
}
