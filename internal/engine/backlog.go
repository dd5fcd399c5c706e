package engine

import (
	"cmp"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/lists"
)

// Backlog sums up what is on its way from each socket to each destination, or would be if its
// sender did not wait for relief, and what each socket has not read.
func (b Inspector) Backlog(v ctl.View) (out []ctl.BacklogInfo, more bool, err error) {
	e := b.e
	at := map[*slot]int{}
	var slots []*slot // of out
	err = b.eachMessage(func(t *txMsg) bool {
		if !v.May(t.sock.cl.user.UID) {
			return true
		}
		i, ok := at[t.slot]
		if !ok {
			if more = len(out) >= v.Limit; more {
				return false
			}
			i = len(out)
			at[t.slot] = i
			slots = append(slots, t.slot)
			out = append(out, ctl.BacklogInfo{Direction: "send", Addr: t.sock.local.addr, Port: t.sock.port, Dest: t.slot.addr, DestPort: t.slot.port,
				Lane: t.sock.lane, Owner: t.sock.owner()})
		}
		n := &out[i]
		if _, sent := t.m.Sent(); sent {
			n.UnackedMessages += uint64(t.sum.Datagrams)
			n.UnackedBytes += uint64(t.sum.Bytes)
		} else {
			n.QueuedMessages += uint64(t.sum.Datagrams)
			n.QueuedBytes += uint64(t.sum.Bytes)
		}
		n.Ops += uint64(t.nops)
		n.Oldest = max(n.Oldest, time.Duration(e.now-t.m.At))
		return true
	})
	for from := 0; from < len(slots) && err == nil; from += lookStep {
		err = b.ask(func() {
			for i := from; i < min(from+lookStep, len(slots)); i++ {
				if sl := slots[i]; sl.sock.cl.dead || sl.closed {
					out[i].WaitsFor = ctl.WaitsForNobody
				} else {
					out[i].Congested = sl.sock.cl.table.Slot(sl.idx).LoadCongested() != 0
					out[i].WaitsFor = e.watch.waitsFor(sl, out[i].QueuedMessages > 0, out[i].UnackedMessages > 0)
				}
			}
		})
	}
	if err == nil && !more {
		more, err = b.unrelieved(v, at, &out)
	}
	if err == nil && !more {
		more, err = b.unread(v, &out)
	}
	lists.Sort(out, func(a, b ctl.BacklogInfo) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), strings.Compare(b.Direction, a.Direction),
			a.Dest.Compare(b.Dest), cmp.Compare(a.DestPort, b.DestPort))
	})
	return out, more, err
}

// unrelieved adds to out the destinations whose relief processes wait for, except those that are in
// listed; true: not all of them. When a process began to wait is only known to itself, so the age
// is that of the congestion: the longest that it can have waited.
func (b Inspector) unrelieved(v ctl.View, listed map[*slot]int, out *[]ctl.BacklogInfo) (more bool, err error) {
	err = b.eachUnrelieved(func(sl *slot) bool {
		if _, ok := listed[sl]; ok || !v.May(sl.sock.cl.user.UID) {
			return true
		}
		if more = len(*out) >= v.Limit; more {
			return false
		}
		who := ctl.WaitsForRelief
		if b.e.drains.toldToWait(sl) {
			who = ctl.WaitsForOperator
		}
		*out = append(*out, ctl.BacklogInfo{Direction: "send", Addr: sl.sock.local.addr, Port: sl.sock.port, Dest: sl.addr, DestPort: sl.port,
			Lane: sl.sock.lane, Owner: sl.sock.owner(), Congested: true, Oldest: time.Duration(b.e.now - sl.congestedAt), WaitsFor: who})
		return true
	})
	return more, err
}

