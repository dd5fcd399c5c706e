package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/e2e/ledger/book"
)

// flow is what one socket sent to one address.
type flow struct {
	s    *life
	dst  netip.AddrPort
	msgs []*message
	last map[*life]uint64 // highest number that each socket there received
	most uint64           // highest number that anyone received
}

// flows of s, in the order of their first message.
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
			by[m.dst] = f
			all = append(all, f)
		}
		f.msgs = append(f.msgs, m)
		if m.at != nil {
			f.last[m.at] = max(f.last[m.at], m.seq)
			f.most = max(f.most, m.seq)
		}
	}
	return all
}

// judgeFlows: every accepted message was delivered, or its sender was told, or
// nobody can have been told. Nothing was both delivered and denied.
func (j *Judge) judgeFlows(s *life) {
	at := map[netip.AddrPort][]*life{}
	for _, d := range j.lives {
		at[d.addr] = append(at[d.addr], d)
	}
	folded := s.told[netip.AddrPort{}] // of several destinations, without an address
	for _, f := range s.flows() {
		var missing []*message
		open, limited := uint64(0), uint64(0) // not delivered; with a limit and without operations
		guessed := uint64(0)                  // excused, but another of its kind may be meant
		for _, m := range f.msgs {
			if m.at == nil || m.has(book.FlagShort) { // which of the short ones arrived is a guess
				open++
			}
			if m.has(book.FlagLimit) && !m.operates() {
				limited++
			}
			if !m.accepted() || !m.mayBeWaiting() {
				continue
			}
			if !j.excused(f, m, at[f.dst]) {
				missing = append(missing, m)
			} else if m.has(book.FlagShort) {
				guessed++
			}
		}
		t := told{}
		if n := s.told[f.dst]; n != nil {
			t = *n
		}
		if t.nosock > open {
			j.violate(Violation{Rule: "told and delivered", Life: s.id, Text: fmt.Sprintf("%v was told that %d messages to %v found no socket, but only %d were not delivered", s, t.nosock, f.dst, open)})
		}
		if t.gaveUp > limited {
			j.violate(Violation{Rule: "told and delivered", Life: s.id, Text: fmt.Sprintf("%v was told that %d messages to %v gave up, but only %d had a limit", s, t.gaveUp, f.dst, limited)})
		}
		budget := t.nosock + t.lost + t.gaveUp + guessed
		if folded != nil {
			budget += folded.nosock + folded.lost + folded.gaveUp
		}
		j.report.Excused["a notice counts it"] += int(min(budget, uint64(len(missing))))
		if n := uint64(len(missing)); n > budget {
			for _, m := range missing[:min(n-budget, 3)] {
				j.wrong("lost", s, m, "neither arrived nor was its sender told: %d such, %d told", n, budget)
			}
		}
	}
}

// excused reports whether m, accepted and not delivered, needs no notice.
func (j *Judge) excused(f *flow, m *message, there []*life) bool {
	why := j.excuse(f, m, there)
	if why != "" {
		j.report.Excused[why]++
	}
	return why != ""
}

func (j *Judge) excuse(f *flow, m *message, there []*life) string {
	s, status := f.s, m.statusOf()
	switch {
	case status != "" && status != "success":
		return "its operation has a status"
	// Some socket there may have had m in its queue when it ended. One that was
	// there at the end has read everything.
	case !m.has(book.FlagRoll) && slices.ContainsFunc(there, func(d *life) bool {
		return !d.settled && d.end.early != never && d.end.late >= m.begun && f.last[d] < m.seq
	}):
		return "its receiver ended"
	case status == "success":
		return "" // settled: what follows is about messages that never got there
	case s.cancelled(m):
		return "cancelled"
	case s.settled || s.end.early == never || s.waited:
		return ""
	case m.seq > f.most:
		return "its sender ended"
	case m.sent > s.end.early-noticeBound, j.disturbed(s.addr.Addr(), f.dst.Addr(), m.sent, s.end.early):
		return "its sender ended before it can have been told"
	}
	return ""
}
