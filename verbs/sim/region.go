package sim

import (
	"fmt"
	"slices"

	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// MR implements verbs.MR. Its keys differ, so that mixing them up shows.
type MR struct {
	pd         *PD
	mem        []byte
	iova       uint64
	access     verbs.Access
	lkey, rkey uint32
	slot       int
	gen        uint8
	allowed    map[verbs.PeerKey]struct{}
	gone       bool
	windows    int // bound to it
	served     *verbs.Served
	letting    *letting

	window *MW // of a window: which, and the region
	parent *MR
	owner  *QP // type 2: the only QP it is good on
}

var _ verbs.Metered = (*MR)(nil)

// CountIn implements verbs.Metered.
func (mr *MR) CountIn(s *verbs.Served) { mr.served = s }

// moved counts what a request of the peer has written to the region of stag, or has read of it.
func (q *QP) moved(stag uint32, written, read uint64) {
	q.stats.Written += written
	q.stats.Read += read
	mr := q.dev.region(stag)
	if mr.parent != nil {
		mr = mr.parent
	}
	mr.served.Add(written, read)
}

const maxRegions = 1 << 22 // key slots above keyBase

// RegMR implements verbs.PD.
func (pd *PD) RegMR(mem []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
	if err := pd.usable("RegMR"); err != nil {
		return nil, err
	}
	if err := pd.dev.checkRegion(mem, iova, access); err != nil {
		return nil, err
	}
	mr := &MR{pd: pd, mem: mem, iova: iova, access: access}
	if !pd.dev.addRegion(mr, access&remoteRights != 0) {
		return nil, fmt.Errorf("sim: RegMR: no key free: %w", unix.ENOMEM)
	}
	pd.uses++
	return mr, nil
}

func (d *Device) checkRegion(mem []byte, iova uint64, access verbs.Access) error {
	const known = verbs.AccessLocalWrite | remoteRights | verbs.AccessMWBind | verbs.AccessZeroBased | verbs.AccessPrivate | verbs.AccessRestricted
	switch remote := verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic; {
	case access&^known != 0:
		return d.invalid("RegMR", fmt.Sprintf("unknown access flags %#x", uint64(access&^known)))
	case access&verbs.AccessZeroBased != 0 && iova != 0:
		return d.invalid("RegMR", fmt.Sprintf("zero-based region at %#x", iova))
	case len(mem) == 0:
		return d.invalid("RegMR", "empty region")
	case iova+uint64(len(mem))-1 < iova:
		return d.invalid("RegMR", fmt.Sprintf("%d bytes at %#x wrap around", len(mem), iova))
	case access&remote != 0 && access&verbs.AccessLocalWrite == 0:
		return d.invalid("RegMR", "remote write or atomic access without local write")
	}
	return nil
}

var _ verbs.Keyed = (*PD)(nil)

// RegMRKey implements verbs.Keyed.
func (pd *PD) RegMRKey(mem []byte, iova uint64, access verbs.Access, key uint32) (verbs.MR, error) {
	if err := pd.usable("RegMRKey"); err != nil {
		return nil, err
	}
	d := pd.dev
	if err := d.checkRegion(mem, iova, access); err != nil {
		return nil, err
	}
	switch {
	case key>>8 == 0:
		return nil, d.invalid("RegMRKey", fmt.Sprintf("key %#x", key))
	case d.slotOf(key) >= 0 || d.kept[key>>8] != nil:
		return nil, fmt.Errorf("sim: RegMRKey: key %#x is in use: %w", key, unix.EEXIST)
	}
	mr := &MR{pd: pd, mem: mem, iova: iova, access: access, slot: noSlot, gen: uint8(key), rkey: key, lkey: key ^ 0x80}
	d.kept[key>>8] = mr
	pd.uses++
	return mr, nil
}

// noSlot is the slot of a region under a key that the device did not choose.
const noSlot = -1

// addRegion gives mr a slot and keys; remote: peers may have rights. It returns false if none is free.
func (d *Device) addRegion(mr *MR, remote bool) bool {
	// A slot rests until many others have been used, and comes back with
	// other low bits.
	rested := -1
	if len(d.freeSlots) > 64 || len(d.regions) == maxRegions {
		rested = slices.IndexFunc(d.freeSlots, func(slot int) bool { return d.kept[d.index(slot, remote)] == nil })
	}
	switch {
	case rested >= 0:
		mr.slot = d.freeSlots[rested]
		d.freeSlots = slices.Delete(d.freeSlots, rested, rested+1)
		mr.gen = d.regions[mr.slot].gen + 1
		d.regions[mr.slot] = mr
	case len(d.regions) == maxRegions:
		return false
	default:
		for d.kept[d.index(len(d.regions), remote)] != nil {
			d.regions = append(d.regions, &MR{gone: true}) // its number is taken
		}
		mr.slot = len(d.regions)
		mr.gen = uint8(d.net.rand.key.below(256))
		d.regions = append(d.regions, mr)
	}
	key := d.index(mr.slot, remote) << 8
	mr.rkey, mr.lkey = key|uint32(mr.gen), key|uint32(mr.gen^0x80)
	return true
}

// Rereg implements verbs.MR. The slot stays, the keys change.
func (mr *MR) Rereg(mem []byte, iova uint64, access verbs.Access) error {
	d := mr.pd.dev
	switch {
	case d.dead:
		return d.deadError("Rereg")
	case mr.gone:
		return d.invalid("Rereg", "region deregistered")
	case mr.windows > 0:
		return fmt.Errorf("sim: Rereg: %d memory windows bound: %w", mr.windows, unix.EBUSY)
	}
	if err := d.checkRegion(mem, iova, access); err != nil {
		return err
	}
	mr.mem, mr.iova, mr.access, mr.allowed = mem, iova, access, nil
	mr.gen++
	key := mr.rkey &^ 0xff
	mr.rkey, mr.lkey = key|uint32(mr.gen), key|uint32(mr.gen^0x80)
	return nil
}

// LKey implements verbs.MR.
func (mr *MR) LKey() uint32 { return mr.lkey }

// RKey implements verbs.MR.
func (mr *MR) RKey() uint32 { return mr.rkey }

// IOVA implements verbs.MR.
func (mr *MR) IOVA() uint64 { return mr.iova }

// Len implements verbs.MR.
func (mr *MR) Len() uint64 { return uint64(len(mr.mem)) }

// Allow implements verbs.MR.
func (mr *MR) Allow(p verbs.PeerKey) {
	if mr.allowed == nil {
		mr.allowed = map[verbs.PeerKey]struct{}{}
	}
	mr.allowed[p] = struct{}{}
}

// Disallow implements verbs.MR.
func (mr *MR) Disallow(p verbs.PeerKey) { delete(mr.allowed, p) }

// Dereg implements verbs.MR.
func (mr *MR) Dereg() error {
	d := mr.pd.dev
	if d.dead {
		return nil
	}
	if mr.gone {
		return d.invalid("Dereg", "region already deregistered")
	}
	if mr.windows > 0 {
		return fmt.Errorf("sim: Dereg: %d memory windows bound: %w", mr.windows, unix.EBUSY)
	}
	mr.gone, mr.mem = true, nil
	mr.letGo()
	mr.pd.uses--
	if mr.slot == noSlot {
		delete(d.kept, mr.rkey>>8)
	} else {
		d.freeSlots = append(d.freeSlots, mr.slot)
	}
	return nil
}

// ownBase is above what index returns for regions in which peers have rights, see verbs.Keyed.
const ownBase = 1<<24 - maxRegions

// index returns the upper 24 bits of the key of a slot.
func (d *Device) index(slot int, remote bool) uint32 {
	if remote {
		return d.keyBase + uint32(slot)
	}
	return ownBase + uint32(slot)
}

// slotOf returns the slot of a key that the device chose, noSlot for another.
func (d *Device) slotOf(key uint32) int {
	i := int64(key>>8) - int64(d.keyBase)
	if key>>8 >= ownBase {
		i = int64(key>>8) - ownBase
	}
	if i < 0 || i >= int64(len(d.regions)) || d.regions[i].rkey>>8 != key>>8 {
		return noSlot
	}
	return int(i)
}

// region returns the live region of a key.
func (d *Device) region(key uint32) *MR {
	if mr := d.kept[key>>8]; mr != nil {
		return mr
	}
	if i := d.slotOf(key); i != noSlot && !d.regions[i].gone {
		return d.regions[i]
	}
	return nil
}

func (mr *MR) slice(addr uint64, n uint32) []byte {
	off := addr - mr.iova // wraps for addr < iova: then too large
	if size := uint64(len(mr.mem)); off > size || uint64(n) > size-off {
		return nil
	}
	return mr.mem[off : off+uint64(n) : off+uint64(n)]
}

// local returns the memory of an SGE, or nil if pd has no right to use it so.
func (pd *PD) local(s *verbs.SGE, need verbs.Access) []byte {
	mr := pd.dev.region(s.LKey)
	if mr == nil || mr.lkey != s.LKey || mr.window != nil || mr.pd != pd || mr.access&need != need {
		return nil
	}
	return mr.slice(s.Addr, s.Length)
}

// remote returns the memory that a peer's request names. With a status other than
// WCSuccess the request is refused, and the requester gets that status.
func (q *QP) remote(m *msg, n uint32, right verbs.Access) ([]byte, verbs.WCStatus) {
	if q.attr.Access&right == 0 {
		return nil, verbs.WCRemInvReqErr
	}
	mr := q.dev.region(m.rkey)
	if mr == nil || mr.rkey != m.rkey || mr.pd != q.pd || mr.access&right == 0 || mr.owner != nil && mr.owner != q {
		return nil, verbs.WCRemAccessErr
	}
	whole := mr
	if mr.parent != nil {
		whole = mr.parent
	}
	if whole.access&verbs.AccessRestricted != 0 {
		if _, ok := whole.allowed[q.attr.Peer]; !ok {
			return nil, verbs.WCRemAccessErr
		}
	}
	mem := mr.slice(m.raddr, n)
	if mem == nil {
		return nil, verbs.WCRemAccessErr
	}
	return mem, verbs.WCSuccess
}

// scatter copies data to the pieces of an SGE list. It returns false if a piece may
// not be written.
func (pd *PD) scatter(sgl []verbs.SGE, data []byte) bool {
	for i := range sgl {
		if len(data) == 0 {
			break
		}
		mem := pd.local(&sgl[i], verbs.AccessLocalWrite)
		if mem == nil {
			return false
		}
		data = data[copy(mem, data):]
	}
	return true
}

// gather copies the pieces of an SGE list to data. It returns false if a piece may
// not be read.
func (pd *PD) gather(data []byte, sgl []verbs.SGE) bool {
	for i := range sgl {
		mem := pd.local(&sgl[i], 0)
		if mem == nil {
			return false
		}
		data = data[copy(data, mem):]
	}
	return true
}

// writable reports whether every piece of a list may be written.
func (pd *PD) writable(sgl []verbs.SGE) bool {
	for i := range sgl {
		if pd.local(&sgl[i], verbs.AccessLocalWrite) == nil {
			return false
		}
	}
	return true
}
