package daemon

import (
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/quota"
)

// TestReload: what is read anew holds at once, where it can; what cannot is
// named; what is wrong changes nothing.
func TestReload(t *testing.T) {
	c := newCrowd(t, func(cfg *config.Config) {
		cfg.Peers.Allow = []config.Allowed{{Net: netip.MustParsePrefix("10.0.0.0/8")}}
	})
	if _, err := c.d.Reload(); !errors.Is(err, ctl.ErrUnsupported) {
		t.Errorf("without sources: %v", err)
	}
	var next *config.Loaded
	var bad error
	level := &slog.LevelVar{}
	c.d.ReloadFrom(func() (*config.Loaded, error) { return next, bad }, config.Origins{"port": "default"}, level)
	load := func(edit func(*config.Config)) {
		next = &config.Loaded{Config: *c.d.config(), Origins: config.Origins{}}
		for _, k := range config.Keys() {
			next.Origins[k.Name] = "file:1"
		}
		edit(&next.Config)
	}
	reload := func() string {
		t.Helper()
		r, err := c.d.Reload()
		if err != nil {
			t.Fatal(err)
		}
		return names(r.Applied) + "; " + names(r.Restart)
	}

	load(func(*config.Config) {})
	if got := reload(); got != "; " {
		t.Errorf("no difference: %s", got)
	}

	load(func(cfg *config.Config) { cfg.Peers.Control, cfg.Peers.Messages, cfg.Peers.Bytes = 0, 3000, 1<<20 })
	if got := reload(); got != "peers.control_per_s peers.messages_per_s peers.bytes_per_s; " {
		t.Errorf("limits of peers: %s", got)
	}
	if err := c.d.loop.ask(t.Context(), func() {
		if r := c.d.engine.Live().Rates; r != (engine.Rates{Messages: 3000, Bytes: 1 << 20}) {
			t.Errorf("limits in the engine: %+v", r)
		}
	}); err != nil {
		t.Fatal(err)
	}
	// A peer that is being connected to, and is no longer allowed.
	far := netip.MustParseAddr("10.255.255.254")
	if err := c.d.loop.ask(t.Context(), func() {
		if _, err := c.d.engine.Ping(far, 0, 0, nil, func(error) {}); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	load(func(cfg *config.Config) {
		cfg.Peers.Allow = nil
		cfg.Quota.User[config.Sockets] = 1
		cfg.Limits.MaxClients = 1
		cfg.Log.Level = slog.LevelDebug
		cfg.Port = 4711
	})
	if r, err := (backend{d: c.d}).Reload(false); err != nil || names(r.Applied) != "peers.allow limits.max_clients log.level quota.sockets" ||
		!reflect.DeepEqual(r.Restart, []ctl.ConfigChange{{Key: "port", Old: "18634", New: "4711", Origin: "file:1"}}) {
		t.Errorf("what a reload would do: %+v, %v", r, err)
	}
	if c.d.config().Limits.MaxClients == 1 {
		t.Fatal("comparing applied it")
	}
	if got := reload(); got != "peers.allow limits.max_clients log.level quota.sockets; port" {
		t.Errorf("applied %s", got)
	}
	if level.Level() != slog.LevelDebug || c.d.config().Port != 18634 || c.d.peerAllowed(far) == nil {
		t.Errorf("level %v, port %d, peer allowed: %v", level.Level(), c.d.config().Port, c.d.peerAllowed(far))
	}
	peers, err := backend{d: c.d}.Peers()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		if p.Remote == far && p.LastError != "" && !strings.Contains(p.LastError, engine.ErrNotAllowed.Error()) {
			t.Errorf("the peer's last error: %v", p.LastError)
		}
	}
	values, err := backend{d: c.d}.Config()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		want := ""
		switch v.Key {
		case "peers.allow", "limits.max_clients", "log.level", "quota.sockets", "peers.control_per_s", "peers.messages_per_s", "peers.bytes_per_s":
			want = "file:1"
		case "port":
			want = "default"
		}
		if v.Origin != want {
			t.Errorf("%s comes from %q, want %q", v.Key, v.Origin, want)
		}
	}

	// The new quota and the new limit hold for who comes now.
	p1, err := c.attach(alice)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, _, err := p1.Call(&ipc.Bind{Addr: c.d.config().Listen[0]}, nil)
		if (err == nil) != (i == 0) || err != nil && !strings.Contains(err.Error(), "quota.sockets") {
			t.Errorf("socket %d: %v", i+1, err)
		}
	}
	if _, err := c.attach(bob); err == nil || !strings.Contains(err.Error(), "limits.max_clients") {
		t.Errorf("a second client: %v", err)
	}

	bad = errors.New("rdsd.toml:1:1: no")
	if _, err := c.d.Reload(); !errors.Is(err, bad) || c.d.config().Limits.MaxClients != 1 {
		t.Errorf("a bad file: %v", err)
	}
	bad = nil
	load(func(cfg *config.Config) { cfg.Limits.MaxClients = 10 })
	if got := reload(); got != "limits.max_clients; " {
		t.Errorf("applied %s", got)
	}
	if _, err := c.attach(bob); err != nil {
		t.Errorf("with a higher limit: %v", err)
	}
}

// TestLowerMemoryLimit: below what is in use nothing more is given, and the
// account does not run over.
func TestLowerMemoryLimit(t *testing.T) {
	m := quota.NewMemory(quota.MaxMaps, 100, 100)
	u := quota.Of(config.NoPolicy(), ipc.Cred{UID: alice})
	if err := m.Take(&u, 60, 60); err != nil {
		t.Fatal(err)
	}
	m.SetLimits(50, 50)
	if m.Take(&u, 1, 0) == nil || m.Take(&u, 0, 1) == nil {
		t.Error("over the limit")
	}
	m.SetLimits(61, 61)
	if err := m.Take(&u, 1, 1); err != nil {
		t.Error(err)
	}
}
