// Package quota says what each user of the host may have of the daemon, and counts the
// memory that each user has.
package quota

import (
	"fmt"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// User is the user that a process runs as, from the credentials of its connection, and what
// that user may have.
type User struct {
	UID, GID uint32
	Account  config.Account // whom what it has counts for
	Trusted  bool           // root, or the daemon's own user
	Strict   bool           // its regions are never open
	Quota    config.Quota
}

// Daemon is the daemon itself.
var Daemon = &User{Trusted: true}

// Of is the user with these credentials under p.
func Of(p *config.Policy, id ipc.Cred) User {
	account := p.Account(id.UID, id.Label)
	return User{UID: id.UID, GID: id.GID, Account: account, Trusted: p.Trusts(id.UID), Strict: p.IsStrict(id.UID, id.GID), Quota: p.Quota(account, id.UID, id.GID)}
}

// String is the user in an error about what it has.
func (u *User) String() string {
	if u.Account.Label == "" && u.Account.UID != u.UID {
		return fmt.Sprintf("uid %d (with %d, one of its subordinate uids)", u.Account.UID, u.UID)
	}
	return u.Account.String()
}

// May returns nil if the user may have n more of r; used is the current usage. Its error is
// ENOBUFS and names the configuration key and the cure.
func (u *User) May(r config.Resource, used, n uint64) error {
	if q := u.Quota[r]; used > q || n > q-used {
		return fmt.Errorf("%w: %d %v asked, %v has %d, its quota is %d: free some, or raise quota.%v (for one user or account in quota.overrides)",
			unix.ENOBUFS, n, r, u, used, q, r)
	}
	return nil
}

// MayShare is May for resources with one limit for all and no quota. A user gets one more
// while it has less than what is free, so that nobody alone takes the rest. Trusted users
// get whatever is free.
func (u *User) MayShare(what string, own, all, limit int) error {
	return u.MayShareMany(what, own, all, limit, 1)
}

// MayShareMany is MayShare for n more.
func (u *User) MayShareMany(what string, own, all, limit, n int) error {
	switch {
	case n > limit-all:
		return fmt.Errorf("%w: the daemon has its %d %s", unix.ENOBUFS, limit, what)
	case own+n > u.Share(own, all, limit):
		return fmt.Errorf("%w: %v has %d %s, as many as are free", unix.ENOBUFS, u, own, what)
	}
	return nil
}

// Share returns how many the user may have by MayShare, while the others have what they have.
func (u *User) Share(own, all, limit int) int {
	rest := max(limit-(all-own), 0)
	if u.Trusted {
		return rest
	}
	return (rest + 1) / 2
}
