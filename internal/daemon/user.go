package daemon

import (
	"fmt"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// user is whom a process runs as, by its credentials when it connected, and
// what it may have.
type user struct {
	uid, gid uint32
	trusted  bool // root, or the daemon's own
	quota    config.Quota
}

// daemonUser is the daemon itself.
var daemonUser = &user{trusted: true}

func userOf(p *config.Policy, id ipc.Cred) user {
	return user{uid: id.UID, gid: id.GID, trusted: p.Trusts(id.UID), quota: p.Quota(id.UID, id.GID)}
}

// may is nil if the user, who has used of r, may have n more. ENOBUFS, naming
// the key and the cure.
func (u *user) may(r config.Resource, used, n uint64) error {
	if q := u.quota[r]; used > q || n > q-used {
		return fmt.Errorf("%w: %d %v asked, uid %d has %d, its quota is %d: free some, or raise quota.%v (for one user in quota.overrides)",
			unix.ENOBUFS, n, r, u.uid, used, q, r)
	}
	return nil
}

// mayShare is may for what has a limit for all and no quota: a user gets one
// more while it has less than is free, so that nobody alone takes the rest.
// Trusted users get what there is.
func (u *user) mayShare(what string, own, all, limit int) error {
	switch free := limit - all; {
	case free <= 0:
		return fmt.Errorf("%w: the daemon has its %d %s", unix.ENOBUFS, limit, what)
	case !u.trusted && own >= free:
		return fmt.Errorf("%w: uid %d has %d %s, as many as are free", unix.ENOBUFS, u.uid, own, what)
	}
	return nil
}
