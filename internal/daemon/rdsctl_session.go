package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
)

const ctlTimeout = time.Minute // how long rdsctl may be silent between two requests

// serveCtl answers rdsctl.
func (s *session) serveCtl(id uint32) error {
	if err := s.Send(id, &ipc.HelloOK{Version: ipc.Version, Instance: s.d.info.Instance}); err != nil {
		return err
	}
	f := &feeds{user: &s.user}
	defer f.end()
	who := ctl.Caller{UID: s.user.UID, Admin: s.user.Trusted}
	for {
		_ = s.SetReadDeadline(time.Now().Add(ctlTimeout))
		m, err := s.Recv()
		if err != nil {
			return err
		}
		r, ok := m.Body.(*ipc.Ctl)
		if !ok {
			return fmt.Errorf("unexpected request %T", m.Body)
		}
		if err := s.SendJSON(m.ID, ctl.Serve(context.Background(), r.JSON, who, backend{s.d, f})); err != nil {
			return err
		}
	}
}
