package engine

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// A region that is open (abi.Open) may be used by everybody who shows its cookie, as every
// region of net/rds may. Its key is granted to a host when a socket there first uses it: the
// message waits at the head of its destination, and its daemon asks the owner's, which sends
// a GRANT to all sockets of the host, or says why not. What is behind the message waits, too.
//
// Nothing of this goes over in a planned restart. What waits asks again, and an answer to
// another question is none.

// asks is the keys that a host is asked for, by cookie. Engine-owned.
type asks struct {
	of    map[uint64]*ask
	under int   // questions without an answer
	said  int64 // when an answer no was traced last
}

// ask is one of them. The numbers are of Engine.clock.
type ask struct {
	cookie  uint64
	by      *peer  // the lane on which the question under way is; nil: there is none
	number  uint64 // of that question
	refused uint64 // of the last question that was refused: an answer for what had been submitted by then
}

const (
	maxAsks = 1024 // questions to one host under way, and answers no of it that are kept

	// One user's messages show so many wrong cookies in wrongNs. Then those that nothing but a
	// cookie would allow are refused: it cannot be found by trying.
	maxWrong = 1000
	wrongNs  = 1_000_000_000
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
	return p.grants.Ungranted(o, t.sock.port) && (!p.c.Ready() || p.c.Asks()) && t.sock.cl.acct.mayGuess(p.c.e.now)
}

// mayGuess reports whether a cookie is enough for a's messages.
func (a *account) mayGuess(now int64) bool { return a.wrong < maxWrong || now-a.wrongFrom >= wrongNs }

// shown notes that an operation of a showed a cookie, with errno, and returns what it ends with. open
// says whether it is allowed for the cookie alone.
func (a *account) shown(errno unix.Errno, now int64, open func() bool) unix.Errno {
	switch {
	case errno == unix.EINVAL:
		a.guessed(now)
	case errno == 0 && !a.mayGuess(now) && open():
		return unix.EINVAL
	}
	return errno
}

// guessed notes that a cookie of a's was wrong.
func (a *account) guessed(now int64) {
	if now-a.wrongFrom >= wrongNs {
		a.wrong, a.wrongFrom = 0, now
	}
	a.wrong++
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
		if !t.refusedBy(t.asked, o) && !t.refusedBy(p.asks.of[o.Cookie], o) {
			return o
		}
		t.sock.cl.acct.guessed(p.c.e.now)
		break
	}
	t.sought = false
	return nil
}

// refusedBy reports whether a, which may be nil, is an answer no to t's question for the key of o.
func (t *txMsg) refusedBy(a *ask, o *txOp) bool {
	return a != nil && a.cookie == o.Cookie && a.refused > t.nth
}

// ask asks for the key that t waits for, unless that is under way or there is no room for the
// question: with each answer there is.
func (p *peer) ask(t *txMsg) {
	o := p.wants(t)
	if o == nil || !p.c.Ready() {
		return
	}
	h, e := p.remote, p.c.e
	a := h.asks.of[o.Cookie]
	if a != nil && a.by != nil {
		t.asked = a
		return
	}
	if h.asks.under >= maxAsks || p.ctls >= maxCtl {
		return
	}
	if a == nil {
		h.asks.sweep()
		a = &ask{cookie: o.Cookie}
		h.asks.of[o.Cookie] = a
	}
	t.asked = a
	a.by, a.number = p, e.peers.tick()
	h.asks.under++
	e.peers.sendAsk(p, &wire.Ask{Cookie: o.Cookie, Number: uint32(a.number), Says: wire.AskQuestion})
}

func (ps *peerTable) sendAsk(p *peer, a *wire.Ask) {
	m := ps.ctl(p, wire.TypeAsk, uint32(a.Cookie))
	ps.sendCtl(p, m, a.Append(m.buf[:0]))
}

// sweep makes room for one more: what is forgotten is asked again, but not by those who asked
// before. They may be many, and look late.
func (as *asks) sweep() {
	if as.of == nil {
		as.of = map[uint64]*ask{}
	}
	if len(as.of)-as.under < maxAsks {
		return
	}
	for c, a := range as.of {
		if a.by == nil {
			delete(as.of, c)
		}
	}
}

// askAgain has asked again, on whichever lane, what was asked on p, which is down: the answers may be
// lost, with the peer's daemon or because it was broken off for them.
func (p *peer) askAgain() {
	h := p.remote
	for _, a := range h.asks.of {
		if a.by == p {
			a.by = nil
			h.asks.under--
		}
	}
	h.lookAsking()
}

// lookAsking has what waits for keys look again, on all lanes.
func (h *remote) lookAsking() {
	for _, p := range h.lanes {
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
	if a == nil || a.by == nil || uint32(a.number) != q.Number {
		return // of another life
	}
	a.by = nil
	h.asks.under--
	if a.refused = a.number; q.Says != wire.AskGranted {
		if e.now-h.asks.said >= wrongNs { // who tries cookies does not fill the events
			h.asks.said = e.now
			e.cfg.Trace(p.local.addr, p.addr, "key refused", fmt.Errorf("%w, %#x: %s", errKey, uint32(q.Cookie), askText(q.Says)))
		}
	} else if !p.grants.Retired(uint32(q.Cookie)) {
		delete(h.asks.of, q.Cookie)
	} // else this host's table had no room for it, or the key has been taken back
	h.lookAsking()
}
