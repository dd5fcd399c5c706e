package daemon

import (
	"cmp"
	"sync"
	"sync/atomic"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
)

// maxPopulating is how many sessions make memory at a time: the kernel clears
// what it hands out, which takes a processor from the engine.
const maxPopulating = 2

// populator makes memory for sessions: for one session of each user and maxPopulating of
// all at a time, and for users in the order in which they came. A session whose process is gone,
// or whose request is broken off, gets nothing.
type populator struct {
	cgroups *cgroups      // nil: no limit
	memory  *quota.Memory // what each user has
	own     uint64        // what the daemon's own buffers may come to, bytes
	waiting atomic.Uint64 // bytes that are reserved for sessions that wait for their turn

	mu    sync.Mutex
	users map[config.Account]chan struct{} // by quota.User.Account, of users whose sessions wait or make memory: who has the user's turn
	here  map[config.Account]int           // how many sessions these are, likewise
	turns chan struct{}
	most  int    // the most sessions that made memory at one time
	now   int    // sessions that make memory
	made  uint64 // how often a session made memory to its end
	bytes uint64 // reserved by these sessions
}

func newPopulator(c *cgroups, m *quota.Memory) *populator {
	return &populator{cgroups: c, memory: m, users: map[config.Account]chan struct{}{}, here: map[config.Account]int{}, turns: make(chan struct{}, maxPopulating)}
}

// populate makes memory of size bytes for c with create, and populates it, when it is c's turn.
// net.ErrClosed: c's process is gone. errReplaced: c's request was broken off. Then nothing is
// left of the memory soon.
func (p *populator) populate(c *connection, size int, create func() (*shm.Mapping, error)) (*shm.Mapping, error) {
	p.waiting.Add(uint64(size))
	leave, err := p.enter(c)
	p.waiting.Add(-uint64(size))
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := p.begin(&c.user, uint64(size)); err != nil {
		return nil, err
	}
	defer p.end(uint64(size))
	file, err := create()
	if err != nil {
		return nil, err
	}
	if err := file.Populate(c.goesOn); err != nil {
		go file.Close() // the kernel takes about as long as for populating it
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	return file, nil
}

// enter waits for a turn of c's user. leave ends the turn.
func (p *populator) enter(c *connection) (leave func(), err error) {
	account := c.user.Account
	p.mu.Lock()
	u := p.users[account]
	if u == nil {
		u = make(chan struct{}, 1)
		p.users[account] = u
	}
	p.here[account]++
	p.mu.Unlock()
	var taken []chan struct{}
	leave = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, turn := range taken {
			<-turn
		}
		if p.here[account]--; p.here[account] == 0 {
			delete(p.here, account)
			delete(p.users, account)
		}
	}
	for _, turn := range []chan struct{}{u, p.turns} {
		select {
		case turn <- struct{}{}:
			taken = append(taken, turn)
		case <-c.brokenOff():
		case <-c.over:
		}
	}
	if err := c.goesOn(); err != nil || len(taken) < 2 {
		leave()
		return nil, cmp.Or(err, errReplaced)
	}
	return leave, nil
}

// begin reserves size bytes of the cgroup's memory for u, whose memory they count in already.
// ENOMEM: they do not fit, see cgroups.fits.
func (p *populator) begin(u *quota.User, size uint64) error {
	own, users := p.memory.Of(u.Account)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cgroups.fits(u, need{size: size, own: own, users: users, pending: p.bytes, mapped: p.mapped(size), buffers: p.own}); err != nil {
		return err
	}
	p.bytes += size
	p.now++
	p.most = max(p.most, p.now)
	return nil
}

// mapped is how many bytes all sessions have beside size more, and the daemon's records of that.
func (p *populator) mapped(size uint64) uint64 {
	all := p.memory.Sum()
	has := all.Shared + all.Registered + all.Records
	return has - min(has, size+p.waiting.Load())
}

// end gives up what begin reserved: the bytes are populated, or never will be.
func (p *populator) end(size uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= size
	p.now--
}