// unread adds to out what sockets have not read; true: not all of it.
func (b Inspector) unread(v ctl.View, out *[]ctl.BacklogInfo) (more bool, err error) {
	type unread struct {
		n, bytes uint64 // of one moment: a socket's own sums would be of a later one
		oldest   time.Duration
	}
	told := map[*socket]unread{}
	err = b.eachUnread(func(c *Client, r *rxEntry, age time.Duration) bool {
		if v.May(c.user.UID) {
			u := told[r.sock]
			told[r.sock] = unread{u.n + uint64(r.sum.Datagrams), u.bytes + uint64(r.sum.Bytes), max(u.oldest, age)}
		}
		return true
	})
	if err != nil {
		return false, err
	}
	err = b.eachSocket(func(s *socket) bool {
		u := told[s]
		if !v.May(s.cl.user.UID) || u.n+uint64(s.overSum) == 0 {
			return true
		}
		if more = len(*out) >= v.Limit; more {
			return false
		}
		if first := s.over.Head; first != nil {
			u.oldest = max(u.oldest, first.Of.at.age(b.e.wall))
		}
		*out = append(*out, ctl.BacklogInfo{Direction: "recv", Addr: s.local.addr, Port: s.port, Lane: s.lane, Owner: s.owner(),
			UnreadMessages: u.n + uint64(s.overSum), UnreadBytes: u.bytes + uint64(s.overBytes), Oldest: u.oldest,
			Congested: s.congested, WaitsFor: ctl.WaitsForReader})
		return true
	})
	return more, err
}

// stallNowhere counts t among the messages whose destinations lead nowhere yet.
func (w *watching) stallNowhere(all map[ctl.StallInfo]*ctl.StallInfo, t *txMsg) {
	why := w.waitsFor(t.slot, true, false)
	if why != ctl.WaitsForQuota && why != ctl.WaitsForRoom {
		return
	}
	key := ctl.StallInfo{Local: t.sock.local.addr, Remote: t.slot.addr, Lane: t.sock.lane, State: "none", WaitsFor: why}
	s := all[key]
	if s == nil {
		s = &ctl.StallInfo{}
		*s = key
		all[key] = s
	}
	s.QueuedMessages += uint64(t.sum.Datagrams)
	s.QueuedBytes += uint64(t.sum.Bytes)
	s.OldestQueued = max(s.OldestQueued, time.Duration(w.e.now-t.m.At))
	s.Oldest = s.OldestQueued
}

// Stalls lists the connections that have something under way or waiting, with
// the age of the oldest of it, and the hosts to which messages wait because
// their destinations lead nowhere yet.
func (b Inspector) Stalls() ([]ctl.StallInfo, error) {
	type ages struct{ queued, unacked time.Duration }
	e := b.e
	oldest := map[transport]*ages{}
	unled := map[ctl.StallInfo]*ctl.StallInfo{} // by what names it and its cause
	err := b.eachMessage(func(t *txMsg) bool {
		if _, yet := t.slot.way.(*nowhere); yet { // no connection will tell of it
			e.watch.stallNowhere(unled, t)
			return true
		}
		a := oldest[t.slot.way]
		if a == nil {
			a = &ages{}
			oldest[t.slot.way] = a
		}
		age := time.Duration(e.now - t.m.At)
		if _, sent := t.m.Sent(); sent {
			a.unacked = max(a.unacked, age)
		} else {
			a.queued = max(a.queued, age)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	var out []ctl.StallInfo
	for _, s := range unled {
		out = append(out, *s)
	}
	err = b.eachPeer(func(int) {}, func(p *peer) {
		i := e.watch.peerInfo(p)
		if i.QueuedMessages+i.UnackedMessages > 0 {
			s := ctl.StallInfo{Local: i.Local, Remote: i.Remote, Lane: i.Lane, Path: i.Path, State: i.State, Transport: i.Transport,
				QueuedMessages: i.QueuedMessages, QueuedBytes: i.QueuedBytes, UnackedMessages: i.UnackedMessages, UnackedBytes: i.UnackedBytes,
				SendCredits: i.SendCredits, LastError: i.LastError, LastErrorAt: i.LastErrorAt, WaitsFor: p.c.waitsFor(i.QueuedMessages > 0)}
			if a := oldest[p]; a != nil {
				s.OldestQueued, s.OldestUnacked, s.Oldest = a.queued, a.unacked, max(a.queued, a.unacked)
			}
			out = append(out, s)
		}
	})
	lists.Sort(out, func(a, b ctl.StallInfo) int {
		return cmp.Or(cmp.Compare(b.Oldest, a.Oldest), a.Remote.Compare(b.Remote), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Path, b.Path))
	})
	return out, err
}
