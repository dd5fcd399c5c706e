package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ports"
	"github.com/rdsd/rdsd/verbs"
)

// Ask runs f on the engine's goroutine and returns when it has run. After an error it
// has not run and never will.
type Ask func(f func()) error

// Inspector answers other goroutines what the engine has: each question in as many
// turns as it has parts, a few microseconds each, so that traffic goes on between
// them. What changes meanwhile may be seen before or after the change.
type Inspector struct {
	e   *Engine
	ask Ask
}

// Inspect returns an Inspector that asks with ask. Any goroutine may call it.
func (e *Engine) Inspect(ask Ask) Inspector { return Inspector{e, ask} }

// Sockets lists the bound sockets by address and port.
func (b Inspector) Sockets() (out []ctl.SocketInfo, err error) {
	// Lists that grow in the engine's goroutine would be copied there.
	var bound int
	if err = b.ask(func() { bound = b.e.watch.sockets() }); err != nil {
		return nil, err
	}
	out = make([]ctl.SocketInfo, 0, bound)
	took := make([]times, 0, bound)
	const pages = 8 // of 256 ports: what one turn of the engine has time for
	for _, l := range b.e.addrs.all {
		for i := 0; i < ports.Pages && err == nil; i += pages {
			err = b.ask(func() {
				b.e.watch.countAcked()
				l.ports.Each(i, pages, func(s *socket) {
					if s.ping == nil {
						out, took = append(out, b.e.watch.socketInfo(s)), append(took, s.took.copy())
					}
				})
			})
		}
	}
	waits := map[netip.AddrPort]uint64{}
	if err == nil {
		err = b.eachUnrelieved(func(sl *slot) bool {
			waits[netip.AddrPortFrom(sl.sock.local.addr, sl.sock.port)]++
			return true
		})
	}
	for i := range out {
		took[i].in(&out[i].MessageTime, &out[i].OperationTime)
		out[i].Unrelieved = waits[netip.AddrPortFrom(out[i].Addr, out[i].Port)]
	}
	return out, err
}

// socketInfo describes s, but for its distributions.
func (w *watching) socketInfo(s *socket) ctl.SocketInfo {
	return ctl.SocketInfo{Addr: s.local.addr, Port: s.port, Incarnation: s.inc,
		Owner:        s.owner(),
		SendMessages: uint64(s.sndMsgs), SendBytes: uint64(s.sndBytes), RecvBytes: uint64(s.rcvBytes),
		RecvLimit: uint64(s.limit), Congested: s.congested, Ops: uint64(s.ops),
		OldestUnacked: time.Duration(w.age(s.oldest())), Sent: s.sent.msgs, SentBytes: s.sent.bytes, Received: s.got.msgs, ReceivedBytes: s.got.bytes,
		Served: ctl.Served{PlacedBytes: s.served.Written, ServedBytes: s.served.Read}}
}

// peersEach is how many peers one turn of the engine describes.
const peersEach = 32

// Peer is a connection, and what says why it goes by the device that it goes by.
type Peer struct {
	ctl.PeerInfo
	OnlySecond bool  // our address is not on the first of two devices
	Second     bool  // it goes by the second
	Dialed     bool  // we have asked for it
	Fell       error // why it does not go by the first, nil: the peer came by the second

	measured int64 // when its round-trip time was, 0: never
}

// Peers lists the connections, PeerInfo.Why excepted.
func (b Inspector) Peers() (out []Peer, err error) {
	var took []times
	err = b.eachPeer(func(n int) { out, took = make([]Peer, 0, n), make([]times, 0, n) }, func(p *peer) {
		b.e.watch.countAcked()
		i := b.e.watch.peerInfo(p)
		b.e.throttle.limited(p, &i.PeerInfo)
		out, took = append(out, i), append(took, p.took)
		b.e.watch.probe(p, i.measured)
	})
	for i := range out {
		took[i].in(&out[i].MessageTime, &out[i].OperationTime)
	}
	return out, err
}

// eachPeer calls f for all peers, after begin with their number, outside of the engine's
// goroutine. A peer that is forgotten between two turns is left out.
func (b Inspector) eachPeer(begin func(n int), f func(*peer)) (err error) {
	e := b.e
	var keys []verbs.PeerKey
	err = b.ask(func() {
		for _, p := range e.peers.all {
			keys = append(keys, p.key)
		}
	})
	begin(len(keys))
	for part := range slices.Chunk(keys, peersEach) {
		if err != nil {
			break
		}
		err = b.ask(func() {
			for _, k := range part {
				if p := e.peers.byKey[k]; p != nil {
					f(p)
				}
			}
		})
	}
	return err
}

