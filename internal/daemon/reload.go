package daemon

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/quota"
)

// reloading is what a reload needs.
type reloading struct {
	mu      sync.Mutex // one at a time; guards the rest
	load    func() (*config.Loaded, error)
	origins config.Origins // of live
	level   *slog.LevelVar
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

// config is the configuration in use. It does not change: ask again.
func (d *Daemon) config() *config.Config { return d.live.Load() }

func (d *Daemon) setConfig(c *config.Config) {
	d.live.Store(c)
	d.policy.Store(c.Policy(uint32(os.Getuid())))
}

func (d *Daemon) peerAllowed(a netip.Addr) bool { return d.config().PeerAllowed(a) }

// sharedLimit bounds the rings, tables and arenas of all clients, bytes.
func sharedLimit(c *config.Config) uint64 { return uint64(c.Limits.MaxClients) * quota.SharedEach }

// Reload reads the configuration again and applies what differs, where a
// running daemon can: nothing is interrupted but the connections to peers that
// are no longer allowed. Quotas and bind rules hold for processes that attach
// and sockets that are bound from then on, checksums for new connections. It
// returns what it applied and what waits for a restart. An error, of reading or
// of what was read, leaves everything as it is. Any goroutine may call it.
func (d *Daemon) Reload() (ctl.Reload, error) {
	r := &d.reload
	r.mu.Lock()
	defer r.mu.Unlock()
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
		r.origins[c.Key] = next.Origins[c.Key]
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
	if old := d.tls.Load(); !cred.same(old) && !slices.ContainsFunc(out.Applied, func(c ctl.ConfigChange) bool { return strings.HasPrefix(c.Key, "tls.") }) {
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

func rates(c *config.Config) engine.Rates {
	return engine.Rates{Control: c.Peers.Control, Messages: c.Peers.Messages, Bytes: c.Peers.Bytes}
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
	d.tls.Store(cred) // before the keys that want it
	d.setConfig(&c)
	d.e.Memory().SetLimits(sharedLimit(&c), c.Limits.MaxRegisteredBytes)
	if d.reload.level != nil {
		d.reload.level.Set(c.Log.Level)
	}
	err = backend{d}.ask(func() {
		d.l.spin = int64(c.Spin)
		d.e.Apply(engine.Live{HardCap: int(c.RecvHardCap), MaxSockets: c.Limits.MaxSockets, Policy: d.policy.Load(), Rates: rates(&c),
			Silence: int64(c.Peers.Silence)})
	})
	if err != nil {
		return fmt.Errorf("applied but for what the engine decides: %w", err)
	}
	return nil
}

// Config lists the keys, their values and where those come from (ctl).
func (b backend) Config() ([]ctl.ConfigValue, error) {
	r := &b.d.reload
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []ctl.ConfigValue
	for _, v := range b.d.config().Values(r.origins) {
		out = append(out, ctl.ConfigValue{Key: v.Name, Value: v.Value, Default: v.Default, Origin: v.Origin, Live: v.Live})
	}
	return out, nil
}

// Reload applies the configuration anew, or says what that would do (ctl).
func (b backend) Reload(apply bool) (ctl.Reload, error) {
	if apply {
		return b.d.Reload()
	}
	r := &b.d.reload
	r.mu.Lock()
	defer r.mu.Unlock()
	out, _, err := b.d.compare()
	return out, err
}
