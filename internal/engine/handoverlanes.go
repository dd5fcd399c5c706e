package engine

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
)

// ctlNumber marks the number of an internal message in a connection's state. The others are
// those of clients' messages.
const ctlNumber = 1 << 31

// handOverPeer has a lane of h go over: p, if it is written.
func (x *crossing) handOverPeer(h *remote, p *peer) {
	s := x.s
	var lane lanePath
	var wasUp, parted, asked, onTCP, moving bool
	var askedBy config.Account
	if !s.Reads() {
		if p.partials > 0 || p.breaking || p.emptying || p.isUp {
			s.Refuse(errNotStill)
		}
		onTCP = !p.c.profile().rdma
		if p.moving && s.Version() < 7 {
			s.Refuse(ErrPaths)
		}
		if lane, wasUp, parted, moving, asked = p.at(), p.wasUp, p.parted, p.moving, p.askedBy != nil; asked {
			askedBy = p.askedBy.of
			asked = quota.HandedOver(s, askedBy)
		}
	}
	x.handOverLane(&lane)
	f, known := s.Flags(&wasUp, &parted, &asked, &onTCP, &moving)
	if asked {
		quota.HandOver(s, &askedBy)
	}
	if s.Reads() {
		if onTCP != x.tcpPeer(h.local, h.addr) {
			s.Fail("the settings have another transport for %v, with which this host is connected: restart the daemon instead", h.addr)
		}
		if h.lane(lane) != nil || !known || parted && !wasUp || onTCP && lane != 0 || moving && h.paths == 0 {
			s.Fail("lane %d of %v is there twice, or its flags are %#x", lane, h.addr, f)
		}
		if s.Err() != nil {
			return
		}
		p = x.peers.newPeer(h, lane)
		if p.wasUp, p.parted, p.moving = wasUp, parted, moving; asked {
			x.users.asked(p, x.users.account(askedBy)) // who may have no process any more
		}
	}
	s.U64(&p.begun)
	s.U64(&p.ups)
	s.U64(&p.downs)
	s.U64(&p.warned)
	s.U8(&p.reach.why)
	s.U8(&p.reach.last)
	s.Text(&p.lastEvent, mostText)
	p.took.handOver(s)
	if p.begun > x.clock || p.warned > h.untoldAt || p.reach.why > shm.ReachOther || p.reach.last > shm.ReachOther {
		s.Fail("lane %d of %v began at %d, was warned up to %d, and is not reached for %d or %d", lane, h.addr, p.begun, p.warned, p.reach.why, p.reach.last)
	}
	p.c.handOver(x)
}

func (t *byTCP) handOver(x *crossing) {
	s := x.s
	if s.Reads() {
		t.QueueCong(&t.p.local.cong)
	}
	if err := s.Inner(mostState, func(v uint16) ([]byte, error) { return t.Encode(v, x.number) }, func(state []byte) error { return t.Adopt(state, x.find) }); err != nil {
		s.Refuse(fmt.Errorf("%v: %w", t.p.addr, err))
	}
}

// handOver has q's connection go over behind the internal messages that it has.
func (q *byQP) handOver(x *crossing) {
	s, found := x.s, 0
	s.Int(&q.misses, 1<<31)
	s.I64(&q.fallUntil)
	s.Error(&q.fellWhy, mostText)
	var ctls []*ctlMsg
	var state []byte
	if !s.Reads() {
		var err error
		state, err = q.Encode(s.Version(), func(m *msg.Msg) uint32 {
			t, ok := m.Owner.(*ctlMsg)
			if !ok {
				return x.number(m)
			}
			ctls = append(ctls, t)
			return ctlNumber | uint32(len(ctls)-1)
		})
		if s.Refuse(err); len(ctls) != q.p.ctls {
			s.Refuse(errNotStill) // one is nowhere
		}
	}
	for i := range s.Count(len(ctls), mostCtls, 2+4+2+4+1+4) {
		t := x.handOverCtl(q, handover.Nth(s, ctls, i))
		if s.Err() != nil {
			return
		}
		if s.Reads() {
			ctls = append(ctls, t)
		}
	}
	if s.Blob(&state, mostState); !s.Reads() || s.Err() != nil {
		return
	}
	q.QueueCong(&q.p.local.cong) // it may have been told of a map that is empty now
	err := q.Adopt(state, func(n uint32) *msg.Msg {
		if n&ctlNumber == 0 {
			return x.find(n)
		}
		if n &^= ctlNumber; n >= uint32(len(ctls)) {
			return nil
		}
		found++
		return &ctls[n].m
	})
	if err != nil {
		s.Fail("lane %d of %v: %v", q.p.lane, q.p.addr, err)
	} else if found != len(ctls) {
		s.Fail("lane %d of %v has %d of its %d internal messages", q.p.lane, q.p.addr, found, len(ctls))
	}
}

// handOverCtl has an internal message of q go over: t, if it is written. It returns the message.
func (x *crossing) handOverCtl(q *byQP, t *ctlMsg) *ctlMsg {
	s := x.s
	var kind wire.InternalType
	var rkey, id uint32
	var data []byte
	if !s.Reads() {
		kind, rkey, data = t.m.Internal, t.rkey, t.m.Data
		if kind == wire.TypeAsk && s.Version() < 4 { // not known there: an answer to what nobody has asked
			kind, data = wire.TypeRevoked, (&wire.Revoke{Lanes: 1}).Append(nil)
		}
		if t.region != nil {
			id = t.region.id
		}
	}
	s.U16((*uint16)(&kind))
	s.U32(&rkey)
	if s.Reads() {
		t = x.peers.ctl(q.p, kind, rkey)
	}
	s.U16(&t.port)
	s.U32(&id)
	s.Bool((*bool)(&t.by))
	t.m.Owed = t.m.Owed || id == 0 || t.by == byCookie
	if s.Blob(&data, len(t.buf)); s.Reads() {
		t.m.Data = t.buf[:copy(t.buf[:], data)]
		x.checkCtl(t, id)
	}
	return t
}

// checkCtl checks an internal message, and lists it at the region with the key id that it
// grants.
func (x *crossing) checkCtl(t *ctlMsg, id uint32) {
	var err error
	var g wire.Grant
	switch t.m.Internal {
	case wire.TypeGrant:
		g, err = wire.ParseGrant(t.m.Data)
	case wire.TypeGrantNak:
		_, err = wire.ParseGrantNak(t.m.Data)
	case wire.TypeRevoke, wire.TypeRevoked:
		_, err = wire.ParseRevoke(t.m.Data)
	case wire.TypeAsk:
		_, err = wire.ParseAsk(t.m.Data)
	default:
		x.s.Fail("an internal message of type %d", t.m.Internal)
	}
	if err != nil {
		x.s.Fail("%v", err)
	}
	if id == 0 || x.s.Err() != nil {
		return
	}
	of := x.keys.by[id]
	if of == nil || g.Cookie != of.cookie || g.Grantee != t.port {
		x.s.Fail("a GRANT of region %#x to port %d is of another", id, t.port)
		return
	}
	t.region = of
	of.queued.Add(&t.inRegion, t)
	if t.by == byExpose && t.p.several() {
		t.p.holdsFor(t)
	}
}
