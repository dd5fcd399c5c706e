//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// pd implements verbs.PD.
type pd struct {
	dev  *Device
	c    *C.struct_ibv_pd
	used int // number of regions, queue pairs and shared queues
	gone bool
}

// mr implements verbs.MR.
//
// A driver that ignores the wanted address (siw) gives a region the address of its memory.
// For local work requests, this package translates addresses (shift). The peer cannot
// translate. For the peer, the memory is mapped a second time at the wanted address
// (alias). That needs shared memory, such as a memfd's, and an address at which a mapping
// is possible.
type mr struct {
	pd    *pd
	c     *C.struct_ibv_mr
	lkey  uint32
	rkey  uint32
	iova  uint64
	mem   []byte
	shift uint64 // added to an address of the region, gives the driver's
	alias uintptr
}

const rights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessMWBind | verbs.AccessZeroBased
const remote = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

func (p *pd) alive() error {
	if p.gone && !p.dev.closed {
		return invalid("the protection domain is deallocated")
	}
	return p.dev.alive()
}

// Dealloc implements verbs.PD.
func (p *pd) Dealloc() error {
	if err := p.alive(); err != nil {
		return err
	}
	if p.used > 0 {
		return fmt.Errorf("ibv: the protection domain is in use by %d objects: %w", p.used, unix.EBUSY)
	}
	if e := C.ibv_dealloc_pd(p.c); e != 0 {
		return errno(e, "protection domain")
	}
	p.gone = true
	delete(p.dev.pds, p)
	return nil
}

// AllocMW implements verbs.PD. It always fails: there is no CapMW.
func (p *pd) AllocMW(verbs.MWType) (verbs.MW, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("ibv: memory windows: %w", unix.EOPNOTSUPP)
}

func checkRegion(mem []byte, iova uint64, a verbs.Access) error {
	switch {
	case len(mem) == 0:
		return invalid("an empty region")
	case iova+uint64(len(mem))-1 < iova:
		return invalid("the region's addresses wrap around")
	case a&^(rights|verbs.AccessPrivate|verbs.AccessRestricted) != 0:
		return invalid("unknown access rights %#x", uint64(a))
	case a&verbs.AccessZeroBased != 0 && iova != 0:
		return invalid("a zero-based region at %#x", iova)
	case a&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && a&verbs.AccessLocalWrite == 0:
		return invalid("remote write and atomic access need local write")
	}
	return nil
}

// RegMR implements verbs.PD.
func (p *pd) RegMR(mem []byte, iova uint64, a verbs.Access) (verbs.MR, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	m := &mr{pd: p}
	if err := m.register(mem, iova, a); err != nil {
		return nil, err
	}
	p.used++
	return m, nil
}

// register sets all fields of m but pd.
func (m *mr) register(mem []byte, iova uint64, a verbs.Access) error {
	d := m.pd.dev
	if err := checkRegion(mem, iova, a); err != nil {
		return err
	}
	va := uintptr(unsafe.Pointer(&mem[0]))
	n := mr{pd: m.pd, iova: iova, mem: mem}
	at := iova
	if d.siw {
		if a&remote != 0 && iova != uint64(va) {
			alias, err := mapAt(va, uintptr(iova), uintptr(len(mem)))
			if err != nil {
				return fmt.Errorf("ibv: %s has no region at %#x, only at its memory's address, and %w", d.name, iova, err)
			}
			n.alias, va = alias, uintptr(iova)
		}
		at = uint64(va)
		n.shift = at - iova
	}
	flags := C.int(a & (verbs.AccessLocalWrite | remote | verbs.AccessMWBind))
	var e C.int
	if n.c = C.ibvx_reg(m.pd.c, C.uintptr_t(va), C.size_t(len(mem)), C.uint64_t(at), flags, &e); n.c == nil {
		n.unmap()
		return regError(unix.Errno(e), len(mem))
	}
	n.lkey, n.rkey = uint32(n.c.lkey), uint32(n.c.rkey)
	if n.rkey == 0 { // rxe gives none without remote rights
		n.rkey = n.lkey
	}
	*m = n
	d.mrs[n.lkey] = m
	return nil
}

