package engine

import (
	"errors"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// handOverRegion has a region go over. Regions go in the order in which they were registered. Whom they are
// granted to goes over with the hosts.
func (x *crossing) handOverRegion(g *region) {
	s := x.s
	x.part(nil)
	var buf uint32
	iova, waits := uint32(g.cookie>>32), g.waiting != nil
	if !s.Reads() {
		buf = g.buf.id
	}
	s.U32(&g.id)
	s.U32(&g.number)
	x.socks.Ref(s, &g.sock, "socket")
	s.U32(&buf)
	s.U64(&g.off)
	s.U64(&g.n)
	s.U32(&iova)
	rights := g.rights
	if s.Version() < 4 {
		rights &^= abi.Open // there nobody asks: the region is good for those who have it
	}
	s.U32((*uint32)(&rights))
	f, known := s.Flags(&g.spent, &g.ended, &g.once.set, &waits)
	if s.Addr(&g.once.host); !s.Reads() || s.Err() != nil {
		return
	}
	g.rights = rights
	x.part(g.sock.cl)
	g.buf = g.sock.cl.buffers[buf]
	switch {
	case g.buf == nil, g.sock.closed && g.waiting != nil:
		s.Fail("region %#x in buffer %d", g.id, buf)
	case x.keys.by[g.id] != nil || g.number == 0 || !known || g.once.host.IsValid() && !g.once.set,
		g.rights&abi.AnyRight == 0 || g.rights&^regionRights != 0:
		s.Fail("region %#x of number %d, flags %#x, rights %#x", g.id, g.number, f, uint32(g.rights))
	case g.n == 0 || !g.buf.has(g.off, g.n):
		s.Fail("region %#x of %d bytes at %d in a buffer of %d", g.id, g.n, g.off, len(g.buf.mem))
	}
	if s.Err() != nil {
		return
	}
	g.cookie = rdmaop.MakeCookie(g.id, iova)
	if waits {
		g.waiting = x.later(g.sock.cl, Awaited{true, g.id})
	}
	x.part(nil) // what a device refuses is no fault of the process
	x.registerAgain(g, uint64(iova))
}

// registerAgain makes g a region with the key that it had, if the devices take it.
func (x *crossing) registerAgain(g *region, iova uint64) {
	mr, err := x.keys.regMRKey(failpoint.RegisterRegion, g.sock.local, g.buf.mem[g.off:][:g.n:g.n], iova, regionAccess(g.rights), g.id)
	if errors.Is(err, errChooses) {
		mr, err = lostMR{}, nil
	}
	if err != nil {
		x.s.Fail("register region %#x: %v", g.id, err)
		return
	}
	g.mr = mr
	x.keys.list(g) // taken out of its socket's again if its export is not live
}

// errChooses says that a region cannot have a key of the daemon's choice.
var errChooses = errors.New("the device chooses keys")

// regMRKey registers memory, that a socket at l grants, with a key that another engine had, on
// the devices that l is on. errChooses.
func (ks *keyTable) regMRKey(point string, l *localAddr, mem []byte, iova uint64, access verbs.Access, key uint32) (verbs.MR, error) {
	if err := failpoint.Hit(point); err != nil {
		return nil, err
	}
	var all verbs.MR
	for i, r := range ks.e.devices.rails {
		if l.listeners[i] == nil {
			continue
		}
		m, err := verbs.MR(nil), errChooses
		if pd, ok := r.pd.(verbs.Keyed); ok {
			m, err = pd.RegMRKey(mem, iova, access, key)
		}
		switch {
		case err != nil && all != nil:
			return nil, errors.Join(err, all.Dereg())
		case err != nil:
			return nil, err
		case all != nil:
			m = &twoMR{all, m}
		}
		all = m
	}
	if all == nil {
		return nil, errChooses
	}
	return all, nil
}

// lostMR stands for the memory of a region whose key the device did not take. The region is
// there until those who were granted it have given its key back, and no other one gets the key
// before.
type lostMR struct{ verbs.MR }

func (lostMR) Allow(verbs.PeerKey)    {}
func (lostMR) Disallow(verbs.PeerKey) {}
func (lostMR) Dereg() error           { return nil }

// endLost takes back the keys that the devices did not take.
func (ks *keyTable) endLost() {
	var lost []*region
	for at := ks.all.Head; at != nil; at = at.Next {
		if _, is := at.Of.mr.(lostMR); is {
			lost = append(lost, at.Of)
		}
	}
	for _, g := range lost {
		ks.releaseRegion(g)
	}
}

// regionAccess is what a device is told of a region's rights.
func regionAccess(rights abi.Rights) verbs.Access {
	access := verbs.AccessRestricted | verbs.AccessLocalWrite
	if rights&abi.RightRead != 0 {
		access |= verbs.AccessRemoteRead
	}
	if rights&abi.RightWrite != 0 {
		access |= verbs.AccessRemoteWrite
	}
	if rights&abi.RightAtomic != 0 {
		access |= verbs.AccessRemoteAtomic
	}
	return access
}
