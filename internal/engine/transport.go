package engine

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn/msg"
	"golang.org/x/sys/unix"
)

// A transport stands between what a host is (sockets, destinations, memory, keys, marks) and how
// a message gets to another socket, as rds_transport does in net/rds. There are three:
//
//	*peer       a connection to another host; see carrier for what is beneath it
//	*localAddr  delivery at an address of this host (loop.go)
//	*nowhere    none yet: the destination has no place, or there is no room for its peer (place.go)
//
// A destination always has one, slot.way. A message stays with it: a destination with messages
// leaves no transport but nowhere, or a connection for another one when paths change (paths.go).
type transport interface {
	// take sends t, or has it wait in its destination.
	take(t *txMsg)
	// resume lets what waits in sl go on.
	resume(sl *slot)
	// end ends t with outcome o, at once or when no work request uses it. Withdrawn becomes
	// GaveUp if t may arrive.
	end(t *txMsg, o msg.Outcome)
	// check is 0 if o, an operation of t, may run, as far as is known here.
	check(t *txMsg, o *txOp) unix.Errno
	// retired ends the use that t's operations make of their keys.
	retired(t *txMsg)
	// expose grants r to the socket at port there, 0: to all.
	expose(r *region, port uint16, by offer) error

	// join lists sl among the destinations that lead there. left is the end of that: sl leads
	// elsewhere, or is closed.
	join(sl *slot)
	left(sl *slot)
	// inform publishes in sl what is known of the way, and reports whether sl is congested.
	inform(sl *slot) (congested bool)
	// renew ends what p, a pin of a destination there, has met in a former life of the daemon.
	renew(p *pin)
	// waitsFor says who has to act for what sl has under way.
	waitsFor(sl *slot, queued bool) string
	// times is how long messages and operations took, nil: that is not kept for this way alone.
	times() *times
}

// wayTo returns the way from s to addr. With an error, see peerTable.peer, it leads nowhere.
func (ds *destinations) wayTo(s *socket, addr netip.Addr) (transport, error) {
	e := ds.e
	if here := e.addrs.by[addr]; here != nil {
		return here, nil
	}
	at := lanePath(s.lane).in(e.peers.hosts[remoteKey{s.local.addr, addr}].pathOf(s.port))
	p, err := e.peers.peer(s.local, addr, at, s.cl)
	if err != nil {
		return &ds.nowhere, err
	}
	return p, nil
}

// leadBy has sl, and what waits in it, lead by w instead of the way it has led by.
func (ds *destinations) leadBy(sl *slot, w transport) {
	was := sl.way
	sl.leadTo(nil)
	sl.leadBy(w)
	was.left(sl)
	w.join(sl)
	ds.refresh(sl)
	if sl.q.N > 0 {
		w.resume(sl)
	}
}
