package daemon

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

const (
	// helloTimeout bounds how long a connection may stay silent before it has
	// said what it is, ctlTimeout how long rdsctl may between two requests.
	helloTimeout = 5 * time.Second
	ctlTimeout   = time.Minute

	maxSilent = 128 // connections that have not said what they are
	// rdsctl of one trusted user, and of all users that are not trusted: they
	// never keep an administrator out. One of these users gets one more while it
	// has less than are free.
	maxCtlers = 64
)

// admission counts the control connections by what they are and whose, so that
// idle ones of one kind or user keep nobody of another out. Guarded by
// Daemon.mu.
type admission struct {
	arrived         uint64     // connections so far
	silent          []*session // oldest first
	clients, ctlers int        // ctlers: of users that are not trusted
	users           map[uint32]*connections
}

// connections of one user that have said what they are.
type connections struct{ clients, ctlers int }

// arrive takes a new connection in. If there are too many the one gives way
// that has been silent for longest among those of the user with most.
func (a *admission) arrive(s *session) {
	a.arrived++
	if len(a.silent) >= maxSilent {
		count := map[uint32]int{}
		for _, x := range a.silent {
			count[x.user.UID]++
		}
		i := 0
		for k, x := range a.silent {
			if count[x.user.UID] > count[a.silent[i].user.UID] {
				i = k
			}
		}
		a.silent[i].c.Close() // its session ends by itself
		a.silent = slices.Delete(a.silent, i, i+1)
	}
	a.silent = append(a.silent, s)
}

// spoke moves s to its kind. EUSERS: there are too many; ENOBUFS: of its user.
func (a *admission) spoke(s *session, role ipc.Role, maxClients int) error {
	a.forget(s)
	if a.users == nil {
		a.users = map[uint32]*connections{}
	}
	own := a.users[s.user.UID]
	if own == nil {
		own = &connections{}
	}
	switch role {
	case ipc.RoleCtl:
		if own.ctlers >= maxCtlers || !s.user.Trusted && own.ctlers >= maxCtlers-a.ctlers {
			return fmt.Errorf("%w: the daemon answers %d rdsctl already, %d of uid %d: a user gets one more while it has less than are free of %d",
				unix.EUSERS, max(own.ctlers, a.ctlers), own.ctlers, s.user.UID, maxCtlers)
		}
		own.ctlers++
		if !s.user.Trusted {
			a.ctlers++
		}
	case ipc.RoleClient:
		if a.clients >= maxClients {
			return fmt.Errorf("%w: the daemon serves limits.max_clients = %d processes already", unix.EUSERS, maxClients)
		}
		if err := s.user.May(config.Clients, uint64(own.clients), 1); err != nil {
			return err
		}
		own.clients++
		a.clients++
	default:
		return fmt.Errorf("%w: unknown role %d", unix.EINVAL, role)
	}
	a.users[s.user.UID] = own
	s.role = role
	return nil
}

// leave ends s's place.
func (a *admission) leave(s *session) {
	a.forget(s)
	own := a.users[s.user.UID]
	switch s.role {
	case ipc.RoleCtl:
		own.ctlers--
		if !s.user.Trusted {
			a.ctlers--
		}
	case ipc.RoleClient:
		own.clients--
		a.clients--
	default:
		return
	}
	if *own == (connections{}) {
		delete(a.users, s.user.UID)
	}
}

// admits returns an error if the connection that came last has not been taken in
// for so long that something is stuck. It waits for the lock that admission is
// behind.
func (d *Daemon) admits() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if since := d.accepting.Load(); since != 0 {
		if late := time.Since(time.Unix(0, since)); late >= ctl.StallAfter {
			return fmt.Errorf("a process that connected has not been admitted for %v", late.Round(time.Millisecond))
		}
	}
	return nil
}

func (a *admission) forget(s *session) {
	if i := slices.Index(a.silent, s); i >= 0 {
		a.silent = slices.Delete(a.silent, i, i+1)
	}
}
