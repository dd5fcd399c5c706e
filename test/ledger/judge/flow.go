package judge

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/rdsd/rdsd/test/ledger/book"
)

// addSend adds a record of a send.
func (j *Judge) addSend(l *life, r book.Record) {
	if r.Kind == book.Op || r.Kind == book.Try {
		if n := uint64(len(l.msgs)); r.Seq == n+1 {
			l.msgs = append(l.msgs, message{seq: r.Seq, by: l.id})
		}
	}
	m := l.message(r.Seq)
	if m == nil {
		j.violate(Violation{Rule: "log", Life: l.id, Seq: r.Seq, Text: fmt.Sprintf("%v: %s of message %d out of turn", l, r.Kind, r.Seq)})
		return
	}
	switch r.Kind {
	case book.Op:
		o := &operation{kind: r.Text, region: r.A, off: uint32(r.B >> 32), len: uint32(r.B), crc: uint32(r.C), compare: r.C}
		if o.kind == "add" || o.kind == "swap" {
			m.ops[1] = o
		} else {
			m.ops[0] = o
		}
	case book.Try:
		m.dst, m.size, m.crc, m.flags, m.begun = r.Peer, uint32(r.A), uint32(r.B), r.C, r.At
		if r.Text != "" {
			n, _ := strconv.ParseUint(r.Text, 10, 32) // 0 is no life
			m.meant = uint32(n)
		}
	case book.Acked:
		if m.ackedAt != 0 || m.failed || !m.has(book.FlagCookie) {
			j.wrong("zero copy", l, m, "has a cookie that came back, which it has not, or for the second time")
		}
		m.ackedAt = r.At
	case book.Fail:
		m.failed = true
	case book.Sent:
		m.sent = r.At
		j.report.Messages++
		for i, id := range [2]uint64{r.A, r.B} {
			if o := m.ops[i]; o != nil {
				o.id = id
				j.report.Operations++
			}
		}
	}
}

// message returns the message with the number seq, or nil if there is none.
func (l *life) message(seq uint64) *message {
	if seq == 0 || seq > uint64(len(l.msgs)) {
		return nil
	}
	return &l.msgs[seq-1]
}

// deliver finds the message of each arrival. It judges that the message was sent with this
// content, to this address, arrived once, and in order.
func (j *Judge) deliver(order []*life) {
	short := map[shortKey][]*message{}
	for _, s := range order {
		for i := range s.msgs {
			if m := &s.msgs[i]; m.has(book.FlagShort) && !m.failed {
				k := shortKey{s.addr, m.dst, m.size}
				short[k] = append(short[k], m)
			}
		}
	}
	var guesses []guess
	for _, d := range order {
		last := map[uint32]uint64{} // highest number that has arrived, by source
		for i, a := range d.got {
			if a.seq == 0 {
				guesses = append(guesses, guess{d, i, a})
				continue
			}
			s := j.lives[a.life]
			var m *message
			if s != nil {
				m = s.message(a.seq)
			}
			if m == nil {
				j.violate(Violation{Rule: "invented", Life: a.life, Seq: a.seq, Text: fmt.Sprintf("%v received number %d of life %d, which never sent it", d, a.seq, a.life)})
				continue
			}
			if j.judgeArrival(s, m, d, a); a.seq < last[s.id] && m.receivedAt == a.at {
				j.wrong("order", s, m, "arrived at %v behind number %d", d, last[s.id])
			}
			last[s.id] = max(last[s.id], a.seq)
		}
	}
	slices.SortFunc(guesses, guess.before)
	for _, g := range guesses {
		j.deliverShort(g.d, g.i, short)
	}
}

// guess is an arrival without a number, whose message has to be guessed.
type guess struct {
	d *life
	i int // index in d.got
	arrival
}

// before orders guesses: first those with a known sender, then by time.
func (g guess) before(h guess) int {
	return cmp.Or(cmp.Compare(min(h.life, 1), min(g.life, 1)), cmp.Compare(g.at, h.at))
}

// wrong adds a violation about message m of s.
func (j *Judge) wrong(rule string, s *life, m *message, format string, args ...any) {
	v := Violation{Rule: rule, Life: s.id, Seq: m.seq, Text: fmt.Sprintf("%v of %v %s", m, s, fmt.Sprintf(format, args...))}
	if o := m.first(); o != nil {
		v.Region = o.region
	}
	j.violate(v)
}

// judgeArrival judges the arrival of a message with a number.
func (j *Judge) judgeArrival(s *life, m *message, d *life, a arrival) {
	switch {
	case m.failed:
		j.wrong("failed send", s, m, "was received by %v though its send failed", d)
	case m.at != nil:
		j.wrong("twice", s, m, "was received by %v, and before by %v", d, m.at)
		return
	case a.from != s.addr:
		j.wrong("routing", s, m, "was received by %v as one of %v", d, a.from)
	case m.dst != d.addr:
		j.wrong("routing", s, m, "was received by %v", d)
	case m.size != a.size || m.crc != a.crc:
		j.wrong("content", s, m, "was received by %v with %d bytes, CRC %#x instead of %#x", d, a.size, a.crc, m.crc)
	case m.has(book.FlagSilent):
		j.wrong("silent", s, m, "was received by %v", d)
	}
	m.at, m.receivedAt = d, a.at
	d.newest = max(d.newest, m.begun)
	j.report.Delivered++
	j.judgeOwner(s, m, d)
}

