package daemon

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

const (
	// helloTimeout bounds how long a connection may stay silent before it has
	// said what it is, ctlTimeout how long rdsctl may between two requests.
	helloTimeout = 5 * time.Second
	ctlTimeout   = time.Minute

	maxSilent = 128 // connections that have not said what they are
	maxCtlers = 64  // rdsctl
)

// admission counts the control connections by what they are, so that idle ones
// of one kind keep nobody of another out. Guarded by Daemon.mu.
type admission struct {
	silent          []*session // oldest first
	clients, ctlers int
}

// arrive takes a new connection in; the one that has been silent for longest
// gives way if there are too many.
func (a *admission) arrive(s *session) {
	if len(a.silent) >= maxSilent {
		a.silent[0].c.Close() // its session ends by itself
		a.silent = slices.Delete(a.silent, 0, 1)
	}
	a.silent = append(a.silent, s)
}

// spoke moves s to its kind. EUSERS: there are too many.
func (a *admission) spoke(s *session, role ipc.Role, maxClients int) error {
	a.forget(s)
	switch {
	case role == ipc.RoleCtl && a.ctlers >= maxCtlers:
		return fmt.Errorf("%w: the daemon answers %d rdsctl already", unix.EUSERS, a.ctlers)
	case role == ipc.RoleCtl:
		a.ctlers++
	case role == ipc.RoleClient && a.clients >= maxClients:
		return fmt.Errorf("%w: the daemon serves limits.max_clients = %d processes already", unix.EUSERS, maxClients)
	case role == ipc.RoleClient:
		a.clients++
	default:
		return fmt.Errorf("%w: unknown role %d", unix.EINVAL, role)
	}
	s.role = role
	return nil
}

// leave ends s's place.
func (a *admission) leave(s *session) {
	a.forget(s)
	switch s.role {
	case ipc.RoleCtl:
		a.ctlers--
	case ipc.RoleClient:
		a.clients--
	}
}

func (a *admission) forget(s *session) {
	if i := slices.Index(a.silent, s); i >= 0 {
		a.silent = slices.Delete(a.silent, i, i+1)
	}
}
