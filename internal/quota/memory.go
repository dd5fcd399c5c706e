package quota

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/rdsd/rdsd/internal/config"
	"golang.org/x/sys/unix"
)

const (
	// SharedEach, bytes, for each of limits.max_clients bounds the rings,
	// tables and arenas of all clients together. A client of the default size
	// has half of it.
	SharedEach = 40 << 20
	// maxMaps bounds the mappings made for clients: the kernel gives a process
	// 65530 (vm.max_map_count), and without one the Go runtime ends it.
	maxMaps = 32 << 10
)

// Memory is what all clients together have of the daemon's memory. Sessions
// take from it before they make anything and give back what is unmapped. Safe
// for any goroutine.
type Memory struct {
	maxShared, maxRegistered uint64

	mu    sync.Mutex
	all   Taken
	users map[uint32]*Taken // by uid; none that has nothing
}

// Taken is how much: mappings, bytes of rings, tables and arenas, bytes of
// buffers.
type Taken struct {
	Maps               int
	Shared, Registered uint64
}

func NewMemory(maxShared, maxRegistered uint64) *Memory {
	return &Memory{maxShared: maxShared, maxRegistered: maxRegistered, users: map[uint32]*Taken{}}
}

// SetLimits takes other limits. Who has more keeps it.
func (m *Memory) SetLimits(maxShared, maxRegistered uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maxShared, m.maxRegistered = maxShared, maxRegistered
}

// over reports whether more does not fit beside used, which may be over limit
// itself.
func over(used, more, limit uint64) bool { return used > limit || more > limit-used }

// Take reserves one mapping of so many bytes of shared memory or of a buffer.
// ENOBUFS, naming the limit or quota.
func (m *Memory) Take(u *User, shared, registered uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.users[u.UID]
	if own == nil {
		own = &Taken{}
	}
	switch {
	case over(m.all.Shared, shared, m.maxShared):
		return fmt.Errorf("%w: rings and arenas of all clients have %d bytes, at most %d (limits.max_clients times %d)",
			unix.ENOBUFS, m.all.Shared, m.maxShared, SharedEach)
	case over(m.all.Registered, registered, m.maxRegistered):
		return fmt.Errorf("%w: %d bytes asked, limits.max_registered_bytes = %d, %d in use",
			unix.ENOBUFS, registered, m.maxRegistered, m.all.Registered)
	}
	if err := cmp.Or(
		u.MayShare("mappings for clients", own.Maps, m.all.Maps, maxMaps),
		u.May(config.QueuedBytes, own.Shared, shared),
		u.May(config.RegisteredBytes, own.Registered, registered)); err != nil {
		return err
	}
	m.users[u.UID] = own
	own.add(1, shared, registered)
	m.all.add(1, shared, registered)
	return nil
}

// Give returns maps mappings of so many bytes in all.
func (m *Memory) Give(u *User, maps int, shared, registered uint64) {
	if maps == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all.add(-maps, -shared, -registered)
	own := m.users[u.UID]
	own.add(-maps, -shared, -registered)
	if own.Maps == 0 {
		delete(m.users, u.UID)
	}
}

func (t *Taken) add(maps int, shared, registered uint64) {
	t.Maps += maps
	t.Shared += shared
	t.Registered += registered
}

// Of is the bytes that uid has, of either kind.
func (m *Memory) Of(uid uint32) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.users[uid]; t != nil {
		return t.Shared + t.Registered
	}
	return 0
}

// OfUsers is what each user has, by uid.
func (m *Memory) OfUsers() map[uint32]Taken {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[uint32]Taken, len(m.users))
	for uid, t := range m.users {
		out[uid] = *t
	}
	return out
}

// Sum is what all users have.
func (m *Memory) Sum() Taken {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}
