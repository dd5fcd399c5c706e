package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/quota"
	"golang.org/x/sys/unix"
)

// unreceived counts the descriptors that were sent to processes and that these have not
// received. The kernel counts them against the daemon's user, whoever does not read, and
// refuses more than the daemon may open files. So all processes together have at most
// quota.UnreceivedWithin of that number, and the processes of one user no more than are free.
type unreceived struct {
	mu   sync.Mutex
	most int                 // guarded by mu
	of   map[*connection]int // guarded by mu; what was received since is in it until the next take
}

// take counts n descriptors for c. The error is ENOBUFS.
func (u *unreceived) take(c *connection, n int) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	own, all := 0, 0
	for x, k := range u.of {
		if !x.Unread() {
			delete(u.of, x)
			continue
		}
		if all += k; x.user.Account == c.user.Account {
			own += k
		}
	}
	if err := c.user.MayShareMany("descriptors that were sent and that processes have not received", own, all, u.most, n); err != nil {
		return err
	}
	u.add(c, n)
	return nil
}

// add counts n descriptors for c, whatever the limit. Guarded by mu.
func (u *unreceived) add(c *connection, n int) {
	if u.of == nil {
		u.of = map[*connection]int{}
	}
	u.of[c] += n
}

// by is how many descriptors count for c.
func (u *unreceived) by(c *connection) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !c.Unread() {
		return 0
	}
	return u.of[c]
}

// keep counts for c what another daemon has sent to it, n descriptors at most.
func (u *unreceived) keep(c *connection, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.Unread() {
		u.add(c, n)
	}
}

// drop ends what was counted for c.
func (u *unreceived) drop(c *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, c)
}

// ofUsers is how many descriptors the processes of each account have not received, and the user's
// share.
func (u *unreceived) ofUsers() map[config.Account]ctl.Usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	own, users, all := map[config.Account]int{}, map[config.Account]*quota.User{}, 0
	for c, n := range u.of {
		if c.Unread() {
			own[c.user.Account] += n
			users[c.user.Account] = &c.user
			all += n
		}
	}
	out := map[config.Account]ctl.Usage{}
	for account, n := range own {
		share := uint64(users[account].Share(n, all, u.most))
		out[account] = ctl.Usage{Used: uint64(n), Quota: &share}
	}
	return out
}

// listed is who has not received descriptors, by connections. Those whose session has ended are
// among them.
func (u *unreceived) listed() []ctl.Unreceived {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []ctl.Unreceived
	for c, n := range u.of {
		if c.Unread() {
			out = append(out, ctl.Unreceived{Owner: ctl.Owner{PID: c.id.PID, UID: c.id.UID, Name: c.name, Account: c.user.Account.Label}, Descriptors: uint64(n), Ended: c.closed()})
		}
	}
	return out
}

// give answers request id with descriptors, when the process has received what was sent
// before. ENOBUFS: the answer was not sent, because too many descriptors were not received by
// this user's processes, or by those of all users that share the kernel's limit with the
// daemon.
func (c *connection) give(id uint32, answer ipc.Response, fds ...int) error {
	if err := c.AwaitReceived(); errors.Is(err, os.ErrDeadlineExceeded) {
		return cmp.Or(c.goesOn(), err) // a process that does not read keeps its session in a recess
	} else if err != nil {
		return err
	}
	if err := c.unreceived.take(c, len(fds)); err != nil {
		return err
	}
	err := c.Send(id, answer, fds...)
	if errors.Is(err, unix.ETOOMANYREFS) {
		err = fmt.Errorf("%w: programs of the daemon's user have sent as many descriptors as the user may have open, and nobody has received them (%w)", unix.ENOBUFS, err)
	}
	if err != nil {
		c.unreceived.drop(c)
	}
	return err
}
