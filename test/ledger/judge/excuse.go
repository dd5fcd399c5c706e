package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/test/ledger/book"
)

// Reasons for which a message need not arrive. With the first two the application knows that it
// did not.
const (
	counted     = "a notice counts it"
	hasStatus   = "its operation has a status"
	unread      = "its receiver ended with it unread"
	withdrawn   = "cancelled"
	senderEnded = "its sender ended"
	toldNobody  = "its sender ended before it can have been told"
)

// Excuses returns how many messages are excused without the application's knowledge. There are
// none if nothing ends and nothing is cancelled.
func (r *Report) Excuses() (n int) {
	for why, k := range r.Excused {
		if why != counted && why != hasStatus {
			n += k
		}
	}
	return n
}

// Shares returns which part of the messages did not arrive, by reason.
func (r *Report) Shares() string {
	var all []string
	for _, why := range slices.Sorted(maps.Keys(r.Excused)) {
		all = append(all, fmt.Sprintf("%.2f %% %s (%d)", 100*float64(r.Excused[why])/float64(max(r.Messages, 1)), why, r.Excused[why]))
	}
	return strings.Join(all, ", ")
}

// excuse returns why the sender need not be notified of the i-th message, which was accepted and
// not delivered. It returns "" if the sender must be notified.
func (j *Judge) excuse(f *flow, i int) string {
	s, m := f.s, f.msgs[i]
	status := m.statusOf()
	switch {
	case status != "" && status != "success":
		return hasStatus
	case !m.has(book.FlagRoll) && slices.ContainsFunc(f.there, func(d *life) bool { return f.mayHaveKept(d, i) }):
		return unread
	case status == "success":
		return "" // the message reached its target; the reasons below are for messages that did not
	case s.cancelled(m, f.acked[i]):
		return withdrawn
	case s.end.early == never || s.heardAll():
		return ""
	case f.acked[i] != never && f.acked[i]+noticeBound < s.end.early:
		return "" // it was in the receiver's queue, or the sender was notified
	case f.next[i] == never:
		return senderEnded
	// A later message was received. Only a sender that was notified of this one sends later
	// ones, or its operation failed while they waited behind it.
	case m.has(book.FlagLimit), j.released(m, f.next[i]), !f.held(j, i, f.next[i]), j.restarted(f.dst.Addr(), m.begun, f.next[i]):
		return toldNobody
	}
	return ""
}

// released reports whether Release of memory that an operation of m uses had been called by the time at.
func (j *Judge) released(m *message, at int64) bool {
	return slices.ContainsFunc(m.ops[:], func(o *operation) bool {
		if o == nil || j.regions[o.region] == nil {
			return false
		}
		r := j.regions[o.region].release
		return r != 0 && r <= at
	})
}

// mayHaveKept reports whether d may have had the i-th message in its queue when d ended. Three
// cases show that it had not. A socket that was there at the end has read everything. A socket
// that has read a later message of the flow has read this one before. And so has a socket that
// has read any message sent after this one was known to be in a queue.
func (f *flow) mayHaveKept(d *life, i int) bool {
	m := f.msgs[i]
	return !d.settled && d.end.early != never && m.begun <= d.end.late && f.last[d] < m.seq &&
		d.binding <= f.acked[i] && d.newest <= f.acked[i]
}
