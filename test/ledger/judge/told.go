package judge

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/test/ledger/book"
)

// told sums up a socket's counted notices about one destination.
type told struct {
	nosock, lost, gaveUp uint64
	refused              uint64  // messages whose cookie was not granted
	at                   []int64 // when the nosock notices were read
	lostAt               int64   // when the last lost notice was read
}

func (j *Judge) addNotice(l *life, r book.Record) {
	t := l.told[r.Peer]
	if t == nil {
		t = &told{}
		l.told[r.Peer] = t
	}
	j.report.Told[r.Text]++
	switch r.Text {
	case "no socket":
		t.nosock += r.A
		t.at = append(t.at, r.At)
	case "lost":
		t.lost += r.A
		t.lostAt = r.At
	case "gave up":
		t.gaveUp += r.A
	case "not granted":
		t.refused += r.A
	default:
		l.notices = append(l.notices, notice{r.At, r.Peer, r.Text, r.B})
	}
}

// notice is a notice without a count.
type notice struct {
	at     int64
	of     netip.AddrPort
	kind   string
	reason uint64
}

// Values of Reason for Unreachable, as in package rds.
const (
	forbidden = 1
	noRoute   = 2
)

// judgeNotices judges that a socket's notices about connections have a cause.
func (j *Judge) judgeNotices(l *life) {
	breaks := map[notice]int{} // PeerDown and PeerUp that no fault explains, by destination and kind
	for _, n := range l.notices {
		wrong := ""
		switch disturbed := j.disturbed(l.addr.Addr(), n.of.Addr(), n.at, n.at); {
		case n.of.Addr() == l.addr.Addr():
			wrong = "which is on the same host"
		case n.kind == "unreachable" && (n.reason == forbidden || n.reason == noRoute):
			wrong = fmt.Sprintf("for the reason %d, though there is a way and nobody is forbidden", n.reason)
		case !disturbed && (n.kind == "peer down" || n.kind == "peer up"):
			which := notice{of: n.of, kind: n.kind}
			if breaks[which]++; breaks[which] > j.upgraded(n.of.Addr(), n.at) {
				wrong = fmt.Sprintf("for the %dth time without a fault, after %d upgrades of the peer's daemon", breaks[which], j.upgraded(n.of.Addr(), n.at))
			}
		case !disturbed:
			wrong = "though nothing had happened to the two hosts"
		}
		if wrong != "" {
			j.violate(Violation{Rule: "notice", Life: l.id, Text: fmt.Sprintf("%v was told %q of %v at %d, %s", l, n.kind, n.of, n.at, wrong)})
		}
	}
}

// upgraded returns how many upgrades of a host's daemon had begun by the time at.
func (j *Judge) upgraded(host netip.Addr, at int64) (n int) {
	for _, u := range j.upgrades[host] {
		if u <= at {
			n++
		}
	}
	return n
}

// flow is all that one socket sent to one address.
type flow struct {
	s     *life
	dst   netip.AddrPort
	there []*life // sockets that were bound at dst
	told  told
	msgs  []*message
	last  map[*life]uint64 // highest number that each of these received
	first []int64          // for each of msgs: the earliest send that may have followed the last NoSocket notice
	acked []int64          // for each of msgs: when it is certain that it was acked, reported in a notice or dropped
	next  []int64          // for each of msgs: when a later message was first received
}

// flows returns the flows of s, in the order of their first messages.
func (s *life) flows() (all []*flow) {
	by := map[netip.AddrPort]*flow{}
	for i := range s.msgs {
		m := &s.msgs[i]
		if m.failed || !m.dst.IsValid() {
			continue
		}
		f := by[m.dst]
		if f == nil {
			f = &flow{s: s, dst: m.dst, last: map[*life]uint64{}}
			if t := s.told[m.dst]; t != nil {
				f.told = *t
			}
			by[m.dst] = f
			all = append(all, f)
		}
		f.msgs = append(f.msgs, m)
		if m.at != nil && !m.has(book.FlagShort) {
			f.last[m.at] = max(f.last[m.at], m.seq)
		}
	}
	for _, f := range all {
		f.trace()
	}
	return all
}

// trace sets first, acked and next of each message, from the messages ahead of it and behind it.
func (f *flow) trace() {
	n := len(f.msgs)
	f.first, f.acked, f.next = make([]int64, n), make([]int64, n), make([]int64, n)
	at, first, named := f.told.at, int64(0), false
	for i, m := range f.msgs {
		if first == 0 {
			first = m.begun
		}
		for ; len(at) > 0 && at[0] <= m.begun; at = at[1:] {
			if !named { // otherwise the notice may be about the named socket, and the destination may still lead to the one it had met
				first = max(first, f.firstFrom(at[0]-noticeBound))
			}
		}
		named = named || m.at == nil && (m.meant != 0 || m.operates())
		f.first[i] = first
	}
	acked, next := int64(never), int64(never)
	for i := n - 1; i >= 0; i-- {
		m := f.msgs[i]
		own := f.s.knewAcked(m)
		if f.acked[i], f.next[i] = min(acked, own), next; m.at != nil && !m.has(book.FlagShort) || m.statusOf() == "success" {
			acked = min(acked, own) // it was taken, so messages ahead of it were taken too, or their end was reported
		}
		if m.at != nil && !m.has(book.FlagShort) {
			next = min(next, m.receivedAt)
		}
	}
}

