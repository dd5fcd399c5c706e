package daemon

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/internal/ctl"
)

// Drain begins or ends a drain, or reports how far it is.
func (b backend) Drain(addr netip.Addr, do string) (ctl.Drain, error) {
	d, err := b.inspect().Drain(addr, do)
	if err == nil {
		err = b.d.loop.askFor(askTimeout, b.d.noteDrains)
	}
	return d, err
}

// noteDrains keeps what is drained for the status. Only the engine's thread calls it, or
// whoever has the engine while it stands still.
func (d *Daemon) noteDrains() {
	var s string
	switch all, addrs := d.engine.Drains(); {
	case all:
		s = "drained: senders wait and no socket is bound until rdsctl daemon resume"
	case len(addrs) > 0:
		s = fmt.Sprintf("%d peer(s) drained, %v first: senders to them wait until rdsctl peer resume", len(addrs), addrs[0])
	}
	d.drainNotice.Store(&s)
}