// mapAt maps the shared memory at va once more at another address.
func mapAt(va, at, n uintptr) (uintptr, error) {
	page := uintptr(unix.Getpagesize())
	off := va % page
	if at%page != off || at < 16*page {
		return 0, fmt.Errorf("no mapping can be there: %w", unix.EOPNOTSUPP)
	}
	base, size := at-off, (off+n+page-1)/page*page
	const noReplace = 0x100000 // MAP_FIXED_NOREPLACE
	got, _, e := unix.Syscall6(unix.SYS_MMAP, base, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|noReplace, ^uintptr(0), 0)
	if e != 0 {
		return 0, fmt.Errorf("that address is taken: %w (%w)", unix.EOPNOTSUPP, e)
	}
	if _, _, e = unix.Syscall6(unix.SYS_MREMAP, va-off, 0, size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, base, 0); e != 0 {
		_, _, _ = unix.Syscall(unix.SYS_MUNMAP, got, size, 0)
		return 0, fmt.Errorf("memory that is not shared cannot be mapped twice: %w (%w)", unix.EOPNOTSUPP, e)
	}
	return base, nil
}

func (m *mr) unmap() {
	if m.alias == 0 {
		return
	}
	page := uint64(unix.Getpagesize())
	size := (m.iova%page + uint64(len(m.mem)) + page - 1) / page * page
	_, _, _ = unix.Syscall(unix.SYS_MUNMAP, m.alias, uintptr(size), 0)
	m.alias = 0
}

// regError explains a failed registration.
func regError(e unix.Errno, n int) error {
	var l unix.Rlimit
	switch e {
	case unix.ENOMEM, unix.EAGAIN:
		if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil && l.Cur != unix.RLIM_INFINITY {
			return fmt.Errorf("ibv: registering %d bytes: %w: it is %d bytes; raise it (LimitMEMLOCK=infinity, ulimit -l unlimited) (%w)", n, ErrMemlock, l.Cur, e)
		}
	case unix.EFAULT:
		return fmt.Errorf("ibv: registering %d bytes: the memory is not mapped for writing: %w", n, e)
	}
	return fmt.Errorf("ibv: registering %d bytes: %w", n, e)
}

// LKey implements verbs.MR.
func (m *mr) LKey() uint32 { return m.lkey }

// RKey implements verbs.MR.
func (m *mr) RKey() uint32 { return m.rkey }

// IOVA implements verbs.MR.
func (m *mr) IOVA() uint64 { return m.iova }

// Len implements verbs.MR.
func (m *mr) Len() uint64 { return uint64(len(m.mem)) }

// Allow implements verbs.MR. It does nothing: there is no CapRestrictedMR.
func (m *mr) Allow(verbs.PeerKey) {}

// Disallow implements verbs.MR. It does nothing.
func (m *mr) Disallow(verbs.PeerKey) {}

var errDeregistered = invalid("the region is deregistered")

// Dereg implements verbs.MR.
func (m *mr) Dereg() error {
	if err := m.dereg(); err != nil {
		return err
	}
	m.pd.used--
	return nil
}

func (m *mr) dereg() error {
	if m.c == nil {
		return errDeregistered
	}
	if m.pd.dev.closed {
		return errClosed
	}
	if e := C.ibv_dereg_mr(m.c); e != 0 {
		return errno(e, "deregistering")
	}
	delete(m.pd.dev.mrs, m.lkey)
	m.c = nil
	m.unmap()
	return nil
}

// drop ends a region when its device is closed.
func (m *mr) drop() {
	C.ibv_dereg_mr(m.c)
	m.c = nil
	m.unmap()
}

// Rereg implements verbs.MR.
func (m *mr) Rereg(mem []byte, iova uint64, a verbs.Access) error {
	if m.c == nil {
		return errDeregistered
	}
	if err := m.pd.alive(); err != nil {
		return err
	}
	n := &mr{pd: m.pd}
	if err := n.register(mem, iova, a); err != nil {
		return err
	}
	if err := m.dereg(); err != nil {
		_ = n.dereg()
		return err
	}
	*m = *n
	m.pd.dev.mrs[m.lkey] = m
	return nil
}
