package daemon

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// What one client may ask for, whatever is free.
const (
	maxWindows = 64      // of the arena, each way
	maxIDs     = 1 << 16 // messages in the daemon's hands; messages in the client's
	maxDests   = 1 << 17 // destination slots, barrier cells
	maxEntries = 1 << 17 // of the submission and event rings
	maxBuffers = 4096
	maxSegs    = 1 << 18 // local segments of operations not yet done

	// sharedEach, bytes, for each of limits.max_clients bounds the rings,
	// tables and arenas of all clients together. A client of the default size
	// has half of it.
	sharedEach = 40 << 20
	// maxMaps bounds the mappings made for clients: the kernel gives a process
	// 65530 (vm.max_map_count), and without one the Go runtime ends it.
	maxMaps = 32 << 10
)

// grantParams bounds what a process may ask for.
func grantParams(want shm.Params) (shm.Params, error) {
	p := want
	if p == (shm.Params{}) {
		p = shm.DefaultParams()
	}
	if err := p.Check(); err != nil {
		return p, fmt.Errorf("%w: %w", unix.EINVAL, err)
	}
	for _, f := range []struct {
		name   string
		v, max uint32
	}{{"SubEntries", p.SubEntries, maxEntries}, {"EventEntries", p.EventEntries, maxEntries},
		{"MaxMsgs", p.MaxMsgs, maxIDs}, {"MaxRx", p.MaxRx, maxIDs}, {"Slots", p.Slots, maxDests}, {"Cells", p.Cells, maxDests},
		{"SendWindows", p.SendWindows, maxWindows}, {"RecvWindows", p.RecvWindows, maxWindows}} {
		if f.v > f.max {
			return p, fmt.Errorf("%w: shared memory parameters: %s is %d, this daemon grants up to %d", unix.ENOBUFS, f.name, f.v, f.max)
		}
	}
	return p, nil
}

// memory is what all clients together have of the daemon's memory. Sessions
// take from it before they make anything and give back what is unmapped. Safe
// for any goroutine.
type memory struct {
	maxShared, maxRegistered uint64

	mu    sync.Mutex
	all   taken
	users map[uint32]*taken // by uid; none that has nothing
}

// taken is how much: mappings, bytes of rings, tables and arenas, bytes of
// buffers.
type taken struct {
	maps               int
	shared, registered uint64
}

func newMemory(maxShared, maxRegistered uint64) *memory {
	return &memory{maxShared: maxShared, maxRegistered: maxRegistered, users: map[uint32]*taken{}}
}

// setLimits takes other limits. Who has more keeps it.
func (m *memory) setLimits(maxShared, maxRegistered uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maxShared, m.maxRegistered = maxShared, maxRegistered
}

// over reports whether more does not fit beside used, which may be over limit
// itself.
func over(used, more, limit uint64) bool { return used > limit || more > limit-used }

// take reserves one mapping of so many bytes of shared memory or of a buffer.
// ENOBUFS, naming the limit or quota.
func (m *memory) take(u *user, shared, registered uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.users[u.uid]
	if own == nil {
		own = &taken{}
	}
	switch {
	case over(m.all.shared, shared, m.maxShared):
		return fmt.Errorf("%w: rings and arenas of all clients have %d bytes, at most %d (limits.max_clients times %d)",
			unix.ENOBUFS, m.all.shared, m.maxShared, sharedEach)
	case over(m.all.registered, registered, m.maxRegistered):
		return fmt.Errorf("%w: %d bytes asked, limits.max_registered_bytes = %d, %d in use",
			unix.ENOBUFS, registered, m.maxRegistered, m.all.registered)
	}
	if err := cmp.Or(
		u.mayShare("mappings for clients", own.maps, m.all.maps, maxMaps),
		u.may(config.QueuedBytes, own.shared, shared),
		u.may(config.RegisteredBytes, own.registered, registered)); err != nil {
		return err
	}
	m.users[u.uid] = own
	own.add(1, shared, registered)
	m.all.add(1, shared, registered)
	return nil
}

// give returns maps mappings of so many bytes in all.
func (m *memory) give(u *user, maps int, shared, registered uint64) {
	if maps == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all.add(-maps, -shared, -registered)
	own := m.users[u.uid]
	own.add(-maps, -shared, -registered)
	if own.maps == 0 {
		delete(m.users, u.uid)
	}
}

func (t *taken) add(maps int, shared, registered uint64) {
	t.maps += maps
	t.shared += shared
	t.registered += registered
}

// of is the bytes that uid has, of either kind.
func (m *memory) of(uid uint32) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.users[uid]; t != nil {
		return t.shared + t.registered
	}
	return 0
}

// ofUsers is what each user has, by uid.
func (m *memory) ofUsers() map[uint32]taken {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[uint32]taken, len(m.users))
	for uid, t := range m.users {
		out[uid] = *t
	}
	return out
}

// maps is the mappings of all users.
func (m *memory) maps() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all.maps
}

// bufferSize is what a buffer of n bytes takes: whole pages.
func bufferSize(n uint64) (uint64, error) {
	if n == 0 || n > 1<<40 {
		return 0, fmt.Errorf("%w: a buffer of %d bytes", unix.EINVAL, n)
	}
	return (n + 4096 - 1) &^ (4096 - 1), nil
}

// printable makes a name that a process gave itself fit for logs and
// terminals.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, name)
}
