package config

import (
	"net/netip"
	"slices"
)

// Policy is what each user of this host may have of the daemon and do with it. It never
// changes, so any goroutine may call its methods.
type Policy struct {
	Quotas Quotas
	Bind   Bind
	Strict []Who  // keys.strict
	Owner  uint32 // the uid the daemon runs as
	Subs   SubUIDs
}

// Policy is the policy of a daemon that runs as uid owner.
func (c *Config) Policy(owner uint32, subs SubUIDs) *Policy {
	return &Policy{Quotas: c.Quota, Bind: c.Bind, Strict: c.Keys.Strict, Owner: owner, Subs: subs}
}

// NoPolicy allows everybody everything.
func NoPolicy() *Policy { return &Policy{Quotas: Quotas{User: NoQuota()}} }

// Trusts reports whether uid is root or the daemon's own user. These users see everything
// and may reset connections. Of quotas and bind rules, only those with their uid apply to
// them.
func (p *Policy) Trusts(uid uint32) bool { return uid == 0 || uid == p.Owner }

// Account is what a process of uid counts for, in quotas and shares: the account with the
// label of its cgroup, or if it has none, "", that of uid or of the user that has uid as a
// subordinate one.
func (p *Policy) Account(uid uint32, label string) Account {
	if label != "" && len(p.Quotas.Accounts) > 0 {
		return Account{Label: label}
	}
	return UserAccount(p.userOf(uid))
}

// userOf is uid, or the user that has uid as a subordinate one. A range of a trusted user
// counts for its first uid: such a user has no share of its own, and what it lends out is
// not trusted.
func (p *Policy) userOf(uid uint32) uint32 {
	r, ok := p.Subs.of(uid)
	switch {
	case !ok, p.Trusts(uid):
		return uid
	case p.Trusts(r.owner):
		return r.lo
	}
	return r.owner
}

// Quota is what all processes that count for a together may have, as far as a process of
// uid and gid is concerned.
func (p *Policy) Quota(a Account, uid, gid uint32) Quota {
	user := p.userOf(uid)
	return p.Quotas.For(a.Label, user, gid, p.Trusts(user))
}

// IsStrict reports whether the regions of a process of uid and gid are never open.
func (p *Policy) IsStrict(uid, gid uint32) bool {
	return slices.ContainsFunc(p.Strict, func(w Who) bool {
		return (!w.uid.set || w.uid.n == uid) && (!w.gid.set || w.gid.n == gid)
	})
}

// MayBind returns nil if a process of uid and gid may bind port at addr. Otherwise the
// error names the rule that forbids it.
func (p *Policy) MayBind(uid, gid uint32, addr netip.Addr, port uint16) error {
	return p.Bind.check(uid, gid, p.Trusts(uid), addr, port)
}

// NextPort is the lowest port, beginning at from, that a process of uid and gid may bind at
// addr. ok is false if there is none.
func (p *Policy) NextPort(uid, gid uint32, addr netip.Addr, from uint16) (port uint16, ok bool) {
	return p.Bind.next(uid, gid, p.Trusts(uid), addr, from)
}
