package rds

import (
	"maps"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/shm"
)

// mappings are all memory that a client shares with the daemon, and the daemon's
// doorbell.
type mappings struct {
	local attach.Memory // nil: descriptors
	bell  int           // our end of the daemon's doorbell, 0 = none

	mu   sync.Mutex
	maps map[*byte]*shm.Mapping // by first byte
}

// open maps the memory that fd stands for. fd stays open.
func (m *mappings) open(fd, size int, writable bool) ([]byte, error) {
	if m.local != nil {
		return m.local.Map(fd, size, writable)
	}
	mp, err := shm.MapFD(fd, size, writable)
	if err != nil {
		return nil, err
	}
	return m.keep(mp)
}

// keep notes a mapping, which it unmaps if the client was closed.
func (m *mappings) keep(mp *shm.Mapping) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.maps == nil {
		_ = mp.Close()
		return nil, ErrClosed
	}
	m.maps[&mp.Mem[0]] = mp
	return mp.Mem, nil
}

// close unmaps mem.
func (m *mappings) close(mem []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mp := m.maps[&mem[0]]; mp != nil {
		delete(m.maps, &mem[0])
		_ = mp.Close()
	}
}

func (m *mappings) closeAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mp := range m.maps {
		_ = mp.Close()
	}
	m.maps = nil
	if m.bell > 0 {
		_ = unix.Close(m.bell)
		m.bell = 0
	}
}

// adopt takes over what n has, and unmaps what m has had, but for the mappings in keep.
func (m *mappings) adopt(n *mappings, keep map[*byte]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for first, mp := range m.maps {
		if !keep[first] {
			delete(m.maps, first)
			_ = mp.Close()
		}
	}
	if m.bell > 0 {
		_ = unix.Close(m.bell)
	}
	maps.Copy(m.maps, n.maps)
	m.local, m.bell = n.local, n.bell
}

func (m *mappings) closeFDs(fds []int) {
	if m.local != nil {
		return
	}
	for _, fd := range fds {
		if fd >= 0 { // -1: taken over
			_ = unix.Close(fd)
		}
	}
}
