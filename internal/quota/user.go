// Package quota is what each user of the host may have of the daemon, and has of its
// memory.
package quota

import (
	"fmt"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// User is whom a process runs as, by its credentials when it connected, and
// what it may have.
type User struct {
	UID, GID uint32
	Trusted  bool // root, or the daemon's own
	Quota    config.Quota
}

// Daemon is the daemon itself.
var Daemon = &User{Trusted: true}

// Of is the user with these credentials under p.
func Of(p *config.Policy, id ipc.Cred) User {
	return User{UID: id.UID, GID: id.GID, Trusted: p.Trusts(id.UID), Quota: p.Quota(id.UID, id.GID)}
}

// May is nil if the user, who has used of r, may have n more. ENOBUFS, naming
// the key and the cure.
func (u *User) May(r config.Resource, used, n uint64) error {
	if q := u.Quota[r]; used > q || n > q-used {
		return fmt.Errorf("%w: %d %v asked, uid %d has %d, its quota is %d: free some, or raise quota.%v (for one user in quota.overrides)",
			unix.ENOBUFS, n, r, u.UID, used, q, r)
	}
	return nil
}

// MayShare is May for what has a limit for all and no quota: a user gets one
// more while it has less than is free, so that nobody alone takes the rest.
// Trusted users get what there is.
func (u *User) MayShare(what string, own, all, limit int) error {
	switch free := limit - all; {
	case free <= 0:
		return fmt.Errorf("%w: the daemon has its %d %s", unix.ENOBUFS, limit, what)
	case !u.Trusted && own >= free:
		return fmt.Errorf("%w: uid %d has %d %s, as many as are free", unix.ENOBUFS, u.UID, own, what)
	}
	return nil
}
