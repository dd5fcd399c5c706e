package rdmaop

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/mutant"
)

// Rights are what a grant allows, as in the GRANT message.
type Rights uint32

const (
	RightRead   Rights = 1
	RightWrite  Rights = 2
	RightAtomic Rights = 4
	UseOnce     Rights = 8 // the key ends with its first use
)

// AnyPort as Grant.Port: every socket of the initiator's address may use the
// key.
const AnyPort uint16 = 0

// Grant is one permission of the peer: the socket at Port may use the region.
type Grant struct {
	Cookie uint64 // rkey | offset << 32
	Len    uint64 // bytes of the region
	Rights Rights
	Port   uint16 // ours, AnyPort for any
	Owner  Owner
}

// Owner is the socket of the peer that a region belongs to: its port, and its
// incarnation, which the port's next socket does not have. The zero value is
// nobody that is known.
type Owner struct {
	Port uint16
	Inc  uint32
}

// Errors of Grants.Add, for errors.Is.
var (
	// ErrGrantConflict: the peer granted a key again with another region. The
	// peer broke the protocol.
	ErrGrantConflict = errors.New("rdmaop: grant contradicts an earlier one")
	// ErrTooManyGrants: the table is full.
	ErrTooManyGrants = errors.New("rdmaop: too many grants")
	// ErrGrantOver: the key was taken back, or was for one use and had it. The
	// grant has crossed that.
	ErrGrantOver = errors.New("rdmaop: grant of a key that has ended")
)

// Grants is the initiator's table of what one peer allows it, on all its
// lanes: an operation the target's device would refuse, breaking the
// queue pair that all sockets share, is refused here. Check, Use and Done
// take constant time and do not allocate. A Grants has one owner.
type Grants struct {
	max    int
	kept   int // keys of keyUsed and keyTaken
	keys   map[uint32]*key
	grants map[holder]Rights
	life   int  // counts Clear: a key of a former one is in no table
	free   *key // records for reuse
}

// holder names who was granted what.
type holder struct {
	rkey uint32
	port uint16
}

// key is one remote region.
type key struct {
	cookie, len uint64
	owner       Owner
	ports       []uint16 // with a grant
	inFlight    int      // posted operations
	lanes       int      // on which the peer takes it back, and
	heard       int      // on how many of them it has
	state       keyState
	life        int // of its Grants
	next        *key
}

// keyState: how far a key has come.
type keyState uint8

const (
	keyLive     keyState = iota
	keyUsed              // a use-once key, used: kept until the peer takes it back
	keyRevoking          // the peer asked for it back: REVOKED is owed
	keyTaken             // the peer took it back, but has not yet said so on all lanes on which it does
)

// maxKeptPorts bounds the memory a record keeps for its next use, so that a
// peer cannot make every record large in turn.
const maxKeptPorts = 16

// NewGrants makes a table of at most max grants.
func NewGrants(max int) *Grants {
	return &Grants{max: max, keys: make(map[uint32]*key), grants: make(map[holder]Rights)}
}

// Len returns the number of grants, and of keys without any that are remembered:
// those for one use that were used and not taken back yet, and those that were
// taken back on some lanes and not yet on all.
func (g *Grants) Len() int { return len(g.grants) + g.kept }

// Add records a grant; a repeated one replaces the rights. One of a use-once
// key that was used has crossed the use, one of a key that the peer is taking back
// has been overtaken on another lane. They change nothing, and until the key is
// taken back on all lanes its number serves no other region. ErrGrantConflict, ErrGrantOver, ErrTooManyGrants.
func (g *Grants) Add(n Grant) error {
	h := holder{uint32(n.Cookie), n.Port}
	k := g.keys[h.rkey]
	switch {
	case k == nil:
	case k.state != keyLive:
		return fmt.Errorf("%w: key %#x", ErrGrantOver, h.rkey)
	case k.cookie != n.Cookie || k.len != n.Len || k.owner != n.Owner:
		return fmt.Errorf("%w: key %#x", ErrGrantConflict, h.rkey)
	}
	_, again := g.grants[h]
	if !again {
		if g.Len() >= g.max {
			return fmt.Errorf("%w: %d", ErrTooManyGrants, g.max)
		}
		if k == nil {
			k = g.newKey()
			k.cookie, k.len, k.owner = n.Cookie, n.Len, n.Owner
			g.keys[h.rkey] = k
		}
		k.ports = append(k.ports, n.Port)
	}
	g.grants[h] = n.Rights
	return nil
}

