package quota

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/rdsd/rdsd/internal/config"
	"golang.org/x/sys/unix"
)

const (
	// SharedEach is in bytes. SharedEach times limits.max_clients bounds the rings, tables
	// and arenas of all clients together. A client of the default size uses half of
	// SharedEach.
	SharedEach = 40 << 20
	// MaxMaps bounds the mappings made for clients. The kernel gives a process 65530
	// (vm.max_map_count), and the Go runtime ends a process that gets no mapping.
	MaxMaps = 32 << 10

	leastUnreceived = 1024
)

// MapsWithin returns how many mappings clients may have in a process that may open so many
// files. Each mapping has a descriptor. The other half is for connections.
func MapsWithin(files uint64) int { return int(min(files/2, MaxMaps)) }

// UnreceivedWithin returns how many descriptors clients may have been sent and not have
// received, all together, in a process that may open so many files. The kernel refuses to send
// one while all programs of the user have more than that number on their way. A sixteenth, or
// what a few processes get, leaves the rest to a planned restart and to other daemons of the
// user.
func UnreceivedWithin(files uint64) int {
	return int(min(files/2, max(files/16, leastUnreceived), MaxMaps))
}

// Memory counts the memory of the daemon that all clients together have. A session reserves
// memory here before it maps it, and gives back what it has unmapped. Any goroutine may
// call the methods.
type Memory struct {
	maxMaps                  int
	maxShared, maxRegistered uint64 // guarded by mu

	mu    sync.Mutex
	all   Taken
	users map[config.Account]*Taken // by User.Account; users without memory are not in it
}

// Taken is what is reserved: mappings, bytes of rings, tables and arenas, bytes of buffers, and
// what the daemon's records of all that may take.
type Taken struct {
	Maps               int
	Shared, Registered uint64
	Records            uint64
}

// NewMemory returns a Memory of which all clients together have at most so many mappings and
// bytes.
func NewMemory(maxMaps int, maxShared, maxRegistered uint64) *Memory {
	return &Memory{maxMaps: maxMaps, maxShared: maxShared, maxRegistered: maxRegistered, users: map[config.Account]*Taken{}}
}

// SetLimits sets other limits. A user with more than the new limit keeps it.
func (m *Memory) SetLimits(maxShared, maxRegistered uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maxShared, m.maxRegistered = maxShared, maxRegistered
}

// over reports whether more does not fit beside used. used may itself be over limit.
func over(used, more, limit uint64) bool { return used > limit || more > limit-used }

// Take reserves one mapping with shared bytes of shared memory and registered bytes of a
// buffer. Its error is ENOBUFS and names the limit or quota.
func (m *Memory) Take(u *User, shared, registered uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.of(u)
	switch {
	case over(m.all.Shared, shared, m.maxShared):
		return fmt.Errorf("%w: rings and arenas of all clients have %d bytes, at most %d (limits.max_clients times %d)",
			unix.ENOBUFS, m.all.Shared, m.maxShared, SharedEach)
	case over(m.all.Registered, registered, m.maxRegistered):
		return fmt.Errorf("%w: %d bytes asked, limits.max_registered_bytes = %d, %d in use",
			unix.ENOBUFS, registered, m.maxRegistered, m.all.Registered)
	}
	if err := cmp.Or(
		u.MayShare("mappings for clients", own.Maps, m.all.Maps, m.maxMaps),
		u.May(config.QueuedBytes, own.Shared, shared),
		u.May(config.RegisteredBytes, own.Registered, registered)); err != nil {
		return err
	}
	m.take(u, own, shared, registered)
	return nil
}

// Keep is Take of a mapping that u had of the daemon before this one. A user keeps what it
// has under other limits and quotas, so only the number of all mappings is limited.
func (m *Memory) Keep(u *User, shared, registered uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all.Maps >= m.maxMaps {
		return fmt.Errorf("%w: the daemon has its %d mappings for clients", unix.ENOBUFS, m.maxMaps)
	}
	m.take(u, m.of(u), shared, registered)
	return nil
}

// of returns what u has. Guarded by mu.
func (m *Memory) of(u *User) *Taken {
	if own := m.users[u.Account]; own != nil {
		return own
	}
	return &Taken{}
}

// take counts one more mapping of u, which has own. Guarded by mu.
func (m *Memory) take(u *User, own *Taken, shared, registered uint64) {
	m.users[u.Account] = own
	own.add(1, shared, registered)
	m.all.add(1, shared, registered)
}

// Hold counts n bytes of the daemon's own memory, in which it may come to have records of what
// u has, and Drop ends that. Only the daemon's memory cgroup limits them.
func (m *Memory) Hold(u *User, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.of(u)
	m.users[u.Account] = own
	own.Records += n
	m.all.Records += n
}

// Drop ends a Hold of n bytes.
func (m *Memory) Drop(u *User, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.of(u)
	own.Records -= n
	m.all.Records -= n
	m.forget(u, own)
}

// forget drops a user that has nothing. Guarded by mu.
func (m *Memory) forget(u *User, own *Taken) {
	if own.Maps == 0 && own.Records == 0 {
		delete(m.users, u.Account)
	}
}

// Give returns maps mappings with so many bytes in all.
func (m *Memory) Give(u *User, maps int, shared, registered uint64) {
	if maps == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all.add(-maps, -shared, -registered)
	own := m.users[u.Account]
	own.add(-maps, -shared, -registered)
	m.forget(u, own)
}

func (t *Taken) add(maps int, shared, registered uint64) {
	t.Maps += maps
	t.Shared += shared
	t.Registered += registered
}

func (t *Taken) bytes() uint64 { return t.Shared + t.Registered + t.Records }

// Of is how many bytes account has reserved, of all kinds, and how many users have any.
func (m *Memory) Of(account config.Account) (bytes uint64, users int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.users[account]; t != nil {
		bytes = t.bytes()
	}
	return bytes, len(m.users)
}

// OfUsers is what each account has.
func (m *Memory) OfUsers() map[config.Account]Taken {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[config.Account]Taken, len(m.users))
	for account, t := range m.users {
		out[account] = *t
	}
	return out
}

// Sum is what all users have.
func (m *Memory) Sum() Taken {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}
