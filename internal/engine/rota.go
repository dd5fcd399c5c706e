package engine

import "github.com/rdsd/rdsd/internal/lists"

// rota is who takes turns at a connection, or at the copies on this host: first accounts, within an account its
// sockets, within a socket its destinations. Accounts and sockets share by bytes. So what a message of a user waits
// for is one turn of each other user, however many processes, sockets and destinations those have.
type rota struct {
	pool     *lists.Pool[taker]
	accounts lists.List[taker]
	byAcct   map[*account]*taker // but account.taker
	bySock   map[*socket]*taker  // but socket.taker
	n        int                 // destinations
}

// taker is an account or a socket that takes turns, as long as destinations of it do.
type taker struct {
	rota   *rota
	acct   *account          // or
	sock   *socket           // which has
	up     *taker            // its account
	in     lists.Link[taker] // rota.accounts, or up.socks
	socks  lists.List[taker] // of an account
	slots  lists.List[slot]  // of a socket
	credit int               // bytes that are left of its turn
}

// maxPassed is how many sockets and destinations of an account that cannot go on are passed over for one that can. The
// next look goes on behind them.
const maxPassed = 256

// enter has sl take turns, if it does not yet.
func (r *rota) enter(sl *slot) {
	if sl.taker != nil {
		return
	}
	k := sl.sock.taker
	if k == nil || k.rota != r {
		k = r.bySock[sl.sock]
	}
	if k == nil {
		k = r.sockTaker(sl.sock)
	}
	sl.taker = k
	k.slots.Add(&sl.inTurn, sl)
	r.n++
}

// sockTaker gives s a place among those of its account.
func (r *rota) sockTaker(s *socket) *taker {
	if r.bySock == nil {
		r.byAcct, r.bySock = map[*account]*taker{}, map[*socket]*taker{}
	}
	a := s.cl.acct
	up := a.taker
	if up == nil || up.rota != r {
		up = r.byAcct[a]
	}
	if up == nil {
		up = r.pool.Get()
		up.rota, up.acct = r, a
		if a.taker == nil {
			a.taker = up
		} else {
			r.byAcct[a] = up
		}
		r.accounts.Add(&up.in, up)
	}
	k := r.pool.Get()
	k.rota, k.sock, k.up = r, s, up
	if s.taker == nil {
		s.taker = k
	} else {
		r.bySock[s] = k
	}
	up.socks.Add(&k.in, k)
	return k
}

// leaveRota ends sl's turns, if it takes some.
func (sl *slot) leaveRota() {
	k := sl.taker
	if k == nil {
		return
	}
	r, up := k.rota, k.up
	sl.taker = nil
	k.slots.Del(&sl.inTurn)
	if r.n--; k.slots.N > 0 {
		return
	}
	up.socks.Del(&k.in)
	if k.sock.taker == k {
		k.sock.taker = nil
	} else {
		delete(r.bySock, k.sock)
	}
	*k = taker{}
	r.pool.Put(k)
	if up.socks.N == 0 {
		r.accounts.Del(&up.in)
		if up.acct.taker == up {
			up.acct.taker = nil
		} else {
			delete(r.byAcct, up.acct)
		}
		*up = taker{}
		r.pool.Put(up)
	}
}

// pick returns the destination whose turn it is, nil: none can go on. A turn is quantum bytes. p is the connection
// that it is about, or nil.
func (r *rota) pick(quantum int, p *peer, now int64) *slot {
	for passed := 0; passed < r.accounts.N; r.accounts.TurnOver() {
		up := r.accounts.Head.Of
		switch sl := up.pick(quantum, p, now); {
		case sl == nil:
			passed++
		case up.credit > 0:
			return sl
		default:
			passed = 0
			up.credit += quantum
		}
	}
	return nil
}

// pick is that of an account.
func (k *taker) pick(quantum int, p *peer, now int64) *slot {
	for passed, looks := 0, maxPassed; passed < k.socks.N && looks > 0; looks-- {
		s := k.socks.Head.Of
		sl := s.slots.Head.Of
		if p != nil {
			sl = p.next(s, &looks, now)
		}
		switch {
		case sl == nil:
			passed++
		case s.credit > 0:
			return sl
		default:
			passed = 0
			s.credit += quantum
		}
		k.socks.TurnOver()
	}
	return nil
}

// spend takes n bytes off the turn of sl, and ends it when none are left. A message may be larger than what was left:
// then its socket and its account wait longer for their next turns.
func (sl *slot) spend(n int) {
	k := sl.taker
	if k == nil {
		return
	}
	r, up := k.rota, k.up
	k.slots.Del(&sl.inTurn)
	k.slots.Add(&sl.inTurn, sl)
	if k.credit -= n; k.credit <= 0 {
		up.socks.Del(&k.in)
		up.socks.Add(&k.in, k)
	}
	if up.credit -= n; up.credit <= 0 {
		r.accounts.Del(&up.in)
		r.accounts.Add(&up.in, up)
	}
}

// each calls f for all destinations that take turns.
func (r *rota) each(f func(*slot)) {
	for a := r.accounts.Head; a != nil; a = a.Next {
		for s := a.Of.socks.Head; s != nil; s = s.Next {
			for d := s.Of.slots.Head; d != nil; d = d.Next {
				f(d.Of)
			}
		}
	}
}

// first is the destination that is first now, or nil.
func (r *rota) first() *slot {
	if r.n == 0 {
		return nil
	}
	return r.accounts.Head.Of.socks.Head.Of.slots.Head.Of
}
