package engine

import (
	"fmt"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/lists"
)

// maxCtl bounds the answers and questions that an address has not acked, on all its lanes, see mayAnswer.
// A peer that acks owes less: what its credits let it ask at a time, 64 SENDs of 32 KiB, is 37,449 questions.
const maxCtl = 1 << 16

// answers reports whether messages of type t count for maxCtl.
func answers(t wire.InternalType) bool { return t != wire.TypeGrant && t != wire.TypeRevoke }

// Internal is the connection's up-call for GRANT, REVOKE, REVOKED, GRANT_NAK and ASK,
// which the connection has found well formed.
func (u *qpHost) Internal(_ *conn.Conn, t wire.InternalType, body []byte) {
	e, p := u.e, u.p
	if p.stale() {
		return
	}
	switch t {
	case wire.TypeGrant:
		if g, err := wire.ParseGrant(body); err == nil {
			e.keys.takeGrant(p, &g)
		}
	case wire.TypeGrantNak:
		if n, err := wire.ParseGrantNak(body); err == nil {
			e.keys.grantRefused(p, &n)
		}
	case wire.TypeRevoke:
		if v, err := wire.ParseRevoke(body); err == nil && e.peers.mayAnswer(p) {
			e.peers.answerRevoke(p, v.RKey, int(v.Lanes))
		}
	case wire.TypeRevoked:
		if v, err := wire.ParseRevoke(body); err == nil {
			e.keys.revoked(p, v.RKey)
		}
	case wire.TypeAsk:
		if a, err := wire.ParseAsk(body); err == nil {
			e.keys.asked(p, &a)
		}
	}
}

// mayAnswer reports whether p may be sent one more answer. A peer that asks
// without end and takes no answer loses its connection.
func (ps *peerTable) mayAnswer(p *peer) bool {
	e := ps.e
	if p.answers < maxCtl {
		return true
	}
	if !p.breaking {
		p.breaking = true
		e.dirty.breaking = append(e.dirty.breaking, p)
	}
	return false
}

// maxSaid bounds the GRANTs and REVOKEs that an address has not acked. A REVOKE outlives its region and
// the count of the grant, so a peer that acks nothing could be sent any number. Users share it as they share its table.
const maxSaid = 1 << 17

// maySay is nil if r's user may have one more GRANT sent to h. ENOBUFS.
func (h *remote) maySay(r *region) error {
	c := r.sock.cl
	if err := c.user.MayShare("grants and their ends that the peer has not acked", h.said.of[c.acct], h.said.all, maxSaid); err != nil {
		return fmt.Errorf("%w (to %v)", err, h.addr)
	}
	return nil
}

// ctlMsg is an internal message that this daemon sends. Pooled.
type ctlMsg struct {
	m    msg.Msg
	p    *peer
	rkey uint32
	buf  [64]byte

	said *account // for whom a GRANT or REVOKE counts in remote.said; nil: its region had ended

	// Of a GRANT.
	port     uint16             // the grantee's
	region   *region            // nil: it has been retired
	inRegion lists.Link[ctlMsg] // region.queued
	by       offer

	number     uint64             // Engine.clock when it was made by Expose; 0: before all messages
	inExposing lists.Link[ctlMsg] // of sharing.exposes: messages wait for its ack
}

// endGrant has m, a GRANT, stand for its region no more.
func (m *ctlMsg) endGrant() {
	r := m.region
	if r == nil {
		return
	}
	r.queued.Del(&m.inRegion)
	m.region = nil
	m.m.Owe() // the peer may wait for it
	m.p.holdsNoMore(m, r.sock.cl)
}

func (ps *peerTable) ctl(p *peer, t wire.InternalType, rkey uint32) *ctlMsg {
	m := ps.e.pools.ctls.Get()
	m.p, m.rkey = p, rkey
	if p.ctls++; answers(t) {
		p.answers++
	} else {
		if m.said = nil; ps.e.keys.by[rkey] != nil {
			m.said = ps.e.keys.by[rkey].sock.cl.acct
		}
		p.said.count(m.said, 1)
	}
	m.m = msg.Msg{Owner: m, Internal: t, Owed: t != wire.TypeGrant}
	return m
}

func (ps *peerTable) sendCtl(p *peer, m *ctlMsg, body []byte) {
	m.m.Data = body
	p.c.Send(&m.m)
}

// ctlDone ends an internal message. A REVOKE that cannot be delivered any more
// (the peer restarted) is as good as answered: Instance has seen to it.
func (ps *peerTable) ctlDone(m *ctlMsg, o msg.Outcome) {
	e := ps.e
	if m.m.Internal == wire.TypeRevoke && o == msg.Acked {
		e.keys.heard(m.p, m.rkey)
	}
	m.endGrant()
	p, answer := m.p, answers(m.m.Internal)
	m.m, m.number, m.p = msg.Msg{}, 0, nil
	if p.ctls--; !answer {
		p.said.count(m.said, -1)
	} else if p.answers--; p.answers == maxCtl-1 {
		p.lookAsking() // there is room for questions
	}
	m.said = nil
	e.pools.ctls.Put(m)
}
