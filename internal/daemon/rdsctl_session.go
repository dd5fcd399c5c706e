package daemon

import (
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
)

const ctlTimeout = time.Minute // how long rdsctl may be silent between two requests

// serveCtl answers rdsctl until it leaves, or until another daemon begins to take over by it.
func (s *session) serveCtl() error {
	defer s.feeds.end()
	who := ctl.Caller{UID: s.user.UID, Account: s.user.Account.Label, Admin: s.user.Trusted}
	for {
		s.d.admission.limit(s.connection, time.Now().Add(ctlTimeout))
		m, err := s.d.admission.next(s.connection)
		if err != nil {
			return err
		}
		if r, is := m.Body.(*ipc.TakeOver); is {
			return s.takeOver(m.ID, r)
		}
		r, ok := m.Body.(*ipc.Ctl)
		if !ok {
			return fmt.Errorf("unexpected request %T", m.Body)
		}
		ctx, done := s.d.admission.interruptible(s.connection)
		answer := ctl.Serve(ctx, r.JSON, who, backend{s.d, &s.feeds})
		done()
		if err := s.SendJSON(m.ID, answer); err != nil {
			return err
		}
	}
}
