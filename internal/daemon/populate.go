package daemon

import (
	"fmt"
	"net"
	"sync"

	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// maxPopulating is how many sessions make memory at a time: the kernel clears
// what it hands out, which takes a processor from the engine.
const maxPopulating = 2

// populating lets sessions make memory, one of each user and maxPopulating of
// all at a time, users in the order in which they came. A session that waits
// for its turn and whose process is gone makes nothing.
type populating struct {
	room  *room // of the daemon's cgroup; nil: no limit
	mu    sync.Mutex
	users map[uint32]*sync.Mutex // of users with a session here
	here  map[uint32]int         // how many
	turns chan struct{}
	most  int    // sessions that made memory at one time
	now   int    // sessions that do
	made  uint64 // how often one did
	bytes uint64 // what they are at
}

func newPopulating(r *room) *populating {
	return &populating{room: r, users: map[uint32]*sync.Mutex{}, here: map[uint32]int{}, turns: make(chan struct{}, maxPopulating)}
}

// enter waits for a turn of uid; leave ends it.
func (p *populating) enter(uid uint32) {
	if mutant.On(mutant.PopulateAtOnce) {
		return
	}
	p.mu.Lock()
	u := p.users[uid]
	if u == nil {
		u = &sync.Mutex{}
		p.users[uid] = u
	}
	p.here[uid]++
	p.mu.Unlock()
	u.Lock()
	p.turns <- struct{}{}
}

func (p *populating) leave(uid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.users[uid]
	if u == nil {
		return
	}
	<-p.turns
	u.Unlock()
	if p.here[uid]--; p.here[uid] == 0 {
		delete(p.here, uid)
		delete(p.users, uid)
	}
}

// begin reserves size bytes of the cgroup's memory for u, which has own bytes,
// these included; end gives the reservation up when they are populated or not
// to be. ENOMEM: the cgroup has no more, or u would have more than is left.
func (p *populating) begin(u *quota.User, size, own uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.room.fits(u, size, own, p.bytes); err != nil {
		return err
	}
	p.bytes += size
	p.now++
	p.made++
	p.most = max(p.most, p.now)
	return nil
}

func (p *populating) end(size uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= size
	p.now--
}

// populate makes memory of size bytes with create when it is the session's turn.
// net.ErrClosed: its process is gone.
func (s *session) populate(size int, create func() (*shm.Mapping, error)) (*shm.Mapping, error) {
	p := s.d.populating
	p.enter(s.user.UID)
	defer p.leave(s.user.UID)
	if s.c.HungUp() {
		return nil, net.ErrClosed
	}
	if err := p.begin(&s.user, uint64(size), s.d.e.Memory().Of(s.user.UID)); err != nil {
		return nil, err
	}
	defer p.end(uint64(size))
	return create()
}

// fits returns nil if size more bytes leave the cgroup what the daemon itself
// may need; pending bytes are reserved and not populated. A user that is not
// trusted, and has own bytes with these, gets no more than is left.
func (r *room) fits(u *quota.User, size, own, pending uint64) error {
	if r == nil {
		return nil
	}
	left, most := r.left()
	left -= min(left, pending+r.spare(most))
	switch {
	case size > left:
		return fmt.Errorf("%w: %d bytes asked, the daemon's memory cgroup has %d left of %d: free some, or raise its limit (MemoryMax=, or the container's)",
			unix.ENOMEM, size, left, most)
	case !u.Trusted && own > left:
		return fmt.Errorf("%w: uid %d would have %d bytes, more than the %d that the daemon's memory cgroup of %d has left",
			unix.ENOMEM, u.UID, own, left, most)
	}
	return nil
}
