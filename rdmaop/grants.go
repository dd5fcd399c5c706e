package rdmaop

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
)

// AnyPort as Grant.Port: every socket of the initiator's address may use the
// key.
const AnyPort uint16 = 0

// Grant is one permission that the peer gave: the socket at Port may use the region.
type Grant struct {
	Cookie uint64 // rkey | offset << 32
	Len    uint64 // bytes of the region
	Rights abi.Rights
	Port   uint16 // port of this host's socket, or AnyPort
	Owner  Owner
	Region uint32 // number of the region, 0: not known
}

// Owner is the socket of the peer that a region belongs to. Inc is the incarnation
// of the socket: the next socket at the port has another one. The zero value means
// that the owner is not known.
type Owner struct {
	Port uint16
	Inc  uint32
}

// Errors of Grants.Add, for errors.Is.
var (
	// ErrGrantConflict: the peer granted the key before, with another region. It
	// broke the protocol.
	ErrGrantConflict = errors.New("rdmaop: grant contradicts an earlier one")
	// ErrTooManyGrants: the table is full.
	ErrTooManyGrants = errors.New("rdmaop: too many grants")
	// ErrGrantOver: the key was taken back, or was for one use and has been used,
	// while the grant was on its way.
	ErrGrantOver = errors.New("rdmaop: grant of a key that has ended")
)

// Grants is the initiator's table of what one peer allows it, on all lanes. The
// target's device would answer a forbidden operation by breaking the queue pair that
// all sockets share, so such an operation is refused here. Check, Use and Done take
// constant time and do not allocate. A Grants has one owner.
type Grants struct {
	max    int
	kept   int // keys of keyUsed and keyTaken
	keys   map[uint32]*key
	grants map[holder]abi.Rights
	life   int  // counts Clear: a key of a former one is in no table
	free   *key // records for reuse
}

// holder names a key and the port that it was granted to.
type holder struct {
	rkey uint32
	port uint16
}

// key is one remote region.
type key struct {
	cookie, len uint64
	owner       Owner
	region      uint32
	ports       []uint16 // with a grant
	inFlight    int      // posted operations
	lanes       int      // on which the peer takes it back, and
	heard       int      // on how many of them it has
	state       keyState
	life        int // of its Grants
	next        *key
}

// keyState is the state of a key.
type keyState uint8

const (
	keyLive     keyState = iota
	keyUsed              // a use-once key, used or being used: kept until the peer takes it back
	keyRevoking          // the peer asked for it back: REVOKED is owed
	keyTaken             // the peer took it back, but has not yet said so on all lanes on which it does
)

// maxKeptPorts limits the memory that a record keeps for its next use. Otherwise a
// peer could make every record large, one after the other.
const maxKeptPorts = 16

// NewGrants makes a table of at most max grants.
func NewGrants(max int) *Grants {
	return &Grants{max: max, keys: make(map[uint32]*key), grants: make(map[holder]abi.Rights)}
}

// Len returns how many entries the table has: grants, keys for one use that were
// used and not taken back, and keys that were taken back on some lanes and not yet
// on all.
func (g *Grants) Len() int { return len(g.grants) + g.kept }

// Add records a grant. A repeated grant replaces the rights. Errors:
// ErrGrantConflict; ErrTooManyGrants; ErrGrantOver for a key that was for one use
// and has been used, or that the peer is taking back on another lane. An error
// changes nothing. Until a key is taken back on all its lanes, its number serves no
// other region.
func (g *Grants) Add(n Grant) error {
	h := holder{uint32(n.Cookie), n.Port}
	k := g.keys[h.rkey]
	switch {
	case k == nil:
	case k.state != keyLive:
		return fmt.Errorf("%w: key %#x", ErrGrantOver, h.rkey)
	case k.cookie != n.Cookie || k.len != n.Len || k.owner != n.Owner || k.region != n.Region:
		return fmt.Errorf("%w: key %#x", ErrGrantConflict, h.rkey)
	}
	_, again := g.grants[h]
	if !again {
		if g.Len() >= g.max {
			return fmt.Errorf("%w: %d", ErrTooManyGrants, g.max)
		}
		if k == nil {
			k = g.newKey()
			k.cookie, k.len, k.owner, k.region = n.Cookie, n.Len, n.Owner, n.Region
			g.keys[h.rkey] = k
		}
		k.ports = append(k.ports, n.Port)
	}
	g.grants[h] = n.Rights
	return nil
}

// Check returns 0 if the socket at port may run o now. EINVAL: there is no such key,
// its cookie is another one, it was for one use and another message has it, or o has begun
// with another region of that key. EACCES: the key is not granted to this port, or not
// with these rights. ERANGE: o reaches beyond the region.
func (g *Grants) Check(o *Op, port uint16) unix.Errno {
	k := g.keys[o.RKey()]
	if k == nil || k.cookie != o.Cookie || o.Begun() && o.region != k.region {
		return unix.EINVAL
	}
	mine := k.state == keyUsed && o.Begun() // it had the rights, which are gone with the use
	if k.state != keyLive && !mine {
		return unix.EINVAL
	}
	need := o.Rights()
	if !mine && g.grants[holder{o.RKey(), port}]&need == 0 && g.grants[holder{o.RKey(), AnyPort}]&need == 0 {
		return unix.EACCES
	}
	if o.Len > k.len || o.RemoteOff > k.len-o.Len {
		return unix.ERANGE
	}
	return 0
}

