package soft

import (
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// keyTable finds memory regions by key. A key is a random 24-bit index, so that a
// peer cannot guess it, and an 8-bit count, so that a value does not come back soon. The
// lowest bit of the index is 1 if peers may have rights: see verbs.Keyed.
type keyTable struct {
	m    map[uint32]*mr // by index
	rng  *rand.ChaCha8
	next uint8
}

func (t *keyTable) init() {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails (documented)
	t.m, t.rng = map[uint32]*mr{}, rand.NewChaCha8(seed)
}

// add gives m a key. remote says that peers may have rights.
func (t *keyTable) add(m *mr, remote bool) bool {
	if len(t.m) >= maxMRs {
		return false
	}
	for {
		i := uint32(t.rng.Uint64()) >> 8 &^ 1
		if remote {
			i |= 1
		}
		if _, used := t.m[i]; i == 0 || used {
			continue
		}
		t.next++
		m.key = i<<8 | uint32(t.next)
		t.m[i] = m
		return true
	}
}

// addAs adds m under a key that somebody else chose.
func (t *keyTable) addAs(m *mr, key uint32) error {
	switch _, used := t.m[key>>8]; {
	case key>>8 == 0:
		return fmt.Errorf("soft: no region can have key %#x: %w", key, unix.EINVAL)
	case used:
		return fmt.Errorf("soft: key %#x is in use: %w", key, unix.EEXIST)
	case len(t.m) >= maxMRs:
		return fmt.Errorf("soft: all %d keys in use: %w", maxMRs, unix.ENOMEM)
	}
	m.key = key
	t.m[key>>8] = m
	if int8(uint8(key)-t.next) > 0 {
		t.next = uint8(key) // a key that comes back here goes on behind the last one
	}
	return nil
}

func (t *keyTable) get(key uint32) *mr {
	if m := t.m[key>>8]; m != nil && m.key == key && !m.dead {
		return m
	}
	return nil
}

// mr implements verbs.MR. Its lkey and rkey are the same value. A bound memory
// window is one, too.
type mr struct {
	dev     *Device
	pd      *pd
	mem     []byte
	iova    uint64
	access  verbs.Access
	key     uint32
	dead    bool
	allowed map[verbs.PeerKey]struct{}
	windows int // bound to it
	served  *verbs.Served

	used      int      // pieces of it that I/O threads have
	untouched []func() // to be called when they have none

	window *mw // of a window: which, and the region
	parent *mr
	owner  *qp // type 2: the only QP it is good on
}

func (m *mr) LKey() uint32 { return m.key }
func (m *mr) RKey() uint32 { return m.key }
func (m *mr) IOVA() uint64 { return m.iova }
func (m *mr) Len() uint64  { return uint64(len(m.mem)) }

// Allow implements verbs.MR.
func (m *mr) Allow(p verbs.PeerKey) {
	if m.allowed == nil {
		m.allowed = map[verbs.PeerKey]struct{}{}
	}
	m.allowed[p] = struct{}{}
}

// Disallow implements verbs.MR. A message of which a segment was already
// placed runs to its end.
func (m *mr) Disallow(p verbs.PeerKey) { delete(m.allowed, p) }

var _ verbs.Metered = (*mr)(nil)

// CountIn implements verbs.Metered.
func (m *mr) CountIn(s *verbs.Served) { m.served = s }

// moved counts what a request of the peer has written to m, or has read of it.
func (q *qp) moved(m *mr, written, read uint64) {
	q.stats.Written += written
	q.stats.Read += read
	if m.parent != nil {
		m = m.parent
	}
	m.served.Add(written, read)
}

func (m *mr) open(p verbs.PeerKey) bool {
	if m.parent != nil {
		m = m.parent
	}
	if m.access&verbs.AccessRestricted == 0 {
		return true
	}
	_, ok := m.allowed[p]
	return ok
}

// Dereg implements verbs.MR. Frames already made for the wire keep a copy of
// what they still have to send.
func (m *mr) Dereg() error {
	if m.dead {
		return fmt.Errorf("soft: region deregistered twice: %w", unix.EINVAL)
	}
	if m.windows > 0 {
		return m.errBound()
	}
	m.dead = true
	delete(m.dev.keys.m, m.key>>8)
	m.pd.users--
	m.dev.detach(m)
	m.mem = nil
	return nil
}

func (m *mr) errBound() error {
	return fmt.Errorf("soft: %d memory windows are bound to the region: %w", m.windows, unix.EBUSY)
}

// Rereg implements verbs.MR.
func (m *mr) Rereg(mem []byte, iova uint64, access verbs.Access) error {
	if m.dead {
		return fmt.Errorf("soft: region is deregistered: %w", unix.EINVAL)
	}
	if m.windows > 0 {
		return m.errBound()
	}
	if m.used > 0 {
		return fmt.Errorf("soft: an I/O thread touches the region: %w", unix.EBUSY)
	}
	if err := checkRegion(mem, iova, access); err != nil {
		return err
	}
	t := &m.dev.keys
	delete(t.m, m.key>>8)
	m.dev.detach(m)
	m.mem, m.iova, m.access, m.allowed = mem, iova, access, nil
	t.add(m, access&remoteRights != 0) // there is room: one has just gone
	return nil
}

// detach makes pending output independent of region m.
func (d *Device) detach(m *mr) {
	for at := d.writes.Head; at != nil; at = at.Next {
		at.Of.fillFrom(m)
		at.Of.out.detach(m)
	}
	if m.used == 0 {
		return
	}
	for _, j := range d.threads.jobs {
		if j.q != nil {
			j.q.enough() // perhaps for it
		}
	}
}

// slice returns [addr, addr+n) of the region, or nil if the region does not have it.
func (m *mr) slice(addr, n uint64) []byte {
	off := addr - m.iova
	size := uint64(len(m.mem))
	if addr < m.iova || off > size || n > size-off {
		return nil
	}
	return m.mem[off : off+n : off+n]
}

// pd implements verbs.PD.
type pd struct {
	dev   *Device
	users int
	gone  bool
}

var _ verbs.Keyed = (*pd)(nil)

// AllocPD implements verbs.Device.
func (d *Device) AllocPD() (verbs.PD, error) {
	if d.closed {
		return nil, errClosed
	}
	return &pd{dev: d}, nil
}

var errClosed = fmt.Errorf("soft: device is closed: %w", unix.ENODEV)

func (p *pd) usable() error {
	if p.dev.closed {
		return errClosed
	}
	if p.gone {
		return fmt.Errorf("soft: protection domain is gone: %w", unix.EINVAL)
	}
	return nil
}

// RegMR implements verbs.PD.
func (p *pd) RegMR(mem []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	if err := checkRegion(mem, iova, access); err != nil {
		return nil, err
	}
	m := &mr{dev: p.dev, pd: p, mem: mem, iova: iova, access: access}
	if !p.dev.keys.add(m, access&remoteRights != 0) {
		return nil, fmt.Errorf("soft: all %d keys in use: %w", maxMRs, unix.ENOMEM)
	}
	p.users++
	return m, nil
}

// RegMRKey implements verbs.Keyed.
func (p *pd) RegMRKey(mem []byte, iova uint64, access verbs.Access, key uint32) (verbs.MR, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	if err := checkRegion(mem, iova, access); err != nil {
		return nil, err
	}
	m := &mr{dev: p.dev, pd: p, mem: mem, iova: iova, access: access}
	if err := p.dev.keys.addAs(m, key); err != nil {
		return nil, err
	}
	p.users++
	return m, nil
}

func checkRegion(mem []byte, iova uint64, access verbs.Access) error {
	const remote = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	const known = verbs.AccessLocalWrite | verbs.AccessRemoteRead | remote | verbs.AccessMWBind | verbs.AccessZeroBased |
		verbs.AccessPrivate | verbs.AccessRestricted
	switch {
	case len(mem) == 0:
		return fmt.Errorf("soft: empty memory region: %w", unix.EINVAL)
	case iova+uint64(len(mem))-1 < iova:
		return fmt.Errorf("soft: region of %d bytes at %#x wraps around: %w", len(mem), iova, unix.EINVAL)
	case access&verbs.AccessZeroBased != 0 && iova != 0:
		return fmt.Errorf("soft: zero-based region at %#x: %w", iova, unix.EINVAL)
	case access&remote != 0 && access&verbs.AccessLocalWrite == 0:
		return fmt.Errorf("soft: remote write or atomic access needs local write: %w", unix.EINVAL)
	case access&^known != 0:
		return fmt.Errorf("soft: unknown access flags %#x: %w", uint64(access&^known), unix.EINVAL)
	}
	return nil
}

// Dealloc implements verbs.PD.
func (p *pd) Dealloc() error {
	if p.gone {
		return fmt.Errorf("soft: protection domain is gone: %w", unix.EINVAL)
	}
	if p.users > 0 {
		return fmt.Errorf("soft: protection domain in use by %d objects: %w", p.users, unix.EBUSY)
	}
	p.gone = true
	return nil
}
