package e2e

import (
	"errors"
	"syscall"

	"github.com/rdsd/rdsd/internal/ctl"
)

// upgrades is upgrade n times.
func (h *host) upgrades(n int) {
	h.t.Helper()
	for range n {
		h.upgrade()
	}
}

// beginUpgrade asks the daemon for a successor by a signal, and does not wait.
func (h *host) beginUpgrade() {
	h.t.Helper()
	h.Signal(syscall.SIGUSR2)
}

// follow waits for the successor that beginUpgrade asked for.
func (h *host) follow() *ctl.Upgrade {
	h.t.Helper()
	before := h.pid()
	var u *ctl.Upgrade
	eventually(h.t, "the successor", func() error {
		r, err := h.ask(ctl.Request{Kind: ctl.KindUpgrade, Do: ctl.DoLook})
		if err != nil {
			return err
		}
		if u = r.Upgrade; u.PID == before || u.Running {
			return errors.New("the old daemon serves")
		}
		return nil
	})
	return h.replaced(u)
}

// status is what the daemon says of itself.
func (h *host) status() *ctl.Status {
	h.t.Helper()
	r, err := h.ask(ctl.Request{Kind: ctl.KindStatus})
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Status
}