// firstFrom returns when the send of the first message after at began. It may have met another
// socket, because a notice is read within noticeBound of being in the event ring.
func (f *flow) firstFrom(at int64) int64 {
	i, _ := slices.BinarySearchFunc(f.msgs, at, func(m *message, at int64) int { return cmp.Compare(m.begun, at) })
	return f.msgs[min(i, len(f.msgs)-1)].begun
}

// knewAcked returns when s knew that m had been acked, or that no socket had taken it. A
// withdrawn message shows neither.
func (s *life) knewAcked(m *message) int64 {
	at := int64(never)
	if m.ackedAt != 0 && !m.has(book.FlagLimit) && !s.cancelled(m, m.ackedAt) {
		at = m.ackedAt
	}
	if o := m.first(); o != nil && o.status == "success" {
		at = min(at, o.statusAt)
	}
	return at
}

// held reports whether one socket had the port all the time, from the earliest time at which the
// i-th message can have met a socket, to until. Then the message cannot have found the port
// unbound, or bound by another socket.
func (f *flow) held(j *Judge, i int, until int64) bool {
	m := f.msgs[i]
	if m.meant != 0 {
		return false
	}
	return slices.ContainsFunc(f.there, func(d *life) bool {
		for _, o := range m.ops {
			if o != nil && (j.regions[o.region] == nil || j.regions[o.region].owner != d) {
				return false
			}
		}
		return d.bound <= f.first[i] && until <= d.end.early
	})
}

// judgeFlows judges that every accepted message was delivered, or reported to its sender, or
// excused. No message may be both delivered and reported.
func (j *Judge) judgeFlows(s *life) {
	at := map[netip.AddrPort][]*life{}
	for _, d := range j.lives {
		at[d.addr] = append(at[d.addr], d)
	}
	for _, f := range s.flows() {
		f.there = at[f.dst]
		j.judgeTold(f)
		j.judgeMissing(f)
	}
}

// judgeTold judges that a sender got no more notices of messages that were not delivered than it
// sent such messages.
func (j *Judge) judgeTold(f *flow) {
	s, t := f.s, &f.told
	var nosock, lost, limited, refused uint64
	for i, m := range f.msgs {
		open := m.at == nil || m.has(book.FlagShort) // of the short messages, it is a guess which ones arrived
		if open && t.nosock > 0 && !f.held(j, i, t.at[len(t.at)-1]) {
			nosock++
		}
		if t.lost > 0 && s.addr.Addr() != f.dst.Addr() && j.restarted(f.dst.Addr(), m.begun-causeBound, t.lostAt) { // the end of the daemon may not have been noticed at once
			lost++
		}
		if m.has(book.FlagLimit) && !m.operates() {
			limited++
		}
		if m.at == nil && m.has(book.FlagOffer) {
			refused++ // its region may have ended before the message could go
		}
	}
	for _, c := range []struct {
		what      string
		told, may uint64
	}{{"found no socket", t.nosock, nosock}, {"were lost", t.lost, lost}, {"gave up", t.gaveUp, limited}, {"were not granted", t.refused, refused}} {
		if c.told > c.may {
			j.violate(Violation{Rule: "told and delivered", Life: s.id, Text: fmt.Sprintf("%v was told that %d messages to %v %s; %d can have", s, c.told, f.dst, c.what, c.may)})
		}
	}
}

// judgeMissing judges that messages that did not arrive were reported or are excused.
func (j *Judge) judgeMissing(f *flow) {
	s := f.s
	var missing, short []*message
	guessed := uint64(0) // short messages that are excused; another short message may be the one that is meant
	for i, m := range f.msgs {
		if s.heardAll() && m.accepted() && m.has(book.FlagCookie) && m.ackedAt == 0 {
			j.wrong("zero copy", s, m, "has a cookie that did not come back")
		}
		if !m.accepted() || !m.mayBeWaiting() {
			continue
		}
		why := j.excuse(f, i)
		switch isShort := m.has(book.FlagShort); {
		case why != "":
			j.report.Excused[why]++
			if isShort {
				guessed++
			}
		case isShort:
			short = append(short, m)
		default:
			missing = append(missing, m)
		}
	}
	missing = append(missing, short[min(guessed, uint64(len(short))):]...)
	budget := f.told.nosock + f.told.lost + f.told.gaveUp + f.told.refused
	if folded := s.told[netip.AddrPort{}]; folded != nil { // counts of several destinations, without an address
		budget += folded.nosock + folded.lost + folded.gaveUp + folded.refused
	}
	j.report.Excused[counted] += int(min(budget, uint64(len(missing))))
	if n := uint64(len(missing)); n > budget {
		for _, m := range missing[:min(n-budget, 3)] {
			j.wrong("lost", s, m, "neither arrived nor was its sender told: %d such, %d told", n, budget)
		}
	}
}
