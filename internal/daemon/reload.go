package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
	"golang.org/x/sys/unix"
)

// reloading is where a reload reads the configuration, and what it sets beside the
// settings.
type reloading struct {
	mu      sync.Mutex // one at a time; guards the rest
	load    func() (*config.Loaded, error)
	origins config.Origins // of live
	level   *slog.LevelVar
	refuse  bool // a successor has read the configuration
	missed  bool // a signal has asked for a reload since then
}

var errNoSource = fmt.Errorf("%w: this daemon was not started from a configuration that can be read again", ctl.ErrUnsupported)

// ReloadFrom says where Reload reads the configuration, where the present one
// came from, and the level of the logger that New was given. Call it before
// Run.
func (d *Daemon) ReloadFrom(load func() (*config.Loaded, error), from config.Origins, level *slog.LevelVar) {
	d.reload.mu.Lock()
	defer d.reload.mu.Unlock()
	d.reload.load, d.reload.origins, d.reload.level = load, from, level
}

// refuseReloads has Reload fail until allowReloads.
func (d *Daemon) refuseReloads() {
	d.reload.mu.Lock()
	defer d.reload.mu.Unlock()
	d.reload.refuse, d.reload.missed = true, false
}

// allowReloads ends refuseReloads. It reports whether a signal has asked for a reload since.
func (d *Daemon) allowReloads() (missed bool) {
	d.reload.mu.Lock()
	defer d.reload.mu.Unlock()
	d.reload.refuse = false
	return d.reload.missed
}

// Hangup is Reload for a signal, whose sender is not told of an error. While another daemon is
// taking over, the reload waits for the daemon that serves afterwards.
func (d *Daemon) Hangup() {
	d.reload.mu.Lock()
	defer d.reload.mu.Unlock()
	if d.reload.refuse {
		d.reload.missed = true
		d.log.Info("reload: waits for the end of the upgrade")
		return
	}
	_, _ = d.reloadNow() // it logs the result
}

// Reload reads the configuration again and applies what differs, where a
// running daemon can: nothing is interrupted but the connections to peers that
// are no longer allowed. Quotas and bind rules hold for processes that attach
// and sockets that are bound from then on, checksums for new connections. It
// returns what it applied and what waits for a restart. An error, of reading or
// of what was read, leaves everything as it is. Any goroutine may call it.
func (d *Daemon) Reload() (ctl.Reload, error) {
	d.reload.mu.Lock()
	defer d.reload.mu.Unlock()
	if d.reload.refuse {
		return ctl.Reload{}, fmt.Errorf("%w: a new daemon is taking over, which reads the configuration by itself", unix.EBUSY)
	}
	return d.reloadNow()
}

// reloadNow is Reload for a caller that has the lock.
func (d *Daemon) reloadNow() (ctl.Reload, error) {
	d.notify.Reloading()
	defer func() { d.notify.Ready(d.statusLine()) }()
	out, next, err := d.compare()
	if err == nil && len(out.Applied) > 0 {
		err = d.apply(&next.Config)
	}
	if err != nil {
		d.log.Error("reload: nothing changed", "err", err)
		return ctl.Reload{}, err
	}
	for _, c := range out.Applied {
		d.reload.origins[c.Key] = next.Origins[c.Key]
	}
	d.log.Info("reloaded", "applied", names(out.Applied), "restart", names(out.Restart))
	return out, nil
}

// compare reads the configuration again and says what a reload would do. The
// caller holds reload.mu.
func (d *Daemon) compare() (out ctl.Reload, next *config.Loaded, err error) {
	out = ctl.Reload{Applied: []ctl.ConfigChange{}, Restart: []ctl.ConfigChange{}, Warnings: []string{}}
	if d.reload.load == nil {
		return out, nil, errNoSource
	}
	if next, err = d.reload.load(); err != nil {
		return out, nil, fmt.Errorf("configuration: %w", err)
	}
	cred, err := loadTLS(&next.Config)
	if err == nil {
		err = resolve(&next.Config)
	}
	if err != nil {
		return out, nil, fmt.Errorf("configuration: %w", err)
	}
	out.Warnings = append(out.Warnings, next.Warnings...)
	for _, c := range d.config().Diff(&next.Config) {
		change := ctl.ConfigChange{Key: c.Name, Old: c.Old, New: c.New, Origin: next.Origins[c.Name]}
		if c.Live {
			out.Applied = append(out.Applied, change)
		} else {
			out.Restart = append(out.Restart, change)
		}
	}
	applied := func(key string) bool {
		return slices.ContainsFunc(out.Applied, func(c ctl.ConfigChange) bool { return strings.HasPrefix(c.Key, key) })
	}
	if c := movedNames(d.config(), &next.Config, next.Origins); c != nil && !applied(c.Key) {
		out.Applied = append(out.Applied, *c)
	}
	if is, _ := readSubUIDs(); !is.Equal(d.policy.Load().Subs) {
		out.Applied = append(out.Applied, ctl.ConfigChange{Key: config.SubUIDFile, Old: d.policy.Load().Subs.String(), New: is.String()})
	}
	if old := d.credentials.Load(); !cred.same(old) && !applied("tls.") {
		// The files have changed, not their names.
		out.Applied = append(out.Applied, ctl.ConfigChange{Key: "tls.cert", Old: old.String(), New: cred.String(), Origin: next.Origins["tls.cert"]})
	}
	return out, next, nil
}

func names(cs []ctl.ConfigChange) string {
	var s []string
	for _, c := range cs {
		s = append(s, c.Key)
	}
	return strings.Join(s, " ")
}

// apply takes over the live keys of next.
func (d *Daemon) apply(next *config.Config) error {
	c := *d.config()
	c.ApplyLive(next)
	// What was checked is next; with the old values of other keys it may not do.
	if err := c.Finish(os.Getuid(), os.Getenv); err != nil {
		return fmt.Errorf("configuration: not without a restart: %w", err)
	}
	cred, err := loadTLS(&c)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	d.credentials.Store(cred) // before the keys that want it
	d.set(&c)
	d.engine.Memory().SetLimits(sharedLimit(&c), c.Limits.MaxRegisteredBytes)
	if d.reload.level != nil {
		d.reload.level.Set(c.Log.Level)
	}
	err = d.loop.askFor(askTimeout, func() {
		d.loop.waits.Set(c.Wait, int64(c.Spin))
		d.engine.Apply(engine.Live{HardCap: int(c.RecvHardCap), MaxSockets: c.Limits.MaxSockets, Policy: d.policy.Load(), Rates: rates(&c),
			Silence: int64(c.Peers.Silence)})
	})
	if err != nil {
		return fmt.Errorf("applied but for what the engine decides: %w", err)
	}
	return nil
}
