package engine

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/rdmaop"
)

// What rdsctl asks about single messages, sockets and regions. The engine
// answers in steps of lookStep table entries, a few microseconds each (more where a list
// shows the datagrams of long runs: up to the most rows that are asked for), so that
// traffic goes on between them.
const lookStep = 1024

// steps calls f for the tables of all clients, n(c) entries long, in parts.
// f returns false when it has enough.
func (b Inspector) steps(n func(c *Client) int, f func(c *Client, from, to int) bool) error {
	e := b.e
	var clients []*Client
	if err := b.ask(func() { clients = slices.Clone(e.clients.all) }); err != nil {
		return err
	}
	for _, c := range clients {
		for from, more := 0, true; more; from += lookStep {
			err := b.ask(func() {
				all := 0
				if !c.dead {
					all = n(c)
				}
				more = from+lookStep < all
				if from < all && !f(c, from, min(from+lookStep, all)) {
					more, clients = false, nil
				}
			})
			if err != nil {
				return err
			}
		}
		if clients == nil {
			break
		}
	}
	return nil
}

func (s *socket) owner() ctl.Owner {
	return ctl.Owner{PID: s.cl.pid, UID: s.cl.user.UID, Name: s.cl.name, Account: s.cl.user.Account.Label}
}

// eachMessage calls f for all messages of clients that are not ended, on the
// engine's goroutine, until it returns false.
func (b Inspector) eachMessage(f func(*txMsg) bool) error {
	return b.steps(func(c *Client) int { return len(c.msgs) }, func(c *Client, from, to int) bool {
		for _, t := range c.msgs[from:to] {
			if t != nil && !t.done() && !t.sock.closed && !f(t) {
				return false
			}
		}
		return true
	})
}

// eachUnread calls f for all messages that clients have been told of and have
// not given back.
func (b Inspector) eachUnread(f func(c *Client, r *rxEntry, age time.Duration) bool) error {
	e := b.e
	return b.steps(func(c *Client) int { return len(c.rx) }, func(c *Client, from, to int) bool {
		for i := from; i < to; i++ {
			r := &c.rx[i]
			if r.sock != nil && r.told && !r.sock.closed && !f(c, r, e.watch.sinceMs(r.at)) {
				return false
			}
		}
		return true
	})
}

// eachSocket calls f for all sockets of clients.
func (b Inspector) eachSocket(f func(*socket) bool) error {
	return b.steps(func(c *Client) int { return len(c.socks) }, func(c *Client, from, to int) bool {
		for _, s := range c.socks[from:to] {
			if s != nil && !s.closed && !f(s) {
				return false
			}
		}
		return true
	})
}

// eachUnrelieved calls f for all congested destinations whose relief the client asks for. The client
// does not withdraw its wish when a sender gives up.
func (b Inspector) eachUnrelieved(f func(*slot) bool) error {
	return b.steps(func(c *Client) int { return len(c.slots) }, func(c *Client, from, to int) bool {
		for _, sl := range c.slots[from:to] {
			if sl != nil && !sl.closed && !sl.sock.closed && c.table.Slot(sl.idx).LoadCongested() != 0 && c.seg.WantSlot(sl.idx).WantsRelief() && !f(sl) {
				return false
			}
		}
		return true
	})
}

// sinceMs is how long ago at was, ms of unix time modulo 2^32.
func (w *watching) sinceMs(at uint32) time.Duration {
	return time.Duration(max(0, int32(w.e.wall.ms()-at))) * time.Millisecond
}

// Messages lists the messages of one queue or all.
func (b Inspector) Messages(v ctl.View, queue string) (out []ctl.MessageInfo, more bool, err error) {
	l := listing{limit: v.Limit}
	if queue != ctl.QueueRecv {
		err = b.eachMessage(func(t *txMsg) bool {
			m := b.e.watch.messageInfo(t)
			if queue != "" && m.Queue != queue || !v.May(m.Owner.UID) {
				return true
			}
			data, run := t.m.Whole()
			return l.add(m, data, run)
		})
	}
	if err != nil || l.more || queue != "" && queue != ctl.QueueRecv {
		return l.all(), l.more, err
	}
	unread := func(s *socket, src *[16]byte, sport uint16, mem []byte, run int, age time.Duration) bool {
		m := ctl.MessageInfo{Queue: ctl.QueueRecv, Local: s.local.addr, LocalPort: s.port, RemotePort: sport, Lane: s.lane,
			Age: age, Owner: s.owner()}
		if src != nil {
			m.Remote = netip.AddrFrom16(*src).Unmap()
		}
		return l.add(m, mem, run)
	}
	err = b.eachUnread(func(c *Client, r *rxEntry, age time.Duration) bool {
		return !v.May(c.user.UID) || unread(r.sock, r.src, r.sport, c.unread(r), r.run, age)
	})
	if err != nil || l.more {
		return l.all(), l.more, err
	}
	short := false
	err = b.eachSocket(func(s *socket) bool {
		if !v.May(s.cl.user.UID) {
			return true
		}
		short = short || s.over.N > lookStep
		n := 0
		for at := s.over.Head; at != nil && n < lookStep; at = at.Next {
			m := at.Of
			if !unread(s, m.src, m.sport, m.mem(), m.run, m.at.age(b.e.wall)) {
				return false
			}
			n++
		}
		return true
	})
	return l.all(), l.more || short, err
}

// unread is the memory of a message of c that was not given back. Of a run that was half
// read it is all.
func (c *Client) unread(r *rxEntry) []byte {
	if r.n == 0 {
		return nil
	}
	return c.recv.Bytes(r.chunk, int(r.n))
}

