package engine

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// What the simulator and other checkers may see and do. They call Turn themselves, and only
// the goroutine that does may use this. These are functions, so that the linker leaves them
// out of the daemon, which does not call them.

// Unpublished counts the events that this turn has written for the process and
// not published yet.
func (p *InProcess) Unpublished() int { return p.cl.ev.Unpublished() }

// Waiting counts the messages whose statuses wait for room in the process's event
// ring.
func (p *InProcess) Waiting() int { return p.cl.pendOps.N }

// UnderWay returns how many chores e has begun and how many destinations it copies to within the
// host.
func UnderWay(e *Engine) (chores, copies int) { return e.chores.Open(), e.loop.jobs.n }

// Clients counts the attached clients.
func Clients(e *Engine) int { return len(e.clients.all) }

// Conns returns a snapshot of every connection.
func Conns(e *Engine) (out []conn.Info) {
	for _, p := range e.peers.all {
		out = append(out, p.c.Info())
	}
	return out
}

// Idle reports whether nobody here waits for the connection that i is of: what it has is only owed to the peer.
func Idle(e *Engine, i *conn.Info) bool {
	for _, p := range e.peers.all {
		if p.addr == i.Remote && p.local.addr == i.Local && p.lane == i.Lane && p.path == i.Path {
			_, idle := p.c.IdleSince()
			return idle
		}
	}
	return false
}

// MarkKey names a barrier.
type MarkKey struct{ ce *cell }

// Cell is its index.
func (k MarkKey) Cell() uint32 { return k.ce.idx }

// EachMark calls f for the barriers of all clients with the mark of what is
// locally complete and the one that is published.
func EachMark(e *Engine, f func(k MarkKey, done, shown uint64)) {
	for _, c := range e.clients.all {
		for _, ce := range c.cells {
			if ce != nil && ce.live() {
				f(MarkKey{ce}, ce.mark.HWM(), ce.shown)
			}
		}
	}
}

// Port is that of the socket the barrier is of, and To the destination's address.
func (k MarkKey) Port() uint16   { return k.ce.sock.port }
func (k MarkKey) To() netip.Addr { return k.ce.addr }

// EachTable calls f for every address of a peer: how many grants of ours it is
// taken to remember, how many of these the user without trust has who has most,
// and how many of its own are remembered here.
func EachTable(e *Engine, f func(remote netip.Addr, given, most, known int)) {
	for _, p := range e.peers.all {
		h := p.remote
		if h.lanes[0] != p {
			continue
		}
		most := 0
		for a, n := range h.shares.of {
			if a.of.Label != "" || !e.cfg.Policy.Trusts(a.of.UID) {
				most = max(most, n)
			}
		}
		f(h.addr, h.shares.all, most, h.grants.Len())
	}
}

// Knows reports whether what e knows of remote is of its daemon as it is now, which is
// its. It does not know the present one after a restart, or after its has forgotten e,
// until they meet.
func Knows(e *Engine, local, remote netip.Addr, its *Engine) bool {
	h, back := e.peers.hosts[remoteKey{local, remote}], its.peers.hosts[remoteKey{remote, local}]
	return h != nil && back != nil && h.instance == back.us
}

// GrantsOf counts what the process's user has granted to remote, and in all.
func (p *InProcess) GrantsOf(local, remote netip.Addr) (there, all int) {
	a := p.cl.acct
	if h := p.e.peers.hosts[remoteKey{local, remote}]; h != nil {
		there = h.shares.of[a]
	}
	return there, a.grants
}

// CongestionMap returns the map of a local address, and what is known in a lane and path
// of the map of a remote one; nil if there is none.
func CongestionMap(e *Engine, local, remote netip.Addr, lane, path uint8) (own, theirs *cong.Map) {
	if l := e.addrs.by[local]; l != nil {
		own = &l.cong
	}
	if p := e.peers.hosts[remoteKey{local, remote}].lane(lanePath(lane).in(path)); p != nil {
		theirs = p.c.RemoteCong()
	}
	return own, theirs
}