// Ungranted reports whether the peer can allow the socket at port to run o, which has not begun, by a
// GRANT: its key is not known, or was granted to other sockets alone.
func (g *Grants) Ungranted(o *Op, port uint16) bool {
	k := g.keys[o.RKey()]
	switch {
	case o.Begun():
		return false
	case k == nil:
		return true
	case k.state != keyLive || k.cookie != o.Cookie:
		return false
	}
	_, mine := g.grants[holder{o.RKey(), port}]
	_, all := g.grants[holder{o.RKey(), AnyPort}]
	return !mine && !all
}

// Owner returns the owner that the GRANT of rkey named, or the zero value for a key
// that is not known.
func (g *Grants) Owner(rkey uint32) Owner {
	if k := g.keys[rkey]; k != nil {
		return k.owner
	}
	return Owner{}
}

// Begin checks the operations of one message, as Check does. If all may run, the message
// has begun: its keys for one use are over for every other message, and its operations go on
// with the regions that they began with and no others of the same keys. So does what they
// Continue. If an operation may not run, bad is that operation and nothing has changed.
func (g *Grants) Begin(port uint16, ops ...*Op) (bad *Op, errno unix.Errno) {
	for _, o := range ops {
		if errno := g.Check(o, port); errno != 0 {
			return o, errno
		}
	}
	for _, o := range ops {
		o.region = g.keys[o.RKey()].region
	}
	for _, o := range ops {
		once := g.grants[holder{o.RKey(), port}] | g.grants[holder{o.RKey(), AnyPort}]
		if k := g.keys[o.RKey()]; once&abi.UseOnce != 0 && k.state == keyLive {
			g.dropGrants(k)
			k.state = keyUsed
			g.kept++
		}
	}
	return nil, 0
}

// Use begins a message with these operations, as Begin does, and counts them as in flight
// on their keys until Done. It is called when they are posted.
func (g *Grants) Use(port uint16, ops ...*Op) (bad *Op, errno unix.Errno) {
	if bad, errno = g.Begin(port, ops...); errno != 0 {
		return bad, errno
	}
	for _, o := range ops {
		o.key = g.keys[o.RKey()]
		o.key.inFlight++
	}
	return nil, 0
}

// Done ends o's use of its key: no work request of o is outstanding. If revoked is
// true, it was the last use of a key that the peer is taking back, and a REVOKED for
// o.RKey() has to be sent. It does nothing for an operation that is not in flight.
func (g *Grants) Done(o *Op) (revoked bool) {
	k := o.key
	if k == nil {
		return false
	}
	o.key = nil
	k.inFlight--
	if k.life != g.life {
		return false
	}
	if k.inFlight > 0 || k.state == keyLive || k.state == keyUsed || k.state == keyTaken {
		return false
	}
	g.end(k)
	return true
}

// Revoke ends all grants of rkey at the request of the peer, which sends the request
// on that many lanes. If retired is true, REVOKED may be sent at once; otherwise
// Done of the last operation says when. A key that is not known is retired. A GRANT
// that arrives before the request has arrived on all its lanes is older than the
// request.
func (g *Grants) Revoke(rkey uint32, lanes int) (retired bool) {
	k := g.keys[rkey]
	if k == nil {
		if lanes <= 1 || g.Len() >= g.max {
			return true
		}
		k = g.newKey()
		k.cookie = MakeCookie(rkey, 0)
		g.keys[rkey] = k
	}
	g.dropGrants(k)
	if k.state == keyUsed || k.state == keyTaken {
		g.kept--
	}
	k.state = keyRevoking
	if lanes > 1 { // else it is no part of a request on several
		k.lanes = lanes
		k.heard++
	}
	if k.inFlight > 0 {
		return false
	}
	g.end(k)
	return true
}

// end drops a key that was taken back, once the request has arrived on all its
// lanes.
func (g *Grants) end(k *key) {
	if k.heard < k.lanes {
		k.state = keyTaken
		g.kept++
		return
	}
	delete(g.keys, uint32(k.cookie))
	g.freeKey(k)
}

// Retired reports whether the table has nothing about rkey: no grant, no operation
// in flight, and no use that has to be remembered.
func (g *Grants) Retired(rkey uint32) bool { return g.keys[rkey] == nil }

// Clear ends all grants, and all REVOKEDs that are owed, because the peer restarted
// or is given up. Operations in flight may still be passed to Done later. It takes
// constant time.
func (g *Grants) Clear() {
	g.life++
	g.keys, g.grants, g.kept = make(map[uint32]*key), make(map[holder]abi.Rights), 0
}

func (g *Grants) dropGrants(k *key) {
	for _, p := range k.ports {
		delete(g.grants, holder{uint32(k.cookie), p})
	}
	k.ports = k.ports[:0]
}

func (g *Grants) newKey() *key {
	k := g.free
	if k == nil {
		return &key{life: g.life}
	}
	g.free = k.next
	k.next, k.life = nil, g.life
	return k
}

func (g *Grants) freeKey(k *key) {
	ports := k.ports[:0]
	if cap(ports) > maxKeptPorts {
		ports = nil
	}
	*k = key{ports: ports, next: g.free}
	g.free = k
}
