package ledger

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/test/ledger/book"
)

// errEnded says that an upgrade failed because the daemon was ended in the middle of it.
var errEnded = errors.New("the daemon was ended in the middle of an upgrade")

// upgrade has another process take over from the daemon. While one upgrade of h is in progress,
// another one does nothing.
func (h *host) upgrade() error {
	if !h.upgrading.TryLock() {
		return nil
	}
	defer h.upgrading.Unlock()
	h.mu.RLock()
	d, endings := h.daemon, h.endings
	h.mu.RUnlock()
	at := netip.AddrPortFrom(h.addr, 0)
	h.book.Write(book.Record{Kind: book.Upgrade, Peer: at})
	u, err := h.replace()
	done := book.Record{Kind: book.Upgraded, Peer: at}
	if err != nil {
		done.Text = err.Error()
	}
	h.book.Write(done)
	if err == nil {
		d.follow(u.PID)
		return nil
	}
	h.mu.RLock() // a restart in progress has been counted
	defer h.mu.RUnlock()
	if h.endings != endings {
		err = fmt.Errorf("%w: %w", errEnded, err)
	}
	return err
}

// replace runs rdsctl daemon upgrade.
func (h *host) replace() (*ctl.Upgrade, error) {
	r, err := h.ask(ctl.KindUpgrade, "daemon", "upgrade", "-wait", patience.String())
	if err != nil {
		return nil, err
	}
	return r.Upgrade, nil
}

// upgrades is what the daemon says of the upgrades that have led to it.
func (h *host) upgrades() (*ctl.Upgrade, error) {
	r, err := h.ask(ctl.KindStatus, "status")
	if err != nil {
		return nil, err
	}
	return &r.Status.Upgrade, nil
}

// ask runs rdsctl with the daemon, and returns its answer.
func (h *host) ask(kind ctl.Kind, args ...string) (*ctl.Response, error) {
	out, err := h.ctl(append(args, "-o", "json-v2")...)
	if err != nil {
		return nil, err
	}
	return ctl.Parse([]byte(out), kind)
}

// upgrade replaces the daemon of h beside other faults. If one of these ends the daemon in the
// middle, the upgrade may fail.
func (f *faults) upgrade(h *host) {
	err := h.upgrade()
	if !errors.Is(err, errEnded) {
		f.failed(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut++
}

// upgradeAll replaces all daemons each time that every has passed: at the same time and one after
// the other, in turn. It returns when the time is end.
func (f *faults) upgradeAll(every time.Duration, end time.Time) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; time.Now().Before(end); n++ {
		var all sync.WaitGroup
		for _, h := range f.c.hosts {
			all.Go(func() { f.failed(h.upgrade()) })
			if n%2 == 1 {
				all.Wait()
			}
		}
		all.Wait()
		f.rounds++
		<-tick.C
	}
}

// generation returns an error if not every upgrade of a host has had a daemon take over.
func (f *faults) generation() error {
	for _, h := range f.c.hosts {
		u, err := h.upgrades()
		if err != nil {
			return err
		}
		if u.Generation != uint32(f.rounds)+1 || u.Attempt != uint64(f.rounds) {
			return fmt.Errorf("daemon %v is of generation %d after %d upgrades, in %d attempts", h.addr, u.Generation, f.rounds, u.Attempt)
		}
	}
	return nil
}

// TestUpgrades runs a short campaign in which all daemons are replaced every two seconds. Nobody
// loses anything, and nobody sees an error or an UNKNOWN status.
func TestUpgrades(t *testing.T) {
	if *upgraded > 0 {
		t.Skip("TestLedger has such campaigns")
	}
	c := campaign{seed: *firstSeed, upgrades: 2 * time.Second, lasts: 12 * time.Second}
	c.run(t, newNetwork())
}
