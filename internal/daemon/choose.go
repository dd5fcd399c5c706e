package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/rdmadev"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// transport is the devices that the daemon opened, and which of them carries each of its
// addresses.
type transport struct {
	host    *rdmadev.Host
	adapter verbs.Device // nil: none
	name    string       // the adapter's
	soft    *soft.Device // nil: none
	locals  []localAddr
}

// localAddr is one address of the daemon, and by which transports it is reached.
type localAddr struct {
	addr        netip.Addr
	verbs, soft bool
	whyNotVerbs error
}

// errNotWanted says that the settings do not want an address on an adapter.
var errNotWanted = errors.New("the key transport names another")

// choose decides which transports carry each address of cfg, and opens the adapter with
// open if there is one. built says whether this build can use adapters. The engine's thread does not run yet.
func choose(cfg *config.Config, host *rdmadev.Host, built bool, open func(netip.Addr) (verbs.Device, error)) (*transport, error) {
	t := &transport{host: host}
	for _, a := range cfg.Listen {
		t.locals = append(t.locals, t.chooseFor(cfg, a, built))
	}
	// An address that must be on an adapter says first which one.
	at := slices.IndexFunc(t.locals, func(l localAddr) bool { return l.verbs && cfg.InsistsOnVerbs(l.addr) })
	insists := at >= 0
	if at < 0 {
		at = slices.IndexFunc(t.locals, func(l localAddr) bool { return l.verbs })
	}
	if at < 0 {
		return t, nil
	}
	var err error
	if t.adapter, err = open(t.locals[at].addr); err != nil {
		if insists {
			return nil, fmt.Errorf("transport verbs: %w", err)
		}
		t.withoutAdapter(err)
		return t, nil
	}
	t.name = t.adapter.Attr().Name
	t.keepTo(cfg)
	return t, nil
}

// chooseFor decides for one address what the settings and the host's devices say. The
// first address on an adapter decides which adapter the daemon uses.
func (t *transport) chooseFor(cfg *config.Config, a netip.Addr, built bool) localAddr {
	l := localAddr{addr: a, soft: cfg.MayUse(a, config.TransportSoft)}
	switch {
	case !cfg.MayUse(a, config.TransportVerbs):
		l.whyNotVerbs = errNotWanted
		return l
	case cfg.InsistsOnVerbs(a):
		l.verbs = true
		return l
	}
	dev, err := t.host.Locate(a)
	switch {
	case err != nil:
		l.whyNotVerbs = err
	case !built:
		l.whyNotVerbs = fmt.Errorf("%s has it, and this build has no libibverbs: make build-ibv", dev.Name)
	case cfg.WantsTLS(a):
		l.whyNotVerbs = fmt.Errorf("%s has it, but there is no TLS on an adapter, and tls.mode is %s", dev.Name, cfg.TLS.Mode)
	case t.name != "" && t.name != dev.Name:
		l.whyNotVerbs = usesAnother(dev.Name, t.name)
	default:
		l.verbs, t.name = true, dev.Name
	}
	return l
}

// usesAnother says why an address of adapter has is not on it.
func usesAnother(has, used string) error {
	return fmt.Errorf("%s has it, and the daemon uses %s: it uses one adapter", has, used)
}

// withoutAdapter takes all addresses off the adapter, which could not be opened.
func (t *transport) withoutAdapter(why error) {
	for i := range t.locals {
		if l := &t.locals[i]; l.verbs {
			l.verbs, l.whyNotVerbs = false, why
		}
	}
	t.name = ""
}

// keepTo takes the addresses of other adapters off the adapter that was opened. Where that
// adapter speaks iWARP, its addresses are not on soft: both would want the same TCP port,
// and speak the same protocol.
func (t *transport) keepTo(cfg *config.Config) {
	iwarp := slices.ContainsFunc(t.host.Devices, func(d rdmadev.Device) bool { return d.Name == t.name && d.IWARP })
	for i := range t.locals {
		l := &t.locals[i]
		if dev, err := t.host.Locate(l.addr); l.verbs && !cfg.InsistsOnVerbs(l.addr) && err == nil && dev.Name != t.name {
			l.verbs, l.whyNotVerbs = false, usesAnother(dev.Name, t.name)
		}
		if l.verbs && iwarp {
			l.soft = false
		}
	}
}