// judgeOwner judges that a port's next owner gets no message that was meant for a former owner,
// once the destination has met that one.
func (j *Judge) judgeOwner(s *life, m *message, d *life) {
	for _, o := range m.ops {
		if o == nil {
			continue
		}
		if r := j.regions[o.region]; r != nil && r.owner != d {
			j.wrong("next owner", s, m, "was received by %v, its %s is of memory of %v (status %s)", d, o.kind, r.owner, m.statusOf())
			return
		}
	}
	if m.meant != 0 && m.meant != d.id {
		j.wrong("next owner", s, m, "was received by %v, though it was meant for life %d", d, m.meant)
	}
	if m.operates() || m.meant != 0 {
		return // such a message goes to the owner of the memory, or to the owner it names; the destination need not have met that one
	}
	for i := m.seq - 1; i > 0; i-- {
		e := &s.msgs[i-1]
		if e.dst != m.dst || e.at == nil || e.has(book.FlagShort) || e.operates() || e.meant != 0 || s.withdrew(e) {
			continue
		}
		if e.at != d && !j.mayMeetAnother(s, e, m) {
			j.wrong("next owner", s, m, "was received by %v, though number %d had met %v, and nothing has ended that", d, e.seq, e.at)
		}
		return
	}
}

// withdrew reports whether s may have withdrawn m. Such a message may have been delivered, but
// the sender does not wait to learn by whom.
func (s *life) withdrew(m *message) bool {
	return m.has(book.FlagLimit) || s.cancelled(m, never)
}

// cancelled reports whether s cancelled what it had sent to m's destination, with m and before
// the time by.
func (s *life) cancelled(m *message, by int64) bool {
	return slices.ContainsFunc(s.cancels[m.dst], func(at int64) bool { return m.begun <= at && at < by })
}

// mayMeetAnother reports whether the destination of e, which has met an owner, may have met
// another one by the time m was sent. That is so if the sender was notified that the first owner
// had gone, if the sender ended before it could read such a notice, or if the daemon there has
// restarted.
func (j *Judge) mayMeetAnother(s *life, e, m *message) bool {
	by := m.begun + noticeBound // such a notice was in the event ring when m was submitted, and is read later
	if j.restarted(m.dst.Addr(), e.begun, m.receivedAt) || s.end.early < by {
		return true
	}
	for _, t := range []*told{s.told[m.dst], s.told[netip.AddrPort{}]} {
		if t != nil && slices.ContainsFunc(t.at, func(at int64) bool { return e.begun <= at && at <= by }) {
			return true
		}
	}
	return false
}

type shortKey struct {
	from, to netip.AddrPort
	size     uint32
}

// neighbour returns the next arrival with a number from the source of d.got[i]. It looks forward
// if by is 1, backward if by is -1.
func (d *life) neighbour(i, by int) (a arrival) {
	from := d.got[i].from
	for i += by; i >= 0 && i < len(d.got); i += by {
		if a := d.got[i]; a.from == from && a.seq != 0 {
			return a
		}
	}
	return a
}

// deliverShort finds the message of d.got[i], which has no number. It tries the message right
// behind the last number from this source. Then it tries those ahead of the next number.
// Otherwise it takes the last one sent of those that fit, because they are alike.
func (j *Judge) deliverShort(d *life, i int, short map[shortKey][]*message) {
	a := d.got[i]
	take := func(m *message) bool {
		if m == nil || m.at != nil || m.begun > a.at || m.failed || !m.has(book.FlagShort) || m.dst != d.addr || m.size != a.size || m.crc != a.crc {
			return false
		}
		m.at, m.receivedAt = d, a.at
		j.report.Delivered++
		return true
	}
	before, next := d.neighbour(i, -1), d.neighbour(i, 1)
	may := func(id uint32) *life {
		if a.life != 0 && a.life != id {
			return nil
		}
		return j.lives[id]
	}
	if s := may(before.life); s != nil && take(s.message(before.seq+1)) {
		return
	}
	if s := may(next.life); s != nil {
		least := uint64(0)
		if before.life == next.life {
			least = before.seq
		}
		for seq := next.seq; seq > least; seq-- {
			if take(s.message(seq)) {
				return
			}
		}
	}
	for _, m := range slices.Backward(short[shortKey{a.from, d.addr, a.size}]) {
		if (a.life == 0 || a.life == m.by) && take(m) {
			return
		}
	}
	j.violate(Violation{Rule: "twice", Life: d.id, Text: fmt.Sprintf("%v received %d bytes from %v that were not sent, or more often than they were", d, a.size, a.from)})
}
