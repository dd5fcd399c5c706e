package engine

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ctl"
	"golang.org/x/sys/unix"
)

// A peer as a transport. How sockets share its connection is in turns.go.

func (p *peer) take(t *txMsg) {
	e := p.c.e
	if t.m.DestCookie != 0 {
		if t.ungranted = p.strays(t.slot); !t.ungranted && !e.keys.grantCookie(t) {
			return
		}
	}
	if t.nops == 0 {
		p.from(t.sock, t.sum.Datagrams, e.now)
	}
	if t.slot.q.N > 0 || p.waits(t.slot) || p.behindGrant(t) || p.flows.n > 0 || p.full(t, e.now) || e.tx.isLong(t) || t.sought {
		t.slot.queue(t)
		p.resume(t.slot)
	} else {
		e.tx.handOver(p, t)
	}
}

// resume has sl take turns, unless it does, or has to wait for others.
func (p *peer) resume(sl *slot) {
	if sl.q.N > 0 && sl.taker == nil {
		p.queueUp(sl)
	}
	p.c.e.dirty.touch(p)
}

func (p *peer) end(t *txMsg, o msg.Outcome) {
	tx, later := &p.c.e.tx, false
	switch {
	case t.long != nil:
		if o == msg.Withdrawn {
			o = t.m.GivenUp()
		}
		tx.stopLong(p, t, o)
	case t.inQ.On():
		p.leaveQueue(t)
		tx.msgDone(t, o)
	case o == msg.Withdrawn:
		o, later = p.c.GiveUp(&t.m)
	default:
		later = p.c.Cancel(&t.m, o)
	}
	if later {
		tx.settle(t, o)
	}
}

func (p *peer) check(t *txMsg, o *txOp) unix.Errno {
	switch {
	case !p.canName(t) || !p.c.supports(&o.Op):
		return unix.EOPNOTSUPP
	case !p.c.profile().grants:
		return 0 // its device decides
	}
	errno := p.grants.Check(&o.Op, t.sock.port)
	if errno != 0 && p.mayAsk(t, &o.Op) {
		t.sought = true
		return 0
	}
	return errno
}

func (p *peer) retired(t *txMsg) {
	p.retiredOp(t.m.Op)
	if t.m.Op2 != nil {
		p.retiredOp(t.m.Op2)
	}
}

func (p *peer) join(sl *slot) {
	sl.leadTo(&p.slots)
	sl.ups, sl.downs = p.ups, p.downs
	p.c.e.peers.newReach(p)
}

// left: what sl has sent goes on, in its turn.
func (p *peer) left(sl *slot) {
	e := p.c.e
	if sl.closed {
		e.dests.refresh(sl)
	}
	if sl.q.N == 0 {
		p.leaveTurn(sl)
	}
	e.peers.dropIfNew(p)
}

func (p *peer) inform(sl *slot) (congested bool) {
	e := p.c.e
	sl.sock.cl.table.Slot(sl.idx).StoreState(uint32(p.c.State()))
	if sl.downs != p.downs || sl.ups != p.ups && p.isUp {
		sl.down += p.downs - sl.downs
		if sl.downs = p.downs; p.isUp { // else sl may be owed one, see owesUp
			sl.up += p.ups - sl.ups
			sl.ups = p.ups
		}
		e.clients.note(sl)
	}
	e.peers.setSlotReach(sl, p.reach.why)
	return p.c.RemoteCong().Test(sl.port)
}

func (p *peer) renew(x *pin) {
	if x.life != p.met && !x.anybody() {
		*x = pin{life: p.met}
	}
}

func (p *peer) waitsFor(sl *slot, queued bool) string {
	switch {
	case p.c.RemoteCong().Test(sl.port):
		return ctl.WaitsForReceiver
	case sl.q.N > 0 && p.c.State() == conn.Up && !sl.paused.On():
		return ctl.WaitsForTurn
	}
	return p.c.waitsFor(queued)
}

func (p *peer) times() *times { return &p.took }
