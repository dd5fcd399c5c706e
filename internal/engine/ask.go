package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
)

// A region that is open (abi.Open) may be used by everybody who shows its cookie, as every
// region of net/rds may. Its key is granted to a host when a socket there first uses it: the
// message waits at the head of its destination, and its daemon asks the owner's, which sends
// a GRANT to all sockets of the host, or says why not. What is behind the message waits, too.
//
// Nothing of this goes over in a planned restart. What waits asks again, and an answer to
// another question is none.

// asks is the questions to a host that are under way, by cookie. Engine-owned.
type asks struct {
	of   map[uint64]*ask
	said int64 // when an answer no was traced last
}

// ask is a question. Each message that waits for its answer has it, see txMsg.asked.
type ask struct {
	cookie uint64
	by     *peer  // the lane that it was asked on
	number uint64 // Engine.clock then

	answered bool // for what had been submitted by then
}

const (
	maxAsks = 1024          // questions to one host under way
	sayNs   = 1_000_000_000 // between two traces of answers no: who tries cookies does not fill the events
)

var errKey = errors.New("an operation was refused its key")

// askText is why an answer is no, and who has to do what.
func askText(says uint16) string {
	switch says {
	case wire.AskNoKey:
		return "the owner has no such region: it was released, or the cookie is wrong"
	case wire.AskNotOpen:
		return "the owner granted it to others alone: it has to call Expose for this host, or for everybody, or send the cookie as one"
	case wire.AskNoRoom:
		return "the owner has as many grants as it may (quota.grants there), or the region was for one use"
	}
	return fmt.Sprintf("reason %d", says)
}

// mayAsk reports whether o, which the grants there are do not allow, may be allowed when its
// key is asked for.
func (p *peer) mayAsk(t *txMsg, o *rdmaop.Op) bool {
	return p.grants.Ungranted(o, t.sock.port) && (!p.c.Ready() || p.c.Asks())
}

// wants returns the first operation of t, which has not begun, whose key has to be asked for,
// or nil.
func (p *peer) wants(t *txMsg) *txOp {
	if !t.sought || t.long != nil {
		return nil
	}
	for _, o := range t.ops() {
		if !p.c.profile().grants || !p.mayAsk(t, &o.Op) {
			continue
		}
		if a := t.asked; a == nil || a.cookie != o.Cookie || !a.answered || a.number < t.nth {
			return o
		}
		break // no: then it would be granted
	}
	t.sought = false
	return nil
}

// ask asks for the key that t waits for, unless that is under way. Without room for the question t waits
// on: with each answer there is room.
func (p *peer) ask(t *txMsg) {
	o := p.wants(t)
	if o == nil || !p.c.Ready() {
		return
	}
	h, ps := p.remote, &p.c.e.peers
	if t.asked = h.asks.of[o.Cookie]; t.asked != nil || len(h.asks.of) >= maxAsks || h.answers >= maxCtl {
		return
	}
	a := &ask{cookie: o.Cookie, by: p, number: ps.tick()}
	if h.asks.of == nil {
		h.asks.of = map[uint64]*ask{}
	}
	h.asks.of[a.cookie], t.asked = a, a
	ps.sendAsk(p, &wire.Ask{Cookie: a.cookie, Number: uint32(a.number), Says: wire.AskQuestion})
}

func (ps *peerTable) sendAsk(p *peer, a *wire.Ask) {
	m := ps.ctl(p, wire.TypeAsk, uint32(a.Cookie))
	ps.sendCtl(p, m, a.Append(m.buf[:0]))
}

// askAgain has asked again, on whichever lane, what was asked on p, which is down: the answers may be
// lost, with the peer's daemon or because it was broken off for them.
func (p *peer) askAgain() {
	h := p.remote
	maps.DeleteFunc(h.asks.of, func(_ uint64, a *ask) bool { return a.by == p })
	h.lookAsking()
}

// lookAsking has what waits for keys look again, on all lanes.
func (h *remote) lookAsking() {
	for _, p := range slices.Clone(h.lanes) { // what looks may make another
		p.lookPaused()
	}
}

// asked takes an ASK that arrived on p.
func (ks *keyTable) asked(p *peer, q *wire.Ask) {
	e := ks.e
	if q.Says != wire.AskQuestion {
		ks.told(p, q)
		return
	}
	if !e.peers.mayAnswer(p) {
		return
	}
	a := *q
	a.Says = ks.openTo(p, q.Cookie)
	e.peers.sendAsk(p, &a)
}

// openTo grants the region of cookie to all sockets of p, and returns what to say.
func (ks *keyTable) openTo(p *peer, cookie uint64) uint16 {
	r := ks.by[uint32(cookie)]
	switch {
	case r == nil || r.cookie != cookie || r.exp.State() != rdmaop.ExportLive || r.sock.local != p.local:
		return wire.AskNoKey
	case r.rights&abi.Open == 0:
		return wire.AskNotOpen
	case p.expose(r, rdmaop.AnyPort, byCookie) != nil:
		return wire.AskNoRoom
	}
	return wire.AskGranted
}

// told takes the answer to a question.
func (ks *keyTable) told(p *peer, q *wire.Ask) {
	e, h := ks.e, p.remote
	a := h.asks.of[q.Cookie]
	if a == nil || uint32(a.number) != q.Number {
		return // of another life
	}
	delete(h.asks.of, q.Cookie)
	a.answered = true
	if q.Says != wire.AskGranted && e.now-h.asks.said >= sayNs {
		h.asks.said = e.now
		e.cfg.Trace(p.place(), "key refused", fmt.Errorf("%w, %#x: %s", errKey, uint32(q.Cookie), askText(q.Says)))
	}
	h.lookAsking()
}