func (w *watching) messageInfo(t *txMsg) ctl.MessageInfo {
	m := ctl.MessageInfo{Queue: ctl.QueueSend, Local: t.sock.local.addr, LocalPort: t.sock.port, Remote: t.slot.addr, RemotePort: t.slot.port,
		Lane: t.sock.lane, Ops: t.nops, Age: time.Duration(max(0, w.e.now-t.m.At)), Owner: t.sock.owner()}
	seq, sent := t.m.Sent()
	m.Seq = seq
	if sent {
		m.Queue = ctl.QueueRetrans
	}
	return m
}

// Keys lists the registered regions.
func (b Inspector) Keys(v ctl.View) (out []ctl.KeyInfo, more bool, err error) {
	e := b.e
	var at *lists.Link[region]
	for first := true; first || at != nil; first = false {
		err = b.ask(func() {
			if first {
				at = e.keys.all.Head
			} else if !at.On() {
				at, more = nil, true // the list has changed there: better less than twice
				return
			}
			for n := 0; at != nil && n < lookStep; n++ {
				if r := at.Of; v.May(r.sock.cl.user.UID) {
					if more = len(out) >= v.Limit; more {
						at = nil
						return
					}
					out = append(out, keyInfo(r))
				}
				at = at.Next
			}
		})
		if err != nil {
			break
		}
	}
	return out, more, err
}

func keyInfo(r *region) ctl.KeyInfo {
	k := ctl.KeyInfo{Addr: r.sock.local.addr, Port: r.sock.port, Owner: r.sock.owner(), Buffer: r.buf.id, Offset: r.off, Length: r.n,
		UseOnce: r.rights&abi.UseOnce != 0, Open: r.rights&abi.Open != 0, State: "live", Grants: r.exp.Grants(),
		Served: ctl.Served{PlacedBytes: r.served.Written, ServedBytes: r.served.Read}}
	var rights []string
	for _, x := range []struct {
		r    abi.Rights
		name string
	}{{abi.RightRead, "read"}, {abi.RightWrite, "write"}, {abi.RightAtomic, "atomic"}} {
		if r.rights&x.r != 0 {
			rights = append(rights, x.name)
		}
	}
	k.Rights = strings.Join(rights, "+")
	switch r.exp.State() {
	case rdmaop.ExportRevoking:
		k.State = "revoking"
	case rdmaop.ExportRevoked:
		k.State = "dead"
	}
	return k
}

// Barriers lists the destinations with operations.
func (b Inspector) Barriers(v ctl.View) (out []ctl.BarrierInfo, more bool, err error) {
	err = b.steps(func(c *Client) int { return len(c.cells) }, func(c *Client, from, to int) bool {
		if !v.May(c.user.UID) {
			return true
		}
		for _, ce := range c.cells[from:to] {
			if ce == nil || !ce.live() || ce.mark.Last() == 0 {
				continue
			}
			if more = len(out) >= v.Limit; more {
				return false
			}
			out = append(out, ctl.BarrierInfo{Addr: ce.sock.local.addr, Port: ce.sock.port, Dest: ce.addr, Lane: ce.sock.lane,
				Owner: ce.sock.owner(), Issued: ce.mark.Last(), HWM: ce.mark.HWM(), Pending: uint64(ce.mark.Pending())})
		}
		return true
	})
	return out, more, err
}

// Congested lists the congested ports: those here, then those of peers that
// sockets here send to.
func (b Inspector) Congested(v ctl.View) (out []ctl.CongestedInfo, more bool, err error) {
	add := func(i ctl.CongestedInfo) bool {
		if more = len(out) >= v.Limit; !more {
			out = append(out, i)
		}
		return !more
	}
	err = b.eachSocket(func(s *socket) bool {
		if !s.congested || !v.May(s.cl.user.UID) {
			return true
		}
		owner := s.owner()
		i := ctl.CongestedInfo{Where: "here", Addr: s.local.addr, Port: s.port, Since: s.congAt.Time().UTC(), Owner: &owner,
			Unread: uint64(s.rcvBytes), Limit: uint64(s.limit)}
		if to := s.local.slots[s.port]; to != nil {
			i.Senders = uint64(to.N)
		}
		return add(i)
	})
	if err != nil || more {
		return out, more, err
	}
	waiting := map[netip.AddrPort]uint64{}
	err = b.steps(func(c *Client) int { return len(c.slots) }, func(c *Client, from, to int) bool {
		for i, sl := range c.slots[from:to] {
			if sl == nil || c.table.Slot(uint32(from+i)).LoadCongested() == 0 {
				continue
			}
			// Those of this host are listed above.
			if p, away := sl.way.(*peer); away && p.c.RemoteCong().Test(sl.port) {
				waiting[netip.AddrPortFrom(sl.addr, sl.port)]++
			}
		}
		return len(waiting) <= v.Limit
	})
	for ap, n := range waiting {
		if !add(ctl.CongestedInfo{Where: "peer", Addr: ap.Addr(), Port: ap.Port(), Senders: n}) {
			break
		}
	}
	lists.Sort(out, func(a, b ctl.CongestedInfo) int {
		return cmp.Or(strings.Compare(a.Where, b.Where), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	return out, more, err
}

// waitsFor says who has to act for what a destination has under way.
func (w *watching) waitsFor(sl *slot, queued, unacked bool) string {
	switch {
	case !queued && !unacked:
		return ctl.WaitsForNobody
	case w.e.drains.toldToWait(sl) && queued:
		return ctl.WaitsForOperator
	}
	return sl.way.waitsFor(sl, queued)
}

// waitsFor is who has to act for what a connection has under way.
func (c *connection) waitsFor(queued bool) string {
	switch i := c.Info(); {
	case i.State != conn.Up:
		return ctl.WaitsForConnection
	case queued && c.starved():
		return ctl.WaitsForCredits
	default:
		return ctl.WaitsForAck
	}
}