// Check says whether the socket at port may run o now: 0, or EINVAL: no such
// key, or another cookie; EACCES: not granted to this port or not with these
// rights; ERANGE: beyond the region.
func (g *Grants) Check(o *Op, port uint16) unix.Errno {
	_, errno := g.check(o, port)
	return errno
}

// Owner returns the owner of the region that rkey is the key of, as its GRANT
// named it; the zero value for a key that is not known.
func (g *Grants) Owner(rkey uint32) Owner {
	if k := g.keys[rkey]; k != nil {
		return k.owner
	}
	return Owner{}
}

func (g *Grants) check(o *Op, port uint16) (*key, unix.Errno) {
	k := g.keys[o.RKey()]
	if k == nil || k.state != keyLive || k.cookie != o.Cookie {
		return nil, unix.EINVAL
	}
	if mutant.On(mutant.GrantUnchecked) {
		return k, 0
	}
	need := o.Rights()
	if g.grants[holder{o.RKey(), port}]&need == 0 && g.grants[holder{o.RKey(), AnyPort}]&need == 0 {
		return nil, unix.EACCES
	}
	end := k.len
	if mutant.On(mutant.BoundsOffByOne) {
		end++
	}
	if o.Len > end || o.RemoteOff > end-o.Len {
		return nil, unix.ERANGE
	}
	return k, 0
}

// Use is Check of the operations of one message, and if all may run counts
// them in flight on their keys until Done: to be called as they are posted. A
// message is one use: it ends a use-once key for everybody else. On failure
// nothing has changed, and bad is the operation that errno is about.
func (g *Grants) Use(port uint16, ops ...*Op) (bad *Op, errno unix.Errno) {
	for _, o := range ops {
		if errno := g.Check(o, port); errno != 0 {
			return o, errno
		}
	}
	for _, o := range ops {
		k := g.keys[o.RKey()]
		o.key = k
		k.inFlight++
	}
	for _, o := range ops {
		once := g.grants[holder{o.RKey(), port}] | g.grants[holder{o.RKey(), AnyPort}]
		if k := o.key; once&UseOnce != 0 && k.state == keyLive && !mutant.On(mutant.UseOnceIgnored) {
			g.dropGrants(k)
			k.state = keyUsed
			g.kept++
		}
	}
	return nil, 0
}

// Done ends o's use of its key: no work request of it is outstanding. When
// revoked is true it was the last one on a key the peer asked back, and
// REVOKED for o.RKey() is to be sent. Done of an operation that is not in
// flight does nothing.
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

// Revoke ends all grants of rkey at the peer's request, which comes on so many
// lanes. It reports whether the key is retired already, so that REVOKED may be
// sent at once; otherwise the Done of the last operation says so. A key that is
// not known is retired. Until the request has come on all of its lanes, a GRANT
// that comes is older than it.
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
	if k.inFlight > 0 && !mutant.On(mutant.RevokeDoesNotWait) {
		return false
	}
	g.end(k)
	return true
}

// end forgets a key that was taken back, when it was on all lanes.
func (g *Grants) end(k *key) {
	if k.heard < k.lanes && !mutant.On(mutant.TakenForgotten) {
		k.state = keyTaken
		g.kept++
		return
	}
	delete(g.keys, uint32(k.cookie))
	g.freeKey(k)
}

// Retired reports whether nothing is known of rkey: no posted operation uses it,
// no grant of it is left, and no use of it is to be remembered.
func (g *Grants) Retired(rkey uint32) bool { return g.keys[rkey] == nil }

// Clear ends all grants and owed REVOKEDs: the peer restarted, or is given up.
// Operations still in flight may be passed to Done later. It takes constant time:
// what there was is left to the garbage collector.
func (g *Grants) Clear() {
	g.life++
	g.keys, g.grants, g.kept = make(map[uint32]*key), make(map[holder]Rights), 0
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
