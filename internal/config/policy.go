package config

import "net/netip"

// Policy is what each user of this host may have of the daemon, and do with it.
// It does not change: any goroutine may ask.
type Policy struct {
	Quotas Quotas
	Bind   Bind
	Owner  uint32 // the uid the daemon runs as
}

// Policy is that of a daemon that runs as uid owner.
func (c *Config) Policy(owner uint32) *Policy {
	return &Policy{Quotas: c.Quota, Bind: c.Bind, Owner: owner}
}

// NoPolicy lets everybody do everything.
func NoPolicy() *Policy { return &Policy{Quotas: Quotas{User: NoQuota()}} }

// Trusts reports whether uid is root or the daemon's own user. Only what names
// their uid holds for them: they see everything, may reset connections, and
// have no quota and no bind rule by default.
func (p *Policy) Trusts(uid uint32) bool { return uid == 0 || uid == p.Owner }

// Quota is what a process of uid and gid may have, together with all others of
// its uid.
func (p *Policy) Quota(uid, gid uint32) Quota { return p.Quotas.For(uid, gid, p.Trusts(uid)) }

// MayBind is nil if a process of uid and gid may bind port at addr, else an
// error that names the rule.
func (p *Policy) MayBind(uid, gid uint32, addr netip.Addr, port uint16) error {
	return p.Bind.check(uid, gid, p.Trusts(uid), addr, port)
}

// NextPort is the lowest port from from on that a process of uid and gid may
// bind at addr; false: there is none.
func (p *Policy) NextPort(uid, gid uint32, addr netip.Addr, from uint16) (port uint16, ok bool) {
	return p.Bind.next(uid, gid, p.Trusts(uid), addr, from)
}
