package daemon

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

const (
	maxSilent = 128 // connections that have not said what they are
	// maxCtlers bounds the rdsctl of one trusted user, and the rdsctl of all users that
	// are not trusted together, so that these never keep an administrator out. A user
	// that is not trusted gets one more while it has fewer than are free.
	maxCtlers = 64
)

// admission knows the control connections and counts them by role and user, so that the
// idle connections of one role or user keep no other role or user out.
type admission struct {
	arrivingSince atomic.Int64   // since when one connection is being taken in, unix ns; 0: none is
	saidNothing   atomic.Uint64  // connections that ended without a word, since the last look
	served        sync.WaitGroup // connections between enter and exit

	mu              sync.Mutex
	ended           bool                         // guarded by mu
	open            map[*connection]*session     // guarded by mu
	arrived         uint64                       // connections so far; guarded by mu
	silent          []*connection                // the oldest first; guarded by mu
	clients, ctlers int                          // ctlers: of users that are not trusted; guarded by mu
	users           map[config.Account]*admitted // by quota.User.Account; guarded by mu
	ending          map[*connection]struct{}     // those that have ended and count, see exit; guarded by mu
	inRecess        *recess                      // nil: there is none. Guarded by mu
	holed           map[config.Account]holed     // by quota.User.Account; guarded by mu
}

// admitted counts the connections of one user that have said what they are.
type admitted struct{ clients, ctlers int }

// arriving marks the begin of what enter ends.
func (a *admission) arriving() { a.arrivingSince.Store(time.Now().UnixNano()) }

// enter takes in a new connection. It returns false if the daemon is shutting down.
// The session ends with exit.
func (a *admission) enter(s *session) bool {
	defer a.arrivingSince.Store(0)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	a.add(s)
	if a.inRecess != nil {
		s.hold(a.inRecess)
	}
	a.addSilent(s.connection)
	return true
}

// add adds a session. Guarded by mu.
func (a *admission) add(s *session) {
	if a.open == nil {
		a.open, a.users = map[*connection]*session{}, map[config.Account]*admitted{}
	}
	a.arrived++
	s.nth = a.arrived
	a.open[s.connection] = s
	a.served.Add(1)
}

// end takes in nobody any more, says goodbye to every connection, and waits until all
// have left.
func (a *admission) end(reason error) {
	a.mu.Lock()
	a.ended = true
	for c := range a.open {
		go c.goodbye(reason) // a process that does not read holds up nobody
	}
	a.mu.Unlock()
	a.served.Wait()
}

// isOver reports whether the daemon ends.
func (a *admission) isOver() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// addSilent adds a connection that has not said what it is. If there are too many of
// these, the user with the most loses its oldest. Guarded by mu.
func (a *admission) addSilent(c *connection) {
	if len(a.silent) >= maxSilent {
		count := map[config.Account]int{}
		for _, x := range a.silent {
			count[x.user.Account]++
		}
		i := 0
		for k, x := range a.silent {
			if count[x.user.Account] > count[a.silent[i].user.Account] {
				i = k
			}
		}
		a.silent[i].Close() // its session ends by itself
		a.silent = slices.Delete(a.silent, i, i+1)
	}
	a.silent = append(a.silent, c)
}

// admit counts c, which has said that it is of this role. EUSERS: there are too many of
// this role. ENOBUFS: its user has too many.
func (a *admission) admit(c *connection, role ipc.Role, maxClients int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropSilent(c)
	var own admitted
	if u := a.users[c.user.Account]; u != nil {
		own = *u
	}
	switch role {
	case ipc.RoleCtl:
		if own.ctlers >= maxCtlers || !c.user.Trusted && own.ctlers >= maxCtlers-a.ctlers {
			return fmt.Errorf("%w: the daemon answers %d rdsctl already, %d of %v: a user gets one more while it has less than are free of %d",
				unix.EUSERS, max(own.ctlers, a.ctlers), own.ctlers, &c.user, maxCtlers)
		}
	case ipc.RoleClient:
		if a.clients >= maxClients {
			return fmt.Errorf("%w: the daemon serves limits.max_clients = %d processes already", unix.EUSERS, maxClients)
		}
		if err := c.user.May(config.Clients, uint64(own.clients), 1); err != nil {
			return err
		}
		if left := time.Until(a.holed[c.user.Account].until); left > 0 {
			return fmt.Errorf("%w: processes of %v are admitted again in %v, because one of them took away pages of memory that it shared with the daemon",
				unix.EUSERS, &c.user, left.Round(time.Second))
		}
	default:
		return fmt.Errorf("%w: unknown role %d", unix.EINVAL, role)
	}
	a.count(c, role)
	return nil
}

// processes returns how many client processes there are.
func (a *admission) processes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clients
}

// count counts c, which is of this role. Guarded by mu.
func (a *admission) count(c *connection, role ipc.Role) {
	own := a.users[c.user.Account]
	if own == nil {
		own = &admitted{}
		a.users[c.user.Account] = own
	}
	if c.role = role; role == ipc.RoleClient {
		own.clients++
		a.clients++
		return
	}
	own.ctlers++
	if !c.user.Trusted {
		a.ctlers++
	}
}

// unadmit ends what admit began, because the Hello was broken off. c does not count as silent.
func (a *admission) unadmit(c *connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.discount(c)
	c.role = 0
}

// exit ends what enter began. Nothing of c's session runs any more. c counts for its user
// until its process has received the descriptors that were sent to it, or is gone.
func (a *admission) exit(c *connection) {
	a.remove(c)
	a.served.Done()
	<-c.Received()
	c.unreceived.drop(c)
	a.uncount(c)
}

// remove takes c off the connections that have a session.
func (a *admission) remove(c *connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, c)
	a.inRecess.look()
	a.dropSilent(c)
	if a.ending == nil {
		a.ending = map[*connection]struct{}{}
	}
	a.ending[c] = struct{}{}
}

// uncount counts c no more.
func (a *admission) uncount(c *connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ending, c)
	a.discount(c)
}

// discount ends what count began, if it did. Guarded by mu.
func (a *admission) discount(c *connection) {
	own := a.users[c.user.Account]
	switch c.role {
	case ipc.RoleCtl:
		own.ctlers--
		if !c.user.Trusted {
			a.ctlers--
		}
	case ipc.RoleClient:
		own.clients--
		a.clients--
	default:
		return
	}
	if *own == (admitted{}) {
		delete(a.users, c.user.Account)
	}
}

// dropSilent takes c off the connections that have not said what they are. Guarded by mu.
func (a *admission) dropSilent(c *connection) {
	if i := slices.Index(a.silent, c); i >= 0 {
		a.silent = slices.Delete(a.silent, i, i+1)
	}
}

// clientsOf returns how many processes each account has.
func (a *admission) clientsOf() map[config.Account]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[config.Account]int{}
	for account, n := range a.users {
		out[account] = n.clients
	}
	return out
}

// stuck returns an error if the connection that came last has not been taken in for
// ctl.StallAfter. It waits for the lock of admission, so it does not return while that
// lock is stuck.
func (a *admission) stuck() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if since := a.arrivingSince.Load(); since != 0 {
		if late := time.Since(time.Unix(0, since)); late >= ctl.StallAfter {
			return fmt.Errorf("a process that connected has not been admitted for %v", late.Round(time.Millisecond))
		}
	}
	return nil
}
