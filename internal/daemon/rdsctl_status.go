package daemon

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/version"
)

// Status describes the daemon.
func (b backend) Status() (ctl.Status, error) {
	d := b.d
	s := ctl.Status{
		Version: version.String(),
		Socket:  d.config().Socket, Stats: d.config().Stats, CRC: string(d.config().CRC),
		Upgrade:    d.upgradeState(),
		Transports: b.transports(),
		Warnings:   b.warnings(),
		Sandbox:    d.sandbox,
	}
	if d.config().Metrics.Listen.IsValid() {
		s.Metrics = d.config().Metrics.Listen.String()
	}
	d.countDropped()
	s.Congestion = b.congestion()
	s.TLS = b.tls()
	for _, a := range d.config().Listen {
		s.Listen = append(s.Listen, netip.AddrPortFrom(a, d.config().Port))
	}
	snap := d.statistics.Snapshot()
	s.Fill(&snap, time.Now())
	s.Memory.Limit, s.Memory.HeldLimit = d.config().Limits.MaxRegisteredBytes, d.config().Limits.MaxHeldBytes
	users, err := b.Users()
	if err != nil { // a stuck engine must not hide that it is stuck
		s.Warnings = append(slices.Clone(s.Warnings), "usage per user: "+err.Error())
	}
	s.Users = users
	return s, nil
}

// warnings are what an operator should know, apart from what the figures tell.
func (b backend) warnings() []string {
	w := append(slices.Clone(b.d.warnings), b.d.allTLSWarnings(time.Now())...)
	w = append(w, b.d.nameWarnings()...)
	if s := b.d.subWarnings.Load(); s != nil {
		w = append(w, *s...)
	}
	if s := b.d.labels.warning.Load(); s != nil {
		w = append(w, *s)
	}
	w = append(w, awaited(b.d.config())...)
	if s := b.d.lines.Warning(time.Now()); s != "" {
		w = append(w, s)
	}
	if s := filesWarning(filesLimit()); s != "" {
		w = append(w, s)
	}
	if t := b.d.drainNotice.Load(); t != nil && *t != "" {
		w = append(w, *t)
	}
	return w
}

// congestion says which congestion control TCP connections have.
func (b backend) congestion() ctl.Congestion {
	c := ctl.Congestion{Wanted: string(b.d.config().Congestion)}
	if b.d.transport.soft == nil {
		c.Why = "the transport is not TCP of this daemon"
		return c
	}
	used, err := b.d.transport.soft.Congestion()
	c.Used = used
	if err != nil {
		c.Why = err.Error()
	}
	return c
}

// tls describes TLS, for the status and for metrics.
func (b backend) tls() ctl.TLS {
	t := ctl.TLS{Mode: string(b.d.config().TLS.Mode)}
	if b.d.transport.soft != nil {
		h := b.d.transport.soft.Handshakes()
		t.Secured, t.Failed, t.Plain, t.Limited = h.Secured, h.TLS, h.Plain, h.Limited
	}
	if c := b.d.credentials.Load(); c != nil {
		t.Subject, t.Expires = c.subject, c.expires
	}
	return t
}