// peerInfo describes p, but for its distributions, in constant time.
func (w *watching) peerInfo(p *peer) Peer {
	i := p.c.Info()
	out := Peer{measured: i.RTT.At}
	w.figures(p, &i, &out.PeerInfo)
	out.QueuedMessages += uint64(p.waiting)
	w.lastError(p, &i, &out.PeerInfo)
	p.c.describe(&out)
	return out
}

// figures sets out to what there is to say of p with i, its connection's snapshot, in
// constant time and without allocating: the fields that a row has, too, but LastError and the
// distributions.
func (w *watching) figures(p *peer, i *conn.Info, out *ctl.PeerInfo) {
	e := w.e
	*out = ctl.PeerInfo{Local: i.Local, Remote: i.Remote, Lane: i.Lane, Path: i.Path, State: stateNames[i.State],
		Instance: ctl.ID(i.Instance), Kernel: i.Kernel,
		NextTxSeq: i.NextTx, AckedSeq: i.LastAck, RxSeq: i.LastRx,
		QueuedMessages: uint64(i.Queued), QueuedBytes: uint64(i.QueuedBytes),
		UnackedMessages: uint64(i.Unacked), UnackedBytes: uint64(i.UnackedBytes),
		SendCredits: int(i.Credits),
		Resets:      i.Stats.ConnReset, Retransmitted: i.Stats.Retransmitted, DroppedOps: i.Stats.OpsDropped,
		UnknownOps: i.Stats.OpsUnknown, Lost: i.Stats.Lost,
		RTT: time.Duration(i.RTT.Smoothed), RTTLast: time.Duration(i.RTT.Last), RTTMin: time.Duration(i.RTT.Least),
		OldestUnacked: time.Duration(w.age(p.oldestOf(i.Oldest))),
		Sent:          i.Stats.SendMsgs, SentBytes: i.Stats.SendBytes, Received: i.Stats.RecvQueued, ReceivedBytes: i.Stats.RecvBytes,
		WrittenBytes: i.Stats.SendRDMABytes, ReadBytes: i.Stats.RecvRDMABytes,
		Served: ctl.Served{PlacedBytes: i.Served.Written, ServedBytes: i.Served.Read}}
	if i.RTT.At != 0 {
		out.RTTAt = e.at(i.RTT.At)
	}
	if i.Since != 0 {
		out.Since = e.at(i.Since)
	}
	out.Wanted = out.QueuedMessages+out.UnackedMessages > 0 || p.waiting > 0 || p.reach.why != 0 && p.slots.N > 0
	if i.Kernel {
		out.Instance = 0 // it has none
	}
	p.c.figures(out)
}

// stateNames are the connection's states as rdsctl names them.
var stateNames = func() (names [conn.Error + 1]string) {
	for i := range names {
		names[i] = strings.ToLower(conn.State(i).String())
	}
	return names
}()

// PeerReset breaks off the connections to addr, in all lanes and paths or one; they come
// back by themselves.
func (b Inspector) PeerReset(addr netip.Addr, lane, path *uint8) (n int, err error) {
	addr = addr.Unmap()
	known := false
	err = b.ask(func() { n, known = ResetPeers(b.e, addr, lane, path) })
	if err == nil && !known {
		in := ""
		if lane != nil {
			in = fmt.Sprintf(" in lane %d", *lane)
		}
		if path != nil {
			in += fmt.Sprintf(" in path %d", *path)
		}
		err = fmt.Errorf("%w: no connection to %v%s was ever made", ctl.ErrNotFound, addr, in)
	}
	return n, err
}

// ResetPeers is PeerReset for the goroutine that calls Turn. known: there was one.
func ResetPeers(e *Engine, addr netip.Addr, lane, path *uint8) (n int, known bool) {
	for _, p := range e.peers.all {
		if p.addr == addr && (lane == nil || p.lane == *lane) && (path == nil || p.path == *path) {
			known = true
			if p.c.State() != conn.Down {
				n++
			}
			p.c.Reset(e.now, errAdmin)
		}
	}
	return n, known
}

// Use is what a user has of what its quotas bound.
type Use struct {
	Quota                                              config.Quota
	Sockets, Destinations, Operations, Grants, Waiting int
	HeldBytes                                          int
}

// Users is what each account has.
func (b Inspector) Users() (map[config.Account]Use, error) {
	out := map[config.Account]Use{}
	err := b.ask(func() {
		for of, a := range b.e.users.accounts {
			out[of] = Use{Quota: a.quota, Sockets: a.sockets, Destinations: a.dests, Operations: a.ops, Grants: a.grants,
				Waiting: a.waiting.N, HeldBytes: a.overBytes}
		}
	})
	return out, err
}
