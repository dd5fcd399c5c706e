package afrds

import (
	"slices"
	"sync"
	"syscall"

	"github.com/rdsd/rdsd/rds"
)

// memory is the memory that user addresses may point into: buffers, by their
// addresses.
type memory struct {
	mu   sync.RWMutex
	maps []mapping // ascending, disjoint
}

type mapping struct {
	at  uint64
	buf *rds.Buffer
	mem []byte
}

// Alloc makes a buffer, as mmap makes memory, and returns the address of its first
// byte in the structures of this package. Errors: ENOMEM, EINVAL, ENOBUFS and others
// of rds.Client.Alloc.
func (k *Kernel) Alloc(size int) (*rds.Buffer, uint64, error) {
	b, err := k.c.Alloc(size)
	if err != nil {
		return nil, 0, errno(err)
	}
	return b, k.Map(b), nil
}

// Map announces the memory of a buffer that was made with the client, and returns
// the address of its first byte; 0 if the buffer was freed.
func (k *Kernel) Map(b *rds.Buffer) uint64 {
	mem := b.Bytes()
	if mem == nil {
		return 0
	}
	m := &k.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	at := addressOf(mem)
	i, found := m.search(at)
	if !found {
		m.maps = slices.Insert(m.maps, i, mapping{at, b, mem})
	} else {
		m.maps[i] = mapping{at, b, mem}
	}
	return at
}

// Unmap ends the addresses of b and frees it. EBUSY: regions or operations use it.
func (k *Kernel) Unmap(b *rds.Buffer) error {
	m := &k.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := b.Free(); err != nil {
		return errno(err)
	}
	m.maps = slices.DeleteFunc(m.maps, func(x mapping) bool { return x.buf == b })
	return nil
}

func (m *memory) search(at uint64) (int, bool) {
	return slices.BinarySearchFunc(m.maps, at, func(x mapping, at uint64) int {
		switch {
		case x.at < at:
			return -1
		case x.at > at:
			return 1
		}
		return 0
	})
}

// find returns the buffer that has the n bytes at address at, and their offset in
// it. n is above 0. EFAULT: no single buffer has them.
func (m *memory) find(at, n uint64) (*mapping, int, error) {
	i, found := m.search(at)
	if !found {
		i--
	}
	if i < 0 {
		return nil, 0, syscall.EFAULT
	}
	x := &m.maps[i]
	off := at - x.at
	if off > uint64(len(x.mem)) || n > uint64(len(x.mem))-off {
		return nil, 0, syscall.EFAULT
	}
	return x, int(off), nil
}

// segment returns the n bytes at address at as a Segment.
func (m *memory) segment(at, n uint64) (rds.Segment, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	x, off, err := m.find(at, n)
	if err != nil {
		return rds.Segment{}, err
	}
	return rds.Segment{Buf: x.buf, Off: off, Len: int(n)}, nil
}

// read returns a copy of the n bytes at address at.
func (m *memory) read(at, n uint64) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	x, off, err := m.find(at, n)
	if err != nil {
		return nil, err
	}
	return slices.Clone(x.mem[off : off+int(n)]), nil
}

// write copies b to address at.
func (m *memory) write(at uint64, b []byte) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	x, off, err := m.find(at, uint64(len(b)))
	if err != nil {
		return err
	}
	copy(x.mem[off:], b)
	return nil
}