// Leaks says what an engine whose clients are gone and whose peers are quiet
// still holds and should not.
func Leaks(e *Engine) (found []string) {
	say := func(n int, what string) {
		if n != 0 {
			found = append(found, fmt.Sprintf("%d %s", n, what))
		}
	}
	say(len(e.clients.all)+e.clients.leaving.N, "clients")
	say(e.loop.jobs.n, "slots with same-host work")
	say(e.pools.msgs.Out, "submitted messages")
	say(e.pools.ops.Out, "operations")
	say(e.pools.rxs.Out, "arrived messages")
	say(e.pools.takers.Out, "accounts and sockets that take turns")
	say(e.keys.grantees.Out, "records of grantees")
	say(len(e.keys.by)+e.keys.revoking.N, "regions")
	say(e.rx.overflow.used, "overflow bytes")
	say(len(e.rx.overflow.mem)/shm.WindowSize-len(e.rx.overflow.free), "overflow windows")
	idle := 0
	for _, a := range e.users.accounts { // only counted
		if a.clients == 0 && a.peers > 0 {
			idle++
		}
	}
	say(len(e.users.accounts)-idle, "accounts of users")
	say(e.rx.overflow.short.N, "accounts of users that refused for want of memory")
	say(e.users.wanted.N, "accounts of users that want places for destinations")
	say(e.users.mem.Sum().Maps, "mappings for clients")
	for _, r := range e.devices.rails {
		say(len(r.repost), "receive buffers not posted")
	}
	for _, g := range []stats.Counter{stats.RegisteredBytes, stats.Regions, stats.CongestedPorts} {
		say(int(e.st.C[g]), g.String())
	}
	ctls, left := len(e.ctlBufs.free)+e.ctlBufs.left/conn.CtlLen, e.devices.recvLeft
	e.PublishStats(e.wall)
	owed := 0
	for _, p := range e.peers.all {
		i := p.c.Info()
		name := fmt.Sprintf("of %v lane %d: ", p.addr, p.lane)
		say(p.notCounted(), name+"events that the engine's counters miss")
		if q, ok := p.c.to.(*byQP); ok { // others have no buffers of the engine's
			if i.State == conn.Up || i.State == conn.Connecting || i.State == conn.Error {
				ctls++ // its own control buffer
			}
			left += q.credits + 1 // one for HELLO
		}
		if _, idle := p.c.IdleSince(); i.State != conn.Down || !idle { // else they are only owed to it
			say(i.Queued, name+"messages queued")
			say(len(p.untold), name+"revocations to be told")
		} else {
			owed += p.ctls
		}
		say(i.Unacked, name+"messages unacked")
		say(i.Stopped, name+"messages refused")
		say(p.flows.n, name+"destinations that wait for their turn")
		say(p.waiting, name+"datagrams that wait in destinations")
		say(i.OutstandingWRs, name+"work requests outstanding")
		say(p.grants.Len(), name+"grants")
		say(p.shares.all+len(p.shares.of), name+"grants of ours")
		say(len(p.owed), name+"revocations to be answered")
		say(p.partials, name+"messages under assembly")
		say(min(p.slots.N, 1), name+"destinations")
	}
	say(e.pools.ctls.Out-owed, "internal messages")
	say(e.cfg.SendBufs-len(e.sendBufs.free), "send buffers")
	say(e.cfg.MaxPeers-ctls, "control buffers")
	say(e.cfg.RecvBufs-left, "receive buffers promised")
	for _, l := range e.addrs.all {
		name := fmt.Sprintf("of %v: ", l.addr)
		say(l.ports.Len(), name+"ports bound")
		say(l.cong.Count(), name+"ports congested")
		say(len(l.slots), name+"destinations on the same host")
	}
	return found
}

// notCounted is how many events of p's connection the engine's sums lack.
func (p *peer) notCounted() (n int) {
	for i, f := range &connCounters {
		n += int(*f.from(p.c.Stats()) - p.counted[i])
	}
	return n
}
