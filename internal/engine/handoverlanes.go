package engine

import (
	"errors"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
)

// What a lane's record says of it.
const (
	laneWasUp = 1 << iota
	laneParted
	laneAsked // by the user that follows
	laneOnTCP

	laneAll = 1<<iota - 1
)

// ctlNumber marks the number of an internal message in a connection's state. The others are
// those of clients' messages.
const ctlNumber = 1 << 31

// encodePeer writes a lane.
func (e *Engine) encodePeer(w *handover.Writer, p *peer, number func(*conn.Msg) uint32) error {
	q, ok := p.c.to.(*byQP)
	if len(p.partials) > 0 || p.breaking || p.emptying || p.isUp {
		return errNotStill
	}
	begun, warned, why := p.begun, p.warned, p.reach.why
	if mutant.On(mutant.HandoverWarned) {
		warned = p.untoldAt
	}
	if mutant.On(mutant.HandoverReach) {
		why = 0
	}
	w.U8(p.lane)
	w.Flags(p.wasUp, p.parted && !mutant.On(mutant.HandoverParted), p.askedBy != nil, !ok)
	if p.askedBy != nil {
		w.U32(p.askedBy.uid)
	}
	w.U64(begun)
	w.U64(p.ups)
	w.U64(p.downs)
	w.U64(warned)
	w.U8(why)
	w.U8(p.reach.last)
	putText(w, p.lastEvent)
	encodeTimes(w, &p.took)
	if !ok {
		state, err := p.c.to.(*byTCP).Encode(w.Version(), number)
		w.Blob(state)
		return err
	}
	w.Int(q.misses)
	w.I64(q.fallUntil)
	if q.fellWhy != nil {
		putText(w, q.fellWhy.Error())
	} else {
		putText(w, "")
	}
	return e.encodeConn(w, q, number)
}

func putText(w *handover.Writer, s string) { w.String(s[:min(len(s), mostText)]) }

// encodeConn writes q's connection behind the internal messages that it has.
func (e *Engine) encodeConn(w *handover.Writer, q *byQP, number func(*conn.Msg) uint32) error {
	var ctls []*ctlMsg
	state, err := q.Encode(w.Version(), func(m *conn.Msg) uint32 {
		t, ok := m.Owner.(*ctlMsg)
		if !ok {
			return number(m)
		}
		ctls = append(ctls, t)
		return ctlNumber | uint32(len(ctls)-1)
	})
	switch {
	case err != nil:
		return err
	case len(ctls) != q.p.ctls:
		return errNotStill // one is nowhere
	}
	w.Count(len(ctls))
	for _, t := range ctls {
		id := uint32(0)
		if t.region != nil && !mutant.On(mutant.HandoverQueued) {
			id = t.region.id
		}
		w.U16(uint16(t.m.Internal))
		w.U32(t.rkey)
		w.U16(t.port)
		w.U32(id)
		w.Bool(t.by == byCookie)
		w.Blob(t.m.Data)
	}
	w.Blob(state)
	return nil
}

// adoptPeer reads a lane of h.
func (e *Engine) adoptPeer(r *handover.Reader, h *remote, find func(uint32) *conn.Msg) {
	lane, f, uid := r.U8(), r.U16(), uint32(0)
	if f&laneAsked != 0 {
		uid = r.U32()
	}
	onTCP := e.tcpPeer(h.local, h.addr)
	switch {
	case r.Err() != nil:
		return
	case h.lane(lane) != nil, f&^laneAll != 0, f&laneParted != 0 && f&laneWasUp == 0, onTCP && lane != 0:
		r.Fail("lane %d of %v is there twice, or its flags are %#x", lane, h.addr, f)
		return
	case onTCP != (f&laneOnTCP != 0):
		r.Fail("the settings have another transport for %v, with which this host is connected: restart the daemon instead", h.addr)
		return
	}
	p := e.newPeer(h, lane)
	p.wasUp, p.parted = f&laneWasUp != 0, f&laneParted != 0
	if f&laneAsked != 0 {
		e.askedAgain(p, uid)
	}
	p.begun, p.ups, p.downs, p.warned = r.U64(), r.U64(), r.U64(), r.U64()
	p.reach.why, p.reach.last = r.U8(), r.U8()
	p.lastEvent = r.String(mostText)
	adoptTimes(r, &p.took)
	if p.begun > e.clock || p.warned > h.untoldAt || p.reach.why > shm.ReachOther || p.reach.last > shm.ReachOther {
		r.Fail("lane %d of %v began at %d, was warned up to %d, and is not reached for %d or %d", lane, h.addr, p.begun, p.warned, p.reach.why, p.reach.last)
	}
	q, ok := p.c.to.(*byQP)
	if !ok {
		t := p.c.to.(*byTCP)
		t.QueueCong(&p.local.cong)
		if err := t.Adopt(r.Blob(mostState), find); err != nil {
			r.Fail("%v: %v", p.addr, err)
		}
		return
	}
	q.misses, q.fallUntil = r.Int(1<<31), r.I64()
	if why := r.String(mostText); why != "" {
		q.fellWhy = errors.New(why)
	}
	e.adoptConn(r, q, find)
}

// adoptConn reads q's connection and its internal messages.
func (e *Engine) adoptConn(r *handover.Reader, q *byQP, find func(uint32) *conn.Msg) {
	var ctls []*ctlMsg
	for range r.Count(mostCtls, 2+4+2+4+1+4) {
		t := e.ctl(q.p, wire.InternalType(r.U16()), r.U32())
		t.port = r.U16()
		id := r.U32()
		t.by = offer(r.Bool())
		t.m.Data = t.buf[:copy(t.buf[:], r.Blob(len(t.buf)))]
		ctls = append(ctls, t)
		if e.adoptCtl(r, t, id); r.Err() != nil {
			return
		}
	}
	found := 0
	q.QueueCong(&q.p.local.cong) // it may have been told of a map that is empty now
	err := q.Adopt(r.Blob(mostState), func(n uint32) *conn.Msg {
		if n&ctlNumber == 0 {
			return find(n)
		}
		if n &^= ctlNumber; n >= uint32(len(ctls)) {
			return nil
		}
		found++
		return &ctls[n].m
	})
	if err != nil {
		r.Fail("lane %d of %v: %v", q.p.lane, q.p.addr, err)
	} else if found != len(ctls) {
		r.Fail("lane %d of %v has %d of its %d internal messages", q.p.lane, q.p.addr, found, len(ctls))
	}
}

// adoptCtl checks an internal message, and lists it at the region with the key id that it
// grants.
func (e *Engine) adoptCtl(r *handover.Reader, t *ctlMsg, id uint32) {
	var err error
	var g wire.Grant
	switch t.m.Internal {
	case wire.TypeGrant:
		g, err = wire.ParseGrant(t.m.Data)
	case wire.TypeGrantNak:
		_, err = wire.ParseGrantNak(t.m.Data)
	case wire.TypeRevoke, wire.TypeRevoked:
		_, err = wire.ParseRevoke(t.m.Data)
	default:
		r.Fail("an internal message of type %d", t.m.Internal)
	}
	if err != nil {
		r.Fail("%v", err)
	}
	if id == 0 || r.Err() != nil {
		return
	}
	x := e.keys.by[id]
	if x == nil || g.Cookie != x.cookie || g.Grantee != t.port {
		r.Fail("a GRANT of region %#x to port %d is of another", id, t.port)
		return
	}
	t.region = x
	x.queued.Add(&t.inRegion, t)
}
