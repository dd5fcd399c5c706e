package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/e2e/ledger/book"
)

// Reasons for which a message need not arrive. The first two are no want of
// knowledge: the application was told.
const (
	counted     = "a notice counts it"
	hasStatus   = "its operation has a status"
	unread      = "its receiver ended with it unread"
	withdrawn   = "cancelled"
	senderEnded = "its sender ended"
	toldNobody  = "its sender ended before it can have been told"
)

// Excuses are the reasons that nobody was told of. Where nothing ends and
// nothing is cancelled there are none.
func (r *Report) Excuses() (n int) {
	for why, k := range r.Excused {
		if why != counted && why != hasStatus {
			n += k
		}
	}
	return n
}

// Shares says which part of the messages did not arrive, by the reason.
func (r *Report) Shares() string {
	var all []string
	for _, why := range slices.Sorted(maps.Keys(r.Excused)) {
		all = append(all, fmt.Sprintf("%.2f %% %s (%d)", 100*float64(r.Excused[why])/float64(max(r.Messages, 1)), why, r.Excused[why]))
	}
	return strings.Join(all, ", ")
}

// excuse says why the i-th message, accepted and not delivered, needs no notice,
// "" if it does.
func (j *Judge) excuse(f *flow, i int) string {
	s, m := f.s, f.msgs[i]
	status := m.statusOf()
	switch {
	case status != "" && status != "success":
		return hasStatus
	case !m.has(book.FlagRoll) && slices.ContainsFunc(f.there, func(d *life) bool { return f.mayHaveKept(d, i) }):
		return unread
	case status == "success":
		return "" // settled: what follows is about messages that never got there
	case s.cancelled(m, f.acked[i]):
		return withdrawn
	case s.end.early == never || s.heardAll():
		return ""
	case f.acked[i] != never && f.acked[i]+noticeBound < s.end.early:
		return "" // in its queue, or told
	case f.next[i] == never:
		return senderEnded
	// A later one was received. Only who is told of a message goes on without it.
	case m.has(book.FlagLimit), !f.held(j, i, f.next[i]), j.restarted(f.dst.Addr(), m.begun, f.next[i]):
		return toldNobody
	}
	return ""
}

// mayHaveKept reports whether d may have had the i-th message in its queue when
// it ended. A socket that was there at the end has read everything; before a later
// message of the flow it has read this one; and before one that was sent when this
// one was known to be in a queue, whoever sent it.
func (f *flow) mayHaveKept(d *life, i int) bool {
	m := f.msgs[i]
	return !d.settled && d.end.early != never && m.begun <= d.end.late && f.last[d] < m.seq &&
		d.binding <= f.acked[i] && d.newest <= f.acked[i]
}
